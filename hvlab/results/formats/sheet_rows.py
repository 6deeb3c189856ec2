"""A table of a lab sheet filled row by row, with the figures of each backend or algorithm. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hvlab.results.formats.markdown import MarkdownTable, TableRow, plain
from hvlab.results.formats.sheet_words import Heads, environment_key, find_heads


@dataclass(frozen=True)
class SheetFigure:
    """A figure with its unit as a cell shows it; ``plain`` has the bare number by the unit a head names."""

    text: str
    plain: Mapping[str, str] = field(default_factory=dict)

    def under(self, unit: str | None) -> str:
        """Return what a cell shows under a head with this unit; with the figure's own where that differs."""
        return self.plain.get(unit, self.text) if unit else self.text


# A row's values by the names of the columns.
Values = Mapping[str, str | SheetFigure]


@dataclass(frozen=True)
class EmptyRow:
    """A row that has no figure in some ``columns``; ``group`` is None where its ``word`` is not known.

    ``number`` is that of the row in its table, ``place`` what the row gives of it.
    """

    number: int
    word: str
    group: str | None
    place: Mapping[str, str]
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Overwritten:
    """A figure that stood in a cell and no longer does: ``new`` is there now, nothing where its row went.

    ``line`` is its line in the filled text, ``head`` that of its column, or the name of its row.
    """

    line: int
    head: str
    old: str
    new: str


def overwritten(
    table: MarkdownTable, replaced: Mapping[int, Sequence[TableRow]], line: int
) -> Iterator[Overwritten]:
    """Yield the figures that stood in a table, whose first line will be ``line``, and are others now.

    ``replaced`` is what stands in the place of a row. Dots and dashes are no figures.
    """
    place = 0
    for number, row in enumerate(table.rows):
        new = replaced.get(number, [row])
        for column, head in _heads(row, table.rows).items():
            was, now = (
                each.cells[column].strip() if column < len(each.cells) else ""
                for each in (row, new[0] if new else row.like())
            )
            if re.search(r"\w", plain(was)) and plain(was) != plain(now):
                # The delimiter stands below the first row.
                yield Overwritten(line + place + (place > 0), head, was, now)
        place += len(new)


def _heads(row: TableRow, rows: Sequence[TableRow]) -> dict[int, str]:
    """Return the heads of a row's figures by their columns; in a table without heads, its name."""
    heads = find_heads(rows)
    if heads is None:
        key, at = environment_key(row)
        return {at + 1: row.cells[at].strip()} if key else {}
    names = {heads.layout.group, *heads.layout.place}
    columns = (column for name, column in heads.columns.items() if name not in names)
    return {column: rows[heads.row].cells[column].strip() for column in columns}


def filled_rows(
    rows: Sequence[TableRow],
    heads: Heads,
    measured: Sequence[Values],
    names: Mapping[str, str],
    *,
    added: Callable[[Values], bool] = lambda _: True,
) -> dict[int, list[TableRow]]:
    """Return what stands in the place of a row, by the row's number; rows that are not named stay.

    A row that gives its place gets the figures of that place, or stays as it is; the other rows of the group
    get what is left, in order, and more are ``added`` where that says so. ``names`` says how a group is
    written.
    """
    return _Table(rows, heads, names).filled(measured, added)


def empty_rows(rows: Sequence[TableRow], heads: Heads, names: Mapping[str, str]) -> Iterator[EmptyRow]:
    """Yield the rows of a table that name a group, or stand below its name, and lack figures."""
    return _Table(rows, heads, names).empty()


class _Table:
    """The rows of a table, and where its columns are."""

    def __init__(self, rows: Sequence[TableRow], heads: Heads, names: Mapping[str, str]) -> None:
        self.rows, self.heads, self.names = rows, heads, names
        self.layout, self.columns = heads.layout, heads.columns
        self.name_column = heads.columns[heads.layout.group]

    def filled(
        self, measured: Sequence[Values], added: Callable[[Values], bool]
    ) -> dict[int, list[TableRow]]:
        """Return what stands in the place of each row that changes."""
        new: dict[str, list[Values]] = {}
        for values in measured:
            new.setdefault(str(values[self.layout.group]), []).append(values)
        last, pattern = self._last_nameless(), self.rows[self.heads.row]
        filled: dict[int, list[TableRow]] = {}
        for name, blocks in self._groups().items():
            if blocks[-1][-1] > last:
                last, pattern = blocks[-1][-1], self._pattern(blocks)
            if name in new:
                filled |= self._group(blocks, new.pop(name), added)
        for name, several in new.items():
            more = [self._added(pattern, values) for values in several if added(values)]
            for row in range(len(more))[: 1 if self.layout.once else None]:
                more[row] = more[row].put({self.name_column: self.names.get(name, name)})
            filled[last] = [*filled.get(last, [self.rows[last]]), *more]
        return filled

    def empty(self) -> Iterator[EmptyRow]:
        """Yield the rows without some figures; what stands for other rows, and empty ones, are none."""
        figures = self.columns.keys() - {self.layout.group, *self.layout.place}
        groups = {
            number: name for name, blocks in self._groups().items() for block in blocks for number in block
        }
        for number, row in self._below():
            word = _word(row, self.name_column)
            missing = tuple(sorted(name for name in figures if not _word(row, self.columns[name])))
            if missing and not row.dots and (number in groups or word):
                written = self._name(row) or groups.get(number, "")
                yield EmptyRow(number, written, groups.get(number), self._given(row), missing)

    def _group(
        self,
        blocks: Sequence[Sequence[int]],
        measured: Sequence[Values],
        added: Callable[[Values], bool],
    ) -> dict[int, list[TableRow]]:
        """Return what stands in the place of one group's rows."""
        numbers = [number for block in blocks for number in block]
        filled = {number: list[TableRow]() for number in numbers}
        given = {number: self._given(self.rows[number]) for number in numbers if not self.rows[number].dots}
        left = [*measured]
        for number, place in sorted(given.items(), key=lambda item: len(item[1]) < len(self.layout.place)):
            values = next((values for values in left if _agrees(place, values)), None)
            if values is not None:
                left.remove(values)
                filled[number] = [self.rows[number].put(self._cells(values, place))]
            elif len(place) == len(self.layout.place) or not any(_agrees(place, each) for each in measured):
                filled[number] = [self.rows[number]]
        pattern = self._pattern(blocks)
        name = {} if self.layout.once else {self.name_column: self._name(pattern)}
        filled[numbers[-1]] += [self._added(pattern, values).put(name) for values in left if added(values)]
        for block in blocks:
            # Each block keeps its name, whichever of its rows is the first now.
            first = next((filled[number] for number in block if filled[number]), [])
            if first and not _word(first[0], self.name_column):
                first[0] = first[0].put({self.name_column: self._name(self.rows[block[0]])})
        return filled

    def _groups(self) -> dict[str, list[list[int]]]:
        """Return the blocks of each group's rows; dots and rows without a name belong to the one above."""
        written = {plain(label): name for name, label in self.names.items()}
        groups: dict[str, list[list[int]]] = {}
        name: str | None = None
        for number, row in self._below():
            word = _word(row, self.name_column)
            named = written.get(word) or self.layout.name(word)
            if named is not None and named != name:
                groups.setdefault(named, []).append([number])
                name = named
            elif name is not None and not row.empty and (named or row.dots or not word):
                groups[name][-1].append(number)
            elif word and not row.dots:
                name = None
        return groups

    def _last_nameless(self) -> int:
        """Return the number of the last row below the heads that stands before any name; else the heads'."""
        last = self.heads.row
        for number, row in self._below():
            if _word(row, self.name_column) and not row.dots:
                break
            last = last if row.empty else number
        return last

    def _below(self) -> list[tuple[int, TableRow]]:
        """Return the rows below the heads with their numbers."""
        return [*enumerate(self.rows)][self.heads.row + 1 :]

    def _given(self, row: TableRow) -> dict[str, str]:
        """Return the numbers of the place that a row gives."""
        words = {name: _word(row, self.columns.get(name, -1)) for name in self.layout.place}
        return {name: digits for name, word in words.items() if (digits := _number(word))}

    def _cells(self, values: Values, given: Mapping[str, str]) -> dict[int, str]:
        """Return the cells of a row by their columns, without the group's name.

        Words with which a row gives its place stay, but a number alone stands there alone.
        """
        units = self.heads.units
        return {
            self.columns[name]: value.under(units.get(name)) if isinstance(value, SheetFigure) else value
            for name, value in values.items()
            if name in self.columns and name != self.layout.group
            and (name not in given or (isinstance(value, str) and value.isdigit()))
        }  # fmt: skip

    def _added(self, pattern: TableRow, values: Values) -> TableRow:
        return pattern.like().put(self._cells(values, {}))

    def _pattern(self, blocks: Sequence[Sequence[int]]) -> TableRow:
        """Return the last row of a group that is more than dots."""
        rows = [self.rows[number] for block in blocks for number in block]
        return [row for row in rows if not row.dots][-1]

    def _name(self, row: TableRow) -> str:
        return row.cells[self.name_column].strip() if self.name_column < len(row.cells) else ""


def _word(row: TableRow, column: int) -> str:
    return row.words[column] if 0 <= column < len(row.cells) else ""


def _agrees(place: Mapping[str, str], values: Values) -> bool:
    return all(_number(str(values.get(name, ""))) == number for name, number in place.items())


def _number(text: str) -> str:
    """Return the one number in a text, empty where there is none or several."""
    digits = re.findall(r"\d+", text)
    return (digits[0].lstrip("0") or "0") if len(digits) == 1 else ""
