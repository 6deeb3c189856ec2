"""The contents of Slurm's files, decided from options and facts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hvlab.stack.provision.slurm.host import Node, SlurmHost, SlurmRequest

# The newest interface of slurmrestd in each release of Slurm.
REST_APIS = {
    "20.11": "v0.0.36",
    "21.08": "v0.0.37",
    "22.05": "v0.0.38",
    "23.02": "v0.0.39",
    "23.11": "v0.0.40",
    "24.05": "v0.0.41",
    "24.11": "v0.0.42",
    "25.05": "v0.0.43",
    "25.11": "v0.0.44",
}
REST_SOCKET = "/run/slurmrestd/slurmrestd.socket"
# Open MPI's own PMIx lacks munge, which slurmd's offers; and direct connections are sometimes refused.
PMIX_CONF = {"PMIxDirectConn": "false", "PMIxEnv": "PMIX_MCA_psec=native"}
PMIX_ENVIRONMENT = {"SLURM_PMIX_DIRECT_CONN": "false", "PMIX_MCA_psec": "native"}
_SHAPE = ("Boards", "SocketsPerBoard", "CoresPerSocket", "ThreadsPerCore")


def describe(host: SlurmHost, request: SlurmRequest) -> dict[str, Any]:
    """Return a node's line in slurm.conf as data, with the details that other hosts need."""
    counted = host.container or request.slots > host.cpus
    offered = max(host.cpus, request.slots if counted else 0)
    # A twentieth of the memory is reserved for the system: Slurm drains a node with less than its line says.
    # In steps of 256 MB, because free memory varies by some MB between kernels.
    memory = int(host.memory * 0.95 // 256 * 256)
    shape = {} if counted else {name: host.reported[name] for name in _SHAPE if name in host.reported}
    node = {
        "hostname": host.facts["hostname"],
        "address": request.addresses[host.name]["address"],
        "counted": counted,
        "container": host.container,
        "gpus": request.gpus,
        "memory_per_cpu": memory // offered,
        "cpus_per_gpu": offered // request.gpus if request.gpus else 0,
        "resources": {"CPUs": offered, **shape, "RealMemory": memory},
    }
    if request.gpus and request.gpu_type:
        node["gpu_type"] = request.gpu_type
    return node | ({"features": list(request.features)} if request.features else {})


@dataclass(frozen=True)
class SlurmPlan:
    """Files and daemons of one host. Settings are in the order in which they are written."""

    nodes: Mapping[str, Node]
    partitions: Sequence[Mapping[str, Any]]
    settings: Mapping[str, Any]
    cgroup: Mapping[str, str]
    mpi_conf: Mapping[str, str]
    environment: Mapping[str, str]
    gpus: bool
    daemons: Sequence[str]
    changes: bool
    record: Mapping[str, Any]


def plan(
    host: SlurmHost, request: SlurmRequest, *, last: Mapping[str, Any], now: Mapping[str, Node], uid: str
) -> SlurmPlan:
    """Decide the contents of a host's files.

    ``last`` is the record of the host of slurmctld, ``now`` describes the nodes of this run.
    """
    recorded = last.get("nodes") or {}
    known = {**recorded, **now}
    # In the inventory's order.
    nodes = {name: known[name] for name in request.hosts if name in known}
    partitions = [
        {
            "name": p["name"],
            "nodes": [name for name in p.get("hosts", nodes) if name in nodes],
            "settings": {
                "Default": "YES" if p["name"] == request.partition else "NO",
                "MaxTime": "INFINITE",
                "State": "UP",
                **_billing(nodes, request),
                **p.get("settings", {}),
            },
        }
        for p in request.every_partition
    ]
    settings = _settings(host, request, nodes)
    text = json.dumps([settings, list(request.every_partition), request.partition])
    configuration = hashlib.sha256(text.encode()).hexdigest()
    mpi_conf = PMIX_CONF if host.system.pmix and host.new else {}
    controls = host.name == request.controller
    return SlurmPlan(
        nodes=nodes,
        partitions=partitions,
        settings=settings,
        cgroup=_cgroup(host, nodes),
        mpi_conf=mpi_conf,
        # Without mpi.conf, PMIx in slurmstepd has slurmd's environment, and Slurm's plugin expects srun's.
        environment=PMIX_ENVIRONMENT if host.system.pmix and not mpi_conf else {},
        gpus=_has_any(nodes, "gpus"),
        daemons=[
            "munge",
            *(["slurmctld"] if controls else []),
            "slurmd",
            *(["slurmrestd"] if controls and request.rest else []),
        ],
        changes=nodes != recorded or configuration != last.get("configuration", configuration),
        record={
            "version": host.version,
            "cluster": request.cluster,
            "controller": request.controller,
            "partition": request.partition,
            "partitions": [
                p["name"] for p in request.every_partition if host.name in p.get("hosts", [host.name])
            ],
            "pmix": host.system.pmix,
            "uid": uid,
            "health_check": request.health_check,
            "accounting": request.accounting,
            "rest": {"socket": REST_SOCKET, "api": REST_APIS.get(host.version, "")} if request.rest else {},
            "nodes": nodes,
            "configuration": configuration,
        },
    )


def _settings(host: SlurmHost, request: SlurmRequest, nodes: Mapping[str, Node]) -> dict[str, Any]:
    system = host.system
    head = nodes.get(request.controller) or {"hostname": request.controller, "address": ""}
    cgroups = _has_cgroups(host, nodes)
    if _has_any(nodes, "container"):
        # A virtual host has no cores or memory of its own, and a lab should notice quickly that one is lost.
        kind = {"SelectTypeParameters": "CR_CPU", "SlurmdTimeout": "30", "KillWait": "5"}
        tasks = "task/none"
    else:
        # Cores and memory (a job that names none gets its CPUs' share), and Slurm's default times.
        shares = [int(node["memory_per_cpu"]) for node in nodes.values() if node.get("memory_per_cpu")]
        kind = {
            "SelectTypeParameters": "CR_Core_Memory",
            "DefMemPerCPU": str(min(shares, default="")),
            "SlurmdTimeout": "300",
            "KillWait": "30",
        }
        tasks = "task/cgroup,task/affinity" if cgroups else "task/affinity"
    settings = {
        "ClusterName": request.cluster,
        "SlurmctldHost": f"{head['hostname']}({head['address']})",
        "SlurmUser": "slurm",
        "AuthType": "auth/munge",
        # Otherwise root on one node is root on all.
        "DisableRootJobs": "YES",
        "StateSaveLocation": f"{system.state_dir}/slurmctld",
        "SlurmdSpoolDir": f"{system.state_dir}/slurmd",
        "SlurmctldLogFile": f"{system.log_dir}/slurmctld.log",
        "SlurmdLogFile": f"{system.log_dir}/slurmd.log",
        "SlurmctldPidFile": f"{system.run_dir}/slurmctld.pid",
        "SlurmdPidFile": f"{system.run_dir}/slurmd.pid",
        "ProctrackType": "proctrack/cgroup" if cgroups else "proctrack/linuxproc",
        "TaskPlugin": tasks,
        "SelectType": "select/cons_tres",
        "MpiDefault": "pmix" if system.pmix else "none",
        # A node that was down returns automatically once it answers.
        "ReturnToService": "2",
        # Limits come from slurmd's unit, not from the shell that called srun.
        "PropagateResourceLimits": "NONE",
        **kind,
    }
    if _has_any(nodes, "counted"):
        settings["SlurmdParameters"] = "config_overrides"
    if system.pmix:
        # In a step with fewer nodes than TreeWidth, Slurm's PMIx waits only for ranks on the same node:
        # MPI_Init ends before all have begun it, and ranks crash (src/common/reverse_tree.c of Slurm 20.02 to
        # 26.05).
        settings["TreeWidth"] = "2"
    if _has_any(nodes, "gpus"):
        settings["GresTypes"] = "gpu"
    if request.health_check:
        settings |= {
            "Prolog": f"{system.etc}/prolog.d/*",
            "Epilog": f"{system.etc}/epilog.d/*",
            "PrologFlags": "Alloc",
            # By default Slurm holds a batch job whose prolog failed; here it starts on another node.
            "SchedulerParameters": "nohold_on_prolog_fail",
        }
    if request.accounting:
        settings |= {
            "AccountingStorageType": "accounting_storage/slurmdbd",
            "AccountingStorageHost": head["address"],
            "PriorityType": "priority/multifactor",
            # Users with less usage come first, then those who have waited longer.
            "PriorityWeightFairshare": "10000",
            "PriorityWeightAge": "1000",
        }
    if _billing(nodes, request):
        settings |= {"AccountingStorageTRES": "gres/gpu", "PriorityFlags": "MAX_TRES"}
    return settings | dict(request.settings)


def _billing(nodes: Mapping[str, Node], request: SlurmRequest) -> dict[str, str]:
    """A job pays for its share of the CPUs or of the GPUs, whichever is more."""
    if not (request.accounting and _has_any(nodes, "gpus")):
        return {}
    cpus = max(1, *(int(node.get("cpus_per_gpu", 0)) for node in nodes.values()))
    return {"TRESBillingWeights": f"CPU=1.0,GRES/gpu={cpus}"}


def _has_cgroups(host: SlurmHost, nodes: Mapping[str, Node]) -> bool:
    return (host.cgroup == 1 or host.new) and not _has_any(nodes, "container")


def _cgroup(host: SlurmHost, nodes: Mapping[str, Node]) -> dict[str, str]:
    settings = {"CgroupPlugin": "cgroup/v1"} if host.cgroup == 1 and host.new else {}
    if host.container and host.cgroup > 1 and host.new:
        settings["IgnoreSystemd"] = "yes"
    if _has_cgroups(host, nodes):
        settings |= dict.fromkeys(("ConstrainCores", "ConstrainDevices", "ConstrainRAMSpace"), "yes")
    return settings


def _has_any(nodes: Mapping[str, Node], key: str) -> bool:
    return any(node.get(key) for node in nodes.values())
