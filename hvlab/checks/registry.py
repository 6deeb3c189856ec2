"""Every check, at each of the four stages.

before        role preflight, from facts, before any change: functions ``check_...`` marked ``@preflight``
after a role  ``hvlab verify``, is a host as the inventory asks for: ``Role.check``
any time      ``hvlab health`` and the prolog, is it fit for work: ``CHECKS`` of a subject of the node
across hosts  ``hvlab doctor``, what hosts show together: ``FAULTS``
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import FunctionType

from hvlab.checks import (
    cuda,
    environments,
    folders,
    gpu,
    horovod,
    host,
    libraries,
    machine,
    names,
    network,
    openmpi,
    own_programs,
    packs,
    python,
    slurm,
    ssh,
    system,
)
from hvlab.checks.node import subjects
from hvlab.checks.provisioned import Role, RoleCheck

SUBJECTS = (
    *(host, names, ssh, network, machine, folders, system, packs),
    *(openmpi, python, environments, horovod, own_programs, slurm, gpu, cuda, libraries),
)
# A list shows each role of these as its own subject.
_SEVERAL = (system, own_programs, libraries)
# By subject; those of verify run in this order.
ROLES = tuple(value for subject in SUBJECTS for value in vars(subject).values() if isinstance(value, Role))


@dataclass(frozen=True)
class ListedCheck:
    """One check as ``hvlab health --list`` shows it.

    ``severity`` is that of the worst fault, ``hard`` or ``soft``; ``role`` fixes it, if any does.
    """

    id: str
    stage: str
    subject: str
    severity: str
    role: str


def after_roles() -> list[RoleCheck]:
    """Return the checks of the roles' installations."""
    return [check for role in ROLES for check in role.checks]


def list_all() -> Iterator[ListedCheck]:
    """Yield all checks, by stage and subject."""
    named = [(subject, subject.__name__.rpartition(".")[2]) for subject in SUBJECTS]
    for subject, name in named:
        for key, value in vars(subject).items():
            own = isinstance(value, FunctionType) and value.__module__ == subject.__name__
            if own and key.startswith("check_"):
                yield ListedCheck(key.removeprefix("check_").replace("_", " "), "before", name, "hard", "")
    for check in after_roles():
        several = check.judge.__module__ in {subject.__name__ for subject in _SEVERAL}
        place = check.role.name if several else check.judge.__module__.rpartition(".")[2]
        role = "" if check.role.name in ("host", "preflight") else check.role.name
        yield ListedCheck(f"{check.role.name}: {check.name}", "after a role", place, "hard", role)
    for subject in subjects.list_all():
        for id_, severity in getattr(subject, "CHECKS", {}).items():
            yield ListedCheck(id_, "any time", subject.__name__.rpartition(".")[2], severity, "")
    for subject, name in named:
        for id_, role in getattr(subject, "FAULTS", {}).items():
            yield ListedCheck(id_, "across hosts", name, "hard", role)
