"""``hvlab bench --export``."""

from __future__ import annotations

from pathlib import Path

import click

from hvlab.base.errors import HvlabError, UsageError
from hvlab.base.files import write_file
from hvlab.bench import manifests
from hvlab.bench.schedule import Schedule
from hvlab.results.store import new_run_id


def write(schedule: Schedule, folder: Path) -> None:
    """Write the files of a schedule for Kubernetes into a new folder. Raises UsageError."""
    schedule, others = manifests.exportable(schedule)
    if others:
        click.echo(f"left out, as they need no launcher: {', '.join(others)}", err=True)
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(
            f"{folder} has files in it", remedy="remove it, or name another folder with --output"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in manifests.files(schedule, new_run_id()):
            # They hold the ranks' environment as it is.
            write_file(folder / name, text, mode=0o600)
    except OSError as error:
        raise HvlabError(f"{folder} cannot be written: {error}", remedy="choose another --output") from error
    click.echo(f"{len(schedule.cases)} jobs in {folder}")
    click.echo(f"next: `sh {folder / manifests.SCRIPT}`, then `hvlab results import {folder}/logs/*.log`")
