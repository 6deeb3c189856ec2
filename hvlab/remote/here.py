"""The lab of the Slurm job that hvlab runs in: its hosts are reached by steps, without root, ssh or keys."""

from __future__ import annotations

import getpass
import json
import os
import re
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hvlab import answers, process, workloads
from hvlab.answers.shapes import HostAnswer
from hvlab.errors import CheckError, HvlabError, UsageError
from hvlab.lab import inventory, slurm_job
from hvlab.lab.inventory import Host, Lab
from hvlab.lab.slurm_job import Installed, SlurmJob
from hvlab.remote.facts import first_facts

_ANSWER_S = 30.0
# Hosts start Python from a shared folder, which may be slow at the first time.
_STEP_S = 240.0


class _Environments(HostAnswer):
    environments: dict[str, Any]


class _Recorded(HostAnswer):
    hvlab_python_env: _Environments


class _Installed(HostAnswer):
    """What programs/installed.py tells of a host."""

    prefix: str
    recorded: _Recorded


@contextmanager
def lab(python: str | None, environment: MutableMapping[str, str] = os.environ) -> Iterator[Lab]:
    """Have the hosts of this Slurm job as a lab while the block runs.

    ``python`` is that of the ranks, which has Horovod or torch; by default the one that runs hvlab. From the
    ``environment`` goes what would change steps. Raises UsageError outside of a job, CheckError where hosts
    lack what the ranks need.
    """
    job = slurm_job.of_environment(environment, socket.gethostname())
    nodes = _answer(("scontrol", "show", "hostnames", job.nodes)).split()
    order = slurm_job.own_first(job, nodes)
    for name in slurm_job.to_drop(environment):
        del environment[name]
    version = [int(number) for number in re.findall(r"\d+", _answer(("srun", "--version")))]
    shared = Path.home() / ".hvlab"
    shared.mkdir(mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=shared, prefix=f"job-{job.number}-") as folder:
        installed = _installed(job, order, version, python or sys.executable, Path(folder))
        connections = {
            host: {
                "ansible_connection": "hvlab_prefix",
                "hvlab_prefix": [] if host == job.node else [*slurm_job.step(job, version), host],
            }
            for host in order
        }
        variables = {
            "lab_user_name": getpass.getuser(),
            "hvlab_rank_python": python or sys.executable,
            "workloads_dir": str(workloads.PROGRAMS),
            "lab_slurm_mpi": _mpi(),
            "hvlab_step": list(slurm_job.step(job, version)),
        }
        facts = _facts(order, connections)
        listing = slurm_job.inventory(
            job, nodes, facts, installed, connections=connections, variables=variables
        )
        source = Path(folder) / "hosts.json"
        source.write_text(json.dumps(listing, indent=1), "utf-8")
        yield inventory.load(source)


def _answer(argv: Sequence[str]) -> str:
    done = process.run(
        argv, seconds=_ANSWER_S, remedy="put Slurm's commands into PATH: hvlab starts ranks by srun"
    )
    if done.returncode:
        raise CheckError(
            f"`{' '.join(argv)}` failed: {done.stderr.strip()}", remedy="look at the cluster: sinfo"
        )
    return done.stdout + done.stderr


def _mpi() -> str:
    """Return how srun connects MPI's ranks: by PMIx where the cluster has it."""
    listed = re.findall(r"^\s*(pmix|pmi2)\s*$", _answer(("srun", "--mpi=list")), re.MULTILINE)
    return "pmix" if "pmix" in listed or not listed else listed[0]


def _installed(
    job: SlurmJob, nodes: Sequence[str], version: Sequence[int], python: str, folder: Path
) -> dict[str, Installed]:
    """Return what the ranks' Python has on each host. Raises CheckError where one does not answer."""
    program = workloads.PROGRAMS / "installed.py"
    argv = (
        *slurm_job.step(job, version, ranks=len(nodes)),
        ",".join(nodes),
        python,
        str(program),
        str(folder),
    )
    done = process.run(argv, seconds=_STEP_S)
    files = {node: folder / f"{node}.json" for node in nodes}
    silent = [node for node, file in files.items() if not file.is_file()]
    if silent:
        lines = [line.strip() for line in done.stderr.splitlines() if "execve" in line or "Errno" in line]
        reason = (lines or done.stderr.strip().splitlines() or ["nothing was written"])[-1]
        raise CheckError(
            f"{', '.join(silent)}: {python} {program.name} gave no answer in {folder}: {reason}",
            remedy=f"{python}, {workloads.PROGRAMS} and {folder.parent} must be on file systems that all "
            "hosts of the job share; name another Python with --python",
        )
    answers_of = {node: answers.read(file, f"{node}: {file}", _Installed) for node, file in files.items()}
    installed = {node: Installed(answer["prefix"], answer["recorded"]) for node, answer in answers_of.items()}
    bare = [node for node, has in installed.items() if not has.frameworks]
    if bare:
        raise UsageError(
            f"{', '.join(bare)}: {python} has neither torch nor Horovod",
            remedy="name the Python that has them: --python ~/envs/horovod/bin/python",
        )
    return installed


def _facts(
    nodes: Sequence[str], connections: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Mapping[str, Any]]:
    hosts = [
        Host(node, node, 22, None, 1, frozenset(), {**connections[node], "ansible_host": node})
        for node in nodes
    ]
    facts, failures = first_facts(hosts)
    if failures or len(facts) < len(nodes):
        silent = "; ".join(f"{failure.host}: {failure.message.strip()}" for failure in failures)
        raise HvlabError(f"the facts of the hosts could not be gathered: {silent or 'Ansible said nothing'}")
    return facts
