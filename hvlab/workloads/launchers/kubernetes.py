"""What jobs for Kubernetes have in common: names, pods, programs, and the log of a case. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hvlab.base.masking import mask
from hvlab.workloads.case import Case
from hvlab.workloads.launchers.command import deadline

PROGRAMS = "hvlab-programs"
# How long the pods may take until all of them answer, in seconds: an image may have to be pulled.
START_S = 1800
_WORKLOADS = "/opt/hvlab/workloads"
_FOLDER = "/tmp/hvlab"  # noqa: S108 - in a pod that runs nothing else
_SHM = "/dev/shm"  # noqa: S108 - the place that all libraries use
# Deletes what is left if the launcher hangs, after it has said which pod does not answer.
_MARGIN_S = 120
# A name becomes part of those of its pods, `NAME-worker-12`, `NAME-node-0-12-x7k2p`: labels of DNS.
_NAME_LENGTH = 29
# What a script that starts ranks begins and ends with.
BEGIN = """\
printf '%s\\n' "$HVLAB_FIRST_LINE"
ended() {
  printf 'hvlab: ended: %s {%s, "started_at": %s, "ended_at": %s}\\n' \\
    "$HVLAB_CASE_ID" "$1" "$started" "$(date +%s)"
}
started=$(date +%s)
"""
END = """\
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
    """Image of the pods, and the ``resources`` of a worker as Kubernetes names them."""

    image: str
    resources: Mapping[str, Any]


def programs(files: Mapping[str, str]) -> dict[str, Any]:
    """Return the ConfigMap of the programs that the ranks run, from their texts by name."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": PROGRAMS, "labels": labels()},
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


def build_rank(case: Case, program: Sequence[str]) -> tuple[str, ...]:
    """Return a rank's argv; ``program`` is a workload's file name and arguments."""
    workload = ("python3", f"{_WORKLOADS}/{program[0]}", *program[1:], "--output", f"{_FOLDER}/result.json")
    # Nobody fetches files from pods: they are printed to the log.
    return (*deadline(case), "python3", f"{_WORKLOADS}/logged.py", case.id, _FOLDER, *workload)


def start(case: Case, script: str, argv: Sequence[str], env: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a container whose ``script`` runs ``argv``; Kubernetes replaces nothing there."""
    # The script prints them.
    given = {"HVLAB_FIRST_LINE": first_line(case), "HVLAB_CASE_ID": case.id, **env}
    return {
        "command": ["/bin/sh", "-uc", script, "hvlab"],
        "args": [_literal(word) for word in argv],
        "env": [{"name": key, "value": _literal(value)} for key, value in given.items()],
    }


def limit(case: Case) -> int:
    """Return how long a case's job may take, in seconds."""
    return START_S + case.timeout + _MARGIN_S


def guarantee(resources: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request equal to the limit: such pods are the last to be evicted."""
    return {"requests": dict(resources), "limits": dict(resources)}


def labels() -> dict[str, str]:
    """Return the labels of all objects."""
    return {"app.kubernetes.io/managed-by": "hvlab"}


def build_pod(container: Mapping[str, Any], *, ranks: bool) -> dict[str, Any]:
    """Return the template of a pod with the programs, and where it has ``ranks``, with memory to share."""
    mounts = [{"name": "programs", "mountPath": _WORKLOADS, "readOnly": True}]
    volumes: list[dict[str, Any]] = [{"name": "programs", "configMap": {"name": PROGRAMS}}]
    if ranks:
        # What ranks of one pod share; the runtime's own 64 MiB are too few for NCCL.
        mounts.insert(0, {"name": "shm", "mountPath": _SHM})
        volumes.insert(0, {"name": "shm", "emptyDir": {"medium": "Memory"}})
    return {
        "metadata": {"labels": labels()},
        "spec": {"containers": [{**container, "volumeMounts": mounts}], "volumes": volumes},
    }


def _literal(text: str) -> str:
    """Return a text in which Kubernetes replaces nothing; it makes ``$$`` a ``$``, and fills in ``$(X)``."""
    return text.replace("$", "$$")
