"""Hosts made of namespaces of this machine. Needs root.

A process holds the namespaces of each; they, and all that runs in them, end with this program, even where it
is killed. `bench_find_slow --torch` puts them in racks with shaped links: each has one interface to the
bridge of its rack, whose uplink goes to a bridge that all racks share, and the processes of devices.py are
forked from one of each host that has loaded torch already.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hvlab.base import process
from hvlab.base.errors import HvlabError
from hvlab.lab.inventory import Host, Lab

SWITCH = "switch"
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


@contextmanager
def hold(names: Sequence[str]) -> Iterator[dict[str, int]]:
    """Have hosts with a network, a name, processes and mounts of their own; yield the process of each."""
    with ExitStack() as ending:
        held: dict[str, int] = {}
        for name in names:
            argv = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--uts", "--pid", "--mount"]
            # The first process of a host is a shell, which takes leave of the ended.
            argv += ["--fork", "--mount-proc", "--kill-child", "sh", "-c", "sleep infinity & wait"]
            process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
            ending.callback(process.wait)
            ending.callback(process.kill)
            held[name] = _child(process.pid)
            run_inside(held[name], "hostname", name)
        yield held


def _child(pid: int) -> int:
    """Return the process that unshare forked."""
    for _ in range(200):
        with suppress(OSError):
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            if children and "sleep" in Path(f"/proc/{children[0]}/cmdline").read_text():
                return int(children[0])
        time.sleep(0.02)
    raise HvlabError("unshare made no host: root is needed")


def enter(held: int, *options: str) -> list[str]:
    """Return the words that run a command on a host; ``options`` are setpriv's."""
    own = ["setpriv", *options] if options else []
    return ["nsenter", "--target", str(held), "--net", "--uts", "--pid", "--mount", "--", *own]


def run_inside(held: int, *words: str) -> None:
    """Run a command on a host. Raises HvlabError if it fails."""
    _run([*enter(held), *words])


def link(held: Mapping[str, int], host: str, end: str) -> None:
    """Give a host an interface eth0 whose other end is a port of the switch, not yet up."""
    ends = ["ip", "link", "add", "eth0", "type", "veth", "peer", "name", end, "netns", str(held[SWITCH])]
    # The number of the other host's process is this machine's.
    _run(["nsenter", "--target", str(held[host]), "--net", *ends])


@dataclass
class Racks:
    """Hosts of a lab as namespaces; rates in Mbit/s."""

    lab: Lab
    held: Mapping[str, int]
    rack: int
    rate: float
    folder: Path
    python: str
    nice: dict[int, int] = field(default_factory=dict)
    parents: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def build(self) -> None:
        """Create bridges and links, and load torch on each host."""
        racks = range(-(-len(self.lab.hosts) // self.rack))
        for bridge in ("core", *(f"rack{number}" for number in racks)):
            self._ip("add", bridge, "type", "bridge")
            self._ip("set", bridge, "up")
        for number in racks:
            self._ip("add", f"up{number}", "type", "veth", "peer", "name", f"down{number}")
            self._attach(f"up{number}", f"rack{number}")
            self._attach(f"down{number}", "core")
        for place, host in enumerate(self.lab.hosts):
            link(self.held, host.name, f"h{place}")
            self._attach(f"h{place}", f"rack{place // self.rack}")
            for words in (f"addr add {host.address}/24 dev eth0", "link set eth0 up", "link set lo up"):
                run_inside(self.held[host.name], "ip", *words.split())
            argv = [*enter(self.held[host.name]), self.python, "-c", PARENT, self._socket(place)]
            self.parents.append(subprocess.Popen(argv))
        child = self.folder / "child"
        child.write_text(CHILD)
        child.chmod(0o700)
        end = time.monotonic() + READY_S
        while not all(Path(self._socket(place)).exists() for place in range(len(self.lab.hosts))):
            if time.monotonic() > end:
                raise HvlabError(f"{self.python} did not load torch on each host")
            time.sleep(0.1)

    def shape(self, faults: Sequence[tuple[str, Sequence[int]]], times: float) -> None:
        """Set every rate again, with these faults."""
        for number in range(-(-len(self.lab.hosts) // self.rack)):
            behind = tuple(range(number * self.rack, (number + 1) * self.rack))
            for kind, device in (("out", f"up{number}"), ("in", f"down{number}")):
                slow = times if (kind, behind) in faults else 1.0
                _limit(self.held[SWITCH], device, self.rack * self.rate / slow)
        for place in range(len(self.lab.hosts)):
            own, switch = self.held[self.lab.hosts[place].name], self.held[SWITCH]
            for kind, held, device in (("up", own, "eth0"), ("down", switch, f"h{place}")):
                _limit(held, device, self.rate / (times if (kind, (place, place)) in faults else 1.0))
            for kind, (sender, receiver, *_) in faults:
                if kind == "pair" and sender == place:
                    _limit_to(own, self.lab.hosts[receiver].address, self.rate, self.rate / times)
            self.nice[place] = HALF_WEIGHT * (("host", (place, place)) in faults)

    def argv(self, place: int, program: str) -> list[str]:
        """Return the argv that starts the program on a host."""
        inside = [*enter(self.held[self.lab.hosts[place].name]), "env", f"HVLAB_PARENT={self._socket(place)}"]
        return ["nice", "-n", str(self.nice[place]), *inside, "python3", "-c", program, "bench", str(place)]

    def _attach(self, device: str, bridge: str) -> None:
        self._ip("set", device, "master", bridge, "up")

    def _ip(self, *words: str) -> None:
        run_inside(self.held[SWITCH], "ip", "link", *words)

    def _socket(self, place: int) -> str:
        return str(self.folder / str(place))


@contextmanager
def racks(count: int, rack: int, rate: float, python: str) -> Iterator[Racks]:
    """Build so many hosts, and remove them at the end."""
    hosts = tuple(
        Host(f"n{place + 1}", f"10.77.0.{place + 1}", 22, None, 1, frozenset(), {}) for place in range(count)
    )
    lab = Lab("netns", Path(), "10.77.0.0/24", "eth0", hosts, {})
    names = [SWITCH, *(host.name for host in hosts)]
    with tempfile.TemporaryDirectory() as folder, hold(names) as held, ExitStack() as ending:
        built = Racks(lab, held, rack, rate, Path(folder), python)
        built.build()
        # They end with their hosts.
        for parent in built.parents:
            ending.callback(parent.wait)
            ending.callback(parent.kill)
        yield built


def plan_with_child(plan: Mapping[str, Any], folder: Path) -> str:
    """Return a plan, JSON, whose devices are forked from the parents."""
    devices: Mapping[str, Any] = plan["devices"]
    return json.dumps({**plan, "devices": {**devices, "python": str(folder / "child")}})


def _limit(held: int, device: str, rate: float) -> None:
    how = f"root tbf rate {rate:g}mbit burst 64kb latency 50ms"
    run_inside(held, "tc", "qdisc", "replace", "dev", device, *how.split())


def _limit_to(held: int, address: str, rate: float, slow: float) -> None:
    """Limit what leaves for one address further than the rest."""
    tree = ["qdisc replace dev eth0 root handle 1: htb default 1"]
    tree += [
        f"class add dev eth0 parent 1: classid 1:{number} htb rate {each:g}mbit burst 64kb cburst 64kb"
        for number, each in ((1, rate), (2, slow))
    ]
    tree.append(f"filter add dev eth0 parent 1: protocol ip u32 match ip dst {address}/32 flowid 1:2")
    for words in tree:
        run_inside(held, "tc", *words.split())


def _run(argv: list[str]) -> None:
    done = process.run(argv, seconds=_LIMIT_S)
    if done.returncode:
        raise HvlabError(f"{' '.join(argv)}: {done.stderr.strip()}")
