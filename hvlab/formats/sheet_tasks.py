"""The tasks of a lab sheet that ask for an analysis: known by their words, answered below them. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, get_args

# What a task is about: the fastest backend, models beside one another, or compressed gradients.
TaskKind = Literal["models", "compression", "backends"]
TASKS: tuple[TaskKind, ...] = get_args(TaskKind)
_ABOUT: Mapping[TaskKind, str] = {
    "models": r"模型|\bmodels?\b",
    "compression": r"压缩|正确率|准确率|compress|accuracy",
    "backends": r"后端|加速比|scalab|speed-?up|backend|性能差异",
}
_ASKS = r"分析|总结|讨论|比较|绘制|\banaly|\bdiscuss|\bsummari|\bcompare|\bexplain|\bplot\b|\bdraw\b"
_BEGIN, _END = "<!-- hvlab: analysis, replaced by each --fill -->", "<!-- hvlab: end -->"
_ANSWER = re.compile(
    rf"[ \t]*{re.escape(_BEGIN)}\r?\n.*?{re.escape(_END)}[ \t]*(?:\r?\n|\Z)(?:[ \t]*\r?\n)?", re.DOTALL
)
_ITEM = re.compile(r"(?P<before>\s*)(?P<mark>[-*+]|\d+[.)])(?P<gap>\s+)")


def without_answers(text: str) -> str:
    """Return a sheet without the answers that an earlier filling gave."""
    return _ANSWER.sub("", text)


def about(line: str) -> TaskKind | None:
    """Return what a line asks to be analysed; None where it asks for no analysis."""
    text = unicodedata.normalize("NFKC", line).casefold()
    if not re.search(_ASKS, text):
        return None
    return next((kind for kind in TASKS if re.search(_ABOUT[kind], text)), None)


def answered(
    page: Sequence[str], numbers: Sequence[int], answers: Mapping[TaskKind, Sequence[str]]
) -> tuple[list[str], list[tuple[int, TaskKind]]]:
    """Return the lines with answers below the tasks among ``numbers``, and the tasks without an answer.

    ``answers`` has paragraphs; a task is answered once. Numbers of tasks without an answer are of the
    returned lines, from 1.
    """
    end = "\r\n" if page and page[0].endswith("\r\n") else "\n"
    asked = {number: kind for number in numbers if (kind := about(page[number]))}
    lines: list[str] = []
    left: list[tuple[int, TaskKind]] = []
    done: set[TaskKind] = set()
    for number, line in enumerate(page):
        lines.append(line)
        kind = asked.get(number)
        if kind is None or kind in done:
            continue
        if not answers.get(kind):
            left.append((len(lines), kind))
            continue
        done.add(kind)
        if not line.endswith("\n"):
            lines[-1] += end
        lines += _block(answers[kind], _indent(line), end)
    return lines, left


def _block(paragraphs: Sequence[str], indent: str, end: str) -> Iterator[str]:
    yield f"{indent}{_BEGIN}{end}"
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
