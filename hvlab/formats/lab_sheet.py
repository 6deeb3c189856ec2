"""The tables of a lab sheet, found by the words in their heads and filled where they stand. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hvlab.formats import markdown, sheet_names
from hvlab.formats.markdown import Row, Table
from hvlab.formats.sheet_names import Training
from hvlab.formats.sheet_scaling import cells, scaling
from hvlab.formats.sheet_words import KINDS, Kind, algorithm, environment_key, head, kinds


@dataclass(frozen=True)
class Sheet:
    """What is known, as Markdown that fits a cell.

    ``environment`` is by the rows' keys (sheet_words.ENVIRONMENT). A row of ``inside`` and ``across`` has the
    keys of the heads (sheet_words.SCALING), and ``names`` says how a backend is written. A row of
    ``compression`` has algorithm (serial, none, 8bit, naive8, fp16, bf16), devices (a number as text, empty
    for serial), time, accuracy, and label and devices_label for a row that has to be added.
    A table under text that names one of the ``trainings`` gets that one's rows.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    inside: Sequence[Mapping[str, str]] = ()
    across: Sequence[Mapping[str, str]] = ()
    compression: Sequence[Mapping[str, str]] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    trainings: Sequence[Training] = ()

    def known(self) -> list[Kind]:
        """Return the tables there is something for."""
        return [kind for kind in KINDS if any(getattr(each, kind, ()) for each in (self, *self.trainings))]


@dataclass(frozen=True)
class Left:
    """A table that was not touched: it is not the first of its kind, and the text above it names no training.

    ``line`` is its first line in the filled text, ``trainings`` names those that have rows for it.
    """

    line: int
    kind: Kind
    trainings: tuple[str, ...]


@dataclass(frozen=True)
class Filled:
    """The text with its tables filled; ``missing`` are tables there is something for that it lacks."""

    text: str
    tables: tuple[Kind, ...]
    missing: tuple[Kind, ...]
    left: tuple[Left, ...] = ()


def fill(text: str, sheet: Sheet) -> Filled:
    """Return the text with every known table filled, everything else as it was."""
    page = markdown.lines(text)
    found = list(markdown.tables(page))
    own = [sheet_names.named(table.above, sheet.trainings) for table in found]
    over = [sheet_names.named(table.headings, sheet.trainings) for table in found]
    each = kinds(found, [at if at is not None else above for at, above in zip(own, over, strict=True)])
    chosen = _chosen(each, own, over, sheet)
    done: set[Kind] = set()
    left: list[tuple[int, Kind]] = []
    longer: dict[int, int] = {}
    for table, kind, rows in reversed([*zip(found, each, chosen, strict=True)]):
        if kind is None:
            continue
        if rows is not None and getattr(rows, kind):
            made = _filled(table, kind, rows, sheet)
            lines = _lines(page, table, made)
            longer[table.start] = len(lines) - (table.end - table.start)
            page[table.start : table.end] = lines
            done.add(kind)
        elif kind in sheet.known():
            left.append((table.start, kind))
    known = sheet.known()
    return Filled(
        "".join(page),
        tables=tuple(kind for kind in known if kind in done),
        missing=tuple(kind for kind in known if kind not in each),
        left=tuple(
            Left(
                start + 1 + sum(more for at, more in longer.items() if at < start),
                kind,
                tuple(training.words[-1] for training in sheet.trainings if getattr(training, kind)),
            )
            for start, kind in reversed(left)
        ),
    )


def _chosen(
    each: Sequence[Kind | None], own: Sequence[int | None], over: Sequence[int | None], sheet: Sheet
) -> list[Sheet | Training | None]:
    """Return whose rows each table gets.

    That is the training that its own text names; else the one that a heading over several tables names, once
    for each kind; else, for the first of its kind, what the sheet has.
    """
    chosen: list[Sheet | Training | None] = []
    seen: set[tuple[Kind | None, int | None]] = set()
    for at, (kind, name, above) in enumerate(zip(each, own, over, strict=True)):
        number = above if name is None else name
        if kind == "environment" or (number is None and kind not in each[:at]):
            chosen.append(sheet)
        elif number is None or (name is None and (kind, number) in seen):
            chosen.append(None)
        else:
            chosen.append(sheet.trainings[number])
        seen.add((kind, number))
    return chosen


def _filled(table: Table, kind: Kind, rows: Sheet | Training, sheet: Sheet) -> dict[int, list[Row]]:
    """Return what stands in the place of a row, by the row's number; rows that are not named stay."""
    if kind == "environment":
        return _environment(table, sheet.environment)
    if kind == "compression":
        return _compression(table, rows.compression)
    return scaling(table, getattr(rows, kind), sheet.names)


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


def _compression(table: Table, rows: Sequence[Mapping[str, str]]) -> dict[int, list[Row]]:
    number, columns = head(table, "compression") or (0, {})
    columns.setdefault("devices", columns["algorithm"] + 1)
    places = _places(table.rows, number + 1, columns)
    wanted: dict[tuple[str, str], Mapping[str, str]] = {}
    for values in rows:
        wanted.setdefault((values["algorithm"], values["devices"]), values)
    made = {
        place: [table.rows[place].put(cells(_figures(wanted.pop(key)), columns))]
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
        more = table.rows[place].like().put(told | cells(_figures(values), columns))
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
