"""What `hvlab tune` finds, and how often it is wrong.

Simulated: searches on a known landscape with noise and drift. Where nothing helps, the share of searches that
end with a setting whose proof says "better" has to be 1 % at most; where something does, the share of the
best throughput that the chosen setting reaches is printed. On virtual hosts (--lab): what a search makes of
planted bad settings, and of the defaults, with the time it takes.

    python -m benchmarks.bench_tune --searches 1000                     # needs no lab
    python -m benchmarks.bench_tune --lab tests/vlab/tune --time-limit 8m   # needs a provisioned lab
"""

from __future__ import annotations

import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks.bench_verdicts import upper
from hvlab.bench.matrix import Block
from hvlab.bench.settings import SettingsFile, save
from hvlab.lab.inventory import load
from hvlab.searches.tune import space as spaces
from hvlab.searches.tune.autotune import read_best
from hvlab.searches.tune.search import search
from hvlab.searches.tune.space import Candidate, Space
from hvlab.searches.tune.space_file import of_block
from hvlab.statistics.looks import LOOKS
from hvlab.statistics.sequential import compare_in_looks
from hvlab.statistics.verdict import Pair

PLANTED = {"HOROVOD_FUSION_THRESHOLD": 0, "HOROVOD_CYCLE_TIME": 25}
# The threshold and the cycle time that the landscape is best at.
_BEST = (33554432, 0.5)
_CALL_S = 3600


def landscape(space: Space, candidate: Candidate) -> float:
    """Return the logarithm of a time: best at one threshold and one cycle time, the rest does nothing."""
    chosen = {item.name: item.values[index] for item, index in zip(space.parameters, candidate, strict=True)}
    values = space.parameters[[item.name for item in space.parameters].index("fusion_threshold")].values
    away = abs(values.index(chosen["fusion_threshold"]) - values.index(_BEST[0]))
    return 0.1 * away + 0.15 * abs(math.log(float(chosen["cycle_time"]) / _BEST[1]))


class Simulated:
    """Hosts on which every round has a drift of its own, and every launch its noise."""

    def __init__(self, space: Space, seed: int, *, launches: int, noise: float, flat: bool) -> None:
        self.space, self.random = space, random.Random(seed)  # noqa: S311 - noise
        self.most, self.launches, self.noise, self.flat = launches, 0, noise, flat

    def __call__(self, batch: Sequence[Candidate]) -> list[float | None]:
        drift = self.random.gauss(0, 2 * self.noise)
        self.launches += len(batch)
        return [drift + self.one(candidate) for candidate in batch]

    def one(self, candidate: Candidate) -> float:
        """Return one measurement."""
        return self.random.gauss(0, self.noise) + (0 if self.flat else landscape(self.space, candidate))

    def left(self) -> bool:
        """Return whether there is time for another round."""
        return self.launches + 7 < self.most

    def proved(self, candidate: Candidate) -> bool:
        """Return whether a run of both, in turn, says that the candidate is better."""
        rounds = range(1, LOOKS[-1].repeats + 1)
        a, b = (
            {number: math.exp(self.one(each)) for number in rounds} for each in (self.space.start, candidate)
        )
        return compare_in_looks([Pair(a, b)])[0].kind == "slower"


def simulate(kind: str, *, searches: int, launches: int, noise: float, flat: bool) -> dict[str, Any]:
    """Return how often a search ends with proved settings, and how good these are."""
    today = SettingsFile() if flat else SettingsFile(env=dict(PLANTED))
    space = spaces.space(of_block(Block("mnist", ("mpi",), (2,), (1,)), "mpirun"), today)
    accepted, reached, begun = 0, [], time.process_time()
    for seed in range(searches):
        hosts = Simulated(space, seed, launches=launches, noise=noise, flat=flat)
        outcome = search(space, hosts, hosts.left, kind=kind, seed=seed)
        chosen = space.start
        if outcome.best is not None and hosts.proved(outcome.best):
            accepted += 1
            chosen = outcome.best
        reached.append(math.exp(-landscape(space, chosen)))
    share = {} if flat else {"of_the_best": round(statistics.median(reached), 3)}
    enough = {} if flat else {"reach_95_percent": sum(each >= 0.95 for each in reached) / searches}
    return {
        "search": kind, "landscape": "flat" if flat else "planted", "searches": searches,
        "launches": launches, "noise": noise, "accepted": accepted / searches,
        "accepted_upper_95": round(upper(accepted, searches), 4), **share, **enough,
        "seconds_each": round((time.process_time() - begun) / searches, 2),
    }  # fmt: skip


def on_lab(
    inventory: Path, budget: str, words: Sequence[str], kind: str, *, planted: bool, autotune: str
) -> dict[str, Any]:
    """Return what a search on real hosts says, from planted settings or from the defaults."""
    with tempfile.TemporaryDirectory(prefix="bench-tune-") as place:
        folder = Path(place)
        today = save(SettingsFile(env=dict(PLANTED)), folder / "planted.yml") if planted else None
        tuned = folder / "tuned.yml"
        options = ["--time-limit", budget, "--search", kind, "--output", str(tuned), "--results", str(folder)]
        options += ["--settings", str(today)] if today else []
        begun = time.monotonic()
        result = json.loads(_hvlab("tune", "-i", str(inventory), *options, "--format", "json", *words))
        proof = (result["proof"] or {"rows": []})["rows"]
        row = {
            "search": kind, "from": "planted" if planted else "defaults", "words": " ".join(words),
            "proved": result["proved"], "answer": result["answer"], "tried": len(result["tried"]),
            "launches": result["launches"], "tried_of_autotune": result["autotuned"],
            "search_s": result["seconds"], "all_s": round(time.monotonic() - begun),
            "importance": result["importance"],
            "ratios": [each["figures"]["verdict"]["ratio"] for each in proof],
        }  # fmt: skip
        chosen = tuned if tuned.exists() else today
        if planted:
            row["beside_defaults"] = verdicts(inventory, words, "", f"settings={chosen}", folder / "defaults")
        if autotune:
            row |= beside_autotune(inventory, words, chosen, autotune, folder)
        return row


def beside_autotune(
    inventory: Path, words: Sequence[str], tuned: Path | None, longer: str, folder: Path
) -> dict[str, Any]:
    """Return what Horovod's autotune chose, and the verdict on it (B) beside the settings of tune (A).

    It tunes in a launch of its own, whose parameters and environment ``longer`` changes (NAME=VALUE words).
    Both are then measured in turn, without tuning, so that what its search costs a job does not count.
    """
    lab, log = ("-i", str(inventory)), f"/tmp/hvlab-autotune-{os.getpid()}.csv"  # noqa: S108 - on a host
    results = ("--results", str(folder / "autotune"))
    begun = time.monotonic()
    given = longer.split()
    env = [
        "HOROVOD_AUTOTUNE=1",
        f"HOROVOD_AUTOTUNE_LOG={log}",
        *(item for item in given if item[0].isupper()),
    ]
    sets = [f"env={' '.join(env)}", *(item for item in given if not item[0].isupper())]
    _hvlab("bench", *lab, *results, *words, *(word for item in sets for word in ("--set", item)))
    seconds = round(time.monotonic() - begun)
    head = min(load(inventory).hosts, key=lambda host: host.name).name
    text = _hvlab("lab", "ssh", *lab, head, "--", "cat", log)
    settings = read_best(text)
    if settings is None:
        raise click.ClickException(f"autotune chose nothing; its log: {text}")
    theirs = save(settings, folder / "autotuned.yml")
    ours = f"settings={tuned}" if tuned else ""
    beside = verdicts(inventory, words, ours, f"settings={theirs}", folder / "beside")
    return {
        "autotuned": dict(settings.env), "autotune_samples": len(text.splitlines()) - 1,
        "autotune_s": seconds, "beside_autotune": beside,
    }  # fmt: skip


def verdicts(inventory: Path, words: Sequence[str], a: str, b: str, results: Path) -> list[dict[str, Any]]:
    """Return how B stands to A, measured in turn."""
    _hvlab("bench", "-i", str(inventory), "--results", str(results), *words, "--ab", a, b)
    rows = json.loads(_hvlab("compare", "--results", str(results), "--format", "json"))["rows"]
    return [row["figures"]["verdict"] for row in rows]


def _hvlab(*words: str) -> str:
    """Run a command of hvlab; return what it printed."""
    argv = [sys.executable, "-m", "hvlab", *words]
    return subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True, timeout=_CALL_S).stdout


@click.command()
@click.option("--searches", default=100)
@click.option("--launches", default=90)
@click.option("--noise", default=0.03)
@click.option("--search", "kinds", multiple=True, default=("tpe", "coordinate"))
@click.option("--lab", type=click.Path(path_type=Path, exists=True))
@click.option("--time-limit", "budget", default="8m")
@click.option(
    "--autotune",
    default="",
    metavar="'NAME=VALUE ...'",
    help="Have Horovod's autotune choose settings, too, in a launch that these make long enough.",
)
@click.option("--from", "starts", multiple=True, default=("planted", "defaults"))
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def main(
    *, searches: int, launches: int, noise: float, kinds: tuple[str, ...], lab: Path | None, budget: str,
    autotune: str, starts: tuple[str, ...], words: tuple[str, ...],
) -> None:  # fmt: skip
    """Print a JSON line for each search, and for each kind of simulated ones; WORDS are options of tune."""
    for kind in kinds:
        for start in starts:
            planted = start == "planted"
            if lab:
                row = on_lab(lab, budget, words, kind, planted=planted, autotune=autotune)
            else:
                row = simulate(kind, searches=searches, launches=launches, noise=noise, flat=not planted)
            click.echo(json.dumps(row))


if __name__ == "__main__":
    main()
