"""``hvlab doctor``: diagnoses hosts and logs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from hvlab.base.errors import UsageError
from hvlab.cli import candidates, doctor_knowledge, doctor_log, options
from hvlab.doctor import reading
from hvlab.doctor.reading import Diagnosis, Recognised

_ALL_OUTPUT = "give doctor the output of every rank, standard error too (`2>&1`)"
# Causes that are shown in full, and the words before their titles.
_MOST = 3
_CERTAINTIES = {"certain": "", "possible": "possibly: ", "failure": "no cause found; the failure is: "}
_MORE_WORDS = "NCCL_DEBUG=INFO or HOROVOD_LOG_LEVEL=debug"


@click.command()
@click.argument("log", required=False, metavar="[LOG]", shell_complete=candidates.files)
@options.of_verb("doctor")
@click.pass_context
def command(
    context: click.Context,
    *,
    inventory: Path,
    limit: str | None,
    here: bool,
    named: str | None,
    log: str | None,
    path: str | None,
    output_format: str,
    job: str | None,
    seconds: int,
    fix: bool,
    yes: bool,
    prove: bool,
    cause_id: str | None,
    word: str | None,
) -> None:
    """\b
    hvlab doctor                                # ask the hosts
    hvlab doctor --here                         # in a Slurm job, as any user
    hvlab doctor job.log                        # what went wrong there?
    kubectl logs my-job | hvlab doctor -
    hvlab doctor --job                          # which rank holds a job up?
    hvlab doctor job.log --job                  # or ended it?
    hvlab doctor --fix                          # have roles fix what they can
    hvlab doctor --list munge

    Diagnose the hosts, or a log.

    Asks each host once, and lets hosts reach one another as ranks do. Each finding names the hosts, what
    was seen, why it breaks and what to do. Nothing is changed without --fix, which runs the roles that fix
    it and checks again. The exit code is 1 if something is wrong, and 3 if a host is unreachable.

    LOG is the output of launchers, NCCL, Gloo, torch, builds, Ansible, package managers, Slurm, pods and
    kernels, unedited. Root causes are listed first, at most three, with the evidence for and against them;
    lines that only look like faults are listed as harmless. The exit code is 1 if a cause is recognised.

    --prove needs root; its exit code is 0 if the remedy helped.
    """
    if log and path:
        raise UsageError(f"--log names a second log beside {log}", remedy="give one of them")
    path = path or log
    if job is not None:
        _refuse_others(fix or prove or cause_id is not None or word is not None)
        from hvlab.cli import doctor_job  # noqa: PLC0415 - see below

        lab = options.load_requested_lab(inventory, limit, here=here, named=named)
        said = doctor_log.lines(path) if path else []
        doctor_job.examine(lab, job, said, seconds=seconds, output_format=output_format)
        return
    if cause_id is not None or word is not None:
        if path or limit or fix or prove or (cause_id is not None and word is not None):
            raise UsageError("--explain and --list print knowledge", remedy="use one of them alone")
        if cause_id is None:
            doctor_knowledge.list_causes(word or "", output_format=output_format)
        else:
            doctor_knowledge.explain(cause_id, output_format=output_format)
        return
    if prove and (fix or output_format == "json"):
        raise UsageError("--prove prints text", remedy="leave out --fix and --format json")
    if path is None:
        from hvlab.cli import doctor_live  # noqa: PLC0415 - it takes long, and a log needs no ssh and no Ansible

        lab = options.load_requested_lab(inventory, limit, here=here, named=named)
        doctor_live.examine(lab, output_format=output_format, fix=fix, yes=yes, prove=prove)
        return
    if fix or limit or here or named:
        raise UsageError(
            "a log is read without the hosts", remedy="leave out the log, or the options of hosts"
        )
    lines = doctor_log.lines(path)
    diagnosis = reading.diagnose(lines)
    if output_format == "json":
        causes, harmless = (
            [each.as_json() for each in group] for group in (diagnosis.causes, diagnosis.harmless)
        )
        document = {"log": path, "lines": _number(lines), "causes": causes, "harmless": harmless}
        document["suspects"] = [{"number": at, "text": words} for at, words in _suspects(lines, diagnosis)]
        document |= {"stacks": diagnosis.stacks, "not_looked_for": diagnosis.stopped}
        click.echo(json.dumps(document, indent=1))
    else:
        click.echo(_table(lines, diagnosis))
    if prove:
        from hvlab.cli import doctor_prove  # noqa: PLC0415 - see above

        doctor_prove.prove([each.cause.id for each in diagnosis.causes])
        return
    context.exit(1 if diagnosis.causes else 0)


def _refuse_others(others: object) -> None:
    if others:
        raise UsageError("--job looks at running ranks", remedy="leave out the other questions")


def _table(lines: Sequence[str], diagnosis: Diagnosis) -> str:
    parts = [_cause(number, each) for number, each in enumerate(diagnosis.causes[:_MOST], 1)]
    more = [each.cause.title for each in diagnosis.causes[_MOST:]]
    parts += [f"also seen, further from the root: {'; '.join(more)}"] if more else []
    if diagnosis.harmless:
        rows = [
            f"  {each.cause.title} ({'; '.join((_places(each), *each.says))}): {each.cause.why}"
            for each in diagnosis.harmless
        ]
        parts.append("\n".join(["harmless:", *rows]))
    if diagnosis.stacks:
        parts.append("\n".join(["stacks:", *(f"  {each}" for each in diagnosis.stacks)]))
    if not diagnosis.causes and not diagnosis.stacks:
        parts.append(_nothing(lines, diagnosis))
    elif left := _suspects(lines, diagnosis):
        parts.append("\n".join(["the last other lines that look like errors:", *_rows(left)]))
    if diagnosis.stopped:
        parts.append(
            f"stopped: this log takes too long to search; {diagnosis.stopped} known entries were not "
            "looked for\n  what to do: give it the part around the first error, with tail for example"
        )
    return "\n\n".join(parts)


def _suspects(lines: Sequence[str], diagnosis: Diagnosis) -> list[tuple[int, str]]:
    """Where no cause is known, the last lines that look like errors and are not shown already."""
    if any(each.certainty != "failure" for each in diagnosis.causes):
        return []
    named = {number for each in diagnosis.causes for number, _ in each.lines}
    return [(at, words) for at, words in reading.suspects(lines, diagnosis) if at not in named]


def _nothing(lines: Sequence[str], diagnosis: Diagnosis) -> str:
    rows = _rows(_suspects(lines, diagnosis))
    number = _number(lines)
    errors = ["the last lines that look like errors:", *rows] if rows else ["no line looks like an error"]
    look = (
        "look up the first of them in the documentation of the program that wrote it" if rows else _ALL_OUTPUT
    )
    return "\n".join(
        [
            f"nothing known in {number:,} line{'s' * (number != 1)}; {errors[0]}",
            *errors[1:],
            f"  what to do: {look}; run the job again with {_MORE_WORDS} and give doctor that log; "
            "`hvlab doctor` alone asks the hosts",
        ]
    )


def _rows(numbered: Sequence[tuple[int, str]]) -> list[str]:
    return [f"  line {at}: {words}" for at, words in numbered]


def _number(lines: Sequence[str]) -> int:
    return sum(not line.isspace() and bool(line) for line in lines)


def _cause(number: int, each: Recognised) -> str:
    cause = each.cause
    lines = [f"{number}. {_CERTAINTIES[each.certainty]}{cause.title}"]
    lines += [f"  line {line}: {text}" for line, text in each.lines]
    more = each.count - len(each.lines)
    lines += [f"  and {more} more like these"] if more > 0 else []
    lines += [f"  against it, line {line}: {text}" for line, text in each.against]
    lines += [f"  that is: {said}" for said in each.says]
    return "\n".join(
        [*lines, f"  why: {cause.why}", f"  what to do: {cause.remedy}", f"  source: {cause.source}"]
    )


def _places(each: Recognised) -> str:
    numbers = [number for number, _ in each.lines]
    return f"line {numbers[0]}" if each.count == 1 else f"{each.count} lines, the first {numbers[0]}"
