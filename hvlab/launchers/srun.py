"""Slurm's srun: a step of an allocation that the environment names (SLURM_JOB_ID)."""

from __future__ import annotations

from hvlab.lab.backends import BACKENDS
from hvlab.launchers.command import Command, Job, launcher, recipe
from hvlab.launchers.mpirun import transport

NAME = "srun"
# As mpirun starts ranks: not bound, and as many as are asked for.
_PLACING = ("--cpu-bind=none", "--overcommit")
# A rank that has ended well waits so long for the others, in seconds, before srun ends them.
_WAIT_S = 30
# Open MPI's own PMIx has no munge; before Slurm 22.05, which has mpi.conf, only the environment says so.
_PMIX = {"PMIX_MCA_psec": "native"}


@launcher(NAME)
def command(job: Job) -> Command:
    """Return the command that starts every rank as one step; its environment is handed on to the ranks.

    Open MPI's ranks find one another through Slurm's PMIx, or what ``lab_slurm_mpi`` names. Horovod over Gloo
    knows no Slurm: there a program beside srun tells the ranks where they meet.
    """
    case = job.case
    placed = [host for host in case.hosts for _ in range(case.slots)]
    own_meeting = BACKENDS[case.backend].meeting
    step = f"hvlab-{job.env['HVLAB_CASE']}"
    argv = [
        *("srun", f"--job-name={step}", _pmi(job)),
        # Rank 0 on the first host of the case, whatever Slurm's order of nodes.
        *("--distribution=arbitrary", f"--nodelist={','.join(placed)}"),
        *(f"--nodes={len(case.hosts)}", f"--ntasks={case.world_size}"),
        *_PLACING,
        *("--kill-on-bad-exit=1", f"--wait={_WAIT_S}"),
        # The case's own folder is on the first host only.
        "--chdir=/tmp",
    ]
    if not own_meeting:
        return Command((*argv, *job.program), _environment(job), step)
    meeting = ("python3", f"{job.workloads}/meeting.py")
    start = (*meeting, "start", job.python, job.slots, job.interface)
    return Command((*start, *argv, *meeting, "rank", *job.program), job.env, step)


@recipe(NAME)
def own_job(job: Job) -> Command:
    """Return how ranks find one another and are placed, and what they send through."""
    return Command(("srun", _pmi(job), *_PLACING), _environment(job))


def _pmi(job: Job) -> str:
    return f"--mpi={'none' if BACKENDS[job.case.backend].meeting else job.pmi}"


def _environment(job: Job) -> dict[str, str]:
    if BACKENDS[job.case.backend].meeting:
        return dict(job.env)
    return {**_PMIX, **{f"OMPI_MCA_{name}": value for name, value in transport(job).items()}, **job.env}
