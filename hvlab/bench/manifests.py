"""A schedule as files for Kubernetes: a job for each case, the programs, and a script. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from hvlab import workloads
from hvlab.base.errors import UsageError
from hvlab.bench.schedule import Schedule
from hvlab.lab.backends import BACKENDS, SHIM
from hvlab.workloads import launchers
from hvlab.workloads.case import Case
from hvlab.workloads.launchers import kubernetes, mpijob, trainjob
from hvlab.workloads.parameters import RULES

KINDS = {"mpijob": mpijob, "trainjob": trainjob}
PROGRAMS = "programs.yml"
SCRIPT = "run.sh"
_MEMORY_GIB = 4


def exportable(schedule: Schedule, kind: str = "mpijob") -> tuple[Schedule, list[str]]:
    """Return the schedule of the cases that a job of a kind starts, and the names of the others.

    Raises UsageError if the cases need an image, or files that pods do not have.
    """
    if schedule.spec.auto or schedule.spec.sides:
        raise UsageError(
            "jobs for Kubernetes are written before anything is measured: no later repeat can depend on it",
            remedy="give --repeats a number, and export A and B one after the other",
        )
    if not schedule.spec.container:
        raise UsageError(
            "pods need an image",
            remedy="name one with --container: it has Horovod and torch for its `python3`, and sshd; "
            "Open MPI too, unless the backend is gloo",
        )
    needed = {name for case in schedule.cases for name in (*workloads.data(case), *workloads.files(case))}
    if needed:
        raise UsageError(
            f"pods do not have {', '.join(sorted(needed))}",
            remedy="measure mnist with --data synthetic; for a training of your own, put its files into the "
            "image under the same names",
        )
    if any(RULES.name in case.params for case in schedule.cases):
        raise UsageError(
            "pods do not have Open MPI's rules file (--set rules=)",
            remedy="put it into the image, and name it by --set env='OMPI_MCA_coll_tuned_use_dynamic_rules=1 "
            "OMPI_MCA_coll_tuned_dynamic_rules_filename=/FILE'",
        )
    fit = tuple(
        case
        for case in schedule.cases
        # Pods have the image's own Horovod.
        if case.launcher in KINDS[kind].LAUNCHERS and BACKENDS[case.backend].framework != SHIM
    )
    if not fit:
        starts = ", ".join(KINDS[kind].LAUNCHERS)
        raise UsageError(
            f"no case is for --export {kind}, which starts those of {starts}",
            remedy="choose one of them with --launcher, and a backend that it starts (docs/kubernetes.md)",
        )
    others = [case.id for case in schedule.cases if case not in fit]
    return Schedule(schedule.spec, schedule.lab, fit, schedule.infeasible), others


def files(schedule: Schedule, run_id: str, kind: str = "mpijob") -> Iterator[tuple[str, str]]:
    """Yield the names and contents of the files of a schedule that is exportable."""
    width = len(str(len(schedule.cases)))
    programs = {file.name: file.read_text("utf-8") for file in sorted(workloads.PROGRAMS.glob("*.py"))}
    yield PROGRAMS, _text(kubernetes.programs(programs), *KINDS[kind].SHARED)
    for number, case in enumerate(schedule.cases, 1):
        # The line that the script keeps for a job without a log.
        program = workloads.argv(case)
        job = launchers.job(case, schedule.lab, run_id, program)
        pods = kubernetes.Pods(case.container, _resources(schedule, case))
        text = f"# {kubernetes.first_line(case)}\n" + _text(KINDS[kind].manifest(job, program, pods))
        yield f"{number:0{width}}-{kubernetes.name(case.id)}.yml", text
    yield SCRIPT, Path(__file__).with_name(SCRIPT).read_text("utf-8")


def _resources(schedule: Schedule, case: Case) -> dict[str, object]:
    """Return the resources of a worker: those of the inventory, or a core and some memory for each rank."""
    gpus = {"nvidia.com/gpu": case.slots} if case.params["device"] == "cuda" else {}
    given = schedule.lab.vars.get("lab_pod_resources") or {}
    if not isinstance(given, Mapping):
        raise UsageError(
            f"lab_pod_resources is {given!r}, which names no resources",
            remedy="write it as Kubernetes does: {cpu: 16, memory: 64Gi}",
        )
    return {"cpu": case.slots, "memory": f"{_MEMORY_GIB * case.slots}Gi", **gpus, **given}


def _text(*manifests: dict[str, object]) -> str:
    return yaml.safe_dump_all(manifests, sort_keys=False, width=110)
