"""Every check there is, at each of the four stages.

before        role preflight, from facts, before anything is changed: functions ``check_...`` of a subject
after a role  ``hvlab verify``, is a host as the inventory asks for: ``Role.check``
any time      ``hvlab health`` and the prolog, is it fit for work: ``CHECKS`` of a subject of the node
across hosts  ``hvlab doctor``, what hosts show together: ``FAULTS``
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import FunctionType

from hvlab.checks import (
    container_runtime,
    cuda,
    cudnn,
    dcgm,
    environments,
    folders,
    gpu,
    gpudirect,
    horovod,
    host,
    hwloc_purge,
    lab_user,
    machine,
    names,
    nccl,
    nccl_tests,
    network,
    node_health,
    nvidia_repository,
    openmpi,
    packs,
    python,
    slurm,
    ssh,
    workloads,
)
from hvlab.checks.node import subjects
from hvlab.checks.provisioned import Role, RoleCheck

SUBJECTS = (
    *(host, names, ssh, network, machine, folders, lab_user, packs),
    *(openmpi, hwloc_purge, python, environments, horovod, workloads, node_health, slurm, container_runtime),
    *(gpu, nvidia_repository, gpudirect, cuda, cudnn, nccl, nccl_tests, dcgm),
)
# By subject; those of verify run in this order.
ROLES = tuple(value for subject in SUBJECTS for value in vars(subject).values() if isinstance(value, Role))


@dataclass(frozen=True)
class ListedCheck:
    """One check as ``hvlab health --list`` shows it.

    ``severity`` is that of the worst it may find, ``hard`` or ``soft``; ``role`` mends it, if any does.
    """

    id: str
    stage: str
    subject: str
    severity: str
    role: str


def after_roles() -> list[RoleCheck]:
    """Return the checks of what roles installed."""
    return [check for role in ROLES for check in role.checks]


def every() -> Iterator[ListedCheck]:
    """Yield all checks, by stage and subject."""
    named = [(subject, subject.__name__.rpartition(".")[2]) for subject in SUBJECTS]
    for subject, name in named:
        for key, value in vars(subject).items():
            own = isinstance(value, FunctionType) and value.__module__ == subject.__name__
            if own and key.startswith("check_"):
                yield ListedCheck(key.removeprefix("check_").replace("_", " "), "before", name, "hard", "")
    for check in after_roles():
        place = check.judge.__module__.rpartition(".")[2]
        role = "" if check.role.name in ("host", "preflight") else check.role.name
        yield ListedCheck(f"{check.role.name}: {check.name}", "after a role", place, "hard", role)
    for subject in subjects.every():
        for id_, severity in getattr(subject, "CHECKS", {}).items():
            yield ListedCheck(id_, "any time", subject.__name__.rpartition(".")[2], severity, "")
    for subject, name in named:
        for id_, role in getattr(subject, "FAULTS", {}).items():
            yield ListedCheck(id_, "across hosts", name, "hard", role)
