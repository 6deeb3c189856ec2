"""No launcher at all: the program as it is, one process."""

from __future__ import annotations

from hvlab.launchers.command import Command, Job, launcher


@launcher("local")
def command(job: Job) -> Command:
    """Return the program with its environment."""
    return Command(job.program, job.env)
