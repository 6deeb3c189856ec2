"""The conditions of a run: the lab sheet's environment table, the software, the workloads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from hvlab.base.groups import grouped
from hvlab.lab import environment
from hvlab.report import labels
from hvlab.report.data import ReportData
from hvlab.report.labels import Code, Lines, Value
from hvlab.report.words import Words
from hvlab.results.configurations import Configuration
from hvlab.workloads import contention

Facts = Mapping[str, Any]
# Rows of the environment table: their phrases, and the cells of hvlab.lab.environment that fill them.
SHEET: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("hardware", "nic", ("NIC",)),
    ("hardware", "gpu", ("GPU",)),
    ("hardware", "gpu_link", ("GPU link",)),
    ("software", "os", ("OS",)),
    ("software", "driver", ("GPU driver", "NIC driver")),
    ("software", "framework", ("Frameworks",)),
    ("software", "cuda", ("CUDA",)),
    ("software", "nccl", ("NCCL",)),
)
_CROWD = re.compile(r"(\d+) ranks? on (\d+) cores? \((.*)\)")
_PARTS = {"GPU driver": "environment.of_gpu", "NIC driver": "environment.of_nic"}
# The part of a record's stack that replaces a missing fact.
_IN_RECORDS = {
    "NIC": "nics", "GPU": "gpus", "GPU link": "link", "OS": "os", "GPU driver": "driver",
    "NIC driver": "nic_driver", "CUDA": "cuda", "NCCL": "nccl", "MPI": "openmpi", "Horovod": "horovod",
    "cuDNN": "cudnn", "Frameworks": "torch",
}  # fmt: skip
# Parts of the stack that are shown from facts, or elsewhere.
_SHOWN = {*_IN_RECORDS.values(), *(
    "kernel", "architecture", "cpus", "mpi_cuda", "gpudirect", "cores", "oversubscribed",
)} - {"torch"}  # fmt: skip
_MORE = ("MPI", "Horovod", "cuDNN", "GPUDirect RDMA")


def sheet(data: ReportData, words: Words) -> list[tuple[str, str, Value]]:
    """Return the rows of the lab sheet's environment table: hardware or software, what, and which."""
    rows: list[tuple[str, str, Value]] = [("hardware", "servers", _servers(data, words))]
    for part, name, cells in SHEET:
        values = [(cell, _format_recorded(data, cell, words)) for cell in cells]
        several = Lines(words.say(_PARTS[cell], value=value) for cell, value in values if cell in _PARTS)
        rows.append((part, name, several or values[0][1]))
    return rows


def software(data: ReportData, words: Words) -> list[tuple[Value, Value]]:
    """Return the rest of hardware and software: MPI, Horovod, processors."""
    machine = _group(data.facts, partial(_machine, data, words), words)
    rows: list[tuple[Value, Value]] = [(words.say("environment.machine"), machine)]
    rows += [(name, _format_recorded(data, name, words)) for name in _MORE]
    return rows + [
        (Code(name), words.fact(str(value)))
        for name, value in data.stack.items()
        if name not in _SHOWN and not isinstance(value, Mapping)
    ]


def warnings(data: ReportData, words: Words) -> list[str]:
    """Return the warnings that concern every figure of a run."""
    virtual = [words.say("environment.virtual")] if data.virtual else []
    return virtual + [text for disturbed, text in cores(data, words) if disturbed]


def cores(data: ReportData, words: Words) -> Iterator[tuple[bool, str]]:
    """Yield whether figures were disturbed, and a remark, on cores: the hosts' own, too few, or stolen."""
    if data.own_cores:
        yield False, words.say("environment.own_cores")
    crowds = {
        record.case_id: _crowd(str(record.stack["oversubscribed"]), words)
        for record in data.records
        if "oversubscribed" in record.stack
    }
    if crowds:
        named = words.join(dict.fromkeys(crowds.values()), "semicolon")
        yield True, words.say("environment.oversubscribed", all=data.head.ok, count=len(crowds), crowds=named)
    taken = {
        record.case_id: record.value
        for record in data.records
        if record.metric == contention.METRIC and record.value is not None
    }
    much = {case: value for case, value in taken.items() if value >= contention.MUCH}
    if much:
        worst = max(much, key=lambda case: much[case])
        limit, most = (words.number(value / 100, "share") for value in (contention.MUCH, much[worst]))
        cases = {"count": len(much), "all": len(taken)}
        yield True, words.say("environment.stolen", **cases, limit=limit, case=worst, most=most)
    elif taken:
        most = words.number(max(taken.values()) / 100, "share")
        yield False, words.say("environment.not_stolen", all=len(taken), most=most)


def _crowd(recorded: str, words: Words) -> str:
    """Translate "3 ranks on 2 cores (n1, n2)", as records have it."""
    parts = _CROWD.fullmatch(recorded)
    if not parts:
        return recorded
    ranks, cores, hosts = parts.groups()
    kind = "crowd_one" if cores == "1" else "crowd"
    names = hosts.split(", ")
    return words.say(f"environment.{kind}", ranks=ranks, cores=cores, hosts=words.join_names(names))


def workloads(data: ReportData, words: Words) -> list[dict[str, Any]]:
    """Return each workload with its backends, shapes, and fixed and varied parameters."""
    rows = []
    for name, own in grouped((one.workload, one) for one in data.configurations).items():
        shapes = sorted({(len(one.hosts), one.slots) for one in own})
        fixed, varied = _params(own)
        rows.append({
            "name": name, "backends": sorted({one.backend for one in own}, key=labels.order),
            "shapes": words.join(words.short(*shape) for shape in shapes), "fixed": fixed, "varied": varied,
        })  # fmt: skip
    return rows


def _params(configurations: Iterable[Configuration]) -> tuple[tuple[Code, ...], tuple[Code, ...]]:
    values: dict[str, dict[str, None]] = {}
    for configuration in configurations:
        for name, value in configuration.params:
            if value is not None and name != "size_bytes":
                values.setdefault(name, {})[str(value)] = None
    said = [(Code(f"{name}={','.join(each)}"), len(each)) for name, each in values.items()]
    return tuple(one for one, count in said if count == 1), tuple(one for one, count in said if count > 1)


def _servers(data: ReportData, words: Words) -> str:
    hosts = list(data.facts) or sorted({host for record in data.records for host in record.hosts})
    if not hosts:
        return words.say("environment.unknown")
    return words.say("environment.counted", count=len(hosts), names=words.join_names(hosts))


def _machine(data: ReportData, words: Words, facts: Facts) -> str:
    memory = facts.get("memtotal_mb")
    kind = "virtual" if data.virtual or data.own_cores else "bare"
    processor = [str(facts[name]) for name in ("processor_model", "architecture") if facts.get(name)]
    return words.say(
        f"environment.machine_{kind}",
        cores=facts.get("processor_vcpus") or "?",
        processor=words.join(processor, "comma") or "?",
        memory=words.number(memory * 2.0**20, "B") if memory else "?",
    )


def _format_recorded(data: ReportData, name: str, words: Words) -> Value:
    """Return a cell of the environment table: one value, or each with its hosts.

    Records replace the missing facts of an imported run; only they know the NCCL that ranks loaded.
    """
    recorded = data.stack.get(_IN_RECORDS.get(name, "")) if not data.facts or name == "NCCL" else None
    if recorded is not None and not (data.facts and isinstance(recorded, Mapping)):
        return words.fact(f"torch {recorded}" if name == "Frameworks" else str(recorded))
    none, ask = words.say("environment.none"), environment.CELLS[name]
    return _group(data.facts, lambda facts: words.fact(ask(facts) or "") or none, words)


def _group(facts: Mapping[str, Facts], ask: Callable[[Facts], str], words: Words) -> Value:
    if not facts:
        return words.say("environment.unknown")
    hosts = grouped((ask(host_facts), host) for host, host_facts in facts.items())
    if len(hosts) == 1:
        return next(iter(hosts))
    return Lines(
        words.say("environment.of", value=value, hosts=words.join_names(names))
        for value, names in hosts.items()
    )
