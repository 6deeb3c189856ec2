"""A lab sheet's table of speed-up, filled with the rows of a training. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from hvlab.formats.markdown import Row, Table, plain
from hvlab.formats.sheet_words import backend, head

Values = Mapping[str, str]
_PLACE = ("servers", "slots")


def scaling(table: Table, rows: Sequence[Values], names: Mapping[str, str]) -> dict[int, list[Row]]:
    """Return what stands in the place of a row, by the row's number; rows that are not named stay.

    A row that gives its servers and slots gets their figures, or stays as it is; the others get what is left,
    in order.
    """
    number, columns = head(table, "inside") or (0, {})
    column = columns["backend"]
    wanted: dict[str, list[Values]] = {}
    for values in rows:
        wanted.setdefault(values["backend"], []).append(values)
    found: dict[str, list[list[int]]] = {}
    for name, numbers in _groups(table.rows, number + 1, column, names):
        found.setdefault(name, []).append(numbers)
    made: dict[int, list[Row]] = {}
    last, pattern = _nameless(table.rows, number, column), table.rows[number].like()
    for name, groups in found.items():
        if groups[-1][-1] > last:
            last, pattern = groups[-1][-1], _last(table.rows, groups)
        if name in wanted:
            made |= _backend(table.rows, groups, wanted.pop(name), columns)
    for name, several in wanted.items():
        label = {column: names.get(name, name)}
        new = [pattern.like().put(label | cells(values, columns)) for values in several]
        made[last] = [*made.get(last, [table.rows[last]]), *new]
    return made


def cells(values: Values, columns: Mapping[str, int]) -> dict[int, str]:
    """Return the cells of a row, by their columns; the backend is left out."""
    return {columns[name]: text for name, text in values.items() if name in columns and name != "backend"}


def _groups(
    rows: Sequence[Row], start: int, column: int, names: Mapping[str, str]
) -> list[tuple[str, list[int]]]:
    """Return the numbers of each backend's rows; dots and rows without a name belong to the one above."""
    written = {plain(label): name for name, label in names.items()}
    groups: list[tuple[str, list[int]]] = []
    ended = True
    for number, row in enumerate(rows[start:], start):
        word = _word(row, column)
        name = written.get(word) or backend(word)
        if name is not None and (ended or groups[-1][0] != name):
            groups.append((name, [number]))
            ended = False
        elif not ended and not row.empty and (name or row.dots or not word):
            groups[-1][1].append(number)
        elif word and not row.dots:
            ended = True
    return groups


def _nameless(rows: Sequence[Row], number: int, column: int) -> int:
    """Return the number of the last row below the head that stands before any name; else the head's."""
    last = number
    for below, row in enumerate(rows[number + 1 :], number + 1):
        if _word(row, column) and not row.dots:
            break
        last = last if row.empty else below
    return last


def _backend(
    rows: Sequence[Row],
    groups: Sequence[Sequence[int]],
    figures: Sequence[Values],
    columns: Mapping[str, int],
) -> dict[int, list[Row]]:
    """Return what stands in the place of one backend's rows."""
    column, numbers = columns["backend"], [number for group in groups for number in group]
    asked = {number: _asked(rows[number], columns) for number in numbers if not rows[number].dots}
    left, made = [*figures], {number: list[Row]() for number in numbers}
    for number, place in sorted(asked.items(), key=lambda item: len(item[1]) < len(_PLACE)):
        values = next((values for values in left if _agrees(place, values)), None)
        if values is not None:
            left.remove(values)
            made[number] = [rows[number].put(cells(values, columns))]
        elif len(place) == len(_PLACE) or not any(_agrees(place, values) for values in figures):
            made[number] = [rows[number]]
    for group in groups:
        first = next((number for number in group if made[number]), group[0])
        if made[first] and not _word(rows[first], column):
            made[first] = [made[first][0].put({column: rows[group[0]].cells[column].strip()})]
    more = _last(rows, groups)
    name = {column: more.cells[column].strip()} if column < len(more.cells) else {}
    made[numbers[-1]] += [more.like().put(name | cells(values, columns)) for values in left]
    return made


def _asked(row: Row, columns: Mapping[str, int]) -> dict[str, str]:
    """Return the numbers of servers and slots that a row gives."""
    found = {}
    for name in _PLACE:
        digits = re.findall(r"\d+", _word(row, columns[name])) if name in columns else []
        if len(digits) == 1:
            found[name] = digits[0].lstrip("0") or "0"
    return found


def _agrees(place: Values, values: Values) -> bool:
    return all(values.get(name) == number for name, number in place.items())


def _last(rows: Sequence[Row], groups: Sequence[Sequence[int]]) -> Row:
    return [rows[number] for group in groups for number in group if not rows[number].dots][-1]


def _word(row: Row, column: int) -> str:
    return row.words[column] if column < len(row.cells) else ""
