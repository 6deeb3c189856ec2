"""``hvlab compare``."""

from __future__ import annotations

import functools
import json

import click

from hvlab.analysis.compare import compare, decision_rows, measurements, rows
from hvlab.analysis.compare.comparison import of_stacks
from hvlab.analysis.compare.decisions import Decisions, decide
from hvlab.base.errors import UsageError
from hvlab.cli import candidates, options
from hvlab.results import tables
from hvlab.results.store import Run, Store
from hvlab.statistics import verdict
from hvlab.statistics.sequential import compare_in_looks

MATTERS = {"type": click.FloatRange(0), "default": 100 * verdict.MATTERS}


def of_run(
    store: Store, run: Run, *, metric: str | None = None, matters: float = verdict.MATTERS
) -> Decisions:
    """Return the verdicts on the settings of a run.

    Raises UsageError for a metric without a better direction, and for an imported run.
    """
    _, spec = store.spec(run.run_id)
    measured = measurements(run, store.records(run.run_id))
    if measured.imported:
        raise UsageError(
            f"run {run.run_id} was imported: its figures were not measured in turn",
            remedy="name two runs, or measure the settings here with `hvlab bench --ab`",
        )
    return decide(measured, spec, metric=metric, matters=matters)


def show_decisions(decisions: Decisions, output_format: str) -> None:
    """Print a run's decisions, and the price of leaving Horovod: as sentences, or for machines."""
    # They load slowly, and other verbs import this module for a constant.
    from hvlab.report import leaving, words  # noqa: PLC0415

    judge = functools.partial(compare_in_looks, looks=decisions.looks)
    steps = [] if decisions.sides else leaving.leavings(decisions.run.configurations, judge)
    if output_format == "json":
        answer = decision_rows.as_json(decisions) | {"leaving": [one.as_json() for one in steps]}
        click.echo(json.dumps(answer, indent=1))
        return
    if decisions.rows or output_format == "csv":
        click.echo(tables.render(decision_rows.table(decisions), decision_rows.COLUMNS, output_format))
    sentences = [*decision_rows.sentences(decisions), *(one.sentence(words.load("en")) for one in steps)]
    for sentence in sentences:
        click.echo(sentence, err=output_format == "csv")


def note_stack(store: Store, before: str, run_id: str) -> None:
    """Name the versions that changed since A was first measured: both sides were measured with today's."""
    then, now = (measurements(store.run(name), store.records(name)) for name in (before, run_id))
    for difference in of_stacks(then, now):
        click.echo(
            f"since run {before}: {difference} (A: then, B: now); both sides were measured with today's",
            err=True,
        )


@click.command("compare")
@click.argument("run_a", required=False, shell_complete=candidates.runs)
@click.argument("run_b", required=False, shell_complete=candidates.runs)
@options.of_verb("compare", matters=MATTERS)
def command(
    *,
    run_a: str | None,
    run_b: str | None,
    metric: str | None,
    matters: float,
    store: Store,
    output_format: str,
) -> int:
    """\b
    hvlab compare                               # the settings of the last run
    hvlab compare last~1 last                   # two runs
    hvlab compare --format json

    Compare RUN_A with RUN_B, configuration by configuration; without RUN_B, the settings of RUN_A.

    RUN_A defaults to the last run.

    Within a run all settings were measured in turn, so a verdict says which is faster: A or B of a run with
    --ab or --against, else of every two backends, and every two values of a parameter that leaves the work as
    it is. "needs" is how many repeats would probably decide an open comparison.

    Between two runs it cannot: "differs" means that the difference is statistically significant, but
    perhaps only because the runs were measured at different times, and "same" may hide a difference for the
    same reason. To compare two settings, measure both in one run.
    """
    if run_b is None:
        show_decisions(of_run(store, store.run(run_a), metric=metric, matters=matters / 100), output_format)
        return 0
    runs = [store.run(run_a), store.run(run_b)]
    a, b = (measurements(run, store.records(run.run_id)) for run in runs)
    comparison = compare(a, b, metric=metric, matters=matters / 100)
    if output_format == "json":
        click.echo(json.dumps(rows.as_json(comparison), indent=1))
        return 0
    click.echo(tables.render(rows.table(comparison), rows.COLUMNS, output_format))
    for note in rows.notes(comparison):
        click.echo(note, err=output_format == "csv")
    return 0
