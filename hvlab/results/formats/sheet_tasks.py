"""The tasks of a lab sheet that ask for an analysis: known by their words, answered below them. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from hvlab.base.errors import UsageError
from hvlab.results.formats import markdown

# What a task is about: the fastest backend, models beside one another, or compressed gradients.
TaskKind = Literal["models", "compression", "backends"]
TASKS: tuple[TaskKind, ...] = get_args(TaskKind)
_ABOUT: Mapping[TaskKind, str] = {
    "models": r"模型|\bmodels?\b",
    "compression": r"压缩|正确率|准确率|compress|accuracy",
    "backends": r"后端|加速比|scalab|speed-?up|backend|性能差异",
}
_ASKS = r"分析|总结|讨论|比较|绘制|\banaly|\bdiscuss|\bsummari|\bcompare|\bexplain|\bplot\b|\bdraw\b"
# A paragraph is a task where it begins so, perhaps after a label or something in brackets.
_TASK = rf"[\W_]*(?:\([^)]*\)\s*)?(?:[^:]{{1,16}}:\s*)?(?:please\s+|请)?(?:{_ASKS})"
# Earlier versions did not write what the answer is about.
_BEGIN = re.compile(r"<!-- hvlab: analysis(?: of (?P<kind>\w+))?, replaced by each --fill -->")
_END = "<!-- hvlab: end -->"
_ITEM = re.compile(r"(?P<before>\s*)(?P<mark>[-*+]|\d+[.)])(?P<gap>\s+)")
# What begins a paragraph of its own without an empty line: a list item, a heading.
_OWN = re.compile(r"\s*(?:>\s*)*(?:(?:[-*+]|\d+[.)])\s|#{1,6})")


@dataclass(frozen=True)
class GivenAnswer:
    """An answer of an earlier filling: the numbers of its first line and of the line after it.

    ``kind`` is None where nothing says what it is about.
    """

    start: int
    end: int
    kind: TaskKind | None


def given_answers(page: Sequence[str]) -> list[GivenAnswer]:
    """Return the answers that earlier fillings gave. Raises UsageError for one whose end is not there."""
    given: list[GivenAnswer] = []
    begun: tuple[int, TaskKind | None] | None = None
    code = markdown.code_lines(page)
    for number, line in enumerate(page):
        if number in code:
            continue
        if begin := _BEGIN.fullmatch(line.strip()):
            if begun is not None:
                break
            begun = number, _kind(begin["kind"], page[number - 1] if number else "")
        elif line.strip() == _END and begun is not None:
            given.append(GivenAnswer(begun[0], number + 1, begun[1]))
            begun = None
    if begun is not None:
        raise UsageError(
            f"the answer that begins at line {begun[0] + 1} of the sheet has no end",
            remedy=f"put {_END} on a line below it, or remove the comment that begins it",
        )
    return given


def without_answers(page: Sequence[str], kinds: Collection[TaskKind]) -> list[str]:
    """Return the lines of a sheet without the answers of these kinds. Raises UsageError, see above."""
    gone: set[int] = set()
    for each in given_answers(page):
        if each.kind in kinds:
            empty = each.end < len(page) and not page[each.end].strip()
            gone.update(range(each.start, each.end + empty))
    return [line for number, line in enumerate(page) if number not in gone]


def about(text: str) -> TaskKind | None:
    """Return what a text asks to be analysed; None where it asks for no analysis."""
    text = unicodedata.normalize("NFKC", text).casefold()
    if not re.search(_ASKS, text):
        return None
    return next((kind for kind in TASKS if re.search(_ABOUT[kind], text)), None)


@dataclass(frozen=True)
class SheetAnswers:
    """The lines of a sheet with answers, the kinds of these, and the tasks without one, from line 1."""

    lines: list[str]
    kinds: tuple[TaskKind, ...]
    left: tuple[tuple[int, TaskKind], ...]


def answered(
    page: Sequence[str], numbers: Sequence[int], answers: Mapping[TaskKind, Sequence[str]]
) -> SheetAnswers:
    """Return the sheet with answers below the tasks among the lines ``numbers``.

    ``answers`` has paragraphs; a task is answered once, and an answer that is there stays.
    """
    end = "\r\n" if page and page[0].endswith("\r\n") else "\n"
    tasks = _tasks(page, numbers)
    there = {each.kind for each in given_answers(page)}
    lines: list[str] = []
    left: list[tuple[int, TaskKind]] = []
    done: list[TaskKind] = []
    for number, line in enumerate(page):
        lines.append(line)
        if number not in tasks:
            continue
        first, kind = tasks[number]
        if kind in there or kind in done:
            continue
        if not answers.get(kind):
            left.append((len(lines) - (number - first), kind))
            continue
        done.append(kind)
        if not line.endswith("\n"):
            lines[-1] += end
        lines += _block(kind, answers[kind], _indent(page[first]), end)
    return SheetAnswers(lines, tuple(done), tuple(left))


def _tasks(page: Sequence[str], numbers: Sequence[int]) -> dict[int, tuple[int, TaskKind]]:
    """Return the tasks: by the number of the last line of each, that of its first one, and its kind."""
    tasks: dict[int, tuple[int, TaskKind]] = {}
    for first, last in _paragraphs(page, numbers):
        text = " ".join(line.strip() for line in page[first : last + 1])
        asks = _OWN.match(page[first]) or re.match(_TASK, unicodedata.normalize("NFKC", text).casefold())
        # The first line tells more: what follows may be somebody's answer.
        kind = about(page[first]) or about(text)
        if asks and kind:
            tasks[last] = first, kind
    return tasks


def _paragraphs(page: Sequence[str], numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the numbers of the first and the last line of each paragraph, item or heading."""
    first: int | None = None
    last = -1
    for number in numbers:
        line = page[number]
        goes_on = first is not None and number == last + 1 and line.strip() and not _OWN.match(line)
        if goes_on and not page[last].lstrip("> \t").startswith("#"):
            last = number
            continue
        if first is not None:
            yield first, last
        first, last = (number, number) if line.strip() else (None, -1)
    if first is not None:
        yield first, last


def _kind(named: str | None, above: str) -> TaskKind | None:
    """Return what an answer is about, by its own word for it, else by the line that it stands below."""
    return next((kind for kind in TASKS if kind == named), None) if named else about(above)


def _block(kind: TaskKind, paragraphs: Sequence[str], indent: str, end: str) -> Iterator[str]:
    yield f"{indent}<!-- hvlab: analysis of {kind}, replaced by each --fill -->{end}"
    for paragraph in paragraphs:
        yield f"{end}"
        yield f"{indent}{paragraph}{end}"
    yield end
    yield f"{indent}{_END}{end}"
    yield end


def _indent(line: str) -> str:
    """Return what makes a paragraph part of the list item that a line begins, if it does."""
    item = _ITEM.match(line)
    return f"{item['before']}{' ' * max(len(item['mark']) + 1, 4)}" if item else ""
