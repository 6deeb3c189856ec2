"""How the answers of the probe are read; unanswered questions are absent."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

_NO_PROGRAM = 127


def files(answers: Mapping[str, Any], name: str) -> Dict[str, str]:
    """Return path -> text, stripped, of a question that reads files."""
    answer = answers.get(name)
    if not isinstance(answer, dict):
        return {}
    return {path: text.strip() for path, text in answer.items() if isinstance(text, str)}


def text(answers: Mapping[str, Any], name: str) -> str:
    """Return the text of a question that reads one file, stripped; empty without the file."""
    return next(iter(files(answers, name).values()), "")


def output(answers: Mapping[str, Any], name: str) -> str:
    """Return the output of a successful command; empty after a failure."""
    answer = answers.get(name)
    if not isinstance(answer, dict) or answer.get("rc") != 0:
        return ""
    return str(answer.get("out", ""))


def is_not_installed(answers: Mapping[str, Any], name: str) -> bool:
    """Whether there is no such program: one that lacks a shared library ends with 127, too, but is broken."""
    answer = answers.get(name)
    if not isinstance(answer, dict) or answer.get("rc") != _NO_PROGRAM:
        return False
    return "shared libraries" not in str(answer.get("err", ""))


def has_timed_out(answers: Mapping[str, Any], name: str) -> bool:
    """Whether a command was given up on: 124 by timeout, 137 where it had to be killed."""
    answer = answers.get(name)
    return isinstance(answer, dict) and answer.get("rc") in (124, 137)


def number(value: object) -> Optional[float]:
    """Return a number that stands alone in a text; None for anything else."""
    try:
        result = float(str(value).strip())
    except ValueError:
        return None
    return result if abs(result) < float("inf") else None


def parse_whole(value: object) -> Optional[int]:
    """Return a whole number, as counters are; None for anything else."""
    digits = str(value).strip()
    return int(digits) if digits.isascii() and digits.isdigit() else None
