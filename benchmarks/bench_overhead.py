"""What `hvlab bench` costs beside the launcher's own command, on the hosts of an inventory.

Runs, in turn: the bare command over ssh on the first host, a bench of one such case, a bench of several.
The first case costs what a bench of one takes beyond the bare command; a further one costs the time between
the end of a launcher and the start of the next, by the first host's clock.
Prints the medians in seconds, and exits with 1 when a limit is broken.

    python benchmarks/bench_overhead.py -i inventory/lab
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hvlab.inventory import load
from hvlab.trust import lab_trust

LIMIT_FIRST_S = 3.0
LIMIT_FURTHER_S = 0.5
CASES = 5


def main() -> int:
    options = _options()
    asked = ["-i", str(options.inventory), "--backend", options.backend, "--hosts", str(options.hosts)]
    asked += ["--slots", "1", "--sizes", "1K", "--iterations", "5", "--warmup", "1"]
    bare = _bare_command(options.inventory, asked)
    rounds = [_round(bare, asked) for _ in range(options.rounds)]
    launcher, one, several, further = (statistics.median(values) for values in zip(*rounds, strict=True))
    first = one - launcher
    told = {
        "backend": options.backend,
        "hosts": options.hosts,
        "rounds": options.rounds,
        "launcher_s": round(launcher, 2),
        "bench_of_one_s": round(one, 2),
        f"bench_of_{CASES}_s": round(several, 2),
        "overhead_first_s": round(first, 2),
        "overhead_further_s": round(further, 2),
    }
    print(json.dumps(told, indent=1))
    return 0 if first <= LIMIT_FIRST_S and further <= LIMIT_FURTHER_S else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-i", "--inventory", type=Path, default=Path("inventory/lab"))
    parser.add_argument("--backend", default="mpi")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


def _bare_command(inventory: Path, asked: list[str]) -> list[str]:
    """Return the launcher's own command, run on the first host as the lab user."""
    lab = load(inventory)
    trust = lab_trust(lab.name)
    if trust is None:
        sys.exit("provision the lab first: hvlab provision")
    dry = [sys.executable, "-m", "hvlab", "bench", *asked, "--dry-run", "--format", "json"]
    case = json.loads(subprocess.run(dry, check=True, capture_output=True, text=True).stdout)[0]
    line = shlex.join(["env", *(f"{name}={value}" for name, value in case["env"].items()), *case["argv"]])
    user = lab.text("lab_user_name", "hvlab")
    login = ["-i", str(trust.identity), "-o", f"UserKnownHostsFile={trust.known_hosts}"]
    return [
        "ssh",
        "-o",
        "BatchMode=yes",
        *login,
        "-p",
        str(lab.hosts[0].port),
        f"{user}@{lab.hosts[0].address}",
        line,
    ]


def _round(bare: list[str], asked: list[str]) -> tuple[float, float, float, float]:
    bench = [sys.executable, "-m", "hvlab", "bench", *asked, "--format", "json", "--results"]
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as several:
        times = (_timed(bare), _timed([*bench, one]), _timed([*bench, several, "--repeats", str(CASES)]))
        return (*times, _gap(Path(several)))


def _gap(results: Path) -> float:
    """Return the median time between two launchers."""
    ended = sorted(json.loads(path.read_text())["ended_at"] for path in results.glob("runs/*/*/case.json"))
    begun = sorted(json.loads(path.read_text())["started_at"] for path in results.glob("runs/*/*/case.json"))
    return float(
        statistics.median(after - before for before, after in zip(ended[:-1], begun[1:], strict=True))
    )


def _timed(argv: list[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(argv, check=True, capture_output=True)
    return time.perf_counter() - begun


if __name__ == "__main__":
    sys.exit(main())
