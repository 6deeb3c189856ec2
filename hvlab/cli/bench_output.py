"""Output of ``hvlab bench``: its tables and ceilings, and the files for Kubernetes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import click

from hvlab.analysis import ceiling, step_parts
from hvlab.analysis.ceiling import Ceiling, JudgedCollective
from hvlab.base import answers
from hvlab.base.answers import AnswerError
from hvlab.base.errors import UsageError
from hvlab.base.files import write_file, writing
from hvlab.base.groups import grouped
from hvlab.base.masking import mask, mask_argv
from hvlab.bench import manifests
from hvlab.bench.estimate import estimates, format_duration
from hvlab.bench.schedule import Schedule
from hvlab.cli.options import Rows
from hvlab.lab import cores
from hvlab.lab.cores import HostCores
from hvlab.lab.facts_shape import Facts
from hvlab.results import tables
from hvlab.results.configurations import Configuration, gather
from hvlab.results.store import FIELDS, Record, Store, make_run_id
from hvlab.results.summary import failures, sections
from hvlab.workloads import WORKLOADS, parameters
from hvlab.workloads.case import Case, InfeasibleCase
from hvlab.workloads.command import COMMAND, read_removed
from hvlab.workloads.parameters import COMMON, DEVICE, Parameter

_MANY = 2
_SHOWN = 3

# By its digest or id, or a file.
_FIXED_IMAGE = re.compile(r"(^|[@:])[0-9a-f]{64}$|^[/.~]|\.sqsh$")


def print_infeasible(cases: Sequence[InfeasibleCase], *, whole: bool) -> None:
    """Print the infeasible cases: one by one in a dry run, else grouped by reason."""
    list_cases("infeasible", {case.case: case.reason for case in cases}, whole=whole, err=True)


def list_cases(word: str, reasons: Mapping[str, str | None], *, whole: bool = False, err: bool) -> None:
    """Print the reason for each case; a shared reason once, unless ``whole``."""
    for reason, names in grouped((reason, case) for case, reason in reasons.items()).items():
        many = f"{len(names)} cases, {names[0]} to {names[-1]}"
        for shown in names if whole else [", ".join(names) if len(names) <= _MANY else many]:
            click.echo(f"{word}: {shown}: {reason}", err=err)


def print_oversubscribed(schedule: Schedule, held: Mapping[str, HostCores]) -> None:
    """Print how many cases have more ranks than the virtual hosts' cores; ``held`` is by host."""
    cases_of: dict[str, list[str]] = {}
    for case in schedule.cases:
        hosts = {host: held[host] for host in case.hosts if host in held}
        crowd = cores.crowding(hosts, case.slots) if case.params["device"] == "cpu" else None
        if crowd:
            cases_of.setdefault(crowd, []).append(case.id)
    for crowd, names in cases_of.items():
        noun = names[0] if len(names) == 1 else f"{len(names)} cases, {names[0]} to {names[-1]}"
        click.echo(
            f"oversubscribed: {noun}: {crowd}; ranks that wait for a core are part of the figure", err=True
        )


def tag(schedule: Schedule) -> None:
    """Warn that an image may change under its name: docker reports its id for the records, srun does not."""
    image = schedule.spec.container
    if image is None or _FIXED_IMAGE.search(image):
        return
    fixed = "; IMAGE@sha256:... stays the same (RepoDigests in `docker image inspect`)"
    if not schedule.port:
        fixed = ", and records have that name alone; a .sqsh file (`enroot import`) stays the same"
    click.echo(f"image: {image} may name another image tomorrow{fixed}", err=True)


def plan(schedule: Schedule, store: Store) -> None:
    """Print the cases of a schedule: a row for each workload and backend."""
    groups = grouped(
        ((case.workload, case.backend, case.launcher, case.params["device"]), case) for case in schedule.cases
    )
    rows = [
        {
            **dict(zip(("workload", "backend", "launcher", "device"), own, strict=True)),
            "hosts x slots": ", ".join(
                f"{hosts}x{slots}"
                for hosts, slots in sorted({(len(case.hosts), case.slots) for case in cases})
            ),
            "settings": " ".join(_settings(cases)),
            "repeats": max(case.repeat for case in cases),
            "cases": len(cases),
            "time": format_duration(expected.seconds),
        }
        for (own, cases), expected in zip(
            sorted(groups.items()), estimates([groups[own] for own in sorted(groups)], store), strict=True
        )
    ]
    click.echo(tables.render(rows, tuple(rows[0]), "table"))


def _settings(cases: Sequence[Case]) -> Iterator[str]:
    for item in parameters(cases[0].workload):
        if item.name != DEVICE.name and item.kind not in ("sizes", "files"):
            values = {case.params.get(item.name, item.default) for case in cases}
            if values != {item.default}:
                order = sorted(values, key=item.choices.index if item.choices else None)
                yield mask(f"{item.name}={','.join(map(item.format_value, order))}")


def commands(schedule: Schedule, output_format: str, *, seconds: float) -> None:
    """Print every command line of a schedule; its estimated time is in seconds."""
    starts = list(schedule.containers().items())
    commands = [
        (case, replace(one, argv=mask_argv(one.argv), env=mask(one.env)))
        for case in schedule.cases
        for one in [schedule.command(case)]
    ]
    if output_format == "table":
        if request := schedule.allocation(schedule.cases, seconds=seconds):
            starts.append((schedule.list_allocated(schedule.cases)[0], request))
        for host, argv in starts:
            click.echo(f"# {host}, before the first case\n{shlex.join(mask_argv(argv))}")
        for case, command in commands:
            click.echo(f"# {case.id}\n{command.line()}")
        return
    rows = [
        {"case_id": case.id, "argv": list(command.argv), "env": dict(command.env)}
        for case, command in commands
    ]
    click.echo(tables.render(rows, ("case_id", "argv", "env"), output_format))


def results(store: Store, run_id: str, records: Sequence[Record], output_format: str) -> None:
    """Print the results: short tables, or every record with all fields."""
    if output_format != "table":
        click.echo(tables.render([vars(record) for record in records], FIELDS, output_format))
        return
    show_run(store, run_id, records)


def ending(schedule: Schedule, records: Sequence[Record], run_id: str, page: Path) -> None:
    """Print failed, skipped and infeasible cases, and the next step."""
    failed = failures(records)
    list_cases("failed", failed, err=True)
    skipped = {record.case_id: record.error for record in records if record.status == "skipped"}
    list_cases("skipped", skipped, err=True)
    print_lost_files(records, page.parent)
    succeeded = {record.case_id for record in records if record.status == "ok"} - failed.keys()
    tried = {record.case_id for record in records} if schedule.spec.auto else schedule.cases
    others = f"; {len(schedule.infeasible)} more are infeasible" if schedule.infeasible else ""
    click.echo(f"run {run_id}: {len(succeeded)} of {len(tried)} cases succeeded{others}", err=True)
    click.echo(f"summary: {page}; raw files are in the same folder", err=True)
    click.echo(f"next: `hvlab report {run_id}` for tables, curves and what they mean", err=True)


def print_lost_files(records: Sequence[Record], folder: Path) -> None:
    """Print the files that users' trainings lost with their working folders; ``folder`` is the run's."""
    cases = dict.fromkeys(record.case_id for record in records if record.workload == COMMAND.name)
    names = [*dict.fromkeys(name for case in cases for name in read_removed(folder / case))]
    if names:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        click.echo(
            f"removed with the working folder: {', '.join(names[:_SHOWN])}{more}; "
            "to keep files, write them to an absolute path",
            err=True,
        )


def parameter_rows(primary: str) -> Rows:
    """Return the parameters of the workloads of one kind, with the workloads' names unless all have it."""
    kind = [name for name, workload in WORKLOADS.items() if workload.primary == primary]
    own = grouped((item, name) for name in kind for item in WORKLOADS[name].parameters)
    return [
        _parameter_row(item, "" if names == kind else f"{', '.join(names)}: ") for item, names in own.items()
    ]


def common_rows() -> Rows:
    """Return the parameters that every workload has."""
    return [_parameter_row(item, "") for item in COMMON]


def _parameter_row(item: Parameter, whose: str) -> tuple[str, str]:
    choices = f" [{', '.join(item.choices)}]" if item.choices else ""
    smaller = f" On hosts without GPUs: {item.format_value(item.cpu)}." if item.cpu is not None else ""
    return f"{item.name}={item.format_value(item.default)}", f"{whose}{item.help}{choices}{smaller}"


def export(schedule: Schedule, kind: str, folder: Path) -> None:
    """Write the files of a schedule for Kubernetes into a new folder. Raises UsageError."""
    schedule, others = manifests.exportable(schedule, kind)
    if others:
        click.echo(f"left out, as no {kind} starts them: {', '.join(others)}", err=True)
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(
            f"{folder} has files in it", remedy="remove it, or name another folder with --output"
        )
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in manifests.files(schedule, make_run_id(), kind):
            # They hold the ranks' environment as it is.
            write_file(folder / name, text, mode=0o600)
    click.echo(f"{len(schedule.cases)} jobs in {folder}")
    click.echo(f"next: `sh {folder / manifests.SCRIPT}`, then `hvlab results import {folder}/logs/*.log`")


_FACTS = 256 * 2**20
_MOST = 5
_VERDICTS = {
    "normal": "as fast as it should be",
    "slow": "slow: {usual:.0%} or more is usual",
    "unclear": "whether that is slow is not known: {unknown}",
    "rising": "larger messages may be faster: measure them",
    "impossible": "more than these links can carry ({bound:.3g} GB/s): the figure or the facts are wrong",
}
_KINDS = {"nvlink": "NVLink", "pcie": "PCIe", "rdma": "network (RDMA)", "xgmi": "xGMI"}
# What NCCL_DEBUG=INFO should show, by the link that limits.
_SHOULD = {
    "nvlink": "GPUs reach each other (`via P2P`), and `nvidia-smi nvlink --status` shows every link",
    "pcie": "GPUs reach each other (`via P2P`), and `nvidia-smi -q` shows each PCIe link's full width",
    "rdma": "every card is used (`NET/IB : Using`), with GPUDirect (`GDRDMA`)",
    "network": "every interface is used (`NET/`)",
}
_ASSUMED = {
    "bridges": " if no NVLink bridges join the GPUs",
    "mesh": " if no more NVLinks join the GPUs",
    "rack": " if no NVLink joins the hosts",
}


def _ceilings(store: Store, run_id: str, records: Sequence[Record]) -> Mapping[Configuration, Ceiling | str]:
    try:
        facts = answers.read(
            store.run_folder(run_id) / "facts.json", "facts.json", dict[str, Facts], limit=_FACTS
        )
    except (FileNotFoundError, AnswerError):
        facts = {}
    return ceiling.ceilings(records, facts)


def print_impossible(store: Store, run_id: str, records: Sequence[Record]) -> bool:
    """Print the collectives that were faster than their links; return whether there is one."""
    judgements = ceiling.judge(gather(records), _ceilings(store, run_id, records))
    wrong = [each for each in judgements if each.verdict == "impossible"]
    for each in wrong:
        click.echo(
            f"not ok: {_subject(each)}: {each.busbw:.3g} GB/s is more than its links can carry. Correct what"
            " was said of hosts, GPUs and cards; if it is right, do not trust the figure",
            err=True,
        )
    return bool(wrong)


def show_run(store: Store, run_id: str, records: Sequence[Record]) -> None:
    """Print the tables of a run, and below them each collective beside the ceiling of its links."""
    limits = _ceilings(store, run_id, records)
    known = {one: each.busbw for one, each in limits.items() if isinstance(each, Ceiling)}
    for section in sections(records, known):
        click.echo(tables.render(section.rows, section.columns, "table"))
    for explained in step_parts.explain(gather(records)):
        click.echo(f"step: {explained.sentence}")
    judgements = ceiling.judge(gather(records), limits)
    for judgement in judgements[:_MOST]:
        click.echo(
            f"ceiling: {_subject(judgement, _find_differing(judgement, judgements))}: {_sentence(judgement)}"
        )
    if len(judgements) > _MOST:
        click.echo(f"ceiling: and {len(judgements) - _MOST} more; `hvlab report {run_id}` has all")
    for advice in dict.fromkeys(_advise(each) for each in judgements if each.verdict == "slow"):
        click.echo(f"next: {advice}")
    reasons = dict.fromkeys(each for each in limits.values() if each and isinstance(each, str))
    if reasons:
        click.echo(f"no ceiling is known: {'; '.join(reasons)}")


def _find_differing(judged: JudgedCollective, others: Sequence[JudgedCollective]) -> list[str]:
    """Return the settings that tell a collective from others of the same name and place."""

    def place(one: Configuration) -> tuple[object, ...]:
        return one.workload, one.backend, one.hosts, one.slots

    own = judged.configuration
    alike = [each.configuration for each in others if place(each.configuration) == place(own)]
    names = dict(own.without("size_bytes", "in_place"))
    return [name for name in names if len({one.get(name) for one in alike}) > 1]


def _advise(judged: JudgedCollective) -> str:
    should = _SHOULD.get(judged.ceiling.limit.kind) if judged.configuration.backend == "nccl" else None
    look = (
        f"with NCCL_DEBUG=INFO, see that {should}; `hvlab doctor LOG` explains such logs; " if should else ""
    )
    return f"{look}`hvlab health` checks hosts, `hvlab find-slow` finds the slow one"


def _subject(judged: JudgedCollective, differing: Iterable[str] = ()) -> str:
    one = judged.configuration
    settings = "".join(f", {name} {one.get(name)}" for name in differing)
    return f"{one.workload} over {one.backend} on {len(one.hosts)}x{one.slots}{settings}"


def _sentence(judged: JudgedCollective) -> str:
    top, limit = judged.ceiling, judged.ceiling.limit
    share = top.share(judged.busbw)
    own = limit.kind in ("nvlink", "pcie", "xgmi")
    where = f"{limit.place}'s " if limit.place else "" if own else "the "
    verdict = _VERDICTS[judged.verdict].format(usual=limit.usual, bound=top.bound, unknown=top.unknown)
    beyond = ""
    if share > 1 and judged.verdict != "impossible":
        less = "others than a ring, as a tree over two hosts or a switch that reduces, send less"
        beyond = f" ({less if top.bound > top.busbw else 'within the error of such figures'})"
    pattern = "a ring can do" if top.ring else "these links allow"
    return (
        f"{judged.busbw:.3g} GB/s, {share:.0%} of the {top.busbw:.3g} GB/s that {pattern}{beyond}; "
        f"the limit is {where}{_KINDS.get(limit.kind, limit.kind)}, {limit.text}"
        f"{_ASSUMED.get(limit.assumed, '')}; {verdict}"
    )
