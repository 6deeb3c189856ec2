"""Virtual hosts with cores of their own against hosts that float over all cores, in turn on one machine.

Each round measures every arrangement of cores once, in changing order, so that a busy hour hurts all of them:
allreduce on all hosts, and mnist on one host and on all, over MPI and Gloo. Told are the spread of each
configuration (max/min of its rounds) and mnist's speed-up, each arrangement beside the others.

    python -m benchmarks.bench_pinning -i inventory/lab --rounds 5 --figure docs/virtual-lab-cores.svg

Needs root, and a provisioned lab that is up. With more hosts than cores (--hosts 3 on two cores), the ways in
which the hosts beyond the cores can be placed are compared: on all cores, in turn on single ones, all
floating. In the end the hosts have the cores that the inventory asks for. Prints a table as Markdown; --json
keeps all figures.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import click
import yaml

from hvlab.cli import options
from hvlab.lab import cores
from hvlab.lab.inventory import Lab, load
from hvlab.statistics import interval
from hvlab.vlab import limits, reality
from hvlab.vlab.node import SYSTEMD_RUNS
from hvlab.vlab.plan import LabPlan, check_machine, make_plan

NAMES = {
    "own": "cores of their own",
    "share": "beyond the cores: on all",
    "deal": "beyond the cores: in turn",
    "float": "all floating",
}
PRIMARY = {"allreduce": "time", "mnist": "step_time"}
BACKENDS = ("mpi", "gloo")
Key = tuple[str, str, int, int]


@dataclass
class Arrangement:
    """The figures of one way to place the hosts on the cores; keys are workload, backend, hosts, size."""

    name: str
    cpus: Mapping[str, tuple[int, ...]]
    values: dict[Key, list[float]] = field(default_factory=dict)
    throughput: dict[Key, list[float]] = field(default_factory=dict)
    stolen: list[float] = field(default_factory=list)

    def spreads(self) -> dict[Key, float]:
        """Return max/min of each configuration's rounds."""
        return {key: max(values) / min(values) for key, values in self.values.items()}

    def speedup(self, backend: str, hosts: int) -> interval.Interval:
        """Return the speed-up of mnist on so many hosts over one, each round's ratio by itself."""
        one, all_ = (self.throughput["mnist", backend, count, 0] for count in (1, hosts))
        return interval.median([many / single for many, single in zip(all_, one, strict=True)])


def arrangements(plan: LabPlan, count: int) -> list[Arrangement]:
    """Return the arrangements to compare for the first ``count`` hosts."""
    names, machine = [node.name for node in plan.nodes[:count]], limits.machine_cpus()
    ways: dict[str, int | str | None] = {"own": None, "float": cores.ALL}
    if count > len(machine):
        ways = {"share": None, "deal": 1, "float": cores.ALL}
    return [Arrangement(way, cores.deal(dict.fromkeys(names, each), machine)) for way, each in ways.items()]


def place(plan: LabPlan, arrangement: Arrangement) -> None:
    """Put the hosts on their cores. Raises ClickException where the kernel does not keep them there."""
    running = reality.supervisors(plan.runtime / "nodes")
    requested = plan.limits(limits.machine_cpus())
    for node in plan.nodes:
        if node.name not in arrangement.cpus:
            continue
        leader = reality.leader(running[node.name][0]) if node.name in running else None
        if leader is None:
            raise click.ClickException(f"{node.name} is not up: run `hvlab lab up`")
        own = replace(requested[node.name], cpus=arrangement.cpus[node.name])
        failed = limits.apply(node.name, node.group, leader, own, unit=SYSTEMD_RUNS.is_dir())
        if failed:
            raise click.ClickException(f"{node.name} {limits.remarks(failed, own)}")


def measure(inventory: Path, suite: Path, arrangement: Arrangement) -> None:
    """Run the suite once and add its figures."""
    with tempfile.TemporaryDirectory(prefix="hvlab-bench-") as results:
        argv = [sys.executable, "-m", "hvlab", "bench", "-i", str(inventory), "--suite", str(suite)]
        argv += ["--results", results, "--format", "json"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            raise click.ClickException(f"hvlab bench ended with {done.returncode}:\n{done.stderr[-2000:]}")
    for row in json.loads(done.stdout):
        params = row["params"]
        if "host" in params or row["value"] is None:
            continue
        key = (row["workload"], row["backend"], len(row["hosts"]), int(params.get("size_bytes", 0)))
        if row["metric"] == PRIMARY[row["workload"]]:
            arrangement.values.setdefault(key, []).append(row["value"])
        elif row["metric"] == "throughput":
            arrangement.throughput.setdefault(key, []).append(row["value"])
        elif row["metric"] == "stolen":
            arrangement.stolen.append(row["value"])


def suite(hosts: int, sizes: str) -> dict[str, Any]:
    """Return what is measured, as a suite's file has it."""
    backends = list(BACKENDS)
    return {
        "blocks": [
            {
                "workload": "allreduce",
                "backends": backends,
                "hosts": hosts,
                "slots": 1,
                "set": {"sizes": sizes},
            },
            {"workload": "mnist", "backends": backends, "hosts": [1, hosts], "slots": 1},
        ]
    }


def table(done: Sequence[Arrangement], hosts: int) -> str:
    """Return the figures as a Markdown table."""
    largest = max(size for workload, _, _, size in done[0].values if workload == "allreduce")
    rows = [["", *(NAMES[one.name] for one in done)]]
    rows.append(["---", *["--:"] * len(done)])
    spreads = [sorted(one.spreads().values()) for one in done]
    rows.append(["spread, median", *(f"{statistics.median(values):.2f}" for values in spreads)])
    rows.append(["spread, worst", *(f"{values[-1]:.2f}" for values in spreads)])
    for backend in BACKENDS:
        times = [[value / 1e3 for value in one.values["allreduce", backend, hosts, largest]] for one in done]
        label = f"allreduce {backend}, {largest >> 20} MiB, ms"
        rows.append([label, *(f"{min(values):.1f} to {max(values):.1f}" for values in times)])
    for backend in BACKENDS:
        ratios = [one.speedup(backend, hosts) for one in done]
        label = f"mnist {backend}, speed-up on {hosts} hosts"
        rows.append([label, *(f"{ratio.mid:.2f} ({ratio.low:.2f} to {ratio.high:.2f})" for ratio in ratios)])
    rows.append(["taken by others, worst case, %", *(f"{max(one.stolen, default=0):.0f}" for one in done)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def draw(done: Sequence[Arrangement], hosts: int, path: Path) -> None:
    """Draw the spread of every configuration, and mnist's speed-up, one colour an arrangement."""
    import matplotlib as mpl  # noqa: PLC0415 - loads slowly

    mpl.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    mpl.rcParams["svg.hashsalt"] = "hvlab"
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.6), width_ratios=(3, 2))
    keys = sorted(done[0].values, key=lambda key: (key[0], key[1], key[2], key[3]))
    for number, (one, colour) in enumerate(zip(done, ("#0b6e99", "#c4561e", "#7a4fa3"), strict=False)):
        spreads = one.spreads()
        left.scatter(
            [spreads[key] for key in keys], range(len(keys)), s=22, color=colour, label=NAMES[one.name]
        )
        for place_, backend in enumerate(BACKENDS):
            ratio = one.speedup(backend, hosts)
            at = place_ + (number - (len(done) - 1) / 2) * 0.18
            error = [[ratio.mid - ratio.low], [ratio.high - ratio.mid]]
            right.errorbar(at, ratio.mid, yerr=error, fmt="o", color=colour, capsize=3)
    left.set_yticks(range(len(keys)), [_label(key) for key in keys], fontsize=6)
    most = max(spread for one in done for spread in one.spreads().values()) * 1.1
    left.set_xscale("log")
    left.set_xlim(0.97, most)
    left.minorticks_off()
    ticks = [tick for tick in (1, 1.2, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64) if tick <= most]
    left.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    left.set_xlabel("slowest / fastest round")
    left.legend(fontsize=7)
    right.axhline(hosts, color="#888888", linewidth=0.8, linestyle="--")
    right.set_xticks(range(len(BACKENDS)), [f"mnist, {backend}" for backend in BACKENDS])
    right.set_xlim(-0.5, len(BACKENDS) - 0.5)
    right.set_ylim(0, hosts * 1.1)
    right.set_ylabel(f"speed-up on {hosts} hosts")
    for axes in (left, right):
        axes.grid(visible=True, color="#e6e9ed")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=150)
    if path.suffix == ".svg":
        # As every text of the project: no space ends a line.
        lines = [line.rstrip() + "\n" for line in path.read_text("utf-8").splitlines()]
        path.write_text("".join(lines), "utf-8")


def _label(key: Key) -> str:
    workload, backend, hosts, size = key
    shown = f"{size >> 20} MiB" if size >> 20 else f"{size >> 10} KiB"
    return f"{workload} {backend} {shown}" if size else f"{workload} {backend} {hosts} x 1"


def _flat(one: Arrangement) -> dict[str, Any]:
    values = {name: content for name, content in asdict(one).items() if name in ("name", "cpus", "stolen")}
    for name in ("values", "throughput"):
        rows = getattr(one, name).items()
        values[name] = [{"configuration": list(key), "rounds": figures} for key, figures in rows]
    return values


@click.command(help=__doc__)
@options.inventory
@click.option("--hosts", default=2, show_default=True, type=click.IntRange(2))
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(2))
@click.option("--sizes", default="1K:16M:4", show_default=True)
@click.option("--figure", type=click.Path(path_type=Path), help="Where to draw it: .svg or .png.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Where to keep all figures.")
def main(
    *, inventory: Path, hosts: int, rounds: int, sizes: str, figure: Path | None, json_file: Path | None
) -> None:
    check_machine()
    lab: Lab = load(inventory)
    plan = make_plan(lab)
    done = arrangements(plan, hosts)
    with tempfile.TemporaryDirectory(prefix="hvlab-bench-") as folder:
        file = Path(folder) / "pinning.yml"
        file.write_text(yaml.safe_dump(suite(hosts, sizes)))
        try:
            for number in range(rounds):
                for one in done[:: -1 if number % 2 else 1]:
                    place(plan, one)
                    click.echo(f"round {number + 1} of {rounds}: {NAMES[one.name]}", err=True)
                    measure(inventory, file, one)
        finally:
            requested = plan.limits(limits.machine_cpus())
            place(plan, Arrangement("requested", {name: requested[name].cpus for name in done[0].cpus}))
    if json_file:
        json_file.write_text(json.dumps([_flat(one) for one in done], indent=1) + "\n")
    if figure:
        draw(done, hosts, figure)
    click.echo(table(done, hosts))


if __name__ == "__main__":
    main()
