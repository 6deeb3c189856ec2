"""Options that several verbs share."""

from __future__ import annotations

from pathlib import Path

import click

from hvlab.base.paths import default_inventory
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
