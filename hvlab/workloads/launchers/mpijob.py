"""Cases for Kubernetes: what the mpi-operator gets (MPIJob, kubeflow.org/v2beta1). Pure.

A job has a pod for each host of its case, and one more for the launcher. The operator makes a key pair for
the job, and mounts it in all of its pods with a host file; the sshd of each pod shows that key as its own,
and no other is accepted. The programs come from a ConfigMap. Fields are those of mpi-operator's API and
controller (pkg/apis/kubeflow/v2beta1/types.go, pkg/controller/mpi_job_controller.go).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from hvlab.base.masking import mask
from hvlab.workloads.case import Case
from hvlab.workloads.launchers.command import Job, deadline
from hvlab.workloads.launchers.mpirun import parameters, placing, transport

LAUNCHERS = ("mpirun", "horovodrun")
PROGRAMS = "hvlab-programs"
_WORKLOADS = "/opt/hvlab/workloads"
_FOLDER = "/tmp/hvlab"  # noqa: S108 - in a pod that runs nothing else
_HOSTS = "/etc/mpi/hostfile"
_SHM = "/dev/shm"  # noqa: S108 - the place that all libraries use
_KEY = "/root/.ssh/id_rsa"
# How long the pods may take until all of them answer, in seconds: an image may have to be pulled.
_START_S = 1800
# The launcher computes nothing; it keeps an ssh to each worker.
_LAUNCHER_MIB, _SSH_MIB = 1024, 16
# Deletes what is left if the launcher hangs, after it has said which pod does not answer.
_MARGIN_S = 120
# A name becomes part of those of its pods, `NAME-worker-12`, which are labels of DNS.
_NAME_LENGTH = 35
# Without the settings of the image, which may name another port or other users.
_SSHD = (
    "mkdir -p /run/sshd && exec /usr/sbin/sshd -De -f /dev/null -o StrictModes=no"
    f" -o PasswordAuthentication=no -o HostKey={_KEY}"
)
_LAUNCH = f"""\
printf '%s\\n' "$HVLAB_FIRST_LINE"
ended() {{
  printf 'hvlab: ended: %s {{%s, "started_at": %s, "ended_at": %s}}\\n' \\
    "$HVLAB_CASE_ID" "$1" "$started" "$(date +%s)"
}}
started=$(date +%s)
printf '* %s\\n' "$(cat {_KEY}.pub)" > /tmp/known_hosts
printf 'Host *\\n  %s\\n  %s\\n  %s\\n' \\
  'Port 22' 'UserKnownHostsFile /tmp/known_hosts' 'StrictHostKeyChecking yes' > /etc/ssh/ssh_config
for host in $(cut -d' ' -f1 {_HOSTS}); do
  until getent hosts "$host" > /dev/null && ssh -o BatchMode=yes -o ConnectTimeout=5 "$host" true; do
    if [ "$(($(date +%s) - started))" -gt {_START_S} ]; then
      ended "\\"error\\": \\"no answer from $host: see kubectl describe pod ${{host%%.*}}\\""
      exit 1
    fi
    sleep 2
  done
done
MASTER_ADDR=$(head -n 1 {_HOSTS} | cut -d' ' -f1)
export MASTER_ADDR LD_LIBRARY_PATH="${{LD_LIBRARY_PATH:-}}"
program=$(command -v "$1")
shift
started=$(date +%s)
"$program" "$@"
status=$?
ended "\\"rc\\": $status"
exit "$status"
"""


@dataclass(frozen=True)
class Pods:
    """What the pods are made of: their image, and the ``resources`` of a worker as Kubernetes names them."""

    image: str
    resources: Mapping[str, Any]


def programs(files: Mapping[str, str]) -> dict[str, Any]:
    """Return the ConfigMap of the programs that the ranks run, from their texts by name."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": PROGRAMS, "labels": _labels()},
        "data": dict(files),
    }


def name(case_id: str) -> str:
    """Return the name of a case's job: what Kubernetes allows of the case's own, made unique."""
    words = re.sub(r"[^a-z0-9]+", "-", case_id.lower()).strip("-")
    digest = hashlib.sha256(case_id.encode()).hexdigest()[:8]
    return f"hvlab-{words[:_NAME_LENGTH].rstrip('-')}-{digest}"


def first_line(case: Case) -> str:
    """Return the first line of a case's log: the case, without its secrets."""
    return f"hvlab: case: {json.dumps(mask(asdict(case)))}"


def manifest(job: Job, program: Sequence[str], pods: Pods) -> dict[str, Any]:
    """Return the MPIJob of a case; ``program`` is a workload's file name and arguments."""
    case = job.case
    workload = ("python3", f"{_WORKLOADS}/{program[0]}", *program[1:], "--output", f"{_FOLDER}/result.json")
    # Nobody fetches files from pods: they are printed to the log.
    rank = (*deadline(case), "python3", f"{_WORKLOADS}/logged.py", case.id, _FOLDER, *workload)
    argv = _ARGV[case.launcher](replace(job, network=job.interface, program=rank))
    env = {
        # The launcher prints them.
        "HVLAB_FIRST_LINE": first_line(case),
        "HVLAB_CASE_ID": case.id,
        # The first worker gets its name from the operator: the script finds it in the host file.
        **{key: value for key, value in job.env.items() if key != "MASTER_ADDR"},
    }
    launcher = {
        "name": "launcher",
        "command": ["/bin/sh", "-uc", _LAUNCH, "hvlab"],
        "args": [_literal(word) for word in argv],
        "env": [{"name": key, "value": _literal(value)} for key, value in env.items()],
        "resources": _guarantee({"cpu": 1, "memory": f"{_LAUNCHER_MIB + _SSH_MIB * len(case.hosts)}Mi"}),
    }
    worker = {
        "name": "worker",
        "command": ["/bin/sh", "-c", _SSHD],
        "resources": _guarantee(pods.resources),
        # What ranks of one pod share; the runtime's own 64 MiB are too few for NCCL.
        "volumeMounts": [{"name": "shm", "mountPath": _SHM}],
    }
    shm = {"name": "shm", "emptyDir": {"medium": "Memory"}}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name(case.id), "labels": _labels()},
        "spec": {
            "slotsPerWorker": case.slots,
            "mpiImplementation": "OpenMPI",
            "runPolicy": {
                "cleanPodPolicy": "Running",
                "backoffLimit": 0,
                "activeDeadlineSeconds": _START_S + case.timeout + _MARGIN_S,
            },
            "mpiReplicaSpecs": {
                "Launcher": _replicas(1, pods, launcher, []),
                "Worker": _replicas(len(case.hosts), pods, worker, [shm]),
            },
        },
    }


def _literal(text: str) -> str:
    """Return a text in which Kubernetes replaces nothing; it makes ``$$`` a ``$``, and fills in ``$(X)``."""
    return text.replace("$", "$$")


def _guarantee(resources: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request equal to the limit: such pods are the last to be evicted."""
    return {"requests": dict(resources), "limits": dict(resources)}


def _labels() -> dict[str, str]:
    return {"app.kubernetes.io/managed-by": "hvlab"}


def _replicas(
    number: int, pods: Pods, container: Mapping[str, Any], volumes: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the pods of one kind; those of the launcher and the workers have the same image."""
    mount = {"name": "programs", "mountPath": _WORKLOADS, "readOnly": True}
    mounts = [*container.get("volumeMounts", []), mount]
    source = {"name": "programs", "configMap": {"name": PROGRAMS}}
    return {
        "replicas": number,
        "restartPolicy": "Never",
        "template": {
            "metadata": {"labels": _labels()},
            "spec": {
                "containers": [{**container, "image": pods.image, "volumeMounts": mounts}],
                "volumes": [*volumes, source],
            },
        },
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
