"""What went over a host's network devices, by the kernel's counters, and the libraries it went through.

The counters are of the whole host: whatever else it sends is counted, too. RDMA passes the interface by, so
a port that stands alone carried RDMA; one beside its interface (mlx5_0:1 and ib0), TCP over InfiniBand.
Needs Python 3.8+.
"""

from __future__ import annotations

import ctypes
import glob
import re

# A port counts words of four bytes (InfiniBand's PortXmitData; RoCE's drivers do the same).
RDMA_WORD = 4
# Less than this part of what a host sent is not what carried the case.
MINOR = 0.1
_PML = re.compile(r"/mca_pml_(\w+)\.so")
_LIBRARY = re.compile(r"(/\S*/libnccl\.so\S*)")
_HOROVOD = re.compile(r"(/\S*/horovod/\S*/mpi_lib\S*\.so)")
# From 2.9 on a release is written with two digits more. Source: nccl.h, NCCL_VERSION.
_LONG = 10000


def sent(root: str = "") -> dict[str, int]:
    """Return the bytes that each network interface and each RDMA port (``mlx5_0:1``) has sent so far."""
    counters = {}
    for path in glob.glob(root + "/sys/class/net/*/statistics/tx_bytes"):
        name = path.split("/")[-3]
        if name != "lo":
            counters[name] = _number(path)
    for path in glob.glob(root + "/sys/class/infiniband/*/ports/*/counters/port_xmit_data"):
        device, _, port = path.split("/")[-5:-2]
        counters["{}:{}".format(device, port)] = _number(path) * RDMA_WORD
    return counters


def since(before: dict[str, int], root: str = "") -> dict[str, int]:
    """Return the bytes that each device has sent since, without those that sent nothing."""
    after = sent(root)
    grown = {name: after[name] - before.get(name, 0) for name in sorted(after)}
    return {name: count for name, count in grown.items() if count > 0}


def carriers(by_host: dict[str, dict[str, int]]) -> list[str]:
    """Return the devices that carried the bulk of what their host sent."""
    names: set[str] = set()
    for counts in by_host.values():
        names.update(name for name, count in counts.items() if count >= MINOR * sum(counts.values()))
    return sorted(names)


def pml(maps: str = "/proc/self/maps") -> str:
    """Return which of Open MPI's point-to-point layers this process has loaded; "" outside MPI."""
    return "+".join(sorted(set(_PML.findall(_text(maps)))))


def nccl(maps: str = "/proc/self/maps") -> str:
    """Return the release of the NCCL that Horovod's calls end in, "" where no NCCL is loaded.

    torch brings one of its own, whatever Horovod was built with. Without Horovod, or with a build of it that
    has no NCCL, it is the one that the framework has loaded.
    """
    text = _text(maps)
    for path in [*_HOROVOD.findall(text), *_LIBRARY.findall(text)]:
        release = _release(path)
        if release:
            return release
    return ""


def _release(path: str) -> str:
    """Return the NCCL in which calls from a loaded library end."""
    number = ctypes.c_int()
    try:
        if ctypes.CDLL(path).ncclGetVersion(ctypes.byref(number)):
            return ""
    except (OSError, AttributeError):
        return ""
    unit = 10000 if number.value >= _LONG else 1000
    first, rest = divmod(number.value, unit)
    return "{}.{}.{}".format(first, *divmod(rest, 100))


def _number(path: str) -> int:
    try:
        return int(_text(path))
    except ValueError:
        return 0


def _text(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""
