"""What a launch by srun takes beside one by mpirun, on the hosts of an inventory that are Slurm's.

One run measures the same tiny case by both, in turn, on one host and on all, one rank on each. A launch is
the time from the start of the launcher to its end, by the first host's clock; the ranks' own start (Python,
torch, Horovod) is part of it, and the same for both.

Prints for each number of ranks the median of both in seconds, and the median of the ratios of neighbours
(srun over mpirun) with the lowest and the highest.

    python -m benchmarks.bench_launch -i LAB [--repeats 6]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from hvlab.lab.inventory import load

SIDES = ("mpirun", "srun")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-i", "--inventory", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=6)
    options = parser.parse_args()
    every = len(load(options.inventory).hosts)
    with tempfile.TemporaryDirectory() as results:
        argv = [sys.executable, "-m", "hvlab", "bench", "-i", str(options.inventory), "--backend", "mpi"]
        argv += ["--ab", *(f"launcher={side}" for side in SIDES), "--hosts", f"1,{every}", "--slots", "1"]
        argv += ["--sizes", "1K", "--iterations", "6", "--repeats", str(options.repeats)]
        subprocess.run([*argv, "--results", results], check=True, stdout=sys.stderr)
        launches = _launches(Path(results))
    figures = {}
    for ranks in sorted({ranks for ranks, _, _ in launches}):
        own = {
            side: [launches[ranks, side, repeat] for repeat in range(1, options.repeats + 1)]
            for side in SIDES
        }
        ratios = [srun / mpirun for mpirun, srun in zip(own["mpirun"], own["srun"], strict=True)]
        figures[f"{ranks}_ranks"] = {
            **{f"{side}_s": round(statistics.median(own[side]), 2) for side in SIDES},
            "ratio": round(statistics.median(ratios), 2),
            "lowest": round(min(ratios), 2),
            "highest": round(max(ratios), 2),
        }
    print(json.dumps(figures, indent=1))
    return 0


def _launches(results: Path) -> dict[tuple[int, str, int], float]:
    """Return how long each launch took, in seconds, by (ranks, launcher, repeat)."""
    launches = {}
    for file in results.glob("runs/*/*/case.json"):
        case = json.loads(file.read_text())
        argv = json.loads((file.parent / "argv.json").read_text())
        ranks = int(argv[argv.index("--world-size") + 1])
        repeat = int(file.parent.name.rpartition("-r")[2])
        launches[ranks, Path(argv[0]).name, repeat] = case["ended_at"] - case["started_at"]
    return launches


if __name__ == "__main__":
    sys.exit(main())
