"""``hvlab results``."""

from __future__ import annotations

from pathlib import Path

import click

from hvlab import tables
from hvlab.cli import options
from hvlab.paths import results_dir
from hvlab.results import FIELDS, Store
from hvlab.summary import COLUMNS, failures, summary

RUN_COLUMNS = ("run_id", "started_at", "cases", "ok", "failed", "state", "lab")


@click.group("results")
def command() -> None:
    """List and show what was measured."""


@command.command("list")
@options.results
@options.output_format
def list_runs(*, folder: Path | None, output_format: str) -> int:
    """List the runs, the newest first: when, how many cases, how many went well."""
    rows = _store(folder).overview()
    if not rows and output_format == "table":
        click.echo("no runs yet: `hvlab bench` makes one", err=True)
        return 0
    click.echo(tables.render(rows, RUN_COLUMNS, output_format))
    return 0


@command.command("show")
@click.argument("run", required=False)
@options.results
@options.output_format
def show_run(*, run: str | None, folder: Path | None, output_format: str) -> int:
    """Show RUN, by default the last: a short table, or every record with all fields as json or csv."""
    store = _store(folder)
    chosen = store.run(run)
    records = store.records(chosen.run_id)
    if output_format != "table":
        click.echo(tables.render([vars(record) for record in records], FIELDS, output_format))
        return 0
    click.echo(f"run {chosen.run_id} of {chosen.started_at} on {chosen.lab}: {chosen.state}")
    click.echo(tables.render(summary(records), COLUMNS, "table"))
    for case, error in failures(records).items():
        click.echo(f"failed: {case}: {error}")
    click.echo(f"raw files: {store.run_folder(chosen.run_id)}; all fields: --format json or csv")
    return 0


def _store(folder: Path | None) -> Store:
    return Store(folder.absolute() if folder else results_dir())
