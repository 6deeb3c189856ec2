"""The store with many records: taking them, listing the runs, showing one run of a thousand records.

Fills a store of its own, case by case as `hvlab bench` does, and times what `hvlab results list` and
`hvlab results show RUN` need of the library; the same is timed on a store of that one run alone, and the
ratio says what the other records cost. A time is the least of several rounds, for other work on the machine
only adds to it. Prints JSON; ``of_limit`` is the longest as a share of the limit.

    python -m benchmarks.bench_store [--records 100000] [--folder DIR]
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click

from benchmarks.records import RECORDS_A_CASE, filled
from hvlab.results import tables
from hvlab.results.store import Store
from hvlab.results.summary import failures, sections

LIMIT_S = 0.2
RUN_RECORDS = 1000
ROUNDS = 7


def listed(store: Store) -> int:
    """Do what `hvlab results list` asks of the store; return how many runs there are."""
    return len(store.overview())


def list_printed(store: Store) -> int:
    """Do all that `hvlab results list` does, but printing."""
    rows = store.overview()
    return len(tables.render(rows, list(rows[0]), "table").splitlines())


def shown(store: Store) -> int:
    """Do what `hvlab results show RUN` asks of the store; return how many records the run has."""
    return len(store.records(store.run(store.runs()[0].run_id).run_id))


def show_printed(store: Store) -> int:
    """Do all that `hvlab results show RUN` does, but printing."""
    records = store.records(store.run(store.runs()[0].run_id).run_id)
    found = [tables.render(part.rows, part.columns, "table") for part in sections(records)]
    return sum(len(text.splitlines()) for text in found) + len(failures(records))


def timed(action: Callable[[Store], int], store: Store) -> tuple[float, int]:
    """Return the least seconds of several rounds, and what the action counted."""
    seconds, counted = [], 0
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        counted = action(store)
        seconds.append(time.perf_counter() - begun)
    return min(seconds), counted


ACTIONS = {"list": listed, "list_printed": list_printed, "show": shown, "show_printed": show_printed}


def measure(folder: Path, records: int) -> dict[str, float]:
    """Return the figures of a store of ``records`` records in ``folder``."""
    begun = time.perf_counter()
    store = filled(Store(folder / "many"), records, run_records=RUN_RECORDS)
    taken = time.perf_counter() - begun
    alone = filled(Store(folder / "one"), RUN_RECORDS, run_records=RUN_RECORDS)
    measured: dict[str, float] = {"records": records, "taken_s": round(taken, 1)}
    measured["case_taken_ms"] = round(taken / (records / RECORDS_A_CASE) * 1e3, 1)
    measured["megabytes"] = round((folder / "many/hvlab.db").stat().st_size / 1e6, 1)
    for name, action in ACTIONS.items():
        seconds, counted = timed(action, store)
        measured |= {f"{name}_counted": counted, f"{name}_s": round(seconds, 3)}
        measured[f"{name}_ratio_to_one_run"] = round(seconds / timed(action, alone)[0], 2)
    return measured


@click.command(help=__doc__)
@click.option("--records", default=100_000, show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), help="Where the store is made. Default: /tmp.")
def main(records: int, folder: Path | None) -> None:
    with tempfile.TemporaryDirectory(prefix="hvlab-store-", dir=folder) as name:
        measured = measure(Path(name), records)
    longest = max(measured[f"{name}_s"] for name in ACTIONS)
    click.echo(json.dumps(measured | {"of_limit": round(longest / LIMIT_S, 2)}, indent=1))


if __name__ == "__main__":
    main()
