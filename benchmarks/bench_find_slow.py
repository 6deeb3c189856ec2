"""How often `hvlab find-slow` raises a false alarm, and what it finds: simulated labs, or virtual hosts.

Simulated: the rate of a transfer is the least of what its sender, its receiver, the pair and a shared uplink
let through, times noise. What hosts compute, send and receive, and every pair, differs by 3 % (standard
deviation) where nothing is slow; a pair alone would let through a tenth more. A fault is put on a host or
link drawn anew for each search: it takes `times` as long. An alarm is false where it names anything else.
`groups` counts the searches that say which groups of hosts are far from each other, `groups_right` those that
say exactly which racks are behind an uplink narrower than a link, or rightly none. On virtual hosts (`--lab`,
root) the same faults are put into the topology of a running lab, `hvlab lab up --topology`, and the search is
the one of the command. With `--torch` (root) the hosts are network namespaces of this machine, which send by
torch.distributed over Gloo; a slow host has half the weight. Prints JSON lines; shares have their exact
one-sided 95 % bound (Clopper and Pearson 1934).

    python -m benchmarks.bench_find_slow [--noise quiet ...] [--fault none ...] [--times 2] [--searches 200]
    python -m benchmarks.bench_find_slow --lab INVENTORY --rate 50mbit --fault up --searches 20 --times 4
    python -m benchmarks.bench_find_slow --torch PYTHON --fault uplink --searches 20
"""

from __future__ import annotations

import json
import math
import random
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np
from scipy import special

from benchmarks import netns
from benchmarks.bench_verdicts import upper
from benchmarks.netns import Racks
from hvlab.base import process
from hvlab.base.errors import HvlabError
from hvlab.base.paths import lab_runtime_dir
from hvlab.lab import inventory as inventories
from hvlab.lab.inventory import Lab
from hvlab.searches.slow.hosts import TRANSFER_S, HostProbe
from hvlab.searches.slow.programs import transfers
from hvlab.searches.slow.search import RATIO, SlowSearch, search
from hvlab.searches.slow.steps import ProbeStep, Rates
from hvlab.vlab import names

# A kind of fault, as a suspect has it, and the cell of its hosts; of a shared uplink all hosts behind it.
Fault = tuple[str, tuple[int, ...]]
LINKS = ("up", "down", "pair")
FAULTS: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "host": ("host",),
    "up": ("up",),
    "down": ("down",),
    "pair": ("pair",),
    "uplink": ("out",),
    # One of the three, drawn for each search.
    "link": ("link",),
    "link-and-host": ("link", "host"),
    "two-links": ("link", "link"),
}
UNLIKE = 0.03
USUAL = 1e6
RACK = 4
LAB_UP_S = 120.0


@dataclass(frozen=True)
class Noise:
    """Noise of logarithms: of each reading, of all in a step, outliers, and what a host keeps between steps.

    ``uplink`` is what a rack of hosts shares to the others, in links; 0: nothing is shared. Racks have RACK
    hosts; where they are ``unequal``, one has, and all other hosts are in a second.
    """

    own: float = 0.03
    step: float = 0.1
    outliers: float = 0.0
    lasting: float = 0.0
    uplink: float = 0.0
    unequal: bool = False

    def rack(self, host: int) -> int:
        """Return the rack of a host."""
        return min(1, host // RACK) if self.unequal else host // RACK

    def groups(self, count: int) -> set[tuple[int, ...]]:
        """Return the hosts of each rack where links between racks are slow, however few are in use."""
        racks = {self.rack(host) for host in range(count)} if 0 < self.uplink < 1 else set()
        return {tuple(host for host in range(count) if self.rack(host) == rack) for rack in racks}


NOISES: Mapping[str, Noise] = {
    "quiet": Noise(),
    "noisy": Noise(own=0.15),
    "outliers": Noise(own=0.05, outliers=0.1),
    "lasting": Noise(own=0.05, lasting=0.1),
    "racks": Noise(uplink=1.0),
    "far-rack": Noise(uplink=0.5, unequal=True),
}


@dataclass
class SimulatedLab:
    """Measures steps on hosts that exist only here."""

    count: int
    noise: Noise
    faults: Sequence[Fault]
    times: float
    draw: np.random.Generator
    lasting: np.ndarray[Any, np.dtype[np.float64]] = field(init=False)

    def __post_init__(self) -> None:
        kinds = ("host", "up", "down")
        self.healthy = {kind: np.exp(UNLIKE * self.draw.normal(size=self.count)) for kind in kinds}
        self.pairs = 1.1 * np.exp(UNLIKE * self.draw.normal(size=(self.count, self.count)))
        self.lasting = self.draw.normal(size=self.count)

    def __call__(self, steps: Sequence[ProbeStep]) -> list[Rates]:
        """Return the rates of each step."""
        return [self._step(step) for step in steps]

    def _step(self, step: ProbeStep) -> Rates:
        cells = step.cells(self.count)
        self.lasting = 0.9 * self.lasting + 0.19**0.5 * self.draw.normal(size=self.count)
        common = self.noise.step * self.draw.normal()
        rack = self.noise.rack
        leaving = [rack(one) for one, other in cells if rack(one) != rack(other)]
        rates = {}
        for one, other in cells:
            rate = self._share(one, other)
            if rack(one) != rack(other) and (uplink := self._uplink(rack(one))):
                rate = min(rate, uplink / leaving.count(rack(one)))
            own = self.noise.own * self.draw.normal() + common
            own -= (self.draw.random() < self.noise.outliers) * self.draw.exponential()
            own += self.noise.lasting * (self.lasting[one] + self.lasting[other]) / 2**0.5
            rates[one, other] = USUAL * rate * math.exp(own)
        return rates

    def _share(self, one: int, other: int) -> float:
        if one == other:
            return float(self.healthy["host"][one]) / self._factor(("host", (one, one)))
        return min(
            float(self.healthy["up"][one]) / self._factor(("up", (one, one))),
            float(self.healthy["down"][other]) / self._factor(("down", (other, other))),
            float(self.pairs[one, other]) / self._factor(("pair", (one, other))),
        )

    def _uplink(self, rack: int) -> float:
        """Return the capacity of a rack's uplink, in links; 0: unlimited."""
        behind = tuple(host for host in range(self.count) if self.noise.rack(host) == rack)
        return len(behind) / self.times if ("out", behind) in self.faults else self.noise.uplink

    def _factor(self, fault: Fault) -> float:
        return self.times if fault in self.faults else 1.0


def faults(kinds: Sequence[str], count: int, draw: random.Random) -> list[Fault]:
    """Return a fault of each kind, on hosts that are drawn, no host twice."""
    if "out" in kinds:
        first = RACK * draw.randrange(count // RACK)
        return [("out", tuple(range(first, first + RACK)))]
    hosts = draw.sample(range(count), 2 * len(kinds))
    chosen = [draw.choice(LINKS) if kind == "link" else kind for kind in kinds]
    return [
        (kind, (one, other) if kind == "pair" else (one, one))
        for kind, one, other in zip(chosen, hosts[::2], hosts[1::2], strict=True)
    ]


def named(result: SlowSearch) -> list[Fault]:
    """Return the faults that a search names; traffic into one half of the hosts leaves the other."""
    found: list[Fault] = []
    for each in result.of("slow"):
        kind: str = each.suspect.kind
        members = each.suspect.members
        if kind == "in" and 2 * len(members) == result.hosts:
            kind, members = "out", tuple(host for host in range(result.hosts) if host not in members)
        found.append((kind, members or each.suspect.cell))
    return found


def summary(
    searches: Sequence[tuple[Sequence[Fault], SlowSearch]], groups: Set[tuple[int, ...]] = frozenset()
) -> dict[str, Any]:
    """Return the shares of searches with a false alarm, and of those that find all faults.

    ``groups`` are the hosts that are far from each other.
    """
    runs = len(searches)
    false = sum(bool(set(named(result)) - set(given)) for given, result in searches)
    complete = sum(set(given) <= set(named(result)) for given, result in searches)
    launches = [result.launches for _, result in searches]
    shares = {"false": false, "false_at_most": round(upper(false, runs), 4)}
    if any(given for given, _ in searches):
        at_least = float(special.betaincinv(complete, runs - complete + 1, 0.05)) if complete else 0.0
        shares |= {"all_faults": complete, "all_faults_at_least": round(at_least, 4)}
    return {
        **shares,
        "groups": sum(bool(result.groups) for _, result in searches),
        "groups_right": sum(set(result.groups) == groups for _, result in searches),
        "launches_mean": round(statistics.fmean(launches), 2),
        "launches_most": max(launches),
        "rounds_mean": round(statistics.fmean(result.rounds for _, result in searches), 1),
        "pair_launches": searches[0][1].pair_launches,
    }


def topology(given: Sequence[Fault], lab: Lab, *, rate: str, times: float) -> dict[str, Any]:
    """Return the topology of a lab whose links are limited, with these faults in it."""
    number, unit = float(rate.rstrip("bitkmg")), rate.lstrip("0123456789.")
    slow = f"{number / times:g}{unit}"
    named = [host.name for host in lab.hosts]
    hosts: dict[str, dict[str, Any]] = {}
    pairs = []
    racks = {}
    for kind, (one, other, *more) in given:
        if more:
            behind = [named[place] for place in (one, other, *more)]
            racks["slow"] = {"hosts": behind, "uplink": {"up": f"{len(behind) * number / times:g}{unit}"}}
        elif kind == "pair":
            pairs.append({"from": named[one], "to": named[other], "rate": slow})
        else:
            limit = {"cpu_weight": round(100 / times)} if kind == "host" else {kind: slow}
            hosts.setdefault(named[one], {}).update(limit)
    return {"rate": rate, "hosts": hosts, "pairs": pairs, "racks": racks}


def shape(inventory: Path, content: Mapping[str, Any]) -> None:
    """Put a topology into force on a running lab."""
    with tempfile.NamedTemporaryFile("w", suffix=".yml", encoding="utf-8") as file:
        json.dump(content, file)
        file.flush()
        argv = [sys.executable, "-m", "hvlab", "lab", "up", "-i", str(inventory), "--topology", file.name]
        done = process.run(argv, seconds=LAB_UP_S)
    if done.returncode:
        raise HvlabError(f"the lab could not be shaped:\n{done.stderr}")


def simulate(
    noise: str, fault: str, *, hosts: int, times: float, ratio: float, number: int, seed: int
) -> list[tuple[list[Fault], SlowSearch]]:
    """Return the faults and the result of so many searches on simulated labs."""
    generator = np.random.default_rng([seed, list(NOISES).index(noise), list(FAULTS).index(fault), hosts])
    draw = random.Random(seed)  # noqa: S311 - a simulation
    done = []
    for _ in range(number):
        given = faults(FAULTS[fault], hosts, draw)
        lab = SimulatedLab(hosts, NOISES[noise], given, times, generator)
        done.append((given, search(hosts, lab, ratio=ratio, seed=draw.randrange(1 << 30))))
    return done


def over_ssh(lab: Lab, plan: Mapping[str, Any]) -> Mapping[str, Any]:
    """Start the program on virtual hosts with ssh instead of Ansible, which takes most of a launch."""
    runtime = lab_runtime_dir(lab.name) / "ssh"
    options = ["BatchMode=yes", f"UserKnownHostsFile={runtime / 'known_hosts'}", "ControlMaster=auto"]
    options += [f"ControlPath={runtime}/%h", "ControlPersist=900"]
    ssh = ["ssh", "-i", str(runtime / "id_ed25519"), *(word for option in options for word in ("-o", option))]
    remote = shlex.join(["python3", "-c", Path(transfers.__file__).read_text("utf-8"), "bench"])

    def run(place: int) -> str:
        argv = [*ssh, f"root@{lab.hosts[place].address}", f"{remote} {place}"]
        return process.run(argv, seconds=plan["limit_s"], given=json.dumps(plan)).stdout

    return first_answer(run, len(lab.hosts))


def in_namespaces(built: Racks, plan: Mapping[str, Any]) -> Mapping[str, Any]:
    """Start the program on network namespaces."""
    program = Path(transfers.__file__).read_text("utf-8")
    given = netns.plan_with_child(plan, built.folder)

    def run(place: int) -> str:
        return process.run(built.argv(place, program), seconds=plan["limit_s"], given=given).stdout

    return first_answer(run, len(built.lab.hosts))


def first_answer(run: Callable[[int], str], count: int) -> Mapping[str, Any]:
    """Run it on all hosts at once; return what the first one printed."""
    with ThreadPoolExecutor(count) as pool:
        printed = list(pool.map(run, range(count)))
    answer: dict[str, Any] = json.loads(printed[0] or "{}")
    if "steps" not in answer:
        raise HvlabError(f"the launch failed: {answer or printed}")
    return answer


def on_hosts(
    lab: Lab,
    fault: str,
    put: Callable[[list[Fault]], None],
    probe: HostProbe,
    *,
    ratio: float,
    number: int,
    seed: int,
) -> list[tuple[list[Fault], SlowSearch]]:
    """Return the faults and the result of so many searches on real hosts; print each as it ends.

    ``put`` puts faults into force.
    """
    draw = random.Random(f"{seed} {fault}")  # noqa: S311 - which host
    done = []
    for number_of_search in range(1, number + 1):
        given = faults(FAULTS[fault], len(lab.hosts), draw)
        put(given)
        began = time.monotonic()
        result = search(len(lab.hosts), probe, ratio=ratio, copies=bool(probe.torch))
        done.append((given, result))
        shown = {
            "search": number_of_search,
            "fault": [" ".join([kind, *(lab.hosts[place].name for place in cell)]) for kind, cell in given],
            "right": sorted(named(result)) == sorted(given),
            "judged": [
                [
                    each.suspect.kind,
                    *each.suspect.cell,
                    each.state,
                    round(each.slower.mid, 2),
                    each.wins,
                    each.trials,
                ]
                for each in result.judgements
            ],
            "launches": result.launches,
            "seconds": round(time.monotonic() - began, 1),
        }
        click.echo(json.dumps(shown), err=True)
    return done


@click.command(help=__doc__)
@click.option("--noise", "noises", multiple=True, type=click.Choice(list(NOISES)))
@click.option("--fault", "kinds", multiple=True, type=click.Choice(list(FAULTS)))
@click.option("--hosts", default=16, show_default=True)
@click.option("--times", default=2.0, show_default=True, help="What is slow takes that many times as long.")
@click.option("--ratio", default=RATIO, show_default=True)
@click.option("--searches", "number", default=200, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--lab", type=click.Path(path_type=Path, exists=True), help="Virtual hosts instead.")
@click.option("--rate", default="50mbit", show_default=True, help="Of every link, not simulated.")
@click.option("--torch", metavar="PYTHON", help="Network namespaces instead, sending by torch.distributed.")
@click.option("--transfer-time", default=TRANSFER_S, show_default=True, help="With --torch, in seconds.")
def main(
    *,
    noises: tuple[str, ...],
    kinds: tuple[str, ...],
    hosts: int,
    times: float,
    ratio: float,
    number: int,
    seed: int,
    lab: Path | None,
    rate: str,
    torch: str | None,
    transfer_time: float,
) -> None:
    settings: dict[str, Any] = {"ratio": ratio, "number": number, "seed": seed}
    shared = {"times": times, "ratio": ratio, "searches": number, "hosts": hosts}
    if torch:
        with netns.racks(hosts, RACK, names.rate(rate) / 1e6, torch) as built:
            probe = HostProbe(
                built.lab, transfer_time, torch=torch, start=lambda _, plan: in_namespaces(built, plan)
            )
            for fault in kinds or FAULTS:
                done = on_hosts(built.lab, fault, lambda given: built.shape(given, times), probe, **settings)
                click.echo(
                    json.dumps({"torch": True, "fault": fault, "rate": rate, **shared, **summary(done)})
                )
        return
    for fault in kinds or FAULTS:
        if lab:
            virtual = inventories.load(lab)
            probe = HostProbe(virtual, start=over_ssh)

            def put(given: list[Fault], virtual: Lab = virtual, inventory: Path = lab) -> None:
                shape(inventory, topology(given, virtual, rate=rate, times=times))

            done = on_hosts(virtual, fault, put, probe, **settings)
            asked = {"lab": str(lab), "fault": fault, "rate": rate}
            click.echo(json.dumps({**asked, **shared, "hosts": done[0][1].hosts, **summary(done)}))
            continue
        for noise in noises or NOISES:
            done = simulate(noise, fault, hosts=hosts, times=times, **settings)
            shares = summary(done, NOISES[noise].groups(hosts))
            click.echo(json.dumps({"noise": noise, "fault": fault, **shared, **shares}))


if __name__ == "__main__":
    main()
