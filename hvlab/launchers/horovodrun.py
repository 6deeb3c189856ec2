"""Horovod's own launcher, with the Gloo controller: no MPI takes part."""

from __future__ import annotations

from hvlab.launchers.command import Command, Job, launcher

START_TIMEOUT = 60


@launcher("horovodrun")
def command(job: Job) -> Command:
    """Return the command; horovodrun hands its own environment on to the ranks.

    The interface is named, so that horovodrun starts no discovery servers (and no key stands in any argv);
    not on one host, where it uses the loopback interface and refuses any other.
    """
    argv = [f"{job.horovod}/bin/horovodrun", "--gloo", "--disable-cache"]
    if len(job.case.hosts) > 1:
        argv += ["--network-interfaces", job.interface]
    if job.port:
        argv += ["-p", str(job.port)]
    argv += ["--start-timeout", str(START_TIMEOUT), "-np", str(job.case.world_size), "-H", job.slots]
    return Command((*argv, *job.program), job.env)
