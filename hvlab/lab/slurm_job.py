"""The hosts of the Slurm job that hvlab runs in, as an inventory: reached by steps of the job. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Interface
from pathlib import PurePath
from typing import Any

from hvlab.errors import CheckError, Problem, UsageError, report
from hvlab.lab import rank_network

# A step beside those that run: it asks for no CPU of its own. Before 20.11 all steps were so.
_OVERLAP_SINCE = (20, 11)
# What a job script's environment tells srun would change the steps, and what a step's environment tells MPI
# is not for other ranks. These stay.
_KEPT = re.compile(r"SLURM_(JOB_ID|JOB_NODELIST|CONF|CLUSTERS)|PMIX_MCA_\w+")
_DROPPED = re.compile(r"(SLURM|PMIX|PMI|SRUN)_\w+")
_REMEDY = (
    "run it in a script of sbatch, or in a shell on a host of the job: "
    "salloc, then srun --pty --overlap --nodes=1 --ntasks=1 bash"
)


@dataclass(frozen=True)
class SlurmJob:
    """The job: its number, its cluster, its nodes in Slurm's short form, and what its script asked for.

    ``cpus`` are those of each node, in the order of nodes; ``tasks`` is --ntasks-per-node, 0 where not given;
    ``node`` is the one that hvlab runs on, empty where it runs on none.
    """

    number: str
    cluster: str
    nodes: str
    cpus: tuple[int, ...]
    tasks: int
    node: str


@dataclass(frozen=True)
class Installed:
    """What the ranks' Python has on a host: its prefix, and what the roles would have recorded of it."""

    prefix: str
    recorded: Mapping[str, Mapping[str, Any]]

    @property
    def operations(self) -> frozenset[str]:
        """Return what carries data in its Horovod, in Horovod's words."""
        return frozenset(self._build.get("operations") or ())

    @property
    def frameworks(self) -> list[str]:
        """Return the frameworks that it has, Horovod's own where it was built for some."""
        by_horovod = [
            name.lower().replace("pytorch", "torch") for name in self._build.get("frameworks") or ()
        ]
        return by_horovod or list(self.recorded["hvlab_python_env"]["environments"])

    @property
    def _build(self) -> Mapping[str, Any]:
        build: Mapping[str, Any] = self.recorded["hvlab_horovod"]["variants"][PurePath(self.prefix).name]
        return build


def of_environment(environment: Mapping[str, str], hostname: str) -> SlurmJob:
    """Return the job that this process runs in. Raises UsageError where it runs in none."""
    number, nodes = environment.get("SLURM_JOB_ID"), environment.get("SLURM_JOB_NODELIST")
    if not number or not nodes:
        raise UsageError("hvlab runs in no Slurm job: SLURM_JOB_ID is not set", remedy=_REMEDY)
    return SlurmJob(
        number,
        re.sub(r"[^A-Za-z0-9]+", "-", environment.get("SLURM_CLUSTER_NAME", "")).strip("-") or "slurm",
        nodes,
        _counts(environment.get("SLURM_JOB_CPUS_PER_NODE", "")),
        int(environment.get("SLURM_NTASKS_PER_NODE", "0")),
        environment.get("SLURMD_NODENAME") or hostname.partition(".")[0],
    )


def _counts(text: str) -> tuple[int, ...]:
    """Return the numbers of ``2(x3),1``."""
    pairs = re.findall(r"(\d+)(?:\(x(\d+)\))?", text)
    return tuple(int(count) for count, times in pairs for _ in range(int(times or 1)))


def to_drop(environment: Mapping[str, str]) -> list[str]:
    """Return the variables that describe this process's own place in the job, and not that of new steps."""
    return [name for name in environment if _DROPPED.fullmatch(name) and not _KEPT.fullmatch(name)]


def step(job: SlurmJob, version: Sequence[int], *, ranks: int = 1) -> tuple[str, ...]:
    """Return the words that run a command on each of ``ranks`` hosts; their names come next."""
    overlap = ("--overlap",) if tuple(version[:2]) >= _OVERLAP_SINCE else ()
    return (
        *("srun", f"--jobid={job.number}", *overlap, f"--nodes={ranks}", f"--ntasks={ranks}"),
        *("--ntasks-per-node=1", "--cpu-bind=none", "--mpi=none", "--quit-on-interrupt", "--nodelist"),
    )


def own_first(job: SlurmJob, nodes: Sequence[str]) -> list[str]:
    """Return the nodes, with the one that hvlab runs on as the first. Raises UsageError where it is none."""
    if job.node not in nodes:
        problem = f"this machine, {job.node}, is no host of job {job.number}, which has {', '.join(nodes)}"
        raise UsageError(problem, remedy=_REMEDY)
    return [job.node, *(node for node in nodes if node != job.node)]


def inventory(
    job: SlurmJob,
    nodes: Sequence[str],
    facts: Mapping[str, Mapping[str, Any]],
    installed: Mapping[str, Installed],
    *,
    connections: Mapping[str, Mapping[str, Any]],
    variables: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the inventory of the job's ``nodes``, as Ansible reads it.

    ``nodes`` are in Slurm's order; ``connections`` are the variables by which each is reached, ``variables``
    those of all. Raises CheckError where the hosts have no network in common, or not the same Python.
    """
    order = own_first(job, nodes)
    one = installed[order[0]]
    others = [host for host in order if installed[host].prefix != one.prefix]
    if others:
        problem = f"the Python of {order[0]} is in {one.prefix}, that of {others[0]} in "
        raise CheckError(
            f"{problem}{installed[others[0]].prefix}", remedy="name one that is the same everywhere: --python"
        )
    network = rank_network.choose(facts, {})
    if network is None or (network.problems and len(order) > 1):
        problems = (
            network.problems if network else [Problem(order[0], "it has no address", "look at `ip addr`")]
        )
        raise CheckError(f"the hosts of job {job.number} share no network:\n{report(problems, indent='  ')}")
    prefix = PurePath(one.prefix)
    cpus = dict(zip(nodes, job.cpus, strict=False))
    hosts = {
        host: {
            **connections[host],
            "ansible_host": _address(facts[host], network.interface) or host,
            "lab_slots": job.tasks or _gpus(facts[host]) or cpus.get(host) or 1,
            "hvlab_recorded": dict(installed[host].recorded),
        }
        for host in order
    }
    common = {
        "lab_name": job.cluster,
        "lab_network": str(network.network),
        "lab_interface": network.interface,
        "lab_slurm": True,
        "horovod_prefix": str(prefix.parent),
        "horovod_variants": {
            prefix.name: {
                "frameworks": one.frameworks,
                **{name.lower(): name in one.operations for name in ("MPI", "Gloo", "CCL")},
                "gpu_operations": "nccl" if "NCCL" in one.operations else "",
            }
        },
        **variables,
    }
    with_gpu: dict[str, Any] = {host: {} for host in order if _gpus(facts[host])}
    return {"all": {"hosts": hosts, "vars": common, "children": {"gpu": {"hosts": with_gpu}}}}


def _gpus(facts: Mapping[str, Any]) -> int:
    return len([gpu for gpu in (facts.get("hvlab") or {}).get("gpus") or [] if gpu.get("uuid")])


def _address(facts: Mapping[str, Any], interface: str) -> str | None:
    """Return the IPv4 address that a host has on an interface."""
    cidrs = ((facts.get("hvlab") or {}).get("interfaces") or {}).get(interface, {}).get("cidrs") or []
    addresses = [IPv4Interface(cidr) for cidr in cidrs if ":" not in cidr]
    return str(addresses[0].ip) if addresses else None
