"""Options of the verbs that give verdicts; separate from `options`, because verdicts load large libraries."""

from __future__ import annotations

import click

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
