"""No launcher at all: the program as it is, one process."""

from __future__ import annotations

from hvlab.workloads.launchers.command import Command, Job, launcher, recipe

NAME = "local"


@launcher(NAME)
def command(job: Job) -> Command:
    """Return the program with its environment."""
    return Command(job.program, job.env)


@recipe(NAME)
def own_job(job: Job) -> Command:
    """Return the environment alone."""
    return Command((), job.env)
