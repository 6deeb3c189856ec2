"""Every check there is, at each of the four stages.

before      role preflight, from facts, before anything is changed
after       ``hvlab verify``: what a role installed is as the inventory asks for
any time    ``hvlab health`` and the prolog: the node is fit for work (``hvlab/checks/node``)
across      ``hvlab doctor``: what hosts show together
"""

from __future__ import annotations

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
    names,
    nccl,
    nccl_tests,
    network,
    node_health,
    nvidia_repository,
    openmpi,
    packs,
    slurm,
    ssh,
    workloads,
)
from hvlab.checks.provisioned import Role, RoleCheck

ROLES: tuple[Role, ...] = tuple(
    value
    for subject in (
        *(host, names, network, folders, lab_user, ssh, packs),
        *(environments, openmpi, hwloc_purge, horovod, workloads, node_health, slurm, container_runtime),
        *(gpu, nvidia_repository, gpudirect, cuda, cudnn, nccl, nccl_tests, dcgm),
    )
    for value in vars(subject).values()
    if isinstance(value, Role)
)


def after_roles() -> list[RoleCheck]:
    """Return the checks of what roles installed."""
    return [check for role in ROLES for check in role.checks]
