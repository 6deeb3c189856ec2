"""`hvlab lab`: boot and remove the hosts of the inventory's group ``virtual``."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table

from hvlab.base.ranges import format_ranges
from hvlab.cli import candidates, options
from hvlab.lab.inventory import load
from hvlab.results import tables
from hvlab.vlab import lab as virtual
from hvlab.vlab.controller import PATH
from hvlab.vlab.lab import NodeStatus
from hvlab.vlab.names import REDHAT, RELEASES
from hvlab.vlab.plan import check_machine, make_plan, plan_without_limits
from hvlab.vlab.topology import FULL_WEIGHT


@click.group(cls=options.SubVerbs, context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """\b
    hvlab lab up -i inventory/lab
    hvlab lab ssh n1
    hvlab lab down

    Boot and remove the virtual hosts of an inventory.
    """


@command.command(short_help="Boot the virtual hosts that are not running.")
@options.of_verb(
    "lab-up",
    release={
        "shell_complete": candidates.words((*RELEASES.values(), *REDHAT)),
        "names": [f"{', '.join(RELEASES.values())} or {', '.join(RELEASES)}, or {', '.join(REDHAT)}"],
    },
)
def up(
    *,
    inventory: Path,
    nodes: int | None,
    release: str | None,
    cpus: str | None,
    memory: str | None,
    rate: str | None,
    topology_file: Path | None,
) -> None:
    """Boot the virtual hosts that are not running, and give all of them the limits requested.

    A limit that this call does not request is lifted.
    """
    check_machine()
    begun = time.monotonic()
    plan = make_plan(
        load(inventory),
        count=nodes,
        release=release,
        rate=rate,
        cpus=cpus,
        memory=memory,
        topology_file=topology_file,
    )
    with _Progress([node.name for node in plan.nodes]) as progress:
        remarks = virtual.up(plan, report=progress.report)
    for line in [*remarks, *plan.advice()]:
        click.echo(line, err=True)
    click.echo(f"{len(plan.nodes)} nodes are up after {time.monotonic() - begun:.1f} s", err=True)


@command.command()
@options.of_verb("lab-down")
def down(inventory: Path) -> None:
    """Remove the virtual hosts, their files and their network."""
    check_machine()
    lab = load(inventory)
    with _Progress([]) as progress:
        was_up = virtual.down(lab, plan_without_limits(lab), report=progress.report)
    click.echo(f"lab {lab.name} is {'down' if was_up else 'not up'}", err=True)


@command.command()
@options.of_verb("lab-status")
def status(inventory: Path, output_format: str) -> None:
    """Show which virtual hosts are running."""
    rows = virtual.status(plan_without_limits(load(inventory)))
    if output_format == "json":
        click.echo(json.dumps([asdict(row) for row in rows], indent=2))
        return
    table = Table(box=None, header_style="bold")
    for heading in ("host", "address", "state", "pid", "since", "release", "cores", "memory", "rate", "rack"):
        table.add_column(heading)
    for row in rows:
        since = "" if row.since is None else f"{datetime.fromtimestamp(row.since, UTC):%Y-%m-%d %H:%M:%S}Z"
        pid = "" if row.pid is None else str(row.pid)
        limits = (_cores(row), _memory(row.memory), _rate(row), row.rack or "")
        table.add_row(row.host, row.address, row.state, pid, since, row.release or "", *limits)
    # Rows are never wrapped.
    click.echo(tables.as_text(table))


def _cores(row: NodeStatus) -> str:
    """Return a host's cores, whether others may use them, and its CPU weight if it is not the default."""
    if row.cores is None:
        return ""
    others = " shared" if row.shared_with else " own"
    weight = "" if row.cpu_weight in (None, FULL_WEIGHT) else f", weight {row.cpu_weight}"
    return format_ranges(row.cores) + others + weight


def _memory(size: int | None) -> str:
    return "" if size is None else f"{size / 2**20:.0f} MiB"


def _rate(row: NodeStatus) -> str:
    """Return the rates of a host's link (one if both are equal), its delay and loss."""
    if row.link_lost:
        return "lost, run `hvlab lab up` again"
    rates = [row.up or ""] if row.up == row.down else [f"up {row.up or 'any'}", f"down {row.down or 'any'}"]
    more = [f"delay {row.delay}"] * bool(row.delay) + [f"loss {row.loss}"] * bool(row.loss)
    return ", ".join(filter(None, [*rates, *more]))


@command.command(
    short_help="Log in to a virtual host as root, or run a command there.",
    context_settings={"ignore_unknown_options": True},
)
@options.of_verb("lab-ssh")
@click.argument("host", shell_complete=candidates.hosts)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
def ssh(inventory: Path, host: str, words: tuple[str, ...]) -> None:
    """Log in to a virtual host as root, or run a command there and return its exit code.

    Several words are passed to the host unchanged. A single word is a command line for the host's shell.
    """
    argv = virtual.ssh_argv(plan_without_limits(load(inventory)), host, words)
    os.execvpe(argv[0], argv, {**os.environ, "PATH": PATH})  # noqa: S606


class _Progress:
    """Host, step and elapsed time: a live table on a terminal, plain lines elsewhere. On stderr."""

    def __init__(self, hosts: list[str]) -> None:
        self.console = Console(stderr=True)
        self.begun = time.monotonic()
        self.steps = dict.fromkeys(hosts, "wait")
        self.ended: dict[str, float] = {}
        self.live = Live(
            get_renderable=self._table, console=self.console, refresh_per_second=8, transient=True
        )

    def __enter__(self) -> _Progress:
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self.live.stop()

    def report(self, host: str, step: str) -> None:
        """Show that a host (or the lab, "") has reached a step."""
        if self.steps.get(host) == step:
            return
        self.steps[host] = step
        self.ended[host] = time.monotonic() - self.begun
        if not self.console.is_terminal:
            click.echo(f"{self.ended[host]:6.1f} s  {host or 'lab'}: {step}", err=True)

    def _table(self) -> Table:
        table = Table(box=None, show_header=False)
        for host, step in list(self.steps.items()):
            seconds = self.ended[host] if step == "up" else time.monotonic() - self.begun
            table.add_row(host or "lab", step, f"{seconds:.1f} s")
        return table
