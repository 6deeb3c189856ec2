"""The tables of a lab sheet, known by the words around them and filled where they stand. Pure."""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from hvlab.results.formats import markdown
from hvlab.results.formats.markdown import MarkdownTable, TableRow
from hvlab.results.formats.sheet_rows import (
    EmptyRow,
    Overwritten,
    Values,
    empty_rows,
    filled_rows,
    overwritten,
)
from hvlab.results.formats.sheet_tasks import TaskKind, answered, given_answers, without_answers
from hvlab.results.formats.sheet_words import COMPRESSION, KINDS, Kind, environment_key, find_heads, where

# So many rows of a table make it that of the environment.
_ENOUGH_KEYS = 3


@dataclass(frozen=True)
class SheetTraining:
    """A training of a run: the words it is called by, and its rows for each kind of table.

    The values of a row are by the columns of its table (sheet_words.SPEEDUP, COMPRESSION), as Markdown that
    fits a cell. Those of one server fill a row of a table across servers, where it is there; none is added.
    """

    words: tuple[str, ...]
    inside: Sequence[Values] = ()
    across: Sequence[Values] = ()
    compression: Sequence[Values] = ()


@dataclass(frozen=True)
class Sheet:
    """What is known, as Markdown that fits a cell.

    ``environment`` is by the rows' keys (sheet_words.ENVIRONMENT); ``inside``, ``across`` and ``compression``
    are rows as a SheetTraining has them. ``names`` and ``algorithms`` say how a backend and an algorithm are
    written. A table under text that names one of the ``trainings`` gets that one's rows. ``analyses`` are
    the paragraphs below tasks that ask for an analysis.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    inside: Sequence[Values] = ()
    across: Sequence[Values] = ()
    compression: Sequence[Values] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    algorithms: Mapping[str, str] = field(default_factory=dict)
    trainings: Sequence[SheetTraining] = ()
    analyses: Mapping[TaskKind, Sequence[str]] = field(default_factory=dict)

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
class Empty:
    """A row without figures, or a task without an answer, at a line of the filled text.

    ``row`` is None for a task, whose kind is that of the task.
    """

    line: int
    kind: Kind | TaskKind
    row: EmptyRow | None = None


@dataclass(frozen=True)
class Filled:
    """The text with its tables filled; ``missing`` are tables there is something for that it lacks.

    ``answers`` are the kinds of the tasks that were answered, ``empty`` is what was left without a figure or
    an answer, ``overwritten`` are figures that stood in the sheet before and were others.
    """

    text: str
    tables: tuple[Kind, ...]
    missing: tuple[Kind, ...]
    left: tuple[Left, ...] = ()
    answers: tuple[TaskKind, ...] = ()
    empty: tuple[Empty, ...] = ()
    overwritten: tuple[Overwritten, ...] = ()


def fill(text: str, sheet: Sheet) -> Filled:
    """Return the text with every known table filled and every task answered, all else as it was.

    Answers of an earlier filling are replaced where the sheet's ``analyses`` have one. Raises UsageError
    where the end of such an answer is not there.
    """
    kinds = [kind for kind, paragraphs in sheet.analyses.items() if paragraphs]
    filled = _with_tables(without_answers(markdown.lines(text), kinds), sheet)
    if not filled.tables:
        return dataclasses.replace(filled, text=text)
    page = markdown.lines(filled.text)
    answers = answered(page, _below_tables(page), sheet.analyses)
    empty = (*_empty_rows(answers.lines, sheet), *(Empty(line, kind) for line, kind in answers.left))
    moved = _moved(page, answers.lines)
    return dataclasses.replace(
        filled,
        text="".join(answers.lines),
        left=tuple(dataclasses.replace(each, line=moved(each.line)) for each in filled.left),
        answers=answers.kinds,
        empty=tuple(sorted(empty, key=lambda each: each.line)),
        overwritten=tuple(dataclasses.replace(each, line=moved(each.line)) for each in filled.overwritten),
    )


def _below_tables(page: Sequence[str]) -> list[int]:
    """Return the numbers of the lines of text below the first table of figures."""
    tables = [*_tables(page)]
    first = next((table.end for table in tables if find_heads(table.rows)), len(page))
    taken = {number for table in tables for number in range(table.start, table.end)}
    taken |= {number for each in given_answers(page) for number in range(each.start, each.end)}
    taken |= markdown.code_lines(page)
    return [number for number in range(first, len(page)) if number not in taken]


def _empty_rows(page: Sequence[str], sheet: Sheet) -> Iterator[Empty]:
    before: list[Kind] = []
    for table in _tables(page):
        kind, heads = _kind(table, before), find_heads(table.rows)
        before += [kind] if kind else []
        if kind and heads:
            names = sheet.algorithms if kind == "compression" else sheet.names
            for row in empty_rows(table.rows, heads, names):
                yield Empty(table.start + row.number + (2 if row.number else 1), kind, row)


def _moved(page: Sequence[str], lines: Sequence[str]) -> Callable[[int], int]:
    """Return what says where a line of a table, from 1, is in the text that has the answers too."""
    before, after = ([table.start for table in _tables(text)] for text in (page, lines))
    by = [new - old for old, new in zip(before, after, strict=True)]
    return lambda line: line + by[bisect_right(before, line - 1) - 1]


def _with_tables(page: Sequence[str], sheet: Sheet) -> Filled:
    """Return the text with every known table filled, everything else as it was."""
    known = sheet.known()
    lines: list[str] = []
    present: set[Kind] = set()
    filled: set[Kind] = set()
    left: list[Left] = []
    lost: list[Overwritten] = []
    end = 0
    for table, kind, owner in _owners(_tables(page), sheet):
        lines += page[end : table.start]
        end = table.end
        present.add(kind)
        if getattr(owner, kind, ()):
            replaced = _replaced(table, kind, owner or sheet, sheet)
            lost += overwritten(table, replaced, len(lines) + 1)
            lines += _lines(page, table, replaced)
            filled.add(kind)
            continue
        if kind in known:
            names = (training.words[-1] for training in sheet.trainings if getattr(training, kind))
            left.append(Left(len(lines) + 1, kind, tuple(names)))
        lines += page[table.start : table.end]
    return Filled(
        "".join([*lines, *page[end:]]),
        tables=tuple(kind for kind in known if kind in filled),
        missing=tuple(kind for kind in known if kind not in present and _belongs(kind, sheet)),
        left=tuple(left),
        overwritten=tuple(lost),
    )


def _added(kind: Kind, values: Values) -> bool:
    """Return whether a row is added to a table that does not ask for it: one server is none of several."""
    return kind != "across" or values.get("servers") != "1"


def _belongs(kind: Kind, sheet: Sheet) -> bool:
    """Return whether a sheet ought to have a table of that kind: there are rows that would be added."""
    rows = [values for each in (sheet, *sheet.trainings) for values in getattr(each, kind, ())]
    return kind != "across" or any(_added(kind, values) for values in rows)


def _tables(page: Sequence[str]) -> Iterator[MarkdownTable]:
    """Return the tables of a sheet; answers do not count as text above them."""
    given = {number for each in given_answers(page) for number in range(each.start, each.end)}
    return markdown.tables(["\n" if number in given else line for number, line in enumerate(page)])


def training_named(lines: Iterable[str], trainings: Sequence[SheetTraining]) -> int | None:
    """Return the number of the training that a line names, the first line that names exactly one.

    A name without its number, ResNet for resnet50, is enough where no other training is called so.
    """
    for line in lines:
        text = unicodedata.normalize("NFKC", line).casefold()
        counts = [sum(_names(word, text) for word in training.words) for training in trainings]
        most = max(counts, default=0)
        if most and counts.count(most) == 1:
            return counts.index(most)
    return None


def _names(word: str, text: str) -> bool:
    parts = re.findall(r"[^\W\d_]+|\d+", word.casefold())
    if not parts:
        return False
    patterns = [r"[\s_-]*".join(map(re.escape, parts)) + r"(?![a-z0-9])"]
    if len(parts) > 1 and parts[-1].isdigit():
        patterns.append(r"[\s_-]*".join(map(re.escape, parts[:-1])) + r"(?![a-z]|[\s_-]*\d)")
    return any(re.search(rf"(?<![a-z0-9]){pattern}", text) for pattern in patterns)


def _owners(
    tables: Iterable[MarkdownTable], sheet: Sheet
) -> Iterator[tuple[MarkdownTable, Kind, Sheet | SheetTraining | None]]:
    """Yield the tables of a lab sheet, what each is, and whose rows it gets; None: it stays as it is.

    The rows are those of the training that the table's own text names; else of the one that a heading over
    several tables names, once for each kind; else, for the first of its kind, the sheet's own.
    """
    before: list[tuple[Kind, int | None]] = []
    for table in tables:
        own = training_named(table.above, sheet.trainings)
        number = training_named(table.headings, sheet.trainings) if own is None else own
        kind = _kind(table, [kind for kind, other in before if number is None or other in (number, None)])
        if kind is None:
            continue
        if kind == "environment" or (number is None and kind not in (other for other, _ in before)):
            yield table, kind, sheet
        elif number is None or (own is None and (kind, number) in before):
            yield table, kind, None
        else:
            yield table, kind, sheet.trainings[number]
        before.append((kind, number))


def _kind(table: MarkdownTable, before: Sequence[Kind]) -> Kind | None:
    """Return what a table is; ``before`` are the tables before it that may be of the same training.

    The first of two tables of speed-up is that inside one server.
    """
    heads = find_heads(table.rows)
    if heads is None:
        keys = {environment_key(row)[0] for row in table.rows} - {None}
        return "environment" if len(keys) >= _ENOUGH_KEYS else None
    if heads.layout is COMPRESSION:
        return "compression"
    over = (kind for heading in table.headings if (kind := where(heading)) and kind not in before)
    guess: Kind = "across" if "inside" in before else "inside"
    return where(table.title) or next(over, guess)


def _replaced(
    table: MarkdownTable, kind: Kind, owner: Sheet | SheetTraining, sheet: Sheet
) -> dict[int, list[TableRow]]:
    """Return what stands in the place of a row, by the row's number; the others stay."""
    heads = find_heads(table.rows)
    if heads is not None:
        names = sheet.algorithms if kind == "compression" else sheet.names
        return filled_rows(table.rows, heads, getattr(owner, kind), names, added=partial(_added, kind))
    replaced = {}
    for number, row in enumerate(table.rows):
        key, place = environment_key(row)
        if key is not None and key in sheet.environment:
            replaced[number] = [row.put({place + 1: sheet.environment[key]})]
    return replaced


def _lines(page: Sequence[str], table: MarkdownTable, replaced: Mapping[int, list[TableRow]]) -> list[str]:
    """Return the lines of a table with its rows replaced."""
    (first, *more), *others = [replaced.get(number, [row]) for number, row in enumerate(table.rows)]
    # The delimiter stands after the first row, whatever was added to that.
    lines = [first.line, page[table.start + 1], *(row.line for row in more)]
    lines += [row.line for rows in others for row in rows]
    if table.end == len(page) and not page[-1].endswith("\n"):
        # The text's last line has no end, and so it is afterwards.
        end = "\r\n" if page[0].endswith("\r\n") else "\n"
        lines = [line if line.endswith("\n") else f"{line}{end}" for line in lines]
        lines[-1] = lines[-1].removesuffix("\n").removesuffix("\r")
    return lines
