"""The lab of the Slurm job that hvlab runs in: its hosts are reached by steps, without root, ssh or keys."""

from __future__ import annotations

import getpass
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hvlab import workloads
from hvlab.base import answers, process
from hvlab.base.answers.shapes import HostAnswer
from hvlab.base.errors import CheckError, HvlabError, UsageError
from hvlab.doctor import reading
from hvlab.lab import inventory, slurm_job, unprepared
from hvlab.lab.inventory import Host, Lab
from hvlab.lab.slurm_job import SlurmJob
from hvlab.lab.unprepared import Installed
from hvlab.remote.gather import first_facts
from hvlab.workloads.launchers import srun

_ANSWER_S = 30.0
# Hosts start Python from a shared folder, which may be slow at first, or load an image.
_STEP_S, _IMAGE_S = 240.0, 1800.0
_NO_PYXIS = re.compile(r"unrecognized option .*--container-image")
# Slurm before 22.05 prints it to standard error, prefixed by its own name.
_PMI = re.compile(r"^(?:srun:)?\s*(pmix|pmix_v\d+|pmi2)\s*$", re.MULTILINE)


class _Environments(HostAnswer):
    environments: dict[str, Any]


class _Recorded(HostAnswer):
    hvlab_python_env: _Environments


class InstalledAnswer(HostAnswer):
    """The output of programs/installed.py on a host."""

    prefix: str
    recorded: _Recorded


@contextmanager
def lab(
    python: str | None,
    *,
    image: str | None = None,
    options: Sequence[str] = (),
    environment: MutableMapping[str, str] = os.environ,
) -> Iterator[Lab]:
    """Have the hosts of this Slurm job as a lab while the block runs.

    ``python`` is that of the ranks, which has Horovod or torch: by default the one that runs hvlab, or inside
    an ``image`` its python3; ``options`` are further ones of the image's steps. Variables that would change
    steps are removed from the ``environment``. Raises UsageError outside of a job, CheckError where hosts
    lack what the ranks need.
    """
    job, nodes, version = read_own_job(environment)
    order = slurm_job.put_own_first(job, nodes)
    shared = Path.home() / ".hvlab"
    shared.mkdir(mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=shared, prefix=f"job-{job.number}-") as folder:
        python = absolute(python, image)
        inside: tuple[str, ...] = ()
        if image:
            read = [str(workloads.PROGRAMS)]
            inside = srun.container_options(image, home=str(Path.home()), read=read, more=options)
        installed = _read_installed(job, order, version, python, Path(folder), inside=inside)
        connections = {
            host: {
                "ansible_connection": "hvlab_prefix",
                "hvlab_prefix": []
                if host == job.node
                else [*slurm_job.step(job, version, options=job.gres), host],
                # The host's own may be too old.
                "ansible_python_interpreter": sys.executable,
            }
            for host in order
        }
        variables = {
            "lab_name": job.cluster,
            "lab_slurm": True,
            "lab_user_name": getpass.getuser(),
            "lab_user_home": str(Path.home()),
            "hvlab_rank_python": python,
            "workloads_dir": str(workloads.PROGRAMS),
            "lab_slurm_mpi": _mpi(),
            "hvlab_step": list(slurm_job.step(job, version)),
            "hvlab_step_options": [*slurm_job.beside(version), *job.gres],
        }
        facts = _facts(job, order, connections)
        slots = slurm_job.slots(job, nodes, facts)
        listing = unprepared.inventory(
            facts,
            installed,
            hosts={host: {**connections[host], "lab_slots": slots[host]} for host in order},
            variables=variables,
            remedy="submit it for hosts whose interfaces have the same names (--exclude, --constraint)",
        )
        source = Path(folder) / "hosts.json"
        source.write_text(json.dumps(listing, indent=1), "utf-8")
        yield inventory.load(source)


def read_own_job(environment: MutableMapping[str, str]) -> tuple[SlurmJob, list[str], list[int]]:
    """Return the job that hvlab runs in, its nodes, and Slurm's version.

    Variables that would change its steps are removed from the ``environment``. Raises UsageError outside of a
    job.
    """
    program = Path(sys.argv[0]).absolute()
    started = [str(program)] if program.name == "hvlab" else [sys.executable, "-m", "hvlab"]
    job = slurm_job.of_environment(environment, socket.gethostname(), shlex.join([*started, *sys.argv[1:]]))
    nodes = _run(("scontrol", "show", "hostnames", job.nodes)).stdout.split()
    for name in slurm_job.to_drop(environment):
        del environment[name]
    return job, nodes, [int(number) for number in re.findall(r"\d+", _run(("srun", "--version")).stdout)]


def absolute(python: str | None, image: str | None = None) -> str:
    """Return the ranks' Python as every folder has it; links of an environment stay as they are."""
    if image or not python:
        return python or ("python3" if image else sys.executable)
    return str(Path(python).expanduser().absolute()) if os.sep in python else python


def _run(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    done = process.run(
        argv, seconds=_ANSWER_S, remedy="put Slurm's commands into PATH: hvlab starts ranks by srun"
    )
    if done.returncode:
        raise CheckError(
            f"`{' '.join(argv)}` failed: {done.stderr.strip()}", remedy="look at the cluster: sinfo"
        )
    return done


def _mpi() -> str:
    """Return srun's plugin that connects MPI's ranks: PMIx where the cluster has it."""
    done = _run(("srun", "--mpi=list"))
    # In this order: pmix before one of its versions.
    listed = sorted(_PMI.findall(done.stdout + done.stderr), key=lambda name: (name == "pmi2", name))
    return listed[0] if listed else "pmix"


def _read_installed(
    job: SlurmJob,
    nodes: Sequence[str],
    version: Sequence[int],
    python: str,
    folder: Path,
    *,
    inside: Sequence[str] = (),
) -> dict[str, Installed]:
    """Return the frameworks of the ranks' Python on each host; ``inside`` are srun's options of its image.

    Raises CheckError if a host does not answer.
    """
    program = workloads.PROGRAMS / "installed.py"
    argv = (
        *slurm_job.step(job, version, ranks=len(nodes), options=inside),
        ",".join(nodes),
        python,
        str(program),
        str(folder),
    )
    done = process.run(argv, seconds=_IMAGE_S if inside else _STEP_S)
    if inside and _NO_PYXIS.search(done.stderr):
        raise UsageError(
            "--container needs pyxis, and this cluster's srun does not have it (srun: no --container-image)",
            remedy="let --python name a script that starts a container, such as one of apptainer "
            "(docs/slurm.md)",
        )
    files = {node: folder / f"{node}.json" for node in nodes}
    silent = [node for node, file in files.items() if not file.is_file()]
    if silent:
        problem = f"{', '.join(silent)}: {python} {program.name} gave no answer in {folder}: "
        cause = reading.root(done.stderr.splitlines())
        raise CheckError(
            problem + _reason(done.stderr),
            remedy=(cause.cause.remedy if cause and cause.cause.id.startswith("slurm-") else None)
            or f"{python}, {workloads.PROGRAMS} and {folder.parent} must be on file systems that all "
            "hosts of the job share; name another Python with --python",
        )
    answers_of = {
        node: answers.read(file, f"{node}: {file}", InstalledAnswer) for node, file in files.items()
    }
    installed = {node: Installed(answer["prefix"], answer["recorded"]) for node, answer in answers_of.items()}
    refuse_bare(installed, python)
    return installed


def refuse_bare(installed: Mapping[str, Installed], python: str) -> None:
    """Raise UsageError if the ranks' Python has no framework on a host."""
    bare = [node for node, has in installed.items() if not has.frameworks]
    if bare:
        raise UsageError(
            f"{', '.join(bare)}: {python} has neither torch nor Horovod",
            remedy="name the Python that has them: --python ~/envs/horovod/bin/python",
        )


def _reason(stderr: str) -> str:
    """Return the most informative line of a failed step, not srun's report of its end."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    telling = (
        [line for line in lines if "execve" in line or "Errno" in line],
        [line for line in lines if not line.startswith(("srun: ", "slurmstepd: "))],
        [line for line in lines if "Exited with exit code" not in line],
        lines,
        ["nothing was written"],
    )
    return next(kind[-1] for kind in telling if kind)


def _facts(
    job: SlurmJob, nodes: Sequence[str], connections: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Mapping[str, Any]]:
    hosts = [
        Host(node, node, 22, None, 1, frozenset(), {**connections[node], "ansible_host": node})
        for node in nodes
    ]
    facts, failures = first_facts(hosts)
    if failures or len(facts) < len(nodes):
        silent = "; ".join(f"{failure.host}: {failure.message.strip()}" for failure in failures)
        problem = f"the facts of the hosts could not be gathered: {silent or 'Ansible said nothing'}"
        if job.gpus and "generic resource" in silent:
            raise CheckError(
                f"{problem}; {job.node} has {job.gpus} GPUs of the job",
                remedy=f"request as many on every host: --gpus-per-node={job.gpus}",
            )
        remedy = (
            f"{sys.executable}, which runs hvlab, must be on a file system that all hosts of the job share"
        )
        raise HvlabError(problem, remedy=remedy)
    return facts
