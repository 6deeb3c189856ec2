"""A lab sheet in Markdown: tables and tasks are recognised by their words and filled in place. Pure.

Everything else stays as it is, byte for byte. Figures, environment and answers of another run are removed.
"""

from __future__ import annotations

import html
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from hvlab.base.errors import UsageError
from hvlab.base.groups import grouped
from hvlab.base.paths import project_dir
from hvlab.base.yaml_files import read_shipped

_ENVIRONMENT_ROWS = 3
# A sheet is Chinese if more than one in this many characters is: a name alone is not enough.
_CHINESE = 50
_BEFORE = re.compile(r"\s*(?:>\s*)*\|?")
_PIPE = re.compile(r"(?<!\\)\|")
_DELIMITER = re.compile(r"\s*:?-+:?\s*")
_FENCE = re.compile(r"\s*(?:>\s*)*(?P<mark>`{3,}|~{3,})")
_HEADING = re.compile(r"\s*(?:>\s*)*(#{1,6})(?!#)")
# A paragraph is deeper than any heading.
_PARAGRAPH = 7
_DOTS = re.compile(r"[.…⋮·。]+")
_NO_FIGURE = ".…-–—"
_UNIT = (
    r"[(\[]\s*([^()\[\]]+?)\s*[)\]]", r"(\S+/\S+)\s*$", r"[/,:]\s*([^\s/,:]+)\s*$", r"\bin\s+(\S+)\s*$",
)  # fmt: skip
_ITEM = re.compile(r"(?P<before>\s*)(?P<mark>[-*+]|\d+[.)])\s+")
# These begin a paragraph without an empty line above: list items and headings.
_OWN = re.compile(r"\s*(?:>\s*)*(?:(?:[-*+]|\d+[.)])\s|#{1,6})")
_END = "<!-- hvlab: end -->"
_MARK = re.compile(rf"<!-- hvlab: (\w[\w ]*), replaced by each --fill -->|{_END}")
_ANSWER = re.compile(
    rf"^[ \t]*<!-- hvlab: [^\n]*, replaced by each --fill -->\r?\n.*?{_END}[ \t]*\r?\n?(?:[ \t]*\r?\n)?",
    re.M | re.S,
)
_NO_ANSWER = {
    "backends": "no training ran on several ranks",
    "models": "it takes two models, each trained on several ranks, with `--suite lab7`",
    "compression": "no two compressions were measured",
}

# A figure as a cell shows it, by the unit that its column's head names; "" where it names none.
Figure = Mapping[str, str]
Values = Mapping[str, str | Figure]


@dataclass(frozen=True)
class SheetTraining:
    """The names of a training, and its rows by the kind of table: inside, across, compression."""

    words: tuple[str, ...]
    rows: Mapping[str, Sequence[Values]]


@dataclass(frozen=True)
class Content:
    """The content for a sheet, as Markdown that fits a cell.

    ``names`` are the written names of backends and algorithms, ``answer`` returns the paragraphs for a task,
    ``settings`` are the training's by name, ``why`` the reason why a row stays empty. ``signature`` goes into
    the sheet's blanks, the rest below its title as ``signed`` writes it. If the text names no training, a
    table gets the rows of the first with some.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    trainings: Sequence[SheetTraining] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    answer: Callable[[str], Sequence[str]] = lambda _: ()
    settings: Mapping[str, str] = field(default_factory=dict)
    signature: Mapping[str, str] = field(default_factory=dict)
    signed: Callable[[str, str], str] = "{}: {}".format
    why: Callable[[str, str | None, Mapping[str, str]], str] = lambda *_: "not measured"


@dataclass(frozen=True)
class Filled:
    """The filled text, the kinds of its tables, the tasks answered, and messages with their lines.

    ``figures`` counts the rows that the sheet asks for and that got figures.
    """

    text: str
    figures: int
    tables: tuple[str, ...]
    answered: tuple[str, ...]
    notes: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class _Row:
    before: str
    cells: tuple[str, ...]
    after: str

    @property
    def line(self) -> str:
        return f"{self.before}{'|'.join(self.cells)}{self.after}"

    @property
    def words(self) -> list[str]:
        return [*map(to_plain, self.cells)]

    @property
    def dots(self) -> bool:
        """The row stands for further ones."""
        return bool(_DOTS.fullmatch(next(filter(None, self.words), "")))

    def cell_text(self, column: int) -> str:
        return self.cells[column].strip() if 0 <= column < len(self.cells) else ""

    def put(self, values: Mapping[int, str]) -> _Row:
        """Return the row with these cells; wide enough cells keep their width."""
        cells = [*self.cells, *[""] * (max(values, default=0) + 1 - len(self.cells))]
        for place, value in values.items():
            width = 0 if "&nbsp;" in cells[place] else len(cells[place])
            if cells[place].strip(" ") != value:
                cells[place] = f" {value} ".ljust(width)
        return replace(self, cells=tuple(cells))


@dataclass(frozen=True)
class _Table:
    """A table from line ``start`` to before ``end``, its rows without the delimiter.

    ``above`` are the lines about it alone, ``headings`` those of its sections, nearest first.
    """

    start: int
    end: int
    rows: tuple[_Row, ...]
    above: tuple[str, ...]
    headings: tuple[str, ...]

    @property
    def asks(self) -> bool:
        """Whether it asks for figures of backends."""
        backend = vocabulary()["tables"]["speedup"]["heads"]["backend"]
        named = any(re.search(backend, word) for word in self.rows[0].words)
        return named and any("" in row.words for row in self.rows[1:])


@dataclass(frozen=True)
class _Heads:
    """The header of a table of figures: its row, the columns, and the units in some."""

    name: str
    row: int
    columns: Mapping[str, int]
    units: Mapping[str, str]
    group: str
    place: Sequence[str]


@cache
def vocabulary() -> dict[str, Any]:
    """Return the words that identify parts of sheets."""
    return dict(read_shipped(project_dir() / "templates/sheet/headings.yml"))


def signature_name(word: str) -> str | None:
    """Return the part of a signature that a word names in any language."""
    return _match_first(vocabulary()["signature"], _fold(word.strip()), re.fullmatch)


def language(text: str) -> str:
    """Return the language of a sheet: zh or en."""
    return "zh" if len(re.findall(r"[\u4e00-\u9fff]", text)) * _CHINESE > len(text) else "en"


def fill_in(text: str, content: Content) -> Filled:
    """Return the text with its tables filled and its tasks answered from one run.

    Raises UsageError if an answer of an earlier filling has no end.
    """
    end = "\r\n" if "\r\n" in text else "\n"
    page = _lines(_sign(_drop_answers(text), content, end))
    owned = {table.start: (table, kind, training) for table, kind, training in _owners(page, content)}
    settings = content.settings
    tasks = _tasks(page, settings)
    unknown = {table.start for table in _tables(page) if table.start not in owned and table.asks}
    out: list[str] = []
    notes: list[tuple[int, str]] = []
    answered: list[str] = []
    figures = number = 0
    mixed = False
    while number < len(page):
        if number in owned:
            table, kind, training = owned[number]
            filling = _Filling(table, kind, training, content, len(out) + 1)
            rows = [row.line if row.line.endswith("\n") else row.line + end for row in filling.rows]
            out += [rows[0], page[number + 1], *rows[1:]]
            if table.end == len(page) and not page[-1].endswith("\n"):
                out[-1] = out[-1].rstrip("\r\n")
            notes += filling.notes
            figures, number, mixed = figures + filling.count, table.end, mixed or filling.mixed
            continue
        out.append(page[number])
        moved = len(out) - number
        if number in unknown:
            notes.append((len(out), "hvlab fills no such table; `hvlab results show` prints all figures"))
        for line, kind in tasks.get(number, ()):
            answer = () if kind in answered else content.answer(kind)
            if kind in settings:
                notes.append((line + moved, f"{page[line].strip()!r}, but this run's is {settings[kind]}"))
            elif not answer:
                outcome = "is answered above" if kind in answered else f"has no answer: {_NO_ANSWER[kind]}"
                notes.append((line + moved, f"a task about {kind} {outcome}"))
            if answer:
                out[-1] += "" if out[-1].endswith("\n") else end
                out += _block(f"analysis of {kind}", answer, page[line], end)
                answered.append(kind)
        number += 1
    tables = tuple(dict.fromkeys(kind for _, kind, _ in owned.values()))
    rows_of = [item for one in content.trainings for item in one.rows.items()]
    known_kinds = (kind for kind, rows in rows_of if any(_belongs(kind, values) for values in rows))
    kinds = dict.fromkeys([*(["environment"] if content.environment else ()), *known_kinds])
    tables += ("inside", "across") if "any" in tables or mixed else ()
    notes += [(0, f"the sheet has no table for {kind}") for kind in kinds if kind not in tables]
    return Filled("".join(out), figures, tables, tuple(answered), tuple(notes))


def to_plain(cell: str) -> str:
    """Return the text of a cell without blanks, markup and letter case."""
    text = re.sub(r"<[^<>]*>|[*_`~\\]", "", html.unescape(cell).replace("\\|", "|"))
    return "".join(_fold(text).split())


def unit_of(head: str) -> str | None:
    """Return the unit in a column header, in brackets or at its end."""
    text = _fold(re.sub(r"<[^<>]*>|[*_`\\$]", " ", head))
    words = ["".join(word.split()) for pattern in _UNIT for word in re.findall(pattern, text)]
    return next(
        (name for word in words if (name := _match_first(vocabulary()["units"], word, re.fullmatch))), None
    )


def _fold(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _match_first(patterns: Mapping[str, str], text: str, match: Callable[..., Any] = re.search) -> str | None:
    return next((name for name, pattern in patterns.items() if match(pattern, text)), None)


def _lines(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _parse(line: str) -> _Row:
    before = "".join(_BEFORE.findall(line)[:1])
    inside = line[len(before) :].rstrip()
    if _PIPE.match(inside, max(len(inside) - 1, 0)):
        inside = inside[:-1]
    return _Row(before, tuple(_PIPE.split(inside)), line[len(before) + len(inside) :])


def _tables(page: Sequence[str]) -> Iterator[_Table]:
    code = _code(page)
    number = since = 0
    # The lines of the open sections: depth, number and text.
    over: list[tuple[int, int, str]] = []
    while number < len(page):
        below = page[number + 1] if number + 1 < len(page) and number + 1 not in code else ""
        delimited = "|" in below and all(map(_DELIMITER.fullmatch, _parse(below).cells))
        if number not in code and "|" in page[number] and delimited:
            end = number + 2
            while end < len(page) and end not in code and _PIPE.search(page[end]):
                end += 1
            rows = tuple(map(_parse, (page[number], *page[number + 2 : end])))
            above = tuple(line for _, at, line in reversed(over) if at >= since)
            over = [each for each in over if each[0] < _PARAGRAPH]
            yield _Table(number, end, rows, above, tuple(line for _, _, line in reversed(over)))
            number = since = end
            continue
        if number not in code and (line := page[number].strip()):
            heading = _HEADING.match(page[number])
            depth = len(heading[1]) if heading else _PARAGRAPH
            ended = (at for at, (other, *_) in enumerate(over) if heading and depth <= other < _PARAGRAPH)
            del over[next(ended, len(over)) :]
            over.append((depth, number, line))
        number += 1


def _code(page: Sequence[str]) -> set[int]:
    code: set[int] = set()
    mark = ""
    for number, line in enumerate(page):
        fence = _FENCE.match(line)
        if mark or fence:
            code.add(number)
        if fence and (not mark or fence["mark"].startswith(mark)):
            mark = "" if mark else fence["mark"]
    return code


def _find_heads(rows: Sequence[_Row]) -> _Heads | None:
    for (name, layout), (number, row) in itertools.product(vocabulary()["tables"].items(), enumerate(rows)):
        named = [(_match_first(layout["heads"], word), place) for place, word in enumerate(row.words)]
        columns = {head: place for head, place in reversed(named) if head}
        if columns.keys() >= {*layout["needed"]} and not columns.keys().isdisjoint(layout["figures"]):
            group = layout["needed"][0]
            # A column of devices may have no head.
            if columns.keys().isdisjoint(layout["place"]) and columns[group] + 1 not in columns.values():
                columns[layout["place"][0]] = columns[group] + 1
            place = [head for head in layout["place"] if head in columns]
            units = {head: unit for head, at in columns.items() if (unit := unit_of(row.cell_text(at)))}
            return _Heads(name, number, columns, units, group, place)
    return None


def _read_key(row: _Row) -> tuple[str | None, int]:
    """Return the key of a row of the environment table, and the place of its name."""
    names = (
        (_match_first(vocabulary()["environment"], word), place) for place, word in enumerate(row.words[:-1])
    )
    return next((each for each in names if each[0]), (None, 0))


def _owners(page: Sequence[str], content: Content) -> Iterator[tuple[_Table, str, SheetTraining | None]]:
    """Yield the tables of a sheet, their kinds, and the trainings whose rows they get.

    A table's own text names the training; else a heading over several tables, once for each kind; else the
    first of its kind gets the run's first.
    """
    before: list[tuple[str, SheetTraining | None]] = []
    for table in _tables(page):
        own = _training(table.above, content.trainings)
        training = own or _training(table.headings, content.trainings)
        kind = _kind(table, [name for name, other in before if not training or other in (training, None)])
        if kind is None:
            continue
        taken = (kind, training) in before if training else kind in (name for name, _ in before)
        alike = ("compression",) if kind == "compression" else ("inside", "across")
        usual = next((each for each in content.trainings if any(map(each.rows.get, alike))), None)
        yield table, kind, None if taken and not own else training or usual
        before.append((kind, training))


def _training(lines: Iterable[str], trainings: Sequence[SheetTraining]) -> SheetTraining | None:
    """Return the training named by the first line that names exactly one."""
    for line in lines:
        counts = [sum(_names(word, _fold(line)) for word in one.words) for one in trainings]
        if any(counts) and counts.count(max(counts)) == 1:
            return trainings[counts.index(max(counts))]
    return None


def _names(word: str, text: str) -> bool:
    parts = re.findall(r"[^\W\d_]+|\d+", word.casefold())
    patterns = [r"[\s_-]*".join(parts) + r"(?![a-z0-9])"] if parts else []
    if len(parts) > 1 and parts[-1].isdigit():
        patterns.append(r"[\s_-]*".join(parts[:-1]) + r"(?![a-z]|[\s_-]*\d)")
    return any(re.search(rf"(?<![a-z0-9]){pattern}", text) for pattern in patterns)


def _kind(table: _Table, before: Sequence[str]) -> str | None:
    """Return the kind of a table; without a hint, the first of two of speed-up is inside."""
    heads = _find_heads(table.rows)
    if heads is None:
        keys = {_read_key(row)[0] for row in table.rows} - {None}
        return "environment" if len(keys) >= _ENVIRONMENT_ROWS else None
    if heads.name == "compression":
        return heads.name
    title = next((_match_first(vocabulary()["where"], to_plain(line)) for line in table.above[:1]), None)
    over = (_match_first(vocabulary()["where"], to_plain(line)) for line in table.headings)
    guess = "across" if "inside" in before else "inside"
    if not heads.columns.keys() >= {"servers", "slots"}:
        guess = "any"
    return title or next((kind for kind in over if kind and kind not in before), guess)


class _Filling:
    """One table filled: its rows, the number with figures, messages; ``line`` is that of its first row."""

    def __init__(
        self, table: _Table, kind: str, training: SheetTraining | None, content: Content, line: int
    ) -> None:
        self.old, self.kind, self.content, self.line = table.rows, kind, content, line
        self.count, self.mixed, self.rows = 0, False, list[_Row]()
        self.notes: list[tuple[int, str]] = []
        heads = _find_heads(table.rows)
        if heads is None:
            self._fill_environment()
            return
        self.heads, self.name = heads, heads.columns[heads.group]
        own = (column for head, column in heads.columns.items() if head not in (heads.group, *heads.place))
        self.figures = {column: table.rows[heads.row].cell_text(column) for column in own}
        named = [each.words[-1] for each in content.trainings if each.words and each.rows.get(kind)]
        if named and not training:
            self._note(f"this table ({kind}) has no figures: its text names none of {', '.join(named)}")
        rows = training.rows if training else {}
        other = {"inside": "across", "across": "inside"}.get(kind, "")
        measured = rows.get(kind, ())
        if kind == "any":
            measured = self._one_of_each([*rows.get("inside", ()), *rows.get("across", ())])
        self._fill(measured, rows.get(other, ()))

    def _one_of_each(self, measured: Sequence[Values]) -> list[Values]:
        """Return the first of the rows that this table cannot tell apart, and note their layouts."""
        first: dict[tuple[str, ...], Values] = {}
        for values in measured:
            place = tuple(str(values.get(head)) for head in (self.heads.group, *self.heads.place))
            first.setdefault(place, values)
        layouts = dict.fromkeys(f"{values['servers']}x{values['slots']}" for values in first.values())
        if layouts:
            self._note(f"figures of servers x slots {', '.join(layouts)}: the table has no columns for both")
        return [*first.values()]

    def _fill_environment(self) -> None:
        for row in self.old:
            name, place = _read_key(row)
            cells = {place + 1: self.content.environment.get(name, "")} if name else {}
            words = [text for text in row.put(cells).cells if text.strip()]
            if self.content.environment and self.rows and len(row.cells) > 1 == len(words):
                self._note(f"{words[0].strip()}: hvlab has nothing to write here")
            self._add(row, row.put(cells), {place + 1: row.cell_text(place)} if name else {})

    def _fill(self, measured: Sequence[Values], others: Sequence[Values]) -> None:
        """Put each measured row into its own row, else into an open one, else below its group.

        ``others`` belong to the other table of speed-up; only a row with their exact place gets them.
        """
        groups = self._groups()
        self.is_open = not groups or any(self.old[number].dots for number in groups)
        given = {number: self._read_given(self.old[number]) for number in groups}
        left = grouped((str(values[self.heads.group]), values) for values in measured)
        of = {name: [*rows] for name, rows in left.items()}
        taken: dict[int, Values] = {}
        for number in sorted(groups, key=lambda one: len(given[one]) < len(self.heads.place)):
            group = groups[number] or ""
            own = left.get(group, [])
            there = others if given[number].keys() >= {"servers", "slots"} else ()
            every = (*own, *(each for each in there if each[self.heads.group] == group))
            fitting = (each for each in every if _agrees(given[number], each) and not self.old[number].dots)
            if (found := next(fitting, None)) is not None:
                left[group] = [each for each in own if each is not found]
                self.mixed |= all(each is not found for each in own)
                taken[number] = found
        last = {name: number for number, name in groups.items()}
        end = max((number for name, number in last.items() if name), default=last.get(None, self.heads.row))
        above: str | None = None
        for number, row in enumerate(self.old):
            name = groups.get(number)
            asks = {} if row.dots else given.get(number, {})
            idle = number in groups and number not in taken and len(asks) < len(self.heads.place)
            if idle and any(_agrees(asks, each) for each in of.get(name or "", ())):
                self._tell(row, _Row("", (), ""), self.figures)
            else:
                self._write_row(row, name, taken.get(number), above)
                above = name if number in groups else above
            if name and last[name] == number:
                for values in left.pop(name, ()):
                    above = self._append(row, name, values, above)
            if number == end:
                for name in [name for name in left if name not in last]:
                    for values in left.pop(name):
                        above = self._append(row, name, values, above)

    def _groups(self) -> dict[int, str | None]:
        """Return the group of each row; dots and rows without a name belong to the one above."""
        written = {to_plain(label): name for name, label in self.content.names.items()}
        patterns = vocabulary()["tables"][self.heads.name]["groups"]
        groups: dict[int, str | None] = {}
        self.labels: dict[str, str] = {}
        name: str | None = None
        for number, row in enumerate(self.old):
            word = to_plain(row.cell_text(self.name))
            if number <= self.heads.row or not any(row.words):
                continue
            if word and not row.dots:
                name = written.get(word) or _match_first(patterns, word)
                self.labels.setdefault(name or "", row.cell_text(self.name))
            groups[number] = name
        return groups

    def _read_given(self, row: _Row) -> dict[str, str]:
        given = {
            name: _number(to_plain(row.cell_text(self.heads.columns.get(name, -1))))
            for name in self.heads.place
        }
        return {name: number for name, number in given.items() if number}

    def _write_row(
        self, row: _Row, name: str | None, values: Values | None, above: str | None, *, new: bool = False
    ) -> None:
        given, bare = self._read_given(row), not row.cell_text(self.name)
        below = bool(self.rows) and len(self.rows) > self.heads.row
        cells = dict.fromkeys(self.figures, "") if below and not row.dots else {}
        label = self.labels.get(name or "") or self.content.names.get(name or "", name or "")
        if values is not None:
            self.count += self.is_open or not new
            for head, value in values.items():
                # Words such as Device# == 2, by which a row gives its place, stay.
                stays = head in given and not str(value).isdigit()
                if head in self.heads.columns and head != self.heads.group and not stays:
                    unit = self.heads.units.get(head, "")
                    text = value if isinstance(value, str) else value.get(unit, value[""])
                    cells[self.heads.columns[head]] = text
        elif below and not row.dots and (name or not bare):
            place = "".join(f" {key} {value}" for key, value in given.items())
            reason = self.content.why(self.kind, name, given)
            self._note(f"{row.cell_text(self.name) or label}{place}: {reason}")
        if name and bare and (above != name or (new and self.heads.name == "speedup")):
            cells[self.name] = label
        self._add(row, row.put(cells), {} if new else self.figures if below else {})

    def _append(self, pattern: _Row, name: str, values: Values, above: str | None) -> str | None:
        if not _belongs(self.kind, values):
            return above
        blank = replace(pattern, cells=tuple(" " * max(len(cell), 1) for cell in pattern.cells))
        self._write_row(blank, name, values, above, new=True)
        return name

    def _add(self, old: _Row, new: _Row, heads: Mapping[int, str]) -> None:
        self._tell(old, new, heads)
        self.rows.append(new)

    def _tell(self, old: _Row, new: _Row, heads: Mapping[int, str]) -> None:
        for column, head in heads.items():
            before, after = old.cell_text(column), new.cell_text(column)
            if to_plain(before).strip(_NO_FIGURE) and to_plain(before) != to_plain(after):
                self._note(f"{head}: {before} -> {after or 'nothing, this run has no such figure'}")

    def _note(self, text: str) -> None:
        # The delimiter stands below the first row.
        self.notes.append((self.line + len(self.rows) + bool(self.rows), text))


def _belongs(kind: str, values: Values) -> bool:
    """Whether a row may be added unasked; one server is not several."""
    return kind != "across" or values["servers"] != "1"


def _agrees(given: Mapping[str, str], values: Values) -> bool:
    return all(_number(str(values.get(name, ""))) == number for name, number in given.items())


def _number(text: str) -> str:
    digits = re.findall(r"\d+", text)
    return (digits[0].lstrip("0") or "0") if len(digits) == 1 else ""


def _drop_answers(text: str) -> str:
    marks = [*_MARK.finditer(text)]
    for mark, after in itertools.zip_longest(marks, marks[1:]):
        if mark[1] and (after is None or after[1]):
            line = text.count("\n", 0, mark.start()) + 1
            raise UsageError(
                f"the answer that begins at line {line} of the sheet has no end",
                remedy=f"put {_END} on a line below it, or remove the comment that begins it",
            )
    return _ANSWER.sub("", text)


def _tasks(page: Sequence[str], settings: Mapping[str, str]) -> dict[int, list[tuple[int, str]]]:
    """Return the tasks by the number of their paragraph's last line: their own lines, and their kinds.

    A task is below the first table of figures. A setting that is not the run's counts as one.
    """
    tables, words = [*_tables(page)], vocabulary()
    below = next((table.end for table in tables if _find_heads(table.rows)), len(page))
    inside = {number for table in tables for number in range(table.start, table.end)} | _code(page)
    start = rf"[\W_]*(?:\([^)]*\)\s*)?(?:[^:]{{1,16}}:\s*)?(?:please\s+|请)?(?:{words['asks']})"
    tasks: dict[int, list[tuple[int, str]]] = {}
    for first, last in _paragraphs(page, [number for number in range(len(page)) if number not in inside]):
        text = _fold(" ".join(line.strip() for line in page[first : last + 1]))
        others = [
            (line, name)
            for line in range(first, last + 1)
            for name, value in settings.items()
            for said in re.findall(words["settings"][name], _fold(page[line]))
            if float(said) != float(value)
        ]
        if others:
            tasks[last] = others
        elif first >= below and (_OWN.match(page[first]) or re.match(start, text)):
            # The first line counts first: the rest may be somebody's answer.
            parts = (part for part in (_fold(page[first]), text) if re.search(words["asks"], part))
            if kind := next(filter(None, (_match_first(words["tasks"], part) for part in parts)), None):
                tasks[last] = [(first, kind)]
    return tasks


def _paragraphs(page: Sequence[str], numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    first = last = -1
    for number in (*numbers, len(page)):
        line = page[number] if number < len(page) else ""
        goes_on = first >= 0 and number == last + 1 and line.strip() and not _OWN.match(line)
        if goes_on and not page[last].lstrip("> \t").startswith("#"):
            last = number
            continue
        if first >= 0:
            yield first, last
        first, last = (number, number) if line.strip() else (-1, -1)


def _sign(text: str, content: Content, end: str) -> str:
    labels = vocabulary()["signature"]
    following = rf"[ \t]*(?:\||\r?\n|\Z|[*_]*(?:{'|'.join(labels.values())})[*_]*\s*[:\uff1a|])"
    left: list[str] = []
    text, *code = re.split(r"(?=^[ \t]*(?:```|~~~))", text, maxsplit=1, flags=re.M)
    for name, value in content.signature.items():
        label = rf"(?<!\w)(?:{labels[name]})[*_]*[ \t]*[:\uff1a|][*]*"
        blank = rf"(?:[ \t\u3000_\uff3f]|&nbsp;|&emsp;|</?u>)*|[ \t]*{re.escape(value)}[ \t]*"
        place = re.search(rf"({label})(?:{blank})(?={following})", text, re.I)
        if place:
            rest = text[place.end() :].lstrip(" ")
            between = "" if rest.startswith(("\r", "\n")) or not rest else " "
            text = f"{text[: place.end(1)]} {value}{between}{rest}"
        else:
            left.append(content.signed(name, value))
    title = re.match(r"\s*#[^\n]*\n(?:[ \t]*\r?\n)*", text)
    at = title.end() if title else 0
    own = _block("signature", left, "", end) if left else ()
    return "".join([text[:at], *own, text[at:], *code])


def _block(kind: str, paragraphs: Sequence[str], task: str, end: str) -> list[str]:
    item = _ITEM.match(task)
    indent = f"{item['before']}{' ' * max(len(item['mark']) + 1, 4)}" if item else ""
    begin = f"<!-- hvlab: {kind}, replaced by each --fill -->"
    return [line for each in (begin, *paragraphs, _END) for line in (f"{indent}{each}{end}", end)]
