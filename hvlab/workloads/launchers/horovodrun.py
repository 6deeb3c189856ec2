"""Horovod's own launcher, with the Gloo controller: no MPI takes part."""

from __future__ import annotations

from hvlab.workloads.launchers.command import Command, Job, launcher, recipe

# Seconds for all ranks to start, and extra seconds per virtual host, as these share cores and disk of one
# machine. Gloo's own limit of 30 s begins with the first rank.
START_S, START_SHARED_S = 60, 15


NAME = "horovodrun"


@launcher(NAME)
def command(job: Job) -> Command:
    """Return the command; horovodrun forwards its own environment to the ranks.

    The interface is named, so that horovodrun starts no discovery servers, whose argv would hold a key. On a
    single host it is not: horovodrun uses the loopback interface and refuses any other.
    """
    argv = [f"{job.horovod}/bin/horovodrun", *_gloo(job)]
    if job.port:
        argv += ["-p", str(job.port)]
    seconds = START_S + START_SHARED_S * len(job.case.hosts) * job.shared
    argv += ["--start-timeout", str(seconds)]
    if job.shared:
        argv += ["--gloo-timeout-seconds", str(seconds)]
    argv += ["-np", str(job.case.world_size), "-H", job.slots]
    return Command((*argv, *job.program), job.env)


@recipe(NAME)
def own_job(job: Job) -> Command:
    """Return the options that choose Gloo and its interface."""
    return Command((NAME, *_gloo(job)), job.env)


def _gloo(job: Job) -> list[str]:
    interfaces = ["--network-interfaces", job.interface] if len(job.case.hosts) > 1 else []
    return ["--gloo", "--disable-cache", *interfaces]
