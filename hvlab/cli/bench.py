"""``hvlab bench``."""

from __future__ import annotations

import importlib
import shlex
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import click

from hvlab import stack, tables
from hvlab.cli import options
from hvlab.errors import UsageError
from hvlab.inventory import Lab, load
from hvlab.matrix import (
    DTYPES,
    Impossible,
    Spec,
    default_hosts,
    default_slots,
    expand,
    parse_counts,
    parse_sizes,
)
from hvlab.paths import results_dir
from hvlab.report import write_page
from hvlab.results import FIELDS, Record, Store
from hvlab.schedule import Schedule
from hvlab.summary import COLUMNS, failures, summary
from hvlab.workloads import WORKLOADS

_LAUNCHERS = sorted({name for backend in stack.BACKENDS.values() for name in backend.launchers})

F = TypeVar("F", bound=Callable[..., Any])


def _number(name: str, default: int, told: str, *, least: int = 1) -> Callable[[F], F]:
    return click.option(name, type=click.IntRange(least), default=default, show_default=True, help=told)


@click.command("bench")
@options.inventory
@options.limit
@click.option(
    "--backend", "backends", help="mpi, gloo, nccl, ccl; several with commas. Default: all that can run."
)
@click.option(
    "--workload",
    type=click.Choice(sorted(WORKLOADS)),
    default="allreduce",
    show_default=True,
    help="What to measure.",
)
@click.option(
    "--launcher", type=click.Choice(_LAUNCHERS), help="Who starts the ranks, where a backend has a choice."
)
@click.option("--sizes", default="1K:64M:4", show_default=True, help="min:max:factor, or a list: 1K,4M.")
@click.option("--hosts", help="How many hosts: 1,2,3. Default: 1 to N, beyond 4 powers of two and N.")
@click.option("--slots", help="How many ranks a host: 1,2. Default: 1 and lab_slots.")
@_number("--repeats", 1, "How often each case is run.")
@_number("--iterations", 20, "How often each size is timed in a case.")
@_number("--warmup", 5, "How often each size is run before that, not timed.", least=0)
@click.option(
    "--dtype", type=click.Choice(list(DTYPES)), default="float32", show_default=True, help="Of the elements."
)
@_number("--timeout", 900, "Seconds a case may take.")
@click.option("--container", metavar="IMAGE", help="Run the ranks in containers of this image.")
@_number("--ssh-port", 9435, "Where the containers' sshd listens.")
@click.option(
    "--container-option",
    "container_options",
    multiple=True,
    metavar="OPTION",
    help="One more option of docker run, such as --volume=/data:/data; may be given again.",
)
@click.option("--dry-run", is_flag=True, help="Print every command line; contact no host, run nothing.")
@options.results
@click.option("--fresh", is_flag=True, help="Start anew instead of going on with an interrupted run.")
@options.output_format
def command(
    *,
    inventory: Path,
    limit: str | None,
    backends: str | None,
    hosts: str | None,
    slots: str | None,
    sizes: str,
    dry_run: bool,
    folder: Path | None,
    fresh: bool,
    output_format: str,
    **asked: Any,
) -> int:
    """Run benchmarks on the hosts, keep and print what was measured."""
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(load, inventory, limit=limit)
        if not dry_run:
            importlib.import_module("hvlab.bench")
        lab = loading.result()
    named = _names(backends)
    spec = Spec(
        backends=tuple(stack.choose(named, lab)),
        hosts=parse_counts(hosts, "--hosts") if hosts else default_hosts(len(lab.hosts)),
        slots=parse_counts(slots, "--slots") if slots else default_slots(lab),
        sizes=parse_sizes(sizes, item=DTYPES[asked["dtype"]]),
        **asked,
    )
    plan = _plan(spec, lab, asked=bool(named))
    if dry_run:
        _print_dry_run(plan, output_format)
        return 0
    from hvlab.bench import measure  # noqa: PLC0415 - it takes long, and a dry run has no use for it

    store = Store(folder.absolute() if folder else results_dir())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupt)
    run_id = measure(plan, store, fresh=fresh)
    records = store.records(run_id)
    _print_results(records, output_format)
    failed = failures(records)
    for case, error in failed.items():
        click.echo(f"failed: {case}: {error}", err=True)
    click.echo(f"run {run_id}; summary: {write_page(store, run_id)}; raw files beside it", err=True)
    return 1 if failed else 0


def _names(backends: str | None) -> list[str]:
    if backends is None:
        return []
    named = [name.strip() for name in backends.split(",") if name.strip()]
    if not named:
        raise UsageError("--backend names none", remedy=f"the backends are {', '.join(stack.BACKENDS)}")
    return named


def _plan(spec: Spec, lab: Lab, *, asked: bool) -> Schedule:
    cases, impossible = expand(spec, lab)
    for left_out in impossible:
        click.echo(f"left out: {left_out.case}: {left_out.reason}", err=True)
    if not cases:
        raise UsageError("no case is left to run", remedy=_advice(impossible, lab))
    return Schedule(spec, lab, tuple(cases), asked)


def _advice(impossible: Sequence[Impossible], lab: Lab) -> str:
    most = min(host.slots for host in lab.hosts)
    return (
        f"this lab allows --hosts up to {len(lab.hosts)} and --slots up to {most}"
        if impossible
        else "ask for more"
    )


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _print_dry_run(plan: Schedule, output_format: str) -> None:
    starts = plan.containers()
    made = [(case, plan.command(case)) for case in plan.cases]
    if output_format == "table":
        for host, argv in starts.items():
            click.echo(f"# {host}, before the first case\n{shlex.join(argv)}")
        for case, command in made:
            click.echo(f"# {case.id}\n{command.line()}")
        return
    rows = [
        {"case_id": case.id, "argv": list(command.argv), "env": dict(command.env)} for case, command in made
    ]
    click.echo(tables.render(rows, ("case_id", "argv", "env"), output_format))


def _print_results(records: Sequence[Record], output_format: str) -> None:
    if output_format != "table":
        click.echo(tables.render([vars(record) for record in records], FIELDS, output_format))
        return
    click.echo(tables.render(summary(records), COLUMNS, "table"))
