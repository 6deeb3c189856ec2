"""Options that several verbs share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from hvlab.base.paths import default_inventory
from hvlab.bench.suite import AUTO, MOST_REPEATS
from hvlab.cli import candidates

inventory = click.option(
    "-i",
    "--inventory",
    type=click.Path(path_type=Path),
    default=default_inventory,
    show_default="inventory/lab",
    shell_complete=candidates.inventories,
    help="The lab: an Ansible inventory (file or folder).",
)
limit = click.option(
    "-l",
    "--limit",
    metavar="PATTERN",
    shell_complete=candidates.patterns,
    help="Only these hosts (an Ansible pattern).",
)
own_command = click.argument(
    "words",
    metavar="[-- COMMAND...]",
    nargs=-1,
    type=click.UNPROCESSED,
    shell_complete=candidates.files,
)
table_or_json = click.option(
    "--format",
    "output_format",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Output format.",
)
output_format = click.option(
    "--format",
    "output_format",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="Output format.",
)
junit = click.option(
    "--junit", type=click.Path(dir_okay=False, path_type=Path), help="Also write the outcomes as JUnit XML."
)
results = click.option(
    "--results",
    "folder",
    type=click.Path(path_type=Path),
    help="Folder of the results. Default: $HVLAB_RESULTS, or ./results.",
)


class RepeatsType(click.ParamType[int]):
    """A number of repeats, or auto, which is 0."""

    name = "repeats"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        if value == AUTO:
            return 0
        return int(click.IntRange(1, MOST_REPEATS).convert(value, param, ctx))


class TimeType(click.ParamType[int]):
    """A time such as 90s, 20m or 2h, in seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the seconds."""
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"([1-9]\d*)([smh]?)", str(value).strip())
        if match is None:
            self.fail(f"{value} is no time such as 90s, 20m or 2h", param, ctx)
        return int(match[1]) * {"s": 1, "": 1, "m": 60, "h": 3600}[match[2]]
