"""Ctrl-C, SIGTERM and a closed terminal (SIGHUP) end any command in the same way, and only once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ENDING = b"\nhvlab: already ending what it started; to interrupt that would leave it behind\n"


@contextmanager
def handled() -> Iterator[None]:
    """Raise KeyboardInterrupt at the first of these signals within the block; the next ones change nothing.

    What was started ends while that exception is on its way; another one would cut that short. SIGHUP stays
    ignored where it was (nohup); SIGINT counts in the background of a script, too.
    """
    count = 0
    terminals = [stream for stream in (1, 2) if os.isatty(stream)]

    def interrupt(number: int, _frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        if number == signal.SIGHUP:
            _silence(terminals)
        if count == 1:
            raise KeyboardInterrupt
        os.write(2, _ENDING)

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:
        if number != signal.SIGHUP or before[number] is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in _SIGNALS:
            signal.signal(number, before[number])


def _silence(streams: Iterable[int]) -> None:
    """Write nothing more to a terminal that is gone: that fails, in the middle of ending."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(null, stream)
    os.close(null)
