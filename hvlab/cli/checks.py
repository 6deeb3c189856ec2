"""Prints checks of hosts: `verify` and `health` report failures in the same way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TypeVar

import click
from rich.console import Console
from rich.table import Table

from hvlab.base.errors import some
from hvlab.base.groups import grouped
from hvlab.remote.verify import NEEDS_ROOT, CheckOutcome
from hvlab.results.tables import render

C = TypeVar("C", bound=CheckOutcome)


def counts(checks: Sequence[C], columns: Mapping[str, Callable[[list[C]], str]]) -> None:
    """Print a line for each host; each column has a heading and a function of the host's checks."""
    table = Table("host", *columns, box=None)
    for host, own in grouped((check.host, check) for check in checks).items():
        table.add_row(host, *(show(own) for show in columns.values()))
    Console().print(table)


def print_failed(checks: Sequence[CheckOutcome]) -> None:
    """Print every check that failed: on which hosts, what was seen and what to do."""
    hosts = grouped(
        ((check.title.removeprefix(check.host), check.observed, check.remedy), check.host)
        for check in checks
        if check.wrong
    )
    for (title, observed, remedy), names in hosts.items():
        click.echo(f"\n{some(names)}{title}\n  observed: {observed}")
        if remedy:
            click.echo(f"  what to do: {remedy}")


def needing_root(checks: Sequence[CheckOutcome]) -> None:
    """Print the checks that were skipped because the user is not root."""
    hosts = grouped(
        (f"{check.check}: {check.observed}", check.host)
        for check in checks
        if check.outcome == "skipped" and check.observed.startswith(NEEDS_ROOT)
    )
    for text, names in hosts.items():
        click.echo(f"\n{some(names)}  skipped: {text}")


def rows(checks: Sequence[CheckOutcome], columns: Sequence[str], output_format: str) -> None:
    """Print every check as a row, in the format of --format."""
    click.echo(render([asdict(check) for check in checks], columns, output_format))
