"""Which NCCL this process has loaded: torch brings one of its own, whatever Horovod was built with.

Needs Python 3.8+.
"""

from __future__ import annotations

import ctypes
import re

_LIBRARY = re.compile(r"(/\S*/libnccl\.so\S*)")
_HOROVOD = re.compile(r"(/\S*/horovod/\S*/mpi_lib\S*\.so)")
# From 2.9 on a release is written with two digits more. Source: nccl.h, NCCL_VERSION.
_LONG = 10000


def nccl(maps: str = "/proc/self/maps") -> str:
    """Return the release of the NCCL that Horovod's calls end in, "" where no NCCL is loaded.

    Without Horovod, or with a build of it that has no NCCL, it is the one that the framework has loaded.
    """
    try:
        with open(maps) as file:
            text = file.read()
    except OSError:
        return ""
    for path in [*_HOROVOD.findall(text), *_LIBRARY.findall(text)]:
        release = _release(path)
        if release:
            return release
    return ""


def _release(path: str) -> str:
    """Return what the NCCL says that calls from a loaded library end in."""
    number = ctypes.c_int()
    try:
        if ctypes.CDLL(path).ncclGetVersion(ctypes.byref(number)):
            return ""
    except (OSError, AttributeError):
        return ""
    unit = 10000 if number.value >= _LONG else 1000
    first, rest = divmod(number.value, unit)
    return "{}.{}.{}".format(first, *divmod(rest, 100))
