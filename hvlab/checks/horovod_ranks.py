"""The launches that check Horovod: a sum over ranks of many hosts, of one host, and of a pair.

Importing a framework takes more CPU time than all other checks of a host. So one launch per backend covers
up to GROUP hosts, and its ranks also report what their Horovod was built with. Only if it fails is each of
its hosts asked alone and with its neighbour, which identifies the faulty one.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from hvlab.bench.matrix import Case
from hvlab.checks.provisioned import Question, RoleHost, is_virtual, run
from hvlab.lab.backends import BACKENDS, SHIM
from hvlab.lab.pin_variables import TORCH
from hvlab.workloads.launchers import horovodrun, mpirun, torchrun
from hvlab.workloads.launchers.command import Job

_SHIM = f"{SHIM}-gloo"
LAUNCHERS = {"mpi": mpirun.command, "gloo": horovodrun.command, _SHIM: torchrun.command}
GROUP = 32
# Where ranks of torch meet; those of a benchmark have ports above it.
_PORT = "29499"
TIMEOUT_S = 180
# Extra seconds for each other virtual host, since they share the cores of one machine.
TIMEOUT_SHARED_S = 15
# A rank ends as soon as it has left Horovod: tearing down the framework is a quarter of its work.
REPORT = """
built = [plane for plane in ("mpi", "gloo", "nccl", "ccl") if getattr(hvd, plane + "_built")()]
print(json.dumps({"rank": hvd.rank(), "size": hvd.size(), "host": socket.gethostname(), "built": built,
                  "version": horovod.__version__, "least": least, "most": most}), flush=True)
hvd.shutdown()
os._exit(0)
"""
PROGRAMS = {
    "torch": f"""
import gc, json, os, socket
gc.disable()
import torch, horovod, horovod.torch as hvd
hvd.init()
total = hvd.allreduce(torch.full((1024,), float(hvd.rank() + 1)), op=hvd.Sum)
least, most = total.min().item(), total.max().item()
{REPORT}""",
    "tensorflow": f"""
import json, os, socket
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf, horovod, horovod.tensorflow as hvd
hvd.init()
total = hvd.allreduce(tf.fill((1024,), float(hvd.rank() + 1)), op=hvd.Sum)
least, most = float(tf.reduce_min(total)), float(tf.reduce_max(total))
{REPORT}""",
}


def variants(node: RoleHost) -> dict[str, dict[str, Any]]:
    """The variants in the inventory."""
    if node.variables.get("horovod_version") == "":
        return {TORCH: {"frameworks": ["torch"], _SHIM: True}}
    return dict(node.variables["horovod_variants"])


def prefix(node: RoleHost, variant: str) -> str:
    """The folder of a variant."""
    return f"{node.variables['horovod_prefix']}/{variant}"


def having(node: RoleHost, backend: str) -> list[str]:
    """The variants that should have this backend."""
    return [variant for variant, options in variants(node).items() if options.get(backend)]


def ranks_per_host(nodes: Mapping[str, RoleHost]) -> int:
    """Two, which communicate through memory; one if there are more virtual hosts than cores."""
    return 1 if sum(map(is_virtual, nodes.values())) > (os.cpu_count() or 1) else 2


def neighbour(node: RoleHost) -> str | None:
    """The host with the next name; None for the last one. So every host is in a pair."""
    return min((peer for peer in node.peers if peer > node.name), default=None)


def groups(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Split hosts into groups of at most GROUP; the last host of each is the first of the next."""
    ordered = sorted(names)
    return [tuple(ordered[at : at + GROUP]) for at in range(0, max(len(ordered) - 1, 1), GROUP - 1)]


def groups_of(
    node: RoleHost, nodes: Mapping[str, RoleHost], variant: str, backend: str
) -> list[tuple[str, ...]]:
    """The groups of a host among those that should have the same variant and backend, without silent ones.

    A host whose logins run no command is a group of its own.
    """
    if node.mute:
        return [(node.name,)]
    alike = [
        other.name
        for other in nodes.values()
        if not other.silence and not other.mute and other.stack and variant in having(other, backend)
    ]
    return [group for group in groups(alike) if node.name in group]


def allreduce(
    node: RoleHost,
    variant: str,
    backend: str,
    *,
    hosts: tuple[str, ...],
    slots: int,
    timeout: int = TIMEOUT_S,
) -> Question:
    """Ask for a sum over the ranks of hosts, started exactly as a benchmark; ``timeout`` is in seconds."""
    interface = node.variables["lab_interface"]
    case = Case(
        id="check", workload="allreduce", backend=backend, launcher="", hosts=hosts,
        slots=slots, repeat=1, timeout=timeout,
    )  # fmt: skip
    python = f"{prefix(node, variant)}/bin/python"
    alias = f"{node.variables['workloads_dir']}/hvlab_horovod"
    env = {
        name: value.format(interface=interface, alias=alias) for name, value in BACKENDS[backend].env.items()
    }
    if BACKENDS[backend].group:
        env |= {"MASTER_ADDR": "127.0.0.1" if node.alone else hosts[0], "MASTER_PORT": _PORT}
    job = Job(
        case=case,
        program=(python, "-c", PROGRAMS[variants(node)[variant]["frameworks"][0]]),
        python=python,
        env=env,
        network=node.variables["lab_network"],
        interface=interface,
        horovod=prefix(node, variant),
        openmpi=f"{node.variables['openmpi_prefix']}/current",
        workloads=node.variables["workloads_dir"],
        shared=is_virtual(node),
        local=node.alone,
    )
    command = LAUNCHERS[backend](job)
    return run(list(command.argv), user=node.user, env=dict(command.env), timeout=timeout, alone=True)


def reports(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The reports of the ranks in a launch's output."""
    printed = []
    for line in re.findall(r'\{"rank": .*\}', answer["out"]):
        with contextlib.suppress(ValueError):
            printed.append(json.loads(line))
    return printed


def adds_up(answer: Mapping[str, Any], *, hosts: int, slots: int) -> bool:
    """Whether every rank of a launch has the sum over all ranks, on the expected number of hosts."""
    ranks, size = reports(answer), hosts * slots
    total = size * (size + 1) / 2
    right = [rank for rank in ranks if (rank["size"], rank["least"], rank["most"]) == (size, total, total)]
    return len(right) == len(ranks) == size and len({rank["host"] for rank in ranks}) == hosts


def name(variant: str, backend: str, where: str, group: Sequence[str] = ()) -> str:
    """The name of a question: ``where`` is ``here``, ``pair``, or ``together`` with the group's last host."""
    return " ".join([variant, backend, where, *group[-1:]])


def has_failed(
    nodes: Mapping[str, RoleHost], variant: str, backend: str, group: tuple[str, ...]
) -> bool | None:
    """Whether the launch over a group failed; None while it is running. A host alone has none."""
    first = nodes[group[0]]
    answer = first.answers.get(name(variant, backend, "together", group))
    if answer is None:
        return True if len(group) == 1 or first.silence else None
    return not adds_up(answer, hosts=len(group), slots=ranks_per_host(nodes))


def report_of(node: RoleHost, nodes: Mapping[str, RoleHost], variant: str) -> dict[str, Any] | None:
    """A rank's report from this host on a variant; None if none reported. Ranks are in the hosts' order."""
    slots = ranks_per_host(nodes)
    for backend in LAUNCHERS:
        together = name(variant, backend, "together")
        for group in groups_of(node, nodes, variant, backend):
            for rank in reports(nodes[group[0]].answers.get(f"{together} {group[-1]}", {"out": ""})):
                if rank["rank"] // slots == group.index(node.name):
                    return rank
        for rank in reports(node.answers.get(name(variant, backend, "here"), {"out": ""})):
            return rank
    return None
