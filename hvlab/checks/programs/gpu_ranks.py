"""Runs on a node as root: which ranks use which GPU at this moment. Prints a list of them, empty with none.

A rank is a process on a GPU that its launcher gave a local rank; ``job`` tells the ranks of two runs apart.
"""

import json
import subprocess
import sys
from typing import Any, Dict, List, Mapping

SECONDS = 20
# Where launchers say the rank on this host, and which run it is of: Open MPI, horovodrun, srun, torchrun.
WAYS = (
    ("OMPI_COMM_WORLD_LOCAL_RANK", ("PMIX_NAMESPACE", "OMPI_MCA_orte_ess_jobid", "OMPI_MCA_ess_base_jobid")),
    ("HOROVOD_LOCAL_RANK", ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT")),
    ("SLURM_LOCALID", ("SLURM_JOB_ID", "SLURM_STEP_ID")),
    ("LOCAL_RANK", ("MASTER_ADDR", "MASTER_PORT")),
)


def environment(pid: int) -> Dict[str, str]:
    """Return the environment of a process; empty if it has ended or cannot be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            rows = file.read().decode("utf-8", "replace").split("\0")
    except OSError:
        return {}
    return {name: value for name, is_set, value in (row.partition("=") for row in rows) if is_set}


def rank(variables: Mapping[str, str]) -> Dict[str, str]:
    """Return the local rank and the run of a process; nothing if no launcher gave it one."""
    for name, parts in WAYS:
        job = ":".join(variables.get(part, "") for part in parts)
        if name in variables and job.strip(":"):
            return {"local_rank": variables[name], "job": job}
    return {}


def main() -> None:
    """Ask the driver who uses the GPUs and print the ranks among them."""
    query = ["nvidia-smi", "--query-compute-apps=gpu_uuid,pid", "--format=csv,noheader"]
    try:
        done = subprocess.run(
            query,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        sys.exit(1)
    ranks: List[Dict[str, Any]] = []
    for row in done.stdout.decode("utf-8", "replace").splitlines():
        gpu, _, pid = row.partition(", ")
        if pid.strip().isdigit():
            own = rank(environment(int(pid)))
            if own:
                ranks.append({"gpu": gpu.strip(), "pid": int(pid), **own})
    json.dump(ranks, sys.stdout)


if __name__ == "__main__":
    main()
