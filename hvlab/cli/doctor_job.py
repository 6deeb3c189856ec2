"""``hvlab doctor --job``: which rank holds a job up, where it stands, and why."""

from __future__ import annotations

import json
from collections.abc import Mapping

import click
from rich.console import Console

from hvlab.base.errors import CheckError, UnreachableError, some, unusable
from hvlab.checks import standing
from hvlab.doctor.standing import Standing, judge
from hvlab.lab.inventory import Lab


def examine(lab: Lab, which: str, *, seconds: int, output_format: str) -> None:
    """Look at the ranks of a lab, and print what holds a job up. Raises HvlabError where something does."""
    hosts = some(host.name for host in lab.hosts)
    with Console(stderr=True).status(f"looking at the ranks on {hosts} for {seconds} s"):
        seen, silent = standing.ask(lab, seconds=seconds)
    jobs = judge(seen, silent, which=which)
    if output_format == "json":
        click.echo(json.dumps({"jobs": [job.as_json() for job in jobs], "silent": silent}, indent=1))
    else:
        click.echo("\n\n".join(map(_text, jobs)) or f"no rank runs on {hosts}")
    culprits = [job.culprit for job in jobs if job.culprit]
    if silent and not culprits:
        raise UnreachableError(
            f"{unusable(silent, len(lab.hosts))}:\n{_lines(silent)}", remedy="look at them"
        )
    if which and not jobs:
        raise CheckError(
            f"no rank of {which} runs on {hosts}, or none that this user may see",
            remedy="name the job's hosts, as its owner or as root; `hvlab doctor LOG` reads a job that ended",
        )
    if culprits:
        raise CheckError("; ".join(map(str, culprits)), remedy=culprits[0].remedy)


def _lines(silent: Mapping[str, str]) -> str:
    return "\n".join(f"  {host}: {' '.join(words.split())[:200]}" for host, words in silent.items())


def _text(job: Standing) -> str:
    number = f"{job.ranks} rank{'s' * (job.ranks != 1)}"
    lines = [f"job {job.job or 'without a name'}: {number} on {some(job.hosts)}"]
    if job.culprit:
        each = job.culprit
        ranks = f"rank {','.join(map(str, each.ranks))} on " if each.ranks else ""
        lines += [f"  {ranks}{', '.join(each.hosts)}: {each.where}", f"  why: {each.why}"]
        lines += [f"  what to do: {each.remedy}"]
    else:
        lines += ["  nothing shows that it stands still"]
    return "\n".join(
        [*lines, *(f"  seen: {text}" for text in job.groups), *(f"  note: {text}" for text in job.notes)]
    )
