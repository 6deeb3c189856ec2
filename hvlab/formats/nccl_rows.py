"""A row of nccl-tests: its columns counted from the right. Pure.

A row ends with four columns out of place and four in place: time (us; ms until 2019), algbw and busbw (GB/s),
and #wrong, which old versions call error or res; each four may be followed by four on the single iterations.
What stands at the left differs: old versions have no redop or no root for some operations.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hvlab.formats.lines import number, whole
from hvlab.formats.names import DTYPES, OPS
from hvlab.formats.sweep import Row

_TIMESTAMP = re.compile(r"\s+\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$")
_HALF, _BOTH, _ITERATIONS = 4, 8, 16
_FIRST = 3


@dataclass(frozen=True)
class Columns:
    """One row as it is written; a half whose columns are blank is empty. ``unit`` of its times is in us."""

    size: int
    dtype: str
    redop: str | None
    root: int | None
    out: tuple[str, ...]
    inside: tuple[str, ...]
    unit: float = 1.0

    @property
    def complete(self) -> bool:
        """Return whether both halves are there."""
        return bool(self.out and self.inside)

    def rows(self) -> Iterator[Row]:
        """Yield what was measured out of place and in place."""
        for in_place, half in ((False, self.out), (True, self.inside)):
            if half and number(half[0]) is not None:
                yield self._row(half, in_place=in_place)

    def _row(self, half: Sequence[str], *, in_place: bool) -> Row:
        names = ("time", "algbw", "busbw", "", "time_min", "time_max")
        values = {name: number(cell) for name, cell in zip(names, half, strict=False) if name}
        wrong = number(half[3])
        # An old version's column `error` or `res` is the largest relative error, and below 1.
        failed = wrong is not None and wrong >= 1
        return Row(
            size=self.size,
            figures={
                name: value * self.unit if name.startswith("time") else value
                for name, value in values.items()
                if value is not None
            },
            in_place=in_place,
            dtype=DTYPES[self.dtype],
            op=OPS.get(self.redop or "none", self.redop if self.redop not in (None, "none") else None),
            root=self.root if self.root is not None and self.root >= 0 else None,
            error=f"{wrong:.0f} wrong values" if failed else None,
        )


def parse(line: str) -> Columns | None:
    """Return a line's columns; None where it is no whole row."""
    tokens = _TIMESTAMP.sub("", line).split()
    if not _begins(tokens):
        return None
    rest = tokens[_FIRST:]
    redop = rest.pop(0) if rest and not _cell(rest[0]) else None
    root = whole(rest.pop(0)) if len(rest) in (_HALF + 1, _BOTH + 1, _ITERATIONS + 1) else None
    if not all(map(_cell, rest)):
        return None
    left = (int(tokens[0]), tokens[2], redop, root)
    if len(rest) == _ITERATIONS:
        return Columns(*left, tuple(rest[:6]), tuple(rest[8:14]))
    if len(rest) == _BOTH:
        return Columns(*left, tuple(rest[:4]), tuple(rest[4:]))
    return Columns(*left, (), tuple(rest)) if len(rest) == _HALF else None


def mended(source: Iterable[tuple[str, bool]]) -> Iterator[str]:
    """Yield the lines, with rows whole again that a library's lines tore apart.

    The source says of each line whether something was cut out of its end.
    """
    held = ""
    for line, cut in source:
        tokens = line.split()
        whole_line = line
        if held and tokens and all(map(_cell, tokens)):
            whole_line, held = f"{held} {line.strip()}", ""
        elif held and (line.lstrip().startswith("#") or _begins(tokens)):
            yield held
            held = ""
        found = parse(whole_line)
        if _begins(whole_line.split()) and (found is None or (cut and not found.complete)):
            held = whole_line
        else:
            yield whole_line
    if held:
        yield held


def _begins(tokens: Sequence[str]) -> bool:
    return (
        len(tokens) >= _FIRST
        and tokens[2] in DTYPES
        and all(token.isdigit() and whole(token) is not None for token in tokens[:2])
    )


def _cell(token: str) -> bool:
    return token in ("N/A", "nan", "inf") or number(token) is not None
