"""Time taken by others on this host's cores while a case ran: steal, throttling, load from outside.

/proc/stat counts the CPUs of the whole machine, in a container, too. So the load of others needs the case's
own compute time from every host of the machine; ``hvlab.workloads.contention`` does that. Needs Python 3.8+.
"""

from __future__ import annotations

import glob
import os
import resource
import time
from typing import Any

_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
# Fields of a CPU's line in /proc/stat, after its name (proc(5)).
_USER, _NICE, _SYSTEM, _STEAL = 0, 1, 2, 7
# Units of the two versions of control groups: throttled_time is in ns, throttled_usec in us.
_THROTTLED = {"throttled_time": 1e-9, "throttled_usec": 1e-6}


def read(root: str = "") -> dict[str, Any]:
    """Return the counters so far, in seconds; ``cpus`` holds (busy, stolen) of each usable CPU."""
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        "at_s": time.monotonic(),
        "cpus": cpus(root),
        "own_s": sum(usage.ru_utime + usage.ru_stime for usage in own),
        "throttled_s": read_throttled(root),
    }


def since(before: dict[str, Any], root: str = "") -> dict[str, Any]:
    """Return the counts since the start, and the machine they belong to."""
    after = read(root)
    return {
        "machine": machine(root),
        "seconds": after["at_s"] - before["at_s"],
        "cpus": {
            cpu: [late - early for late, early in zip(after["cpus"][cpu], before["cpus"][cpu])]
            for cpu in sorted(after["cpus"], key=int)
            if cpu in before["cpus"]
        },
        "own_s": after["own_s"] - before["own_s"],
        "throttled_s": after["throttled_s"] - before["throttled_s"],
    }


def cpus(root: str = "") -> dict[str, list[float]]:
    """Return the busy and the stolen time of each CPU that this process may use."""
    allowed = {"cpu{}".format(cpu) for cpu in os.sched_getaffinity(0)}
    counted = {}
    for line in _text(root + "/proc/stat").splitlines():
        name, _, rest = line.partition(" ")
        if name in allowed:
            ticks = [int(field) for field in rest.split()]
            busy = ticks[_USER] + ticks[_NICE] + ticks[_SYSTEM]
            steal = ticks[_STEAL] if len(ticks) > _STEAL else 0
            counted[name[len("cpu") :]] = [busy * _TICK_S, steal * _TICK_S]
    return counted


def read_throttled(root: str = "") -> float:
    """Return the time for which a CPU quota stopped this process's control group, or one above it."""
    most = 0.0
    for line in _text(root + "/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        for mount in glob.glob(root + "/sys/fs/cgroup" + ("/cpu*" if controllers else "")):
            parts = path.strip("/").split("/")
            for depth in range(len(parts) + 1):
                most = max(most, _read_throttled("/".join([mount, *parts[:depth], "cpu.stat"])))
    return most


def _read_throttled(path: str) -> float:
    for line in _text(path).splitlines():
        name, _, value = line.partition(" ")
        if name in _THROTTLED:
            return int(value) * _THROTTLED[name]
    return 0.0


def machine(root: str = "") -> str:
    """Return an identity that all containers of one machine share, and no other machine has."""
    if _text(root + "/run/systemd/container").strip() != "systemd-nspawn":
        return _text(root + "/proc/sys/kernel/random/boot_id").strip()
    # Each of these containers is given a boot id of its own; the time of boot is the machine's.
    lines = _text(root + "/proc/stat").splitlines()
    return " ".join(line for line in lines if line.startswith("btime"))


def _text(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""
