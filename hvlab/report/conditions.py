"""Under which conditions a run was made: the lab sheet's environment table, the software, the workloads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
from hvlab.results.configurations import Cell, Measured

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
# Where records tell what facts would have told.
_IN_RECORDS = {
    "NIC": "nics", "GPU": "gpus", "GPU link": "link", "OS": "os", "GPU driver": "driver",
    "NIC driver": "nic_driver", "CUDA": "cuda", "NCCL": "nccl", "MPI": "openmpi", "Horovod": "horovod",
    "cuDNN": "cudnn",
}  # fmt: skip
# What the rows from facts tell already.
_TOLD = frozenset((
    "os", "kernel", "architecture", "cpus", "nics", "nic_driver", "gpus", "link", "driver", "cuda", "cudnn",
    "nccl", "mpi_cuda", "gpudirect", "openmpi", "horovod",
))  # fmt: skip
_MORE = ("MPI", "Horovod", "cuDNN", "GPUDirect RDMA")


def sheet(data: ReportData) -> Table:
    """Return the environment table with the rows of the lab sheet, in its order."""
    rows: list[tuple[Value, ...]] = [(_HARDWARE, Say("environment.servers"), _servers(data.facts))]
    for part, name, asked in SHEET:
        values = [_found(data, cell) for cell in asked]
        if len(values) > 1:
            named = [Say(_PARTS[cell], {"value": value}) for cell, value in zip(asked, values, strict=True)]
            values = [Several(tuple(named), "list.line")]
        rows.append((part, Say(f"environment.{name}"), values[0]))
    columns = (Column(""), Column(""), Column(""))
    return Table("environment", Say("environment.caption"), columns, tuple(rows), merged=1, heads=False)


def software(data: ReportData) -> Table:
    """Return what else is there of hardware and software: MPI, Horovod, processors."""
    rows: list[tuple[Value, ...]] = [(name, _found(data, name)) for name in _MORE]
    rows.insert(0, (Say("environment.machine"), _grouped(data.facts, _machine)))
    rows += [
        (Code(name), Fact(str(value)))
        for name, value in data.stack.items()
        if name not in _TOLD and not isinstance(value, Mapping)
    ]
    columns = (Column(Say("software.what")), Column(Say("software.found")))
    return Table("software", Say("software.caption"), columns, tuple(rows))


def workloads(data: ReportData) -> Table:
    """Return what was run: for each workload its shapes, its parameters, and how many cases went well."""
    cells: dict[str, dict[Cell, Measured]] = {}
    for cell, measured in data.cells.items():
        cells.setdefault(cell.workload, {})[cell] = measured
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
            labels.backends(sorted({cell.backend for cell in found}, key=labels.order)),
            _shapes(found),
            *_params(found),
        )
        for name, found in cells.items()
    )
    return Table("workloads", Say("workloads.caption"), columns, rows, note=Say("workloads.note"))


def _params(cells: Iterable[Cell]) -> tuple[Value, Value]:
    """Return the parameters that are the same in all cells, and those that are not."""
    values: dict[str, dict[str, None]] = {}
    for cell in cells:
        for name, value in cell.params:
            if value is not None and name != "size_bytes":
                values.setdefault(name, {})[str(value)] = None
    fixed = [Code(f"{name}={next(iter(found))}") for name, found in values.items() if len(found) == 1]
    varied = [Code(f"{name}={','.join(found)}") for name, found in values.items() if len(found) > 1]
    return _several(fixed), _several(varied)


def _several(values: Iterable[Value]) -> Value:
    found = tuple(values)
    return Several(found, "list.space") if found else NOTHING


def _shapes(cells: Iterable[Cell]) -> Value:
    shapes = sorted({(len(cell.hosts), cell.slots) for cell in cells})
    return Several(tuple(labels.short(*shape) for shape in shapes))


def _servers(facts: Mapping[str, Facts]) -> Value:
    if not facts:
        return Say("environment.unknown")
    return Say("environment.counted", {"count": len(facts), "names": labels.hosts(list(facts))})


def _machine(facts: Facts) -> Value:
    memory = facts.get("memtotal_mb")
    values: dict[str, Value] = {
        "cores": facts.get("processor_vcpus") or "?",
        "architecture": str(facts.get("architecture") or "?"),
        "memory": Number(memory * 2.0**20, "B") if memory else "?",
    }
    kind = "container" if (facts.get("hvlab") or {}).get("container") else "bare"
    return Say(f"environment.machine_{kind}", values)


def _found(data: ReportData, name: str) -> Value:
    """Return a cell of the environment table: one value, or each with its hosts.

    A run that was read from elsewhere has no facts, but its records may tell.
    """
    told = data.stack.get(_IN_RECORDS.get(name, "")) if not data.facts else None
    if told is not None:
        return Fact(str(told))
    ask = environment.CELLS[name]
    return _grouped(data.facts, lambda found: Fact(text) if (text := ask(found)) else Say("environment.none"))


def _grouped(facts: Mapping[str, Facts], ask: Callable[[Facts], Value]) -> Value:
    if not facts:
        return Say("environment.unknown")
    values: list[tuple[Value, list[str]]] = []
    for host, found in facts.items():
        value = ask(found)
        hosts = next((hosts for known, hosts in values if known == value), None)
        if hosts is None:
            values.append((value, [host]))
        else:
            hosts.append(host)
    if len(values) == 1:
        return values[0][0]
    said = (Say("environment.of", {"value": value, "hosts": labels.hosts(hosts)}) for value, hosts in values)
    return Several(tuple(said), "list.line")
