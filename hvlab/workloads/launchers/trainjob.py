"""Cases for Kubernetes: what Kubeflow Trainer gets (TrainJob, trainer.kubeflow.org/v1alpha1). Pure.

A job has a pod for each host of its case, in which torchrun starts the ranks; how many, its own number and
where the first pod is, it reads from the environment that Trainer sets (PET_*). Fields are those of Trainer
2.3 (pkg/apis/trainer/v1alpha1, pkg/runtime/framework/plugins/torch) and of JobSet 0.12.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hvlab.workloads.launchers import kubernetes, torchrun
from hvlab.workloads.launchers.command import Job
from hvlab.workloads.launchers.kubernetes import Pods

LAUNCHERS = (torchrun.NAME,)
_API = "trainer.kubeflow.org/v1alpha1"
_RUNTIME = "hvlab-torch"
# Trainer looks for this name.
_NODE = "node"
_LAUNCH = f'[ "$PET_NODE_RANK" = 0 ] || exec "$@"\n{kubernetes.BEGIN}{kubernetes.END}'
# Two of the variables that torchrun sets for its ranks.
_MEETING = ("MASTER_ADDR", "MASTER_PORT")


def manifest(job: Job, program: Sequence[str], pods: Pods) -> dict[str, Any]:
    """Return the TrainJob of a case; ``program`` is a workload's file name and arguments."""
    case = job.case
    argv = ["python3", "-m", "torch.distributed.run", f"--rdzv-conf=timeout={kubernetes.START_S}"]
    argv += ["--no-python", *kubernetes.build_rank(case, program)]
    env = {key: value for key, value in job.env.items() if key not in _MEETING}
    return {
        "apiVersion": _API,
        "kind": "TrainJob",
        "metadata": {"name": kubernetes.name(case.id), "labels": kubernetes.labels()},
        "spec": {
            "runtimeRef": {"kind": "TrainingRuntime", "name": _RUNTIME},
            "activeDeadlineSeconds": kubernetes.limit(case),
            "trainer": {
                "image": pods.image,
                **kubernetes.start(case, _LAUNCH, argv, env),
                "numNodes": len(case.hosts),
                "numProcPerNode": case.slots,
                "resourcesPerNode": kubernetes.guarantee(pods.resources),
            },
        },
    }


def _build_runtime() -> dict[str, Any]:
    """Return the runtime that all jobs share."""
    pod = kubernetes.build_pod({"name": _NODE}, ranks=True)
    pod["spec"]["restartPolicy"] = "Never"
    # A pod that fails ends no other: the first one's log remains.
    job = {"completionMode": "Indexed", "backoffLimitPerIndex": 0, "template": pod}
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    node = {"name": _NODE, "template": {"metadata": {"labels": labels}, "spec": job}}
    return {
        "apiVersion": _API,
        "kind": "TrainingRuntime",
        "metadata": {"name": _RUNTIME, "labels": kubernetes.labels()},
        "spec": {"mlPolicy": {"torch": {}}, "template": {"spec": {"replicatedJobs": [node]}}},
    }


# Needed by the jobs, besides the programs.
SHARED = (_build_runtime(),)
