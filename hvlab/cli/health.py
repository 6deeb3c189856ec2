"""``hvlab health``: is every host fit for work?"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType

import click
from rich.console import Console

from hvlab.base import files
from hvlab.base.errors import UsageError, explain_unknown, some
from hvlab.checks import judge, machine_types, registry
from hvlab.checks.ask import Answered, ask
from hvlab.checks.judge import HealthCheck
from hvlab.checks.node import subjects
from hvlab.cli import checks, options, textfile
from hvlab.lab.inventory import Lab
from hvlab.results.tables import render

_LISTED = ("id", "stage", "subject", "severity", "role")
_COLUMNS = ("host", "check", "outcome", "severity", "observed", "remedy")


@click.command()
@options.of_verb("health")
def command(
    *,
    inventory: Path,
    limit: str | None,
    here: bool,
    named: str | None,
    python: str | None,
    output_format: str,
    junit: Path | None,
    metrics: Path | None,
    teacher: str | None,
    bandwidth: bool,
    burn: bool,
    diagnostics: int | None,
    force: bool,
    listed: bool,
) -> None:
    """\b
    hvlab health
    hvlab health --here                         # in a Slurm job, as any user
    hvlab health --hosts localhost
    hvlab health --bandwidth                    # GPUs, a minute
    hvlab health --burn                         # weak GPUs or hosts, two minutes
    hvlab health --learn n1                     # take n1 as the model
    hvlab health --list                         # every check

    Find out whether every host is fit for work.

    With a hard fault work would fail or be wrong; a soft fault makes it slow or doubtful.
    Nothing is changed on the hosts. The exit code is 1 if a host has hard faults, 3 if one is unreachable.
    """
    if listed:
        click.echo(render([asdict(check) for check in registry.list_all()], _LISTED, output_format))
        return
    if python and not (burn and (here or named is not None)):
        remedy = "add --burn, and --here or --hosts, or leave it out"
        raise UsageError("--python is for --burn without an inventory", remedy=remedy)
    textfile.prepare(metrics)
    lab = options.load_requested_lab(inventory, limit, here=here, named=named)
    if teacher and lab.listed:
        raise UsageError(
            "--learn writes beside an inventory", remedy="name one with -i: `hvlab init` writes it"
        )
    requested = [f"diagnostics {diagnostics}"] if diagnostics else []
    requested += [name for name, is_asked in (("bandwidth", bandwidth), ("burn", burn)) if is_asked]
    chosen = subjects.choose(requested)
    if teacher:
        click.echo(f"written: {_learn(inventory, lab, teacher, chosen, force=force)}")
        return
    types = machine_types.load(None if lab.listed else inventory)
    machine_types.check_names(types, [host.text("lab_machine_type") for host in lab.hosts])
    with Console(stderr=True).status(f"asking {some(host.name for host in lab.hosts)}"):
        own = sys.executable if here and burn else ""
        answered = ask(lab, chosen, python=python or own, busy=bool(requested))
        _refuse_python(python or own, answered)
        outcomes = judge.judge(lab, answered, chosen, types)
    if output_format == "table":
        _table(outcomes)
        for host, check, observed in judge.find_measured(outcomes, requested):
            click.echo(f"\n{host}: {check}: {observed}")
        for name, host, reason in judge.find_unmeasured(outcomes, requested):
            click.echo(f"\n{host}: no {name}: {reason}")
    else:
        checks.rows(outcomes, _COLUMNS, output_format)
    if junit:
        files.write_file(junit, judge.as_junit(outcomes, lab.name))
    gauges = {**judge.as_gauges(outcomes), **judge.speeds_as_gauges(answered.readings)}
    textfile.write(metrics, "health", lab.name, gauges)
    error = judge.verdict(outcomes)
    if error:
        raise error


def _refuse_python(python: str, answered: Answered) -> None:
    """Raise UsageError if hosts cannot start a Python that was named: that says nothing of the hosts."""
    without = {
        host: text for host, text in answered.broken.items() if python and text.startswith(f"{python}: ")
    }
    if without:
        raise UsageError(
            f"{some(without)}: {next(iter(without.values()))}; no host was judged",
            remedy="name with --python a Python with torch that each of these hosts has",
        )


def _learn(inventory: Path, lab: Lab, teacher: str, chosen: Sequence[ModuleType], *, force: bool) -> Path:
    """Judge a host by the rules for any machine, then write its type."""
    names = [host.name for host in lab.hosts]
    if teacher not in names:
        raise explain_unknown("host", teacher, names)
    alone = replace(lab, hosts=(lab.host(teacher),))
    with Console(stderr=True).status(f"asking {teacher}"):
        answered = ask(alone, chosen)
    outcomes = judge.judge(alone, answered, chosen, None)
    if error := judge.verdict(outcomes):
        checks.print_failed(outcomes)
        raise error
    day = time.strftime("%Y-%m-%d", time.gmtime())
    return machine_types.write(inventory, teacher, answered.readings[teacher], day=day, force=force)


def _table(outcomes: list[HealthCheck]) -> None:
    columns: dict[str, Callable[[list[HealthCheck]], str]] = {
        "": _word,
        "hard": lambda own: str(sum(check.severity == "hard" for check in own)),
        "soft": lambda own: str(sum(check.severity == "soft" for check in own)),
        "passed": lambda own: str(sum(check.outcome == "passed" for check in own)),
        "skipped": lambda own: str(sum(check.outcome == "skipped" for check in own)),
        "type": lambda own: next(
            (c.observed for c in own if c.check == "machine type" and c.outcome == "passed"), "-"
        ),
    }
    checks.counts(outcomes, columns)
    checks.needing_root(outcomes)
    checks.print_failed(outcomes)


def _word(own: list[HealthCheck]) -> str:
    silent = any(check.outcome == "unreachable" for check in own)
    return "unreachable" if silent else "unfit" if any(check.unfit for check in own) else "fit"
