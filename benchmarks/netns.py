"""Hosts that are network namespaces of this machine, in racks with shaped links: `bench_find_slow --torch`.

Each has one interface to the bridge of its rack, whose uplink goes to a bridge that all racks share. The
processes of devices.py are forked from one in each namespace that has loaded torch already. Needs root.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hvlab.base import process
from hvlab.base.errors import HvlabError
from hvlab.lab.inventory import Host, Lab

PREFIX = f"hvfs{os.getpid()}"
SWITCHES = f"{PREFIX}-net"
# Half of the weight of level 0 (kernel/sched/core.c: 1024 and 526).
HALF_WEIGHT = 3
READY_S = 120
_LIMIT_S = 30
PARENT = """
import json, os, signal, socket, sys, torch, torch.distributed
torch.set_num_threads(1)
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen(8)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    caller, _ = listener.accept()
    text, files, _, _ = socket.recv_fds(caller, 1 << 20, 3)
    if os.fork() == 0:
        for number, file in enumerate(files):
            os.dup2(file, number)
        nice, _, program, *words = json.loads(text)
        os.nice(nice)
        sys.argv = ["-c", *words]
        exec(program, {"__name__": "__main__"})
        os._exit(0)
    for file in (*files, caller.detach()):
        os.close(file)
"""
CHILD = """#!/usr/bin/env python3
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as parent:
    parent.connect(os.environ["HVLAB_PARENT"])
    socket.send_fds(parent, [json.dumps([os.nice(0), *sys.argv[1:]]).encode()], [0, 1, 2])
sys.stdin.close()
__import__("signal").pause()
"""


@dataclass
class Racks:
    """Hosts of a lab as namespaces; rates in Mbit/s."""

    lab: Lab
    rack: int
    rate: float
    folder: Path
    python: str
    nice: dict[int, int] = field(default_factory=dict)
    parents: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def build(self) -> None:
        """Create namespaces, bridges and links, and load torch in each namespace."""
        _ip("netns", "add", SWITCHES)
        racks = range(-(-len(self.lab.hosts) // self.rack))
        for bridge in ("core", *(f"rack{number}" for number in racks)):
            _inside("link", "add", bridge, "type", "bridge")
            _inside("link", "set", bridge, "up")
        for number in racks:
            _inside("link", "add", f"up{number}", "type", "veth", "peer", "name", f"down{number}")
            self._attach(f"up{number}", f"rack{number}")
            self._attach(f"down{number}", "core")
        for place, host in enumerate(self.lab.hosts):
            _ip("netns", "add", _namespace(place))
            ends = ("link", "add", f"h{place}", "type", "veth", "peer", "name", "eth0")
            _inside(*ends, "netns", _namespace(place))
            self._attach(f"h{place}", f"rack{place // self.rack}")
            for words in (f"addr add {host.address}/24 dev eth0", "link set eth0 up", "link set lo up"):
                _ip("-n", _namespace(place), *words.split())
            argv = ["ip", "netns", "exec", _namespace(place), self.python, "-c", PARENT, self._socket(place)]
            self.parents.append(subprocess.Popen(argv))
        child = self.folder / "child"
        child.write_text(CHILD)
        child.chmod(0o700)
        end = time.monotonic() + READY_S
        while not all(Path(self._socket(place)).exists() for place in range(len(self.lab.hosts))):
            if time.monotonic() > end:
                raise HvlabError(f"{self.python} did not load torch in each namespace")
            time.sleep(0.1)

    def shape(self, faults: Sequence[tuple[str, Sequence[int]]], times: float) -> None:
        """Set every rate again, with these faults."""
        for number in range(-(-len(self.lab.hosts) // self.rack)):
            behind = tuple(range(number * self.rack, (number + 1) * self.rack))
            for kind, device in (("out", f"up{number}"), ("in", f"down{number}")):
                slow = times if (kind, behind) in faults else 1.0
                _limit(SWITCHES, device, self.rack * self.rate / slow)
        for place in range(len(self.lab.hosts)):
            for kind, space, device in (("up", _namespace(place), "eth0"), ("down", SWITCHES, f"h{place}")):
                _limit(space, device, self.rate / (times if (kind, (place, place)) in faults else 1.0))
            self.nice[place] = HALF_WEIGHT * (("host", (place, place)) in faults)

    def argv(self, place: int, program: str) -> list[str]:
        """Return the argv that starts the program on a host."""
        inside = ["ip", "netns", "exec", _namespace(place), "env", f"HVLAB_PARENT={self._socket(place)}"]
        return ["nice", "-n", str(self.nice[place]), *inside, "python3", "-c", program, "bench", str(place)]

    def remove(self) -> None:
        """End the processes and delete all namespaces, with the links in them."""
        for parent in self.parents:
            parent.kill()
            parent.wait()
        for place in range(len(self.lab.hosts)):
            process.run(["ip", "netns", "delete", _namespace(place)], seconds=_LIMIT_S)
        process.run(["ip", "netns", "delete", SWITCHES], seconds=_LIMIT_S)

    def _attach(self, device: str, bridge: str) -> None:
        _inside("link", "set", device, "master", bridge, "up")

    def _socket(self, place: int) -> str:
        return str(self.folder / str(place))


@contextmanager
def racks(count: int, rack: int, rate: float, python: str) -> Iterator[Racks]:
    """Build so many hosts, and remove them at the end."""
    hosts = tuple(
        Host(f"n{place + 1}", f"10.77.0.{place + 1}", 22, None, 1, frozenset(), {}) for place in range(count)
    )
    lab = Lab("netns", Path(), "10.77.0.0/24", "eth0", hosts, {})
    with tempfile.TemporaryDirectory() as folder:
        built = Racks(lab, rack, rate, Path(folder), python)
        try:
            built.build()
            yield built
        finally:
            built.remove()


def plan_with_child(plan: Mapping[str, Any], folder: Path) -> str:
    """Return a plan, JSON, whose devices are forked from the parents."""
    devices: Mapping[str, Any] = plan["devices"]
    return json.dumps({**plan, "devices": {**devices, "python": str(folder / "child")}})


def _namespace(place: int) -> str:
    return f"{PREFIX}-{place + 1}"


def _ip(*words: str) -> None:
    _done(["ip", *words])


def _inside(*words: str) -> None:
    _ip("-n", SWITCHES, *words)


def _limit(space: str, device: str, rate: float) -> None:
    how = f"root tbf rate {rate:g}mbit burst 64kb latency 50ms"
    _done(["ip", "netns", "exec", space, "tc", "qdisc", "replace", "dev", device, *how.split()])


def _done(argv: list[str]) -> None:
    done = process.run(argv, seconds=_LIMIT_S)
    if done.returncode:
        raise HvlabError(f"{' '.join(argv)}: {done.stderr.strip()}")
