"""A dynamic rules file of Open MPI's coll_tuned, which goes to the hosts like a data set.

It chooses each collective's algorithm by the number of ranks and the message size. Its numbers may be on one
line: Open MPI reads them one by one (ompi/mca/coll/tuned/coll_tuned_dynamic_file.c).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from hvlab.base.errors import UsageError
from hvlab.base.paths import cache_dir
from hvlab.workloads.datasets.shelf import Shelf, key_of

FILE = "rules.conf"
_MOST = 10_000


def read(text: str) -> str:
    """Return the numbers of a rules file, separated by spaces. Raises UsageError for any other text."""
    words = [word for line in text.splitlines() for word in line.partition("#")[0].split()]
    wrong = [word for word in words if not (word.isascii() and word.isdigit() and len(word) < 16)]  # noqa: PLR2004
    if wrong or not words or len(words) > _MOST:
        observed = f"{wrong[0]!r} is no number" if wrong else "it is empty" if not words else "it is too long"
        raise UsageError(f"the rules for Open MPI: {observed}", remedy=_REMEDY)
    numbers = iter(map(int, words))
    try:
        _check(numbers)
    except StopIteration:
        raise UsageError("the rules for Open MPI end too early", remedy=_REMEDY) from None
    if (more := next(numbers, None)) is not None:
        raise UsageError(f"the rules for Open MPI have {more} after their end", remedy=_REMEDY)
    return " ".join(words)


_REMEDY = (
    "write the number of collectives; for each its number (allreduce: 2) and how many numbers of ranks; for "
    "each of these the ranks and how many sizes; for each of these bytes, algorithm, fan-out, segment size"
)


def _check(numbers: Iterator[int]) -> None:
    """Consume a table of rules. Raises StopIteration if it ends too early."""
    for _ in range(next(numbers)):
        next(numbers)
        for _ in range(next(numbers)):
            next(numbers)
            for _ in range(next(numbers)):
                for _ in ("bytes", "algorithm", "fan-out", "segment size"):
                    next(numbers)


def key(text: str) -> str:
    """Return the key of the file with these rules. Raises UsageError for any other text."""
    return key_of({FILE: hashlib.sha256(_content(text)).hexdigest()})


def place(text: str, *, cache: Path | None = None) -> tuple[str, Path]:
    """Return the key and the folder of the file. Raises CheckError if the cache cannot be written."""
    shelf = Shelf(cache or cache_dir())
    with shelf.writing(), shelf.lock("rules"), shelf.new_folder("rules") as new:
        (new / FILE).write_bytes(_content(text))
        folder, key = shelf.take(new)
    return key, folder


def _content(text: str) -> bytes:
    return f"{read(text)}\n".encode()
