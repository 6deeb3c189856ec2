"""``hvlab verify``: does every host match the inventory?"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from hvlab.base.errors import UsageError, some
from hvlab.cli import checks, options
from hvlab.remote import verify

_COLUMNS = ("host", "role", "check", "outcome", "observed", "remedy")


@click.command()
@options.of_verb("verify")
def command(
    *,
    inventory: Path,
    limit: str | None,
    here: bool,
    named: str | None,
    python: str | None,
    output_format: str,
    junit: Path | None,
    deep: bool,
) -> None:
    """\b
    hvlab verify
    hvlab verify -l n3 --deep
    hvlab verify --here --python ~/envs/horovod/bin/python

    Check every host against the inventory.

    Without one (--here, --hosts) the ranks' Python is compared between the hosts, and all else is skipped.
    Nothing is changed on the hosts. The exit code is 1 if a check failed, and 3 if a host is unreachable.
    """
    listed = here or named is not None
    if listed and (junit or deep):
        raise UsageError("--junit and --deep need an inventory", remedy="name one with -i, or leave them out")
    if python and not listed:
        raise UsageError("--python is for --here and --hosts", remedy="add one of them, or leave it out")
    lab = options.load_requested_lab(inventory, limit, here=here, named=named)
    console = Console(stderr=True)
    with console.status(f"checking {some(host.name for host in lab.hosts)}") as status:
        if listed:
            outcomes = verify.compare(lab, python or (sys.executable if here else ""))
        else:
            outcomes = verify.run(
                inventory,
                limit=limit,
                junit=junit,
                deep=deep,
                on_check=lambda check: status.update(Text(f"{check.host}  {check.role}: {check.check}")),
            )
    if output_format == "table":
        _table(outcomes)
    else:
        checks.rows(outcomes, _COLUMNS, output_format)
    error = verify.verdict(outcomes, listed=listed)
    if error:
        raise error


def _table(outcomes: list[verify.Check]) -> None:
    columns: dict[str, Callable[[list[verify.Check]], str]] = {
        "checks": lambda own: str(len(own)),
        "passed": lambda own: str(sum(check.outcome == "passed" for check in own)),
        "failed": lambda own: str(sum(check.wrong for check in own)),
        "skipped": lambda own: str(sum(check.outcome == "skipped" for check in own)),
    }
    checks.counts(outcomes, columns)
    partial = [check for check in outcomes if check.outcome == "passed" and check.observed]
    for note in dict.fromkeys(f"{check.role}: {check.observed}" for check in partial):
        click.echo(f"\n{note}")
    checks.needing_root(outcomes)
    checks.print_failed(outcomes)
