"""``hvlab verify``: is every host as the inventory asks for?"""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from hvlab.cli import options
from hvlab.lab import inventory as inventories
from hvlab.remote import verify
from hvlab.results.tables import render


@click.command()
@options.inventory
@options.limit
@options.output_format
@click.option(
    "--junit", type=click.Path(dir_okay=False, path_type=Path), help="Also write the outcomes as JUnit XML."
)
def command(inventory: Path, limit: str | None, output_format: str, junit: Path | None) -> None:
    """Check every host against what the inventory asks for.

    Nothing is changed on the hosts. The exit code is 1 if a check failed, and 3 if a host is unreachable.
    """
    lab = inventories.load(inventory, limit=limit)
    console = Console(stderr=True)
    with console.status(f"checking {', '.join(host.name for host in lab.hosts)}") as status:
        checks = verify.run(
            inventory,
            limit=limit,
            junit=junit,
            on_check=lambda check: status.update(f"{check.host}  {check.role}: {check.check}"),
        )
    if output_format == "table":
        _table(checks)
    else:
        columns = [field.name for field in fields(verify.Check)]
        click.echo(render([asdict(check) for check in checks], columns, output_format))
    error = verify.verdict(checks)
    if error:
        raise error


def _table(checks: list[verify.Check]) -> None:
    table = Table("host", "checks", "passed", "failed", "skipped", box=None)
    for host in dict.fromkeys(check.host for check in checks):
        own = [check for check in checks if check.host == host]
        passed = sum(check.outcome == "passed" for check in own)
        skipped = sum(check.outcome == "skipped" for check in own)
        failed = sum(check.wrong for check in own)
        table.add_row(host, str(len(own)), str(passed), str(failed), str(skipped))
    Console().print(table)
    partial = [check for check in checks if check.outcome == "passed" and check.seen]
    for note in dict.fromkeys(f"{check.role}: {check.seen}" for check in partial):
        click.echo(f"\n{note}")
    for check in checks:
        if check.wrong:
            click.echo(f"\n{check.host}  {check.role}: {check.check} ({check.outcome})\n  seen: {check.seen}")
            if check.remedy:
                click.echo(f"  what to do: {check.remedy}")
