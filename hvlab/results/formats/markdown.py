"""Tables of a Markdown text, changed in place: what is not changed stays as it is, byte for byte. Pure."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

_LINE = re.compile(r"(?P<before>\s*(?:>\s*)*)(?P<inside>.*?)(?P<after>\s*)", re.DOTALL)
_FENCE = re.compile(r"\s*(?:>\s*)*(?P<mark>`{3,}|~{3,})")
_DELIMITER = re.compile(r"\s*:?-+:?\s*")
_PIPE = re.compile(r"(?<!\\)\|")
_HEADING = re.compile(r"\s*(?:>\s*)*(#{1,6})(?!#)")
# A paragraph is deeper than any heading.
_PARAGRAPH = 7
_DOTS = re.compile(r"[.…⋮·。]+")


@dataclass(frozen=True)
class TableRow:
    """A line of a table: its cells as they are written, and what stands around them."""

    before: str
    cells: tuple[str, ...]
    after: str
    first: str = "|"
    last: str = "|"

    @property
    def line(self) -> str:
        """Return the line as it is in the text, with its end."""
        return f"{self.before}{self.first}{'|'.join(self.cells)}{self.last}{self.after}"

    @property
    def words(self) -> tuple[str, ...]:
        """Return the cells as words that can be compared, see `plain`."""
        return tuple(map(plain, self.cells))

    @property
    def empty(self) -> bool:
        """Return whether no cell says anything."""
        return not any(self.words)

    @property
    def dots(self) -> bool:
        """Return whether this line stands for others: there are but dots in it."""
        return not self.empty and all(not word or _DOTS.fullmatch(word) for word in self.words)

    def put(self, values: Mapping[int, str]) -> TableRow:
        """Return the row with these cells; a cell that is wide enough keeps its width."""
        count = max(len(self.cells), *(place + 1 for place in values), 0)
        wide = [*self.cells, *[""] * (count - len(self.cells))]
        cells = [_written(cell, values[at]) if at in values else cell for at, cell in enumerate(wide)]
        return replace(self, cells=tuple(cells))

    def like(self) -> TableRow:
        """Return an empty row as wide as this one."""
        return replace(self, cells=tuple(" " * max(len(cell), 1) for cell in self.cells))


@dataclass(frozen=True)
class MarkdownTable:
    """A table: the number of its first line and of the line after it, its rows without the delimiter.

    ``title`` is the last line of text before it. ``above`` are the lines between the table before and this
    one without those of sections that ended, ``headings`` those it stands under; the nearest comes first.
    """

    start: int
    end: int
    rows: tuple[TableRow, ...]
    title: str
    above: tuple[str, ...] = ()
    headings: tuple[str, ...] = ()


def lines(text: str) -> list[str]:
    """Return the lines of a text with their ends; joined they are the text again."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def tables(page: Sequence[str]) -> Iterator[MarkdownTable]:
    """Yield the tables among the lines of a page; what stands in a code block is none."""
    code = code_lines(page)
    number, title, since = 0, "", 0
    # The lines of the open sections: depth, number and text.
    over: list[tuple[int, int, str]] = []
    while number < len(page):
        following = page[number + 1] if number + 1 < len(page) and number + 1 not in code else ""
        if number not in code and "|" in page[number] and _delimits(following):
            end = number + 2
            while end < len(page) and end not in code and _PIPE.search(page[end]):
                end += 1
            rows = tuple(parse(line) for line in (page[number], *page[number + 2 : end]))
            above = tuple(line for _, at, line in reversed(over) if at >= since)
            over = [each for each in over if each[0] < _PARAGRAPH]
            headings = tuple(line for _, _, line in reversed(over))
            yield MarkdownTable(number, end, rows, title, above, headings)
            number, title, since = end, "", end
            continue
        if line := page[number].strip():
            title = line
            if number not in code:
                depth = _depth(page[number])
                _end_sections(over, depth)
                over.append((depth, number, line))
        number += 1


def parse(line: str) -> TableRow:
    """Return a line of a table in its parts."""
    parts = _LINE.fullmatch(line)
    before, inside, after = parts.groups() if parts else ("", line, "")
    cells = _PIPE.split(inside)
    first, last = ("|" if inside.startswith("|") else ""), ""
    if first:
        cells = cells[1:]
    if len(cells) > 1 and not cells[-1].strip():
        cells, last = cells[:-1], "|"
    return TableRow(before, tuple(cells), after, first, last)


def plain(cell: str) -> str:
    """Return what a cell says without spaces, marks and letter case, so that it can be compared."""
    text = html.unescape(cell).replace("\\|", "|")
    text = re.sub(r"<[^<>]*>|[*_`~\\]", "", text)
    return "".join(unicodedata.normalize("NFKC", text).split()).casefold()


def _written(cell: str, value: str) -> str:
    value = " ".join(value.replace("\n", "<br>").split(" "))
    if cell.strip(" ") == value:
        return cell
    width = 0 if "&nbsp;" in cell else len(cell)
    return f" {value} ".ljust(width)


def _delimits(line: str) -> bool:
    if "|" not in line or "-" not in line:
        return False
    return all(_DELIMITER.fullmatch(cell) for cell in parse(line).cells)


def _depth(line: str) -> int:
    heading = _HEADING.match(line)
    return len(heading[1]) if heading else _PARAGRAPH


def _end_sections(over: list[tuple[int, int, str]], depth: int) -> None:
    """Take out the lines of the sections that a heading of this depth ends."""
    if depth < _PARAGRAPH:
        ended = (place for place, (other, *_) in enumerate(over) if depth <= other < _PARAGRAPH)
        del over[next(ended, len(over)) :]


def code_lines(page: Sequence[str]) -> set[int]:
    """Return the numbers of the lines that stand in a fenced code block."""
    code: set[int] = set()
    mark = ""
    for number, line in enumerate(page):
        fence = _FENCE.match(line)
        if mark or fence:
            code.add(number)
        if fence and not mark:
            mark = fence["mark"]
        elif fence and fence["mark"].startswith(mark):
            mark = ""
    return code
