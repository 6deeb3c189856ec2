"""What a thousand hosts cost the controller: simulated hosts, each of which answers after 20 ms.

For each number of hosts and each step of the way: wall and processor time, the most memory of the step's
processes together (proportional set size), the most files and bytes in its temporary folder, and what it left
there. The hosts' part is answered from a record (benchmarks/simulated); all that the controller does is
done. Prints a line of JSON for each step.

    python -m benchmarks.bench_hosts --hosts 10 --hosts 1000 [--step plan] [--limit 600]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from benchmarks.simulated.hosts import SimulatedLab, write
from hvlab.base.paths import project_dir
from hvlab.base.process import kill

_TICK_S = 0.25
_BIN = Path(__file__).parent / "simulated/bin"
_PIECES = (
    "read",
    "sign",
    "fingerprints",
    "look-up",
    "look-up-hashed",
    "look-up-authority",
    "trust",
    "search",
    "store",
)
Argv = Callable[[SimulatedLab], list[str]]


@dataclass(frozen=True)
class Cost:
    """What one step took; memory and temporary files at their peak, ``left`` the files at its end."""

    step: str
    hosts: int
    status: int | None
    wall_s: float
    cpu_s: float
    memory_mib: int
    files: int
    files_mib: float
    left: int
    output_bytes: int


def _hvlab(*words: str) -> Argv:
    return lambda lab: [sys.executable, "-m", "hvlab", *words, "-i", str(lab.inventory)]


def _plain(*words: str) -> Argv:
    return lambda _: [sys.executable, "-m", "hvlab", *words]


def _piece(name: str) -> Argv:
    return lambda lab: [
        *(sys.executable, "-m", "benchmarks.simulated.pieces", name, str(lab.folder), str(len(lab.hosts)))
    ]


def _init(lab: SimulatedLab) -> list[str]:
    words = ["init", str(lab.folder / "new"), "--hosts", lab.listing, "--user", "root", "--accept-new-keys"]
    return [sys.executable, "-m", "hvlab", *words, "--known-hosts", str(lab.folder / "known_hosts")]


def _playbook(name: str) -> Argv:
    program = str(Path(sys.executable).parent / "ansible-playbook")
    return lambda lab: [program, f"playbooks/{name}", "-i", str(lab.inventory)]


def _bench(*words: str) -> Argv:
    counts = ("--workload", "allreduce", "--backend", "mpi,gloo", "--slots", "1", *words)
    return lambda lab: [*_hvlab("bench", *counts)(lab), "--hosts", f"1,{len(lab.hosts)}"]


def _measured(lab: SimulatedLab) -> list[str]:
    """Return a bench of four launches on all hosts, in a network where their ports answer."""
    recorded = (
        "--sizes",
        "1K,32K,1M",
        "--iterations",
        "15",
        "--repeats",
        "2",
        "--hosts",
        str(len(lab.hosts)),
    )
    words = _hvlab("bench", "--backend", "mpi,gloo", "--slots", "1", *recorded)(lab)
    return [sys.executable, "-m", "benchmarks.simulated.network", *words]


def _export(lab: SimulatedLab) -> list[str]:
    folder = lab.folder / "jobs"
    return _bench("--container", "example/horovod", "--export", "mpijob", "--output", str(folder))(lab)


# In this order: what one step writes, a later one reads. The second run of the playbook has certificates.
STEPS: dict[str, Argv] = {
    **{name: _piece(name) for name in _PIECES},
    "plan": _hvlab("plan"),
    "bench --dry-run": _bench("--dry-run"),
    "bench --export mpijob": _export,
    "results list": _plain("results", "list"),
    "results show": _plain("results", "show"),
    "report": lambda lab: _plain("report", "--output", str(lab.folder / "report.html"))(lab),
    "init": _init,
    "health": _hvlab("health"),
    "verify": _hvlab("verify"),
    "base.yml": _playbook("base.yml"),
    "base.yml again": _playbook("base.yml"),
    "trust.yml": _playbook("trust.yml"),
    "bench": _measured,
}


def measure(step: str, lab: SimulatedLab, limit_s: float) -> Cost:
    """Run a step to its end, or for so long."""
    with tempfile.TemporaryDirectory(prefix="hvlab-bench-") as name:
        own = Path(name)
        path = f"{_BIN}{os.pathsep}{os.environ['PATH']}"
        places = {"TMPDIR": name, "ANSIBLE_LOCAL_TEMP": f"{name}/ansible", "PATH": path}
        environment = os.environ | lab.environment() | places
        environment |= {
            "ANSIBLE_CONFIG": str(project_dir() / "ansible.cfg"),
            "PYTHONPATH": str(project_dir()),
        }
        output = lab.folder / f"{step.replace(' ', '-')}.out"
        begun = time.monotonic()
        with output.open("w") as file:
            process = subprocess.Popen(
                STEPS[step](lab), env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                cwd=project_dir(), text=True,
            )  # fmt: skip
        memory, files, size, status = 0, 0, 0, None
        while True:
            pid, ended, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                status = process.returncode = os.waitstatus_to_exitcode(ended)
                break
            if time.monotonic() - begun > limit_s:
                kill(process.pid)
                _, _, usage = os.wait4(process.pid, 0)
                process.returncode = -9
                break
            memory = max(memory, sum(_memory_kib(each) for each in _family(process.pid)))
            sizes = list(_sizes(own))
            files, size = max(files, len(sizes)), max(size, sum(sizes))
            time.sleep(_TICK_S)
        wall = time.monotonic() - begun
        return Cost(
            *(step, len(lab.hosts), status, round(wall, 1), round(usage.ru_utime + usage.ru_stime, 1)),
            *(memory // 1024, files, round(size / 2**20, 1), len(list(_sizes(own))), output.stat().st_size),
        )


def _family(pid: int) -> Iterator[int]:
    yield pid
    with suppress(OSError):
        for file in Path(f"/proc/{pid}/task").glob("*/children"):
            with suppress(OSError):
                for child in file.read_text().split():
                    yield from _family(int(child))


def _memory_kib(pid: int) -> int:
    with suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("Pss:")).split()[1])
    return 0


def _sizes(folder: Path) -> Iterator[int]:
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                yield Path(parent, name).lstat().st_size


@click.command(help=__doc__)
@click.option("--hosts", "counts", multiple=True, type=int, default=(10, 100, 300, 1000), show_default=True)
@click.option("--step", "chosen", multiple=True, type=click.Choice(list(STEPS)), help="Default: all.")
@click.option("--limit", "limit_s", default=1800.0, show_default=True, help="Seconds that a step may take.")
def main(counts: tuple[int, ...], chosen: tuple[str, ...], limit_s: float) -> None:
    for count in counts:
        with tempfile.TemporaryDirectory(prefix="hvlab-hosts-") as folder:
            lab = write(Path(folder), count)
            for step in [name for name in STEPS if not chosen or name in chosen]:
                click.echo(json.dumps(asdict(measure(step, lab, limit_s))))


if __name__ == "__main__":
    main()
