"""Verdicts on the settings of one run, printed by ``bench`` after it and by ``compare`` at any time."""

from __future__ import annotations

import json

import click

from hvlab.analysis.compare import decision_rows, measurements
from hvlab.analysis.compare.decisions import Decisions, decide
from hvlab.analysis.compare.matching import of_stacks
from hvlab.base.errors import UsageError
from hvlab.results import tables
from hvlab.results.store import Run, Store
from hvlab.statistics import verdict

metric = click.option(
    "--metric", help="Metric to compare. Default: step_time for trainings, time for collectives."
)
matters = click.option(
    "--matters",
    type=click.FloatRange(0),
    default=100 * verdict.MATTERS,
    show_default=True,
    metavar="PERCENT",
    help="Smallest difference that matters, in percent.",
)


def of_run(
    store: Store, run: Run, *, metric: str | None = None, matters: float = verdict.MATTERS
) -> Decisions:
    """Return the verdicts on the settings of a run.

    Raises UsageError for a metric where neither more nor less is better, and for an imported run.
    """
    _, spec = store.spec(run.run_id)
    measured = measurements(run, store.records(run.run_id))
    if measured.imported:
        raise UsageError(
            f"run {run.run_id} was imported: its figures were not measured in turn",
            remedy="name two runs, or measure the settings here with `hvlab bench --ab`",
        )
    return decide(measured, spec, metric=metric, matters=matters)


def show(decisions: Decisions, output_format: str) -> None:
    """Print a run's decisions: as sentences, or for machines."""
    if output_format == "json":
        click.echo(json.dumps(decision_rows.as_json(decisions), indent=1))
        return
    if decisions.rows or output_format == "csv":
        click.echo(tables.render(decision_rows.table(decisions), decision_rows.COLUMNS, output_format))
    for sentence in decision_rows.sentences(decisions):
        click.echo(sentence, err=output_format == "csv")


def note_stack(store: Store, before: str, run_id: str) -> None:
    """Name the versions that changed since A was first measured: both sides were measured with today's."""
    then, now = (measurements(store.run(name), store.records(name)) for name in (before, run_id))
    for difference in of_stacks(then, now):
        click.echo(
            f"since run {before}: {difference} (A: then, B: now); both sides were measured with today's",
            err=True,
        )
