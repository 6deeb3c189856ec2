"""Which ranks keep the others waiting: Horovod's stall check. Needs no torch."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from .exceptions import HorovodInternalError

# A rank that waits for longer tells the others.
LOOK_S = 1


def limits(environment: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """Return the seconds until a warning, and until an error, as Horovod's variables say; 0 is never."""
    if environment.get("HOROVOD_STALL_CHECK_DISABLE", "0") != "0":
        return 0, 0
    defaults = {"HOROVOD_STALL_CHECK_TIME_SECONDS": 60, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": 0}
    warn_s, end_s = (int(environment.get(name) or default) for name, default in defaults.items())
    return warn_s, max(end_s, warn_s) if end_s else 0


def wait(work: Any, waits: str, ranks: list[int], number: int, own: int, store: Any) -> None:
    """Wait for the exchange of this number among ranks; ``waits`` is the operation that needs it, if any.

    The first of the ranks that wait names those that do not. Raises HorovodInternalError if that lasts.
    """
    waited_s = 0
    while not _is_done(work):
        waited_s += LOOK_S
        warn_s, end_s = limits() if waits else (0, 0)
        store.set(f"stall.{ranks}.{number}.{own}", "")
        ends = end_s and waited_s >= end_s
        if not ends and not (warn_s and waited_s % warn_s == 0):
            continue
        waiting = [rank for rank in ranks if store.check([f"stall.{ranks}.{number}.{rank}"])]
        missing = ", ".join(str(rank) for rank in ranks if rank not in waiting)
        text = (
            f"rank {own} has waited {waited_s} s for {waits} [missing ranks: {missing}]; "
            "what to do: see what they do, as by py-spy dump --pid"
        )
        if ends:
            raise HorovodInternalError(text)
        if own == waiting[0] and missing:
            # As Horovod's, no warning of Python's: `hvlab doctor` passes over those.
            print(f"hvlab_horovod: {text}", file=sys.stderr, flush=True)


def _is_done(work: Any) -> bool:
    try:
        work.wait(timedelta(seconds=LOOK_S))
    except RuntimeError:
        if not work.is_completed():
            return False
        work.wait()
    return True
