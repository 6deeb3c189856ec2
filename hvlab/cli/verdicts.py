"""Options of the verbs that give verdicts; apart from `options`, because verdicts load large libraries."""

from __future__ import annotations

import click

from hvlab.statistics import verdict

metric = click.option(
    "--metric", help="What to compare. Default: step_time of trainings, time of collectives."
)
matters = click.option(
    "--matters",
    type=click.FloatRange(0),
    default=100 * verdict.MATTERS,
    show_default=True,
    metavar="PERCENT",
    help="The smallest difference that matters.",
)
