"""Allreduce through hvlab and Horovod against plain MPI, on the same Open MPI and hosts, in the same run.

The plain side is mpi4py, timed as osu_allreduce does: no barrier between iterations, the mean of the
ranks' mean times, the wrapped MPI_Allreduce alone. Both sides are run in turn, so that a busy machine
hurts both, the first of them changing. Told are the medians, and the median of the rounds' ratios with its
95 % bootstrap interval (of few rounds, from the least to the greatest). Needs a provisioned lab.

    python -m benchmarks.bench_allreduce -i inventory/lab [--hosts 2] [--slots 1] [--rounds 7]
"""

from __future__ import annotations

import json
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import click

from hvlab.bench.matrix import Block, Case, Spec, expand
from hvlab.cli import options
from hvlab.lab.inventory import Lab, load
from hvlab.remote.trust import Trust, lab_trust
from hvlab.statistics import interval
from hvlab.workloads import argv as program_argv
from hvlab.workloads.launchers import command
from hvlab.workloads.sizes import parse_sizes

MPI4PY = "mpi4py==4.1.2"
FOLDER = "/tmp/hvlab-mpi4py"  # noqa: S108 - on the nodes, as the lab user, removed afterwards
PLAIN = """
import sys, numpy
from mpi4py import MPI
world = MPI.COMM_WORLD
for size in map(int, sys.argv[1].split(",")):
    send = numpy.ones(size // 4, dtype=numpy.float32)
    receive = numpy.empty_like(send)
    for iteration in range(25):
        if iteration == 5:
            world.Barrier()
            start = MPI.Wtime()
        world.Allreduce(send, receive)
    mean = world.allreduce((MPI.Wtime() - start) / 20) / world.size
    assert receive[-1] == world.size
    if world.rank == 0:
        print(size, mean * 1e6, flush=True)
"""


def ssh(lab: Lab, trust: Trust, user: str, host: str) -> list[str]:
    """Return the argv before a command on a host, as the lab user."""
    return [
        *("ssh", "-i", str(trust.identity), "-o", f"UserKnownHostsFile={trust.known_hosts}"),
        *("-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"),
        f"{user}@{lab.host(host).address}",
    ]


def plain_argv(lab: Lab, case: Case) -> list[str]:
    """Return the very command of the bench, but for the program."""
    program, *more = program_argv(case)
    argv = command(case, lab, "plain", (program, *more)).argv
    python = next(index for index, word in enumerate(argv) if word.endswith(f"/{program}")) - 1
    paths = [f"PYTHONPATH={FOLDER}", f"LD_LIBRARY_PATH={Path(argv[0]).parents[1]}/lib"]
    sizes = ",".join(map(str, case.params["sizes"]))
    return [*argv[:python], "env", *paths, argv[python], f"{FOLDER}/plain.py", sizes]


def plain(lab: Lab, case: Case, login: list[str]) -> dict[int, float]:
    """Return microseconds by size of MPI_Allreduce."""
    line = shlex.join(plain_argv(lab, case))
    done = subprocess.run([*login, line], capture_output=True, text=True, check=False)
    if done.returncode:
        raise click.ClickException(f"the plain side ended with {done.returncode}:\n{done.stderr[-2000:]}")
    rows = [line.split() for line in done.stdout.splitlines()]
    return {int(size): float(micros) for size, micros in rows}


def measured(inventory: Path, case: Case, folder: Path) -> dict[int, float]:
    """Return microseconds by size as ``hvlab bench`` records them."""
    argv = [sys.executable, "-m", "hvlab", "bench", "-i", str(inventory), "--backend", "mpi", "--restart"]
    argv += ["--hosts", str(len(case.hosts)), "--slots", str(case.slots)]
    argv += ["--sizes", ",".join(map(str, case.params["sizes"]))]
    argv += ["--results", str(folder), "--format", "json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise click.ClickException(f"hvlab bench ended with {done.returncode}:\n{done.stderr[-2000:]}")
    rows = [row for row in json.loads(done.stdout) if row["metric"] == "time"]
    return {row["params"]["size_bytes"]: row["value"] for row in rows}


def copy_mpi4py(lab: Lab, case: Case, trust: Trust, user: str, folder: Path) -> None:
    """Put mpi4py and the program on every host of the case."""
    python = str(lab.vars.get("ansible_python_interpreter", "python3"))
    asked = [
        *ssh(lab, trust, user, case.hosts[0]),
        f"{python} -c 'import sys; print(*sys.version_info[:2], sep=\".\")'",
    ]
    version = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--quiet", "--no-deps", "--only-binary=:all:"]
    subprocess.run([*pip, "--python-version", version, "--target", str(folder), MPI4PY], check=True)
    (folder / "plain.py").write_text(PLAIN)
    packed = subprocess.run(["tar", "-C", str(folder), "-cz", "."], capture_output=True, check=True).stdout
    for host in case.hosts:
        unpack = f"rm -rf {FOLDER} && mkdir {FOLDER} && tar -C {FOLDER} -xz"
        subprocess.run([*ssh(lab, trust, user, host), unpack], input=packed, check=True)


@click.command(help=__doc__)
@options.inventory
@click.option("--hosts", default=2, show_default=True)
@click.option("--slots", default=1, show_default=True)
@click.option("--sizes", default="4M:64M:4", show_default=True)
@click.option("--rounds", default=7, show_default=True)
def main(inventory: Path, hosts: int, slots: int, sizes: str, rounds: int) -> None:
    lab = load(inventory)
    trust = lab_trust(lab.name)
    if trust is None:
        raise click.ClickException("the lab is not provisioned")
    user = str(lab.vars.get("lab_user_name", "hvlab"))
    block = Block("allreduce", ("mpi",), (hosts,), (slots,), {"sizes": (parse_sizes(sizes),)})
    case = expand(Spec((block,)), lab)[0][0]
    both: list[tuple[dict[int, float], dict[int, float]]] = []
    with tempfile.TemporaryDirectory(prefix="hvlab-bench-") as name:
        target = Path(name) / "mpi4py"
        target.mkdir()
        copy_mpi4py(lab, case, trust, user, target)
        login = ssh(lab, trust, user, case.hosts[0])
        try:
            for number in range(rounds):
                sides: list[Callable[[], dict[int, float]]] = [
                    lambda: plain(lab, case, login),
                    lambda: measured(inventory, case, Path(name) / "results"),
                ]
                first = number % 2
                times = {side: sides[side]() for side in (first, 1 - first)}
                both.append((times[0], times[1]))
        finally:
            for host in case.hosts:
                subprocess.run([*ssh(lab, trust, user, host), f"rm -rf {FOLDER}"], check=False)
    for size in case.params["sizes"]:
        mpi, horovod = (statistics.median(side[i][size] for side in both) for i in (0, 1))
        row = {"hosts": hosts, "slots": slots, "size": size, "mpi_us": round(mpi), "hvlab_us": round(horovod)}
        ratio = interval.median([side[1][size] / side[0][size] for side in both])
        bounds = [round(ratio.low, 2), round(ratio.high, 2)]
        click.echo(json.dumps(row | {"ratio": round(ratio.mid, 2), "ratio_95": bounds, "rounds": rounds}))


if __name__ == "__main__":
    main()
