"""What ``hvlab bench`` is asked of a training of the user's own, and of DDP beside Horovod."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from hvlab.base.errors import UsageError, unknown
from hvlab.lab.backends import BACKENDS, LIBRARIES, of_framework
from hvlab.lab.inventory import Lab
from hvlab.lab.variants import available
from hvlab.workloads.command import COMMAND, check_pattern

_WRITE = f"`hvlab bench --workload {COMMAND.name} -- python train.py`"


def backends(
    named: tuple[str, ...] | None, libraries: tuple[str, ...] | None, lab: Lab
) -> tuple[str, ...] | None:
    """Return the backends that were ``named``, or their like in ``libraries``; None for the default.

    Where none was named, they are what the lab can run. Raises UsageError.
    """
    if libraries is None:
        return named
    for name in libraries:
        if name not in LIBRARIES:
            raise unknown("library", name, LIBRARIES)
    pairs = [
        (name, of_framework(name, library))
        for library in libraries
        for name in named or available(lab.hosts)
        if name in BACKENDS
    ]
    without = [name for name, other in pairs if not other]
    if named and without:
        raise UsageError(
            f"--library {','.join(libraries)}: torch has nothing like {', '.join(dict.fromkeys(without))}",
            remedy="leave it out of --backend",
        )
    chosen = [other for _, other in pairs if other and (named or BACKENDS[other].wheel)]
    return tuple(dict.fromkeys([*chosen, *(name for name in named or () if name not in BACKENDS)]))


def command(
    words: Sequence[str],
    copy: Sequence[str],
    pattern: str | None,
    unit: str | None,
    workloads: tuple[str, ...] | None,
) -> dict[str, object]:
    """Return the parameters of the user's own command. Raises UsageError."""
    given = {name: value for name, value in (("pattern", pattern), ("unit", unit)) if value}
    if COMMAND.name not in (workloads or ()):
        if words or given or copy:
            what = "a command" if words else "--copy, --pattern or --unit"
            raise UsageError(f"{what} belongs to --workload {COMMAND.name}", remedy=f"write {_WRITE}")
        return {}
    if not words:
        raise UsageError(f"--workload {COMMAND.name} has no command", remedy=f"write it at the end: {_WRITE}")
    # It loads slowly, and most benches need none of it.
    from hvlab.workloads.datasets import own_files  # noqa: PLC0415

    check_pattern(pattern)
    copied = own_files.chosen(words, copy, Path.cwd())
    return {"command": shlex.join(words), "copy": copied, **given}
