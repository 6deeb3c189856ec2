"""``hvlab baseline``."""

from __future__ import annotations

from pathlib import Path

import click

from hvlab import baseline
from hvlab.baseline import output
from hvlab.cli import options, verdicts
from hvlab.compare import Measurements, measurements, rows
from hvlab.errors import UsageError
from hvlab.paths import results_dir
from hvlab.results.store import Store
from hvlab.statistics import permutation, verdict

_name = click.option("--name", default=baseline.DEFAULT, show_default=True, help="Name of the baseline.")


@click.group("baseline")
def command() -> None:
    """Keep a run as the baseline of its lab, and check later runs against it."""


@command.command("set")
@click.argument("run", required=False)
@_name
@options.results
def set_baseline(*, run: str | None, name: str, folder: Path | None) -> int:
    """Keep RUN (default: the last run) as the baseline of its lab."""
    store = _store(folder)
    measured = _measurements(store, run)
    file = baseline.save(store.folder, measured, name=name)
    click.echo(f"run {measured.run_id} is now baseline {name} of lab {measured.lab}: {file}")
    needed = permutation.needed(verdict.ALPHA)
    few = sum(len(repeats.ok) < needed for repeats in measured.configurations.values())
    if few:
        total = len(measured.configurations)
        click.echo(
            f"{few} of its {total} configurations have too few repeats for a verdict: "
            f"measure with --repeats {needed}",
            err=True,
        )
    return 0


@command.command("check")
@click.argument("run", required=False)
@_name
@verdicts.metric
@verdicts.matters
@click.option("--strict", is_flag=True, help="Also fail if there are too few repeats or a case is missing.")
@options.results
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["table", "json", "junit"]),
    default="table",
    show_default=True,
    help="Output format.",
)
@click.option(
    "--output",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write to FILE instead of standard output.",
)
def check_run(
    *,
    run: str | None,
    name: str,
    metric: str | None,
    matters: float,
    strict: bool,
    folder: Path | None,
    output_format: str,
    file: Path | None,
) -> int:
    """Check RUN (default: the last run) against the baseline of its lab; exit code 1 on a regression."""
    store = _store(folder)
    measured = _measurements(store, run)
    kept = baseline.load(store.folder, measured.lab, name=name)
    if kept.run_id == measured.run_id:
        problem = f"run {measured.run_id} is the baseline {name} itself"
        raise UsageError(problem, remedy="measure again with `hvlab bench`, or name another run")
    checked = baseline.check(measured, kept, metric=metric, matters=matters / 100)
    text = output.render(checked, output_format, strict=strict)
    if file:
        _write(file, text + "\n")
    else:
        click.echo(text)
    for difference in checked.comparison.differences:
        click.echo(f"differs (A: the run, B: the baseline): {difference}", err=True)
    summary = output.summary(checked, strict=strict)
    click.echo(f"run {measured.run_id} against {kept.run_id}: {summary}\n{rows.NOTE}", err=True)
    return 0 if checked.passed(strict=strict) else 1


def _store(folder: Path | None) -> Store:
    return Store(folder.absolute() if folder else results_dir())


def _measurements(store: Store, run: str | None) -> Measurements:
    chosen = store.run(run)
    return measurements(chosen, store.records(chosen.run_id))


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, "utf-8")
    except OSError as error:
        problem = f"{file} cannot be written: {error.strerror}"
        raise UsageError(problem, remedy="choose another file with --output") from error
