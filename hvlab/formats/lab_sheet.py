"""The tables of a lab sheet, found by the words in their heads and filled where they stand. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hvlab.formats import markdown
from hvlab.formats.markdown import Row, Table, plain
from hvlab.formats.sheet_words import KINDS, Kind, algorithm, backend, environment_key, head, kinds


@dataclass(frozen=True)
class Sheet:
    """What is known, as Markdown that fits a cell.

    ``environment`` is by the rows' keys (sheet_words.ENVIRONMENT). A row of ``inside`` and ``across`` has the
    keys of the heads (sheet_words.SCALING), and ``names`` says how a backend is written. A row of
    ``compression`` has algorithm (serial, none, 8bit, naive8, fp16, bf16), devices (a number as text, empty
    for serial), time, accuracy, and label and devices_label for a row that has to be added.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    inside: Sequence[Mapping[str, str]] = ()
    across: Sequence[Mapping[str, str]] = ()
    compression: Sequence[Mapping[str, str]] = ()
    names: Mapping[str, str] = field(default_factory=dict)

    def known(self) -> list[Kind]:
        """Return the tables there is something for."""
        return [kind for kind in KINDS if getattr(self, kind)]


@dataclass(frozen=True)
class Filled:
    """The text with its tables filled; ``missing`` are tables there is something for that it lacks."""

    text: str
    tables: tuple[Kind, ...]
    missing: tuple[Kind, ...]


def fill(text: str, sheet: Sheet) -> Filled:
    """Return the text with every known table filled, everything else as it was."""
    page = markdown.lines(text)
    found = list(markdown.tables(page))
    each = kinds(found)
    for table, kind in reversed([*zip(found, each, strict=True)]):
        if kind is not None and getattr(sheet, kind):
            made = _filled(table, kind, sheet)
            page[table.start : table.end] = _lines(page, table, made)
    done = tuple(kind for kind in sheet.known() if kind in each)
    missing = tuple(kind for kind in sheet.known() if kind not in each)
    return Filled("".join(page), done, missing)


def _filled(table: Table, kind: Kind, sheet: Sheet) -> dict[int, list[Row]]:
    """Return what stands in the place of a row, by the row's number; rows that are not named stay."""
    if kind == "environment":
        return _environment(table, sheet.environment)
    if kind == "compression":
        return _compression(table, sheet.compression)
    return _scaling(table, getattr(sheet, kind), sheet.names)


def _lines(page: Sequence[str], table: Table, made: Mapping[int, list[Row]]) -> list[str]:
    lines: list[str] = []
    rows = [made.get(number, [row]) for number, row in enumerate(table.rows)]
    # The delimiter stands after the first row, whatever was added to that.
    first, *more = rows[0]
    lines += [first.line, page[table.start + 1], *(row.line for row in more)]
    lines += [row.line for each in rows[1:] for row in each]
    if table.end == len(page) and not page[-1].endswith("\n"):
        # The text's last line has no end, and so it is afterwards.
        end = "\r\n" if page[0].endswith("\r\n") else "\n"
        lines = [line if line.endswith("\n") else f"{line}{end}" for line in lines]
        lines[-1] = lines[-1].removesuffix("\n").removesuffix("\r")
    return lines


def _environment(table: Table, values: Mapping[str, str]) -> dict[int, list[Row]]:
    made = {}
    for number, row in enumerate(table.rows):
        name, place = environment_key(row)
        if name is not None and name in values:
            made[number] = [row.put({place + 1: values[name]})]
    return made


def _scaling(
    table: Table, rows: Sequence[Mapping[str, str]], names: Mapping[str, str]
) -> dict[int, list[Row]]:
    number, columns = head(table, "inside") or (0, {})
    column = columns["backend"]
    wanted: dict[str, list[Mapping[str, str]]] = {}
    for values in rows:
        wanted.setdefault(values["backend"], []).append(values)
    made: dict[int, list[Row]] = {}
    last, pattern = number, table.rows[number].like()
    for name, numbers in _groups(table.rows, number + 1, column, names):
        said = [table.rows[each] for each in numbers if not table.rows[each].dots]
        last, pattern = numbers[-1], said[-1]
        if name in wanted:
            new = [
                (said[place] if place < len(said) else _again(pattern, column)).put(_cells(values, columns))
                for place, values in enumerate(wanted.pop(name))
            ]
            made |= {each: [] for each in numbers} | {numbers[0]: new}
    for name, several in wanted.items():
        label = {column: names.get(name, name)}
        new = [pattern.like().put(label | _cells(values, columns)) for values in several]
        made[last] = [*made.get(last, [table.rows[last]]), *new]
    return made


def _groups(
    rows: Sequence[Row], start: int, column: int, names: Mapping[str, str]
) -> list[tuple[str, list[int]]]:
    """Return the numbers of each backend's rows; dots and rows without a name belong to the one above."""
    written = {plain(label): name for name, label in names.items()}
    groups: list[tuple[str, list[int]]] = []
    for number, row in enumerate(rows[start:], start):
        word = row.words[column] if column < len(row.words) else ""
        name = written.get(word) or backend(word)
        if name is not None and (not groups or groups[-1][0] != name):
            groups.append((name, [number]))
        elif groups and not row.empty and (name or row.dots or not word):
            groups[-1][1].append(number)
    return groups


def _again(row: Row, column: int) -> Row:
    """Return a row for more of the same backend: empty but for its name."""
    return row.like().put({column: row.cells[column].strip()})


def _cells(values: Mapping[str, str], columns: Mapping[str, int]) -> dict[int, str]:
    return {columns[name]: text for name, text in values.items() if name in columns and name != "backend"}


def _compression(table: Table, rows: Sequence[Mapping[str, str]]) -> dict[int, list[Row]]:
    number, columns = head(table, "compression") or (0, {})
    columns.setdefault("devices", columns["algorithm"] + 1)
    places = _places(table.rows, number + 1, columns)
    wanted: dict[tuple[str, str], Mapping[str, str]] = {}
    for values in rows:
        wanted.setdefault((values["algorithm"], values["devices"]), values)
    made = {
        place: [table.rows[place].put(_cells(_figures(wanted.pop(key)), columns))]
        for key, place in places.items()
        if key in wanted
    }
    last = {name: place for (name, _), place in places.items()}
    end, named = max([number, *places.values()]), set(last)
    # More devices of an algorithm that is there stand below it, before any other algorithm is added.
    for name, devices in sorted(wanted, key=lambda key: key[0] not in last):
        values, place = wanted[name, devices], last.get(name, end)
        told = {columns["devices"]: values["devices_label"]}
        if name not in named:
            told[columns["algorithm"]] = values["label"]
            named.add(name)
        more = table.rows[place].like().put(told | _cells(_figures(values), columns))
        made[place] = [*made.get(place, [table.rows[place]]), more]
    return made


def _figures(values: Mapping[str, str]) -> dict[str, str]:
    return {name: values[name] for name in ("time", "accuracy") if name in values}


def _places(rows: Sequence[Row], start: int, columns: Mapping[str, int]) -> dict[tuple[str, str], int]:
    """Return the number of the row of each algorithm and number of devices."""
    found: dict[tuple[str, str], int] = {}
    name: str | None = None
    for number, row in enumerate(rows[start:], start):
        if row.empty or len(row.cells) <= max(columns.values()):
            continue
        if row.words[columns["algorithm"]]:
            name = algorithm(row.cells[columns["algorithm"]])
        digits = re.search(r"\d+", row.words[columns["devices"]])
        if name is not None:
            found.setdefault((name, digits.group(0) if digits else ""), number)
    return found
