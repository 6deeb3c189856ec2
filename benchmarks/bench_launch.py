"""What a launch by srun takes beside one by mpirun, on the hosts of an inventory that are Slurm's.

For each layout (hosts x ranks on each), one run measures the same tiny case by both, in turn. A launch is
the time from the start of the launcher to its end, by the first host's clock; the ranks' own start (Python,
torch, Horovod) is part of it, and the same for both.

With --bare the same commands start ranks that only enter MPI and leave it again, without hvlab, torch and
Horovod: the launchers alone, by this machine's clock.

Prints for each layout the median of both in seconds, and the median of the ratios of neighbours (srun over
mpirun) with the lowest and the highest. For 32 ranks, lab_slots of the lab has to be 16.

    python -m benchmarks.bench_launch -i LAB [--layouts 1x1,3x1] [--repeats 6] [--bare]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from hvlab.lab.inventory import load
from hvlab.remote.playbook import Login
from hvlab.remote.shell import Shell
from hvlab.remote.trust import lab_trust
from hvlab.workloads.launchers import slurm

SIDES = ("mpirun", "srun")
RUN = "bench-launch"
LIBRARY = "/opt/hvlab/openmpi/current/lib/libmpi.so"
# Slurm's PMIx may wait for ever for ranks of another host that left within the moment after MPI's last call.
STAY_S = 1
CALLS = "mpi.MPI_Init(None, None); mpi.MPI_Finalize()"
IMPORTS = f"import ctypes, time; mpi = ctypes.CDLL('{LIBRARY}', ctypes.RTLD_GLOBAL)"
MPI = ("python3", "-c", f"{IMPORTS}; {CALLS}; time.sleep({STAY_S})")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-i", "--inventory", type=Path, required=True)
    parser.add_argument("--layouts", default="1x1,3x1", help="hosts x ranks on each, with commas between")
    parser.add_argument("--repeats", type=int, default=6)
    parser.add_argument("--bare", action="store_true", help="ranks that only enter MPI and leave it")
    options = parser.parse_args()
    measured = _bare if options.bare else _benched
    figures = {
        layout: _figures(measured(_asked(options.inventory, layout), options.repeats))
        for layout in options.layouts.split(",")
    }
    print(json.dumps(figures, indent=1))
    return 0


def _asked(inventory: Path, layout: str) -> list[str]:
    """Return the options of hvlab bench for one tiny case of a layout."""
    hosts, _, slots = layout.partition("x")
    return [
        *("-i", str(inventory), "--backend", "mpi", "--hosts", hosts, "--slots", slots),
        *("--sizes", "1K", "--iterations", "6"),
    ]


def _figures(own: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the medians of both sides, in seconds, and the ratios of neighbours."""
    ratios = [srun / mpirun for mpirun, srun in zip(own["mpirun"], own["srun"], strict=True)]
    return {
        **{f"{side}_s": round(statistics.median(own[side]), 2) for side in SIDES},
        "ratio": round(statistics.median(ratios), 2),
        "lowest": round(min(ratios), 2),
        "highest": round(max(ratios), 2),
    }


def _benched(asked: Sequence[str], repeats: int) -> dict[str, list[float]]:
    """Return how long each launch of a run took, in seconds, by side."""
    with tempfile.TemporaryDirectory() as results:
        argv = [sys.executable, "-m", "hvlab", "bench", *asked, "--repeats", str(repeats)]
        argv += ["--ab", *(f"launcher={side}" for side in SIDES), "--results", results]
        subprocess.run(argv, check=True, stdout=sys.stderr)
        launches = _launches(Path(results))
    return {side: [launches[side, repeat] for repeat in range(1, repeats + 1)] for side in SIDES}


def _bare(asked: Sequence[str], repeats: int) -> dict[str, list[float]]:
    """Return how long each launch of ranks that do nothing took, in seconds, by side."""
    lab = load(Path(asked[1]))
    trust = lab_trust(lab.name)
    if trust is None:
        sys.exit("provision the lab first: hvlab provision")
    shell = Shell(Login(lab, trust, lab.text("lab_user_name", "hvlab")), lab.hosts[0])
    cases = {side: _dry(asked, side) for side in SIDES}
    hosts = [host.name for host in lab.hosts][: int(asked[asked.index("--hosts") + 1])]
    job = slurm.read_granted_job(shell.run(slurm.request(lab, hosts, RUN), seconds=60).stderr)
    own: dict[str, list[float]] = {side: [] for side in SIDES}
    try:
        for repeat in range(repeats):
            for side in SIDES if repeat % 2 else SIDES[::-1]:
                own[side].append(_timed(shell, ["env", f"SLURM_JOB_ID={job}", *cases[side]]))
    finally:
        shell.run(("scancel", job), seconds=60)
    return own


def _dry(asked: Sequence[str], side: str) -> list[str]:
    """Return the command of a case, with MPI's first and last call in the place of its program."""
    argv = [
        sys.executable,
        "-m",
        "hvlab",
        "bench",
        *asked,
        "--launcher",
        side,
        "--dry-run",
        "--format",
        "json",
    ]
    case = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)[0]
    launcher = case["argv"][: case["argv"].index("timeout")]
    return [*(f"{name}={value}" for name, value in case["env"].items()), *launcher, *MPI]


def _timed(shell: Shell, words: Sequence[str]) -> float:
    """Return how long a command takes there, in seconds, without the time that its ranks stay."""
    began = time.monotonic()
    done = shell.run(words, seconds=600)
    seconds = time.monotonic() - began - STAY_S
    if done.returncode:
        sys.exit(f"{words[-4:]} ended with {done.returncode}: {done.stderr}")
    return seconds


def _launches(results: Path) -> dict[tuple[str, int], float]:
    """Return how long each launch took, in seconds, by (launcher, repeat)."""
    launches = {}
    for file in results.glob("runs/*/*/case.json"):
        case = json.loads(file.read_text())
        argv = json.loads((file.parent / "argv.json").read_text())
        repeat = int(file.parent.name.rpartition("-r")[2])
        launches[Path(argv[0]).name, repeat] = case["ended_at"] - case["started_at"]
    return launches


if __name__ == "__main__":
    sys.exit(main())
