"""``hvlab compare``."""

from __future__ import annotations

import json

import click

from hvlab.analysis.compare import compare, measurements, rows
from hvlab.cli import candidates, decisions, options
from hvlab.results import tables
from hvlab.results.store import Store


@click.command("compare")
@click.argument("run_a", required=False, shell_complete=candidates.runs)
@click.argument("run_b", required=False, shell_complete=candidates.runs)
@decisions.metric
@decisions.matters
@options.results
@options.output_format
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
        answer = decisions.of_run(store, store.run(run_a), metric=metric, matters=matters / 100)
        decisions.show(answer, output_format)
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
