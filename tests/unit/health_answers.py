"""Recorded files and outputs as the answers of the probe."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parents[1] / "data/health"


def pattern(glob: str) -> re.Pattern[str]:
    """Return a glob as a regular expression, in which a star stops at a slash."""
    return re.compile("".join({"*": "[^/]*"}.get(part, part) for part in re.split(r"(\*)", glob)))


def answers(
    questions: Mapping[str, Mapping[str, Any]],
    *,
    files: Mapping[str, str] = {},
    outputs: Mapping[str, str] = {},
    links: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Answer these questions by files, by outputs (by the question's name) and by paths that exist.

    Whatever has no recording is no such program, as on a host that lacks it.
    """
    replies: dict[str, Any] = {}
    for name, question in questions.items():
        if "read" in question:
            fits = pattern(question["read"]).fullmatch
            replies[name] = {path: text for path, text in sorted(files.items()) if fits(path)}
        elif "stat" in question:
            fits = pattern(question["stat"]).fullmatch
            replies[name] = {path: {"link": None} for path in links if fits(path)}
        elif name in outputs:
            replies[name] = {"rc": 0, "out": outputs[name], "err": ""}
        else:
            replies[name] = {"rc": 127, "out": "", "err": "No such file or directory"}
    return replies


def outcomes(findings: list[Any]) -> dict[str, str]:
    """Return check -> passed, skipped, hard or soft."""
    return {finding.check: finding.severity or finding.outcome for finding in findings}
