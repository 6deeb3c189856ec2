"""A report over many records: from the store to the finished file.

Fills a store of its own with one run and the files that hold its iterations, and times each step of `hvlab
report`: reading the run, putting the report together, the page of HTML, and the Markdown without its
pictures. A time is the least of several rounds; loading the libraries happens once. The whole is loading,
reading, and making and writing the page. Prints JSON; ``of_limit`` is the whole as a share of its limit.

    python -m benchmarks.bench_report [--records 10000] [--folder DIR]
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from benchmarks.records import filled
from hvlab.results.store import Store

LIMIT_S = 2.0
ROUNDS = 3
T = TypeVar("T")


def timed(action: Callable[[], T]) -> tuple[float, T]:
    """Return the least seconds of several rounds, and the last result."""
    seconds = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        result = action()
        seconds.append(time.perf_counter() - begun)
    return min(seconds), result


def measure(folder: Path, records: int) -> dict[str, float]:
    """Return the seconds of each step for a run of ``records`` records."""
    store = filled(Store(folder), records, run_records=records, files=True)
    begun = time.perf_counter()
    from hvlab.report import data  # noqa: PLC0415 - what they take to load is measured
    from hvlab.report.page import markdown  # noqa: PLC0415
    from hvlab.report.report import analyse  # noqa: PLC0415
    from hvlab.report.sections import document  # noqa: PLC0415
    from hvlab.report.write import write  # noqa: PLC0415

    loaded = time.perf_counter() - begun
    read_s, run = timed(lambda: data.read(store))
    document_s, full = timed(lambda: document(analyse(run)))
    markdown_s, _ = timed(lambda: markdown(full, "en"))
    page = folder / "report.html"
    write_s, _ = timed(lambda: write(run, page, output_format="html", lang="zh"))
    figures = {"records": len(run.records), "load_s": loaded, "read_s": read_s, "document_s": document_s}
    figures |= {
        "markdown_s": markdown_s,
        "html_s": write_s - document_s,
        "whole_s": loaded + read_s + write_s,
    }
    return {name: round(value, 3) for name, value in figures.items()} | {"html_bytes": page.stat().st_size}


@click.command(help=__doc__)
@click.option("--records", default=10_000, show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), help="Where the store is made. Default: /tmp.")
def main(records: int, folder: Path | None) -> None:
    with tempfile.TemporaryDirectory(prefix="hvlab-report-", dir=folder) as name:
        figures = measure(Path(name), records)
    click.echo(json.dumps(figures | {"of_limit": round(figures["whole_s"] / LIMIT_S, 2)}, indent=1))


if __name__ == "__main__":
    main()
