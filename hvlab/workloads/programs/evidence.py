"""The evidence for the carrier of the data: timeline, network devices, loaded libraries, this rank's state.

The counters of devices are of the whole host, including its other traffic. RDMA bypasses the interface, so a
lone port carried RDMA; one beside its interface (mlx5_0:1 and ib0), TCP over InfiniBand.

``world`` is the ranks of a case, see world.py. Needs Python 3.8+.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import json
import os
import platform
import re
import time
from importlib import import_module
from typing import Any, Sequence

TIMELINE_WAIT_S = 5.0


def activities(path: str, shown: Sequence[str]) -> list[str]:
    """Return the names of the timeline's events, once its writer has closed the file."""
    names: list[str] = []
    deadline = time.time() + TIMELINE_WAIT_S
    while time.time() < deadline:
        names = events(path)
        done = [name for name in names if not name.startswith("NEGOTIATE_")]
        if all(any(name.endswith(end) for name in done) for end in shown):
            break
        time.sleep(0.02)
    return names


def events(path: str) -> list[str]:
    """Return the names of a timeline's events; several are on a line, and the last may be cut off."""
    names = set()
    with contextlib.suppress(OSError), open(path) as file:
        text = file.read()
        decoder, at = json.JSONDecoder(), text.find("{")
        while at >= 0:
            try:
                event, end = decoder.raw_decode(text, at)
            except ValueError:
                event, end = {}, at + 1
            if event.get("ph") in ("B", "X"):
                names.add(event.get("name", ""))
            at = text.find("{", end)
    return sorted(names - {""})


def describe_nccl(world: Any) -> str:
    """Return the NCCL that the ranks have loaded, with its hosts if they differ."""
    hosts: dict[str, list[str]] = {}
    for host, release in world.gather((platform.node(), nccl()), "nccl"):
        if host not in hosts.setdefault(release, []):
            hosts[release].append(host)
    if len(hosts) == 1:
        return next(iter(hosts))
    return ", ".join(
        "{} ({})".format(release or "none", " ".join(hosts[release])) for release in sorted(hosts)
    )


def horovod_state(hvd: Any) -> dict[str, Any]:
    """Return Horovod's own report on its build."""
    state: dict[str, Any] = {}
    for name in ("mpi_enabled", "gloo_enabled", "nccl_built", "ccl_built", "mpi_threads_supported"):
        try:
            state[name] = int(getattr(hvd, name)())
        except (AttributeError, ValueError, RuntimeError) as error:
            state[name] = str(error)
    return state


def state(world: Any) -> dict[str, Any]:
    """Return the connecting library's own report, and the versions on this rank."""
    versions = {"python": platform.python_version(), **world.versions()}
    connection = world.state()
    if connection.get("horovod"):
        versions["horovod"] = import_module("horovod").__version__
    release = describe_nccl(world)
    if release:
        versions["nccl"] = release
    kept = ("HOROVOD_", "MASTER_", "GLOO_", "NCCL_", "CCL_", "FI_", "OMP_", "OMPI_MCA_", "UCX_")
    return {
        **connection,
        "libraries": sorted(filter(None, set(world.gather(world.library, "library")))),
        "pml": pml(),
        "versions": versions,
        "environment": {
            key: value
            for key, value in sorted(os.environ.items())
            if key.startswith(kept) and "SECRET" not in key and "KEY" not in key
        },
    }


# A port counts words of four bytes (InfiniBand's PortXmitData; RoCE's drivers do the same).
RDMA_WORD = 4
# Less than this part of what a host sent is not what carried the case.
MINOR = 0.1
_PML = re.compile(r"/mca_pml_(\w+)\.so")
_LIBRARY = re.compile(r"(/\S*/libnccl\.so\S*)")
_HOROVOD = re.compile(r"(/\S*/horovod/\S*/mpi_lib\S*\.so)")
# From 2.9 on a release is written with two digits more. Source: nccl.h, NCCL_VERSION.
_LONG = 10000


def read_sent(root: str = "") -> dict[str, int]:
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
    """Return the bytes that each device has sent since, without idle devices."""
    after = read_sent(root)
    grown = {name: after[name] - before.get(name, 0) for name in sorted(after)}
    return {name: count for name, count in grown.items() if count > 0}


def carriers(by_host: dict[str, dict[str, int]]) -> list[str]:
    """Return the devices that carried the bulk of their host's traffic."""
    names: set[str] = set()
    for counts in by_host.values():
        names.update(name for name, count in counts.items() if count >= MINOR * sum(counts.values()))
    return sorted(names)


def pml(maps: str = "/proc/self/maps") -> str:
    """Return the loaded point-to-point layers of Open MPI; "" outside MPI."""
    return "+".join(sorted(set(_PML.findall(_text(maps)))))


def nccl(maps: str = "/proc/self/maps") -> str:
    """Return the release of the NCCL that Horovod's calls reach, "" if none is loaded.

    torch brings its own, whatever Horovod was built with. Without Horovod, or if its build has no NCCL, it is
    the framework's.
    """
    text = _text(maps)
    for path in [*_HOROVOD.findall(text), *_LIBRARY.findall(text)]:
        release = _release(path)
        if release:
            return release
    return ""


def _release(path: str) -> str:
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
