"""How often `hvlab doctor --log` names the right cause in logs whose cause is known.

Reads YAML files, or the `*.yml` of folders, in the form of `tests/data/doctor/threads.yml`: by the entries
of which one has to come first, `none` where there is no fault, logs by their address. `right`, `wrong`,
`unexplained` (it says what failed, and that the cause is not known) and `silent` count the faults; `alarms`
counts harmless logs in which something is named. Precision is the right ones among all logs in which a cause
is named, recall the right ones among the faults. Prints JSON lines.

    python -m benchmarks.bench_doctor tests/data/doctor/threads.yml
    python -m benchmarks.bench_doctor --misses FOLDER
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from hvlab.base.yaml_files import read_shipped
from hvlab.doctor.reading import Recognised, diagnose

ANSWERS = ("right", "wrong", "unexplained", "silent", "quiet", "alarms")


def threads(paths: Iterable[Path]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each thread of files or folders: its address, its log and what has to come first."""
    for path in paths:
        for file in sorted(path.glob("*.yml")) if path.is_dir() else [path]:
            for first, logs in read_shipped(file).items():
                wanted = [] if first == "none" else first.split(", ")
                yield from ((address, {"first": wanted, "log": log}) for address, log in logs.items())


def judge(named: Sequence[Recognised], wanted: Sequence[str]) -> str:
    """What an answer is: of its causes, only the first counts."""
    if not wanted:
        return "alarms" if named else "quiet"
    if not named:
        return "silent"
    if named[0].cause.id in wanted:
        return "right"
    return "unexplained" if named[0].certainty == "failure" else "wrong"


def ratio(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


@click.command(help=__doc__)
@click.option("--misses", is_flag=True, help="Print each thread that is wrong, silent or a false alarm.")
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
def main(*, misses: bool, paths: tuple[Path, ...]) -> None:
    found: Counter[str] = Counter()
    begun = time.process_time()
    for address, thread in threads(paths):
        named = diagnose(thread["log"].splitlines()).causes
        answer = judge(named, thread["first"])
        found[answer] += 1
        if misses and answer not in ("right", "quiet"):
            first = [each.cause.id for each in named[:1]]
            click.echo(json.dumps({"thread": address, answer: first, "wanted": thread["first"]}))
    right, wrong, alarms = found["right"], found["wrong"], found["alarms"]
    faults = right + wrong + found["unexplained"] + found["silent"]
    counts = {"threads": found.total(), **{key: found[key] for key in ANSWERS}}
    shares = {
        "precision": ratio(right, right + wrong + alarms),
        "recall": ratio(right, faults),
        "wrong_share": ratio(wrong, faults),
        "alarm_share": ratio(alarms, alarms + found["quiet"]),
    }
    click.echo(json.dumps({**counts, **shares, "cpu_s": round(time.process_time() - begun, 1)}))


if __name__ == "__main__":
    main()
