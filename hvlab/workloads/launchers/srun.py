"""Slurm's srun: a step of an allocation that the environment names (SLURM_JOB_ID), inside a container or not.

Pyxis adds options for containers: github.com/NVIDIA/pyxis, README.md and args.c."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from hvlab.base.masking import hides
from hvlab.lab.backends import BACKENDS
from hvlab.workloads.launchers.command import Command, Job, launcher, recipe
from hvlab.workloads.launchers.mpirun import transport

NAME = "srun"
# As with mpirun: no binding, and as many ranks as requested.
_PLACING = ("--cpu-bind=none", "--overcommit")
# Seconds that the other ranks have after the first has finished, before srun ends them.
_WAIT_S = 30
# Open MPI's own PMIx has no munge; before Slurm 22.05, which has mpi.conf, only the environment says so.
_PMIX = {"PMIX_MCA_psec": "native"}
# slurmd's PMIx sometimes refuses direct connections; a command over ssh reads no profile that turns them off.
_OWN_PMIX = {**_PMIX, "SLURM_PMIX_DIRECT_CONN": "false"}


@launcher(NAME)
def command(job: Job) -> Command:
    """Return the command that starts every rank as one step; its environment is forwarded to the ranks.

    Open MPI's ranks find one another through Slurm's PMIx, or what ``lab_slurm_mpi`` names. Horovod over Gloo
    does not know Slurm: a program beside srun tells the ranks where to meet. In a case with a container the
    ranks run inside it, and so does the server of their meeting place, which needs Horovod.
    """
    case = job.case
    placed = [host for host in case.hosts for _ in range(case.slots)]
    backend = BACKENDS[case.backend]
    step = f"hvlab-{job.env['HVLAB_CASE']}"
    argv = [
        *("srun", f"--job-name={step}", _pmi(job)),
        # Rank 0 on the first host of the case, whatever Slurm's order of nodes. Slurm 23.11 refuses --nodes
        # beside it, and srun counts the list's own hosts in earlier releases, too (its opt.c).
        *("--distribution=arbitrary", f"--nodelist={','.join(placed)}", f"--ntasks={case.world_size}"),
        *_PLACING,
        # Even if a job script had --export=NONE, which srun would inherit.
        "--export=ALL",
        *("--kill-on-bad-exit=1", f"--wait={_WAIT_S}"),
        # The case's own folder is on the first host only.
        "--chdir=/tmp",
        *job.srun,
    ]
    env = _environment(job)
    program = _inside(job.program, env, job.home) if case.container else job.program
    if not backend.meeting:
        return Command((*argv, *program), env, step)
    meeting, python, rank_python = f"{job.workloads}/meeting.py", shlex.quote(job.python), job.host_python
    if case.container:
        one = (f"--job-name={step}", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={job.head}")
        serve = ("srun", *one, "--mpi=none", "--cpu-bind=none", *job.srun, job.python)
        python, rank_python = shlex.join(serve), job.python
    start = (job.host_python, meeting, "start", python, job.slots, job.interface)
    return Command((*start, *argv, rank_python, meeting, "rank", *program), env, step)


@recipe(NAME)
def own_job(job: Job) -> Command:
    """Return the options and environment for rendezvous, placement and transport."""
    return Command(("srun", _pmi(job), *_PLACING, *job.srun), _environment(job))


def _uses_pmi(job: Job) -> bool:
    """Return whether the ranks find one another through Slurm: those of MPI do."""
    backend = BACKENDS[job.case.backend]
    return backend.parallel and not backend.meeting


def _pmi(job: Job) -> str:
    return f"--mpi={job.pmi if _uses_pmi(job) else 'none'}"


def _environment(job: Job) -> dict[str, str]:
    if not _uses_pmi(job):
        return dict(job.env)
    pmix = _PMIX if job.foreign else _OWN_PMIX
    return {**pmix, **{f"OMPI_MCA_{name}": value for name, value in transport(job).items()}, **job.env}


_MOUNTS = "--container-mounts"


def container_options(
    image: str, *, home: str, read: Sequence[str], more: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return srun's options for a step inside ``image``; ``more`` are the user's, which outrank these.

    hvlab's folder in ``home`` and the folders to ``read`` are where they are on the host. The user's
    mounts are appended: pyxis takes one list.
    """
    mounts = [f"{home}/.hvlab:{home}/.hvlab", *(f"{path}:{path}:ro" for path in read)]
    own = (f"--container-image={image}", f"{_MOUNTS}={','.join(mounts)}", "--container-workdir=/tmp")
    chosen: dict[str, str] = {}
    for option in (*own, *more):
        name, _, value = option.partition("=")
        chosen[name] = f"{chosen[name]},{value}" if name == _MOUNTS and name in chosen else option
    return tuple(chosen.values())


def _inside(program: Sequence[str], env: Mapping[str, str], home: str) -> tuple[str, ...]:
    """Return a rank's argv inside the image, where pyxis keeps the image's own variables and root's home.

    Secrets come with srun's environment alone, unless the image sets them: every user can read arguments.
    """
    given = (f"{name}={value}" for name, value in env.items() if not hides(name))
    return ("env", f"HOME={home}", *given, *program)
