"""torch's own launcher: one torchrun on each host of the case, which meet at rank 0's address.

Source: docs.pytorch.org, "torchrun (Elastic Launch)", and torch/distributed/run.py of torch 2.13.
"""

from __future__ import annotations

import shlex

from hvlab.workloads.launchers.command import SSH, Command, Job, launcher, recipe

NAME = "torchrun"
# nodes.py replaces it on each host by the host's number.
NODE = "{node}"


@launcher(NAME)
def command(job: Job) -> Command:
    """Return the command; nodes.py starts it on every host, the first one's without ssh."""
    ssh = shlex.join((*SSH, *(("-p", str(job.port)) if job.port else ())))
    nodes = (job.host_python, f"{job.workloads}/nodes.py", ",".join(job.case.hosts), ssh, ",".join(job.env))
    meeting = (f"--master-addr={job.env['MASTER_ADDR']}", f"--master-port={job.env['MASTER_PORT']}")
    # Its own default stays in /tmp.
    mark = job.env.get("HVLAB_CASE")
    logs = ("--log-dir", f"~/.hvlab/runs/{mark}/torchrun") if mark else ()
    rank = (*_ranks(job), *meeting, f"--node-rank={NODE}", *logs)
    torchrun = (job.python, "-m", "torch.distributed.run", *rank)
    return Command((*nodes, *torchrun, "--no-python", *job.program), job.env)


@recipe(NAME)
def own_job(job: Job) -> Command:
    """Return the number of ranks."""
    return Command((NAME, *_ranks(job)), job.env)


def _ranks(job: Job) -> tuple[str, ...]:
    return (f"--nnodes={len(job.case.hosts)}", f"--nproc-per-node={job.case.slots}")
