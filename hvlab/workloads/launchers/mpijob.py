"""Cases for Kubernetes: what the mpi-operator gets (MPIJob, kubeflow.org/v2beta1). Pure.

A job has a pod for each host of its case, and one more for the launcher. The operator makes a key pair for
the job, and mounts it in all of its pods with a host file; the sshd of each pod shows that key as its own,
and no other is accepted. The programs come from a ConfigMap. Fields are those of mpi-operator's API and
controller (pkg/apis/kubeflow/v2beta1/types.go, pkg/controller/mpi_job_controller.go).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hvlab.workloads.launchers import kubernetes
from hvlab.workloads.launchers.command import Job
from hvlab.workloads.launchers.kubernetes import Pods
from hvlab.workloads.launchers.mpirun import parameters, placing, transport

LAUNCHERS = ("mpirun", "horovodrun")
# Needed by the jobs, besides the programs.
SHARED: tuple[dict[str, Any], ...] = ()
_HOSTS = "/etc/mpi/hostfile"
_KEY = "/root/.ssh/id_rsa"
# The launcher computes nothing; it keeps an ssh to each worker.
_LAUNCHER_MIB, _SSH_MIB = 1024, 16
# Without the settings of the image, which may name another port or other users.
_SSHD = (
    "mkdir -p /run/sshd && exec /usr/sbin/sshd -De -f /dev/null -o StrictModes=no"
    f" -o PasswordAuthentication=no -o HostKey={_KEY}"
)
# The operator sets Open MPI 4's names, which Open MPI 5 silently ignores, as Open MPI 4 does these.
_PRRTE = (
    f"PRTE_MCA_prte_default_hostfile={_HOSTS}",
    "PRTE_MCA_prte_keep_fqdn_hostnames=true",
    "PRTE_MCA_plm_ssh_args='-o ConnectionAttempts=10'",
)
_WAIT = f"""\
printf '* %s\\n' "$(cat {_KEY}.pub)" > /tmp/known_hosts
printf 'Host *\\n  %s\\n  %s\\n  %s\\n' \\
  'Port 22' 'UserKnownHostsFile /tmp/known_hosts' 'StrictHostKeyChecking yes' > /etc/ssh/ssh_config
for host in $(cut -d' ' -f1 {_HOSTS}); do
  until getent hosts "$host" > /dev/null && ssh -o BatchMode=yes -o ConnectTimeout=5 "$host" true; do
    if [ "$(($(date +%s) - started))" -gt {kubernetes.START_S} ]; then
      ended "\\"error\\": \\"no answer from $host: see kubectl describe pod ${{host%%.*}}\\""
      exit 1
    fi
    sleep 2
  done
done
MASTER_ADDR=$(head -n 1 {_HOSTS} | cut -d' ' -f1)
export MASTER_ADDR LD_LIBRARY_PATH="${{LD_LIBRARY_PATH:-}}"
{" ".join(("export", *_PRRTE))}
"""
_LAUNCH = kubernetes.BEGIN + _WAIT + kubernetes.END


def manifest(job: Job, program: Sequence[str], pods: Pods) -> dict[str, Any]:
    """Return the MPIJob of a case; ``program`` is a workload's file name and arguments."""
    case = job.case
    rank = kubernetes.build_rank(case, program)
    argv = _ARGV[case.launcher](replace(job, network=job.interface, program=rank))
    # The first worker gets its name from the operator: the script finds it in the host file.
    env = {key: value for key, value in job.env.items() if key != "MASTER_ADDR"}
    memory = f"{_LAUNCHER_MIB + _SSH_MIB * len(case.hosts)}Mi"
    launcher = {
        "name": "launcher",
        "image": pods.image,
        **kubernetes.start(case, _LAUNCH, argv, env),
        "resources": kubernetes.guarantee({"cpu": 1, "memory": memory}),
    }
    worker = {
        "name": "worker",
        "image": pods.image,
        "command": ["/bin/sh", "-c", _SSHD],
        "resources": kubernetes.guarantee(pods.resources),
    }
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": kubernetes.name(case.id), "labels": kubernetes.labels()},
        "spec": {
            "slotsPerWorker": case.slots,
            "mpiImplementation": "OpenMPI",
            "runPolicy": {
                "cleanPodPolicy": "Running",
                "backoffLimit": 0,
                "activeDeadlineSeconds": kubernetes.limit(case),
            },
            "mpiReplicaSpecs": {
                "Launcher": _replicas(1, launcher, ranks=False),
                "Worker": _replicas(len(case.hosts), worker, ranks=True),
            },
        },
    }


def _replicas(number: int, container: Mapping[str, Any], *, ranks: bool) -> dict[str, Any]:
    return {
        "replicas": number,
        "restartPolicy": "Never",
        "template": kubernetes.build_pod(container, ranks=ranks),
    }


def _mpirun(job: Job) -> list[str]:
    """Return the arguments; the operator tells Open MPI the host file."""
    argv = ["mpirun", "--allow-run-as-root", "-np", str(job.case.world_size), *placing(job)]
    argv += parameters(job, transport(job))
    # A login by ssh lacks the image's environment.
    for variable in ("PATH", "LD_LIBRARY_PATH", *job.env):
        argv += ["-x", variable]
    return [*argv, *job.program]


def _horovodrun(job: Job) -> list[str]:
    """Return the arguments; horovodrun hands its own environment on to the ranks."""
    argv = ["horovodrun", "--gloo", "--disable-cache", "--network-interfaces", job.interface]
    argv += ["--start-timeout", "60", "-np", str(job.case.world_size), "--hostfile", _HOSTS]
    return [*argv, *job.program]


_ARGV = {"mpirun": _mpirun, "horovodrun": _horovodrun}
