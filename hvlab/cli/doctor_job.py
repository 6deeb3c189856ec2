"""``hvlab doctor --job``: which rank holds a job up, where it stands, and why."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import click
from rich.console import Console

from hvlab.base.errors import CheckError, UnreachableError, some, unusable
from hvlab.checks import standing
from hvlab.doctor import reading
from hvlab.doctor.standing import Standing, judge
from hvlab.lab.inventory import Lab


def examine(lab: Lab, which: str, log: Sequence[str], *, seconds: int, output_format: str) -> None:
    """Look at the ranks of a lab, and print what holds a job up. Raises HvlabError if something does.

    ``log`` are the lines of the job's output, for a job that has ended.
    """
    hosts = some(host.name for host in lab.hosts)
    with Console(stderr=True).status(f"looking at the ranks on {hosts} for {seconds} s"):
        seen, silent = standing.ask(lab, seconds=seconds)
    jobs = judge(seen, silent, which=which, log="\n".join(log))
    if output_format == "json":
        click.echo(json.dumps({"jobs": [job.as_json() for job in jobs], "silent": silent}, indent=1))
    else:
        click.echo("\n\n".join(map(_text, jobs)) or f"no rank runs on {hosts}")
    culprits = [job.culprit for job in jobs if job.culprit]
    if silent and not culprits:
        raise UnreachableError(
            f"{unusable(silent, len(lab.hosts))}:\n{_lines(silent)}", remedy="look at them"
        )
    if not jobs and (which or log):
        cause = reading.root(log)
        said = f"; its log says: {cause.cause.title}" if cause else ""
        remedy = "name the job's hosts, as its owner or as root; for a job that ended, give its log, too"
        raise CheckError(
            f"no rank of {which or 'a job'} runs on {hosts}, or none that this user may see{said}",
            remedy=cause.cause.remedy if cause else remedy,
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
        lines += [f"  {each.named}: {each.where}", f"  why: {each.why}"]
        lines += [f"  what to do: {each.remedy}"]
    else:
        lines += ["  nothing shows that it stands still"]
    return "\n".join(
        [*lines, *(f"  seen: {text}" for text in job.groups), *(f"  note: {text}" for text in job.notes)]
    )
