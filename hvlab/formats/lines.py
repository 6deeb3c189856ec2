"""The lines of a log as the program wrote them, without what launchers and libraries added. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from hvlab.formats.names import DTYPES, REDOPS

_TERMINAL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# What mpirun --tag-output, srun -l, Intel's mpirun -l and cluster logs put before a line.
_PREFIX = re.compile(
    r"^(?:\s*\[\d+(?:,\d+)?\]<std(?:out|err|diag)>: ?|\s*\[\d+\] |\s*\d{1,6}: "
    r"|\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d) )"
)
_WORDS = "|".join(sorted({*REDOPS, *DTYPES}, key=len, reverse=True))
# NCCL's own lines, host:pid:tid [gpu] NCCL ...; a program's unfinished line may stand right before one.
_DEBUG = re.compile(
    rf"(?P<kept>(?<=\s)(?:-1|N/A|\d{{1,18}}(?=[A-Za-z\[])|{_WORDS})|^|(?<=\s))"
    r"(?:\[[\d-]+ [\d:.]+\] )?[^\s:]+:\d+:\d+ \[-?\d+\] (?:\S+:\d+ )?NCCL .*"
)
_NUMBER = re.compile(r"[+-]?(?:\d{1,18}(?:\.\d{0,18})?|\.\d{1,18})(?:[eE][+-]?\d{1,3})?")


def lines(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each line of the program, and whether a library's line was cut out of its end."""
    for line in text.splitlines():
        plain = _TERMINAL.sub("", line)
        while (shorter := _PREFIX.sub("", plain, count=1)) != plain:
            plain = shorter
        kept = _DEBUG.sub(r"\g<kept>", plain)
        yield kept.rstrip(), kept != plain


def number(token: object) -> float | None:
    """Return a finite number; None for N/A and all else that is none."""
    if isinstance(token, bool):
        return None
    if isinstance(token, int | float):
        return float(token) if abs(token) < 2**63 else None
    if isinstance(token, str) and _NUMBER.fullmatch(token):
        value = float(token)
        return value if math.isfinite(value) else None
    return None


def whole(token: object) -> int | None:
    """Return a whole number that any database holds; None for all else."""
    if isinstance(token, str):
        return int(token) if re.fullmatch(r"\s*-?\d{1,18}", token) else None
    if isinstance(token, int) and not isinstance(token, bool) and abs(token) < 2**63:
        return token
    return None
