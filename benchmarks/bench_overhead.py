"""What `hvlab bench` costs beside the launcher's own command, on the hosts of an inventory.

Two answers, both of the same lab:

The cost of a case, in seconds. Runs, in turn: the bare command over ssh on the first host, a bench of one
such tiny case, a bench of several. The first case costs what a bench of one takes beyond the bare command; a
further one costs the time between the end of a launcher and the start of the next, by the first host's clock.

The share of a case, in percent. Runs one bench of several cases of ordinary length. The harness's own time is
what passes between two launchers: packing the files, fetching them, storing, Ansible's loop, starting the
next. Its share is the median of these gaps over the median time of a case, both of the same run, so that a
busy machine hurts both. What hvlab and Ansible compute on this machine meanwhile is told as well, in percent
of the run's time: it matters where the hosts are virtual and share its cores.

The share of reading the clock, in percent of the shortest iteration of that bench: every iteration is timed.

Prints the figures as JSON; ``of_limits`` is each of the three as a share of its limit.

    python -m benchmarks.bench_overhead -i inventory/lab [--backend mpi] [--hosts 2] [--rounds 5]
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from hvlab.lab.inventory import load
from hvlab.remote.trust import lab_trust

LIMITS = {"overhead_first_s": 3.0, "overhead_further_s": 0.5, "share_percent": 1.0}
CASES = 5
CALLS = 100_000
TINY = ("--sizes", "1K", "--iterations", "6")


def main() -> None:
    options = _options()
    asked = ["-i", str(options.inventory), "--backend", options.backend, "--hosts", str(options.hosts)]
    asked += ["--slots", "1"]
    measured: dict[str, Any] = {
        "backend": options.backend,
        "hosts": options.hosts,
        **cost(options.inventory, [*asked, *TINY], rounds=options.rounds),
    }
    measured |= _share([*asked, "--sizes", options.sizes])
    measured["of_limits"] = {name: round(measured[name] / limit, 2) for name, limit in LIMITS.items()}
    print(json.dumps(measured, indent=1))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-i", "--inventory", type=Path, default=Path("inventory/lab"))
    parser.add_argument("--backend", default="mpi")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", default="1K:64M:4", help="of the cases of ordinary length")
    return parser.parse_args()


def cost(inventory: Path, asked: list[str], *, rounds: int) -> dict[str, float]:
    """Return what a first and a further case cost, in seconds."""
    bare = _bare_command(inventory, asked)
    measured = [_round(bare, asked) for _ in range(rounds)]
    launcher, one, several, further = (statistics.median(values) for values in zip(*measured, strict=True))
    return {
        "rounds": rounds,
        "launcher_s": round(launcher, 2),
        "bench_of_one_s": round(one, 2),
        f"bench_of_{CASES}_s": round(several, 2),
        "overhead_first_s": round(one - launcher, 2),
        "overhead_further_s": round(further, 3),
    }


def _share(asked: list[str]) -> dict[str, float]:
    """Return what part of a case of ordinary length the harness takes, in percent."""
    with tempfile.TemporaryDirectory() as results:
        argv = [*_bench(asked), results, "--repeats", str(CASES)]
        before = os.times()
        seconds = _timed(argv)
        after = os.times()
        cases, gaps = _cases(Path(results))
        shortest = min(_iterations(Path(results)))
    computed = sum(
        getattr(after, name) - getattr(before, name) for name in ("children_user", "children_system")
    )
    case, between = statistics.median(cases), statistics.median(gaps)
    return {
        "case_s": round(case, 2),
        "between_cases_s": round(between, 3),
        "share_percent": round(100 * between / case, 2),
        "controller_percent": round(100 * computed / seconds, 2),
        "shortest_iteration_us": round(1e6 * shortest, 1),
        "clock_percent": round(100 * _clock() / shortest, 3),
        "run_beside_cases_percent": round(100 * (seconds - sum(cases)) / seconds, 1),
    }


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


def _bench(asked: list[str]) -> list[str]:
    return [sys.executable, "-m", "hvlab", "bench", *asked, "--format", "json", "--results"]


def _round(bare: list[str], asked: list[str]) -> tuple[float, float, float, float]:
    bench = _bench(asked)
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as several:
        times = (_timed(bare), _timed([*bench, one]), _timed([*bench, several, "--repeats", str(CASES)]))
        return (*times, statistics.median(_cases(Path(several))[1]))


def _cases(results: Path) -> tuple[list[float], list[float]]:
    """Return how long each case's launcher ran, and the time from one to the next, by the first host."""
    cases = [json.loads(path.read_text()) for path in results.glob("runs/*/*/case.json")]
    spans = sorted((case["started_at"], case["ended_at"]) for case in cases)
    return [end - begin for begin, end in spans], [after[0] - before[1] for before, after in pairwise(spans)]


def _iterations(results: Path) -> Iterator[float]:
    """Yield the seconds of every iteration of a bench."""
    for path in results.glob("runs/*/*/result.json"):
        for row in json.loads(path.read_text())["sizes"]:
            yield from row["mean_s"]


def _clock() -> float:
    """Return the seconds that timing one iteration costs: two readings of the clock, and keeping the time."""

    def timed() -> None:
        begun = time.perf_counter()
        times.append(time.perf_counter() - begun)

    times: list[float] = []
    return min(timeit.repeat(timed, number=CALLS)) / CALLS


def _timed(argv: list[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(argv, check=True, capture_output=True)
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
