"""How checks of hosts are printed: `verify` and `health` say what failed in the same way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import click
from rich.console import Console
from rich.table import Table


class _HostCheck(Protocol):
    """What is printed of a check."""

    @property
    def host(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def seen(self) -> str: ...
    @property
    def remedy(self) -> str: ...
    @property
    def wrong(self) -> bool: ...


C = TypeVar("C", bound=_HostCheck)


def counts(checks: Sequence[C], columns: Mapping[str, Callable[[list[C]], str]]) -> None:
    """Print a line for each host; a column is its heading and what it shows of the host's checks."""
    table = Table("host", *columns, box=None)
    for host in dict.fromkeys(check.host for check in checks):
        own = [check for check in checks if check.host == host]
        table.add_row(host, *(show(own) for show in columns.values()))
    Console().print(table)


def failed(checks: Sequence[_HostCheck]) -> None:
    """Print every check that failed: on which host, what was seen and what to do."""
    for check in checks:
        if check.wrong:
            click.echo(f"\n{check.title}\n  seen: {check.seen}")
            if check.remedy:
                click.echo(f"  what to do: {check.remedy}")
