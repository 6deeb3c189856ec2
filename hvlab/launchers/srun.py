"""Slurm's srun: a step of an allocation that the environment names (SLURM_JOB_ID)."""

from __future__ import annotations

from hvlab.lab.backends import BACKENDS
from hvlab.launchers.command import Command, Job, launcher
from hvlab.launchers.mpirun import transport

NAME = "srun"
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
        *("srun", f"--job-name={step}", f"--mpi={'none' if own_meeting else job.pmi}"),
        # Rank 0 on the first host of the case, whatever Slurm's order of nodes.
        *("--distribution=arbitrary", f"--nodelist={','.join(placed)}"),
        *(f"--nodes={len(case.hosts)}", f"--ntasks={case.world_size}"),
        # As mpirun starts them: not bound, and as many as are asked for.
        *("--cpu-bind=none", "--overcommit"),
        *("--kill-on-bad-exit=1", f"--wait={_WAIT_S}"),
        # The case's own folder is on the first host only.
        "--chdir=/tmp",
    ]
    if not own_meeting:
        mca = {f"OMPI_MCA_{name}": value for name, value in transport(job).items()}
        return Command((*argv, *job.program), {**_PMIX, **mca, **job.env}, step)
    meeting = ("python3", f"{job.workloads}/meeting.py")
    start = (*meeting, "start", job.python, job.slots, job.interface)
    return Command((*start, *argv, *meeting, "rank", *job.program), job.env, step)
