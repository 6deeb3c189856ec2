"""The Slurm job that hvlab runs in: its hosts, the steps that reach them, and their slots. Pure."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hvlab.base.errors import CheckError, UsageError
from hvlab.lab import unprepared
from hvlab.lab.inventory import Host, Lab

# A step beside running ones: it asks for no CPU of its own. Before 20.11 all steps behaved so.
_OVERLAP_SINCE = (20, 11)
# What a job script's environment tells srun would change the steps, and what a step's environment tells MPI
# is not for other ranks. These stay; with PMIX in it, how a site has PMIx work (pmixp_common.h).
_KEPT = re.compile(r"SLURM_(JOB_ID|JOB_NODELIST|CONF|CLUSTERS|PMIX_(?!MAPPING)\w+)|PMIX_MCA_\w+")
_DROPPED = re.compile(r"(SLURM|PMIX|PMI|SRUN)_\w+")
_REQUEST = "--nodes=2 --exclusive --gpus-per-node=8 --time=60"
_SHELL = "--pty --overlap --nodes=1 --ntasks=1 bash"


@dataclass(frozen=True)
class SlurmJob:
    """The job: its number, its cluster, its nodes in Slurm's short form, and what its script asked for.

    ``cpus`` and ``tasks`` are those of each node, in the order of nodes, or one number for all; ``tasks`` are
    empty where the script asked for none. ``gpus`` are those of ``node``, the one that hvlab runs on.
    """

    number: str
    cluster: str
    nodes: str
    cpus: tuple[int, ...]
    tasks: tuple[int, ...]
    gpus: int
    node: str

    @property
    def gres(self) -> tuple[str, ...]:
        """Return the option by which a step gets the job's GPUs.

        By default it gets those that the job asked for, and none of those that came with --exclusive
        (srun's manual page, --gres).
        """
        return (f"--gres=gpu:{self.gpus}",) if self.gpus else ()


def of_environment(environment: Mapping[str, str], hostname: str, command: str) -> SlurmJob:
    """Return the job that this process runs in; ``command`` is the line that started it.

    Raises UsageError outside of a job, or in one with several components.
    """
    number, nodes = environment.get("SLURM_JOB_ID"), environment.get("SLURM_JOB_NODELIST")
    if not number or not nodes:
        raise UsageError(
            "hvlab runs in no Slurm job: SLURM_JOB_ID is not set",
            remedy=f"submit it, such as for 2 hosts with 8 GPUs each (without GPUs leave that option out):\n"
            f"  sbatch {_REQUEST} --wrap {shlex.quote(command)}\n"
            f"or have a shell on a host of a job:\n"
            f"  salloc {_REQUEST} srun {_SHELL}",
        )
    # Before Slurm 20.02 components were packs.
    parts = environment.get("SLURM_HET_SIZE") or environment.get("SLURM_PACK_SIZE")
    if parts:
        raise UsageError(
            f"job {number} is heterogeneous, with {parts} components: --here measures in jobs of one",
            remedy="submit one job for each kind of host: without `:` in sbatch's or salloc's options, and "
            "without #SBATCH hetjob",
        )
    return SlurmJob(
        number,
        re.sub(r"[^A-Za-z0-9]+", "-", environment.get("SLURM_CLUSTER_NAME", "")).strip("-") or "slurm",
        nodes,
        _counts(environment.get("SLURM_JOB_CPUS_PER_NODE", "")),
        _tasks(environment),
        _gpus_on_node(environment),
        environment.get("SLURMD_NODENAME") or hostname.partition(".")[0],
    )


def _tasks(environment: Mapping[str, str]) -> tuple[int, ...]:
    """Return the tasks that the job asked for on each node; nothing if it asked for none.

    SLURM_TASKS_PER_NODE is always set, and in a step, such as a shell on a host, it is that of the step.
    """
    if environment.get("SLURM_NTASKS_PER_NODE"):
        return _counts(environment["SLURM_NTASKS_PER_NODE"])
    in_step = "SLURM_STEP_TASKS_PER_NODE" in environment
    if in_step or "SLURM_NTASKS" not in environment:
        return ()
    return _counts(environment.get("SLURM_TASKS_PER_NODE", ""))


def _gpus_on_node(environment: Mapping[str, str]) -> int:
    count = environment.get("SLURM_GPUS_ON_NODE", "")
    if count.isdigit() and int(count):
        return int(count)
    # By number, such as 0,1,2,3: the first is not set in a step that has none, this one stays.
    return len([number for number in environment.get("SLURM_JOB_GPUS", "").split(",") if number])


def _counts(text: str) -> tuple[int, ...]:
    pairs = re.findall(r"(\d+)(?:\(x(\d+)\))?", text)
    return tuple(int(count) for count, times in pairs for _ in range(int(times or 1)))


def to_drop(environment: Mapping[str, str]) -> list[str]:
    """Return the variables that describe this process's place in the job rather than that of new steps."""
    return [name for name in environment if _DROPPED.fullmatch(name) and not _KEPT.fullmatch(name)]


def beside(version: Sequence[int]) -> tuple[str, ...]:
    """Return the option of a step that waits for no other one, such as the shell that hvlab runs in."""
    return ("--overlap",) if tuple(version[:2]) >= _OVERLAP_SINCE else ()


def step(
    job: SlurmJob, version: Sequence[int], *, ranks: int = 1, options: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the words that run a command on each of ``ranks`` hosts; their names come next."""
    return (
        *("srun", f"--jobid={job.number}", *beside(version), f"--nodes={ranks}", f"--ntasks={ranks}"),
        *("--ntasks-per-node=1", "--cpu-bind=none", "--mpi=none", "--quit-on-interrupt"),
        *options,
        "--nodelist",
    )


def put_own_first(job: SlurmJob, nodes: Sequence[str]) -> list[str]:
    """Return the nodes, with the one that hvlab runs on as the first. Raises UsageError if it is none."""
    if job.node not in nodes:
        problem = f"this machine, {job.node}, is no host of job {job.number}, which has {', '.join(nodes)}"
        raise UsageError(problem, remedy=f"have a shell on one of them: srun --jobid={job.number} {_SHELL}")
    return [job.node, *(node for node in nodes if node != job.node)]


def slots(job: SlurmJob, nodes: Sequence[str], facts: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Return the number of ranks on each host: as many as the job asked for, else those of the hardware.

    ``nodes`` are in Slurm's order. Raises CheckError if the hosts do not have the same number of GPUs.
    """
    order = put_own_first(job, nodes)
    _check_same_gpus(order, facts)
    cpus, tasks = _zip_counts(nodes, job.cpus), _zip_counts(nodes, job.tasks)
    return {host: tasks.get(host) or _slots(job, facts[host], cpus.get(host, 0)) for host in order}


def plan_lab(hosts: int, slots: int, *, gpu: bool, python: str | None) -> Lab:
    """Return the lab of a job yet to be submitted: with MPI and Gloo, and NCCL on GPUs."""
    variant = unprepared.variant(("MPI", "Gloo", *(("NCCL",) if gpu else ())))
    job = SlurmJob("JOB", "slurm", "NODES", (), (), slots if gpu else 0, "node1")
    variables = {
        "lab_slurm": True,
        "horovod_variants": {"job": variant},
        "hvlab_rank_python": python or sys.executable,
        "hvlab_step": step(job, _OVERLAP_SINCE),
        "hvlab_step_options": [*beside(_OVERLAP_SINCE), *job.gres],
    }
    groups = frozenset({"gpu"} if gpu else ())
    nodes = [f"node{number}" for number in range(1, hosts + 1)]
    machines = tuple(Host(node, node, 22, None, slots, groups, variables) for node in nodes)
    return Lab(job.cluster, Path(), "", "eth0", machines, variables)


def _zip_counts(nodes: Sequence[str], counts: tuple[int, ...]) -> dict[str, int]:
    return dict(zip(nodes, counts * len(nodes) if len(counts) == 1 else counts, strict=False))


def _slots(job: SlurmJob, facts: Mapping[str, Any], cpus: int) -> int:
    """Return the number of ranks on a host: one per GPU of the job, without GPUs one per core.

    ``cpus`` are those that the job has there, which Slurm mostly counts by hardware threads.
    """
    gpus = unprepared.gpus(facts)
    if gpus:
        return min(gpus, job.gpus or gpus)
    cores = int(facts.get("processor_count") or 0) * int(facts.get("processor_cores") or 0)
    return min(cpus or cores, cores or cpus) or 1


def _check_same_gpus(hosts: Sequence[str], facts: Mapping[str, Mapping[str, Any]]) -> None:
    first, *others = ((host, unprepared.gpus(facts[host])) for host in hosts)
    differing = [f"{host} has {count}" for host, count in others if count != first[1]]
    if differing:
        raise CheckError(
            f"{', '.join(differing)} usable GPUs, {first[0]} has {first[1]}",
            remedy=f"request them for each host: --gpus-per-node={max(first[1], *(n for _, n in others))} "
            "beside --exclusive, for steps do not get those that --exclusive alone brings; where a GPU is "
            "broken (`nvidia-smi -L` there), leave its host out with --exclude",
        )
