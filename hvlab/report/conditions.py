"""Under which conditions a run was made: the lab sheet's environment table, the software, the workloads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from hvlab.lab import environment
from hvlab.report import labels
from hvlab.report.blocks import (
    NOTHING,
    Code,
    Column,
    Fact,
    Number,
    Say,
    Several,
    Table,
    Value,
)
from hvlab.report.data import ReportData
from hvlab.results.configurations import Configuration, Repeats
from hvlab.workloads import contention

Facts = Mapping[str, Any]
_HARDWARE = Say("environment.hardware")
_SOFTWARE = Say("environment.software")
# The rows of the lab sheet: their words, and which cells of hvlab.environment fill them.
SHEET: tuple[tuple[Say, str, tuple[str, ...]], ...] = (
    (_HARDWARE, "nic", ("NIC",)),
    (_HARDWARE, "gpu", ("GPU",)),
    (_HARDWARE, "gpu_link", ("GPU link",)),
    (_SOFTWARE, "os", ("OS",)),
    (_SOFTWARE, "driver", ("GPU driver", "NIC driver")),
    (_SOFTWARE, "framework", ("Frameworks",)),
    (_SOFTWARE, "cuda", ("CUDA",)),
    (_SOFTWARE, "nccl", ("NCCL",)),
)
_PARTS = {"GPU driver": "environment.of_gpu", "NIC driver": "environment.of_nic"}
# Which part of a record's stack stands for a missing fact.
_IN_RECORDS = {
    "NIC": "nics", "GPU": "gpus", "GPU link": "link", "OS": "os", "GPU driver": "driver",
    "NIC driver": "nic_driver", "CUDA": "cuda", "NCCL": "nccl", "MPI": "openmpi", "Horovod": "horovod",
    "cuDNN": "cudnn",
}  # fmt: skip
# Parts of the stack that the tables show from facts.
_SHOWN = frozenset((
    "os", "kernel", "architecture", "cpus", "nics", "nic_driver", "gpus", "link", "driver", "cuda", "cudnn",
    "nccl", "mpi_cuda", "gpudirect", "openmpi", "horovod", "cores", "oversubscribed",
))  # fmt: skip
_MORE = ("MPI", "Horovod", "cuDNN", "GPUDirect RDMA")


def sheet(data: ReportData) -> Table:
    """Return the environment table with the rows of the lab sheet, in its order."""
    rows: list[tuple[Value, ...]] = [(_HARDWARE, Say("environment.servers"), _servers(data.facts))]
    for part, name, parts in SHEET:
        values = [_recorded(data, cell) for cell in parts]
        if len(values) > 1:
            named = [Say(_PARTS[cell], {"value": value}) for cell, value in zip(parts, values, strict=True)]
            values = [Several(tuple(named), "list.line")]
        rows.append((part, Say(f"environment.{name}"), values[0]))
    columns = (Column(""), Column(""), Column(""))
    return Table("environment", Say("environment.caption"), columns, tuple(rows), merged=1, heads=False)


def warnings(data: ReportData) -> Iterator[Value]:
    """Yield what to bear in mind of all figures of a run."""
    if data.virtual:
        yield Say("environment.virtual")
    yield from (text for text in cores(data) if text.key in _DISTURBED)


def notes(data: ReportData) -> Iterator[Value]:
    """Yield what else is to be known of the hosts' cores."""
    yield from (text for text in cores(data) if text.key not in _DISTURBED)


def software(data: ReportData) -> Table:
    """Return what else is there of hardware and software: MPI, Horovod, processors."""
    rows: list[tuple[Value, ...]] = [(name, _recorded(data, name)) for name in _MORE]
    rows.insert(0, (Say("environment.machine"), _grouped(data.facts, partial(_machine, data))))
    rows += [
        (Code(name), Fact(str(value)))
        for name, value in data.stack.items()
        if name not in _SHOWN and not isinstance(value, Mapping)
    ]
    columns = (Column(Say("software.what")), Column(Say("software.version")))
    caption = Say("software.caption")
    return Table("software", caption, columns, tuple(rows), folded=caption)


def workloads(data: ReportData) -> Table:
    """Return what was run: for each workload its backends, shapes and parameters."""
    configurations: dict[str, dict[Configuration, Repeats]] = {}
    for configuration, repeats in data.configurations.items():
        configurations.setdefault(configuration.workload, {})[configuration] = repeats
    columns = (
        Column(Say("workloads.name")),
        Column(Say("workloads.backends")),
        Column(Say("workloads.shapes")),
        Column(Say("workloads.fixed"), text=True),
        Column(Say("workloads.varied"), text=True),
    )
    rows = tuple(
        (
            Code(name),
            labels.backends(sorted({configuration.backend for configuration in own}, key=labels.order)),
            _shapes(own),
            *_params(own),
        )
        for name, own in configurations.items()
    )
    caption = Say("workloads.caption")
    return Table("workloads", caption, columns, rows, note=Say("workloads.note"), folded=caption)


# Figures that are not those of a lab at rest.
_DISTURBED = ("environment.oversubscribed", "environment.stolen")


def cores(data: ReportData) -> Iterator[Say]:
    """Yield whether the hosts had cores of their own, which cases lacked some, and what others took."""
    if data.own_cores:
        yield Say("environment.own_cores")
    crowds = {
        record.case_id: str(record.stack["oversubscribed"])
        for record in data.records
        if "oversubscribed" in record.stack
    }
    values: dict[str, Value] = {"all": data.head.ok}
    if crowds:
        named = Several(tuple(dict.fromkeys(crowds.values())), "list.semicolon")
        yield Say("environment.oversubscribed", values | {"count": len(crowds), "crowds": named})
    taken = {
        record.case_id: record.value
        for record in data.records
        if record.metric == contention.METRIC and record.value is not None
    }
    much = {case: value for case, value in taken.items() if value >= contention.MUCH}
    values["all"] = len(taken)
    if much:
        worst = max(much, key=lambda case: much[case])
        values |= {"count": len(much), "limit": Number(contention.MUCH / 100, "share")}
        values |= {"case": Code(worst), "most": Number(much[worst] / 100, "share")}
        yield Say("environment.stolen", values)
    elif taken:
        yield Say("environment.not_stolen", values | {"most": Number(max(taken.values()) / 100, "share")})


def _params(configurations: Iterable[Configuration]) -> tuple[Value, Value]:
    """Return the parameters that are the same in all configurations, and those that are not."""
    values: dict[str, dict[str, None]] = {}
    for configuration in configurations:
        for name, value in configuration.params:
            if value is not None and name != "size_bytes":
                values.setdefault(name, {})[str(value)] = None
    fixed = [
        Code(f"{name}={next(iter(differing))}") for name, differing in values.items() if len(differing) == 1
    ]
    varied = [
        Code(f"{name}={','.join(differing)}") for name, differing in values.items() if len(differing) > 1
    ]
    return _several(fixed), _several(varied)


def _several(values: Iterable[Value]) -> Value:
    given = tuple(values)
    return Several(given, "list.space") if given else NOTHING


def _shapes(configurations: Iterable[Configuration]) -> Value:
    shapes = sorted({(len(configuration.hosts), configuration.slots) for configuration in configurations})
    return Several(tuple(labels.short(*shape) for shape in shapes))


def _servers(facts: Mapping[str, Facts]) -> Value:
    if not facts:
        return Say("environment.unknown")
    return Say("environment.counted", {"count": len(facts), "names": labels.hosts(list(facts))})


def _machine(data: ReportData, facts: Facts) -> Value:
    memory = facts.get("memtotal_mb")
    values: dict[str, Value] = {
        "cores": facts.get("processor_vcpus") or "?",
        "architecture": str(facts.get("architecture") or "?"),
        "memory": Number(memory * 2.0**20, "B") if memory else "?",
    }
    kind = "virtual" if data.virtual or data.own_cores else "bare"
    return Say(f"environment.machine_{kind}", values)


def _recorded(data: ReportData, name: str) -> Value:
    """Return a cell of the environment table: one value, or each with its hosts.

    An imported run has no facts; its records may say. The NCCL that ranks loaded is in the records alone.
    """
    recorded = data.stack.get(_IN_RECORDS.get(name, "")) if not data.facts or name == "NCCL" else None
    if recorded is not None and not (data.facts and isinstance(recorded, Mapping)):
        return Fact(str(recorded))
    ask = environment.CELLS[name]
    return _grouped(data.facts, lambda facts: Fact(text) if (text := ask(facts)) else Say("environment.none"))


def _grouped(facts: Mapping[str, Facts], ask: Callable[[Facts], Value]) -> Value:
    if not facts:
        return Say("environment.unknown")
    values: list[tuple[Value, list[str]]] = []
    for host, host_facts in facts.items():
        value = ask(host_facts)
        hosts = next((hosts for known, hosts in values if known == value), None)
        if hosts is None:
            values.append((value, [host]))
        else:
            hosts.append(host)
    if len(values) == 1:
        return values[0][0]
    texts = (Say("environment.of", {"value": value, "hosts": labels.hosts(hosts)}) for value, hosts in values)
    return Several(tuple(texts), "list.line")
