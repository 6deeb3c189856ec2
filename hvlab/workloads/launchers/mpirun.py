"""Open MPI's mpirun (4.0, 4.1 and 5.0)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from hvlab.base.masking import hides
from hvlab.workloads.launchers.command import SSH_OPTIONS, Command, Job, launcher, recipe
from hvlab.workloads.parameters import MPIRUN

NAME = "mpirun"
_PLACING = ("--bind-to", "none", "--map-by", "slot")
# Open MPI 5 starts ranks with PRRTE, which has its own names and silently ignores Open MPI 4's, as Open MPI 4
# ignores these variables: both are set, so that the version of a host's mpirun does not matter.
_PRRTE = {
    "oob_tcp_if_include": "PRTE_MCA_prte_if_include",
    "plm_rsh_agent": "PRTE_MCA_plm_ssh_agent",
    "plm_rsh_args": "PRTE_MCA_plm_ssh_args",
}


@launcher(NAME)
def command(job: Job) -> Command:
    """Return the command that starts every rank over ssh, with all traffic on the ranks' network."""
    connection = {"oob_tcp_if_include": job.network, "plm_rsh_agent": f"ssh {SSH_OPTIONS}"}
    if job.port:
        connection["plm_rsh_args"] = f"-p {job.port}"
    argv = [f"{job.openmpi}/bin/mpirun", "-np", str(job.case.world_size), "-H", job.slots, *placing(job)]
    argv += parameters(job, connection | transport(job))
    # Secrets go into mpirun's own environment: every user of the host can read arguments.
    secret = {name: value for name, value in job.env.items() if hides(name)}
    for name, value in job.env.items():
        argv += ["-x", name if name in secret else f"{name}={value}"]
    return Command(
        (*argv, *job.program), {_PRRTE[name]: value for name, value in connection.items()} | secret
    )


@recipe(NAME)
def own_job(job: Job) -> Command:
    """Return the options for placing the ranks, and for their transport."""
    passed = [word for name in job.env for word in ("-x", name)]
    return Command(("mpirun", *placing(job), *parameters(job, transport(job)), *passed), job.env)


def placing(job: Job) -> Sequence[str]:
    """Return the options that place ranks on cores: the case's own, else without binding."""
    return shlex.split(str(job.case.params.get(MPIRUN.name, ""))) or _PLACING


def parameters(job: Job, values: Mapping[str, str]) -> list[str]:
    """Return the options that set parameters of Open MPI, except those set in the ranks' environment."""
    own = {name: value for name, value in values.items() if f"OMPI_MCA_{name}" not in job.env}
    return [word for name, value in own.items() for word in ("-mca", name, value)]


def transport(job: Job) -> dict[str, str]:
    """Return Open MPI's transport parameters, for any launcher."""
    parameters = {"btl_tcp_if_include": job.network}
    if not job.foreign:
        # Not cm, which nothing here is built for, nor ofi: libfabric takes a second to close. Open MPI itself
        # prefers UCX on hosts with an RDMA card.
        parameters = {"pml": "^cm", "btl": "^openib,ofi", **parameters}
    if not job.gpu:
        parameters["opal_warn_on_missing_libcuda"] = "0"
    if job.shared:
        # Open MPI cannot see that the hosts share cores, and a spinning rank would starve the others.
        parameters["mpi_yield_when_idle"] = "1"
    return parameters
