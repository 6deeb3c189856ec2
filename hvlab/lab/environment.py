"""The environment table of a report: the hosts as their facts describe them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hvlab.lab.pin_variables import BUILD_ROLES

NONE = "none"
Facts = Mapping[str, Any]


@dataclass(frozen=True)
class EnvironmentRow:
    """One line of the table: each value with the hosts that have it."""

    name: str
    values: Mapping[str, tuple[str, ...]]

    @property
    def text(self) -> str:
        """Return the value once when all hosts have it, else each with its hosts."""
        if len(self.values) == 1:
            return next(iter(self.values))
        return "; ".join(f"{value} ({', '.join(hosts)})" for value, hosts in self.values.items())


def table(facts: Mapping[str, Facts]) -> tuple[EnvironmentRow, ...]:
    """Return the rows, in the order of a report; a missing component is "none"."""
    rows = [EnvironmentRow("Servers", {str(len(facts)): tuple(facts)})]
    for name, cell in CELLS.items():
        values: dict[str, tuple[str, ...]] = {}
        for host, of_host in facts.items():
            value = cell(of_host) or NONE
            values[value] = (*values.get(value, ()), host)
        rows.append(EnvironmentRow(name, values))
    return tuple(rows)


def hardware(facts: Facts) -> dict[str, str | None]:
    """Return a host's hardware, drivers and NVIDIA libraries for a record.

    The installed NCCL need not be the one that ranks load: theirs is ``nccl``, which the programs report.
    """
    return {
        "nics": nics(facts),
        "nic_driver": nic_driver(facts),
        "gpus": gpus(facts),
        "link": link(facts),
        "driver": driver(facts),
        "cuda": _host_facts(facts).get("cuda"),
        "cudnn": _host_facts(facts).get("cudnn"),
        "nccl_installed": nccl(facts),
        "mpi_cuda": mpi_cuda(facts),
        "gpudirect": (_host_facts(facts).get("rdma") or {}).get("way"),
    }


def nics(facts: Facts) -> str | None:
    """Return model, number and speed of the network cards; the interfaces of a host that has no card."""
    cards = (
        f"{nic.get('model') or nic.get('driver') or 'unknown model'}, {format_speed(nic.get('speed_mbit'))}"
        for nic in _host_facts(facts).get("nics") or []
    )
    return _format_counts(cards) or _join(
        f"virtual interface {name}"
        for name, link in (_host_facts(facts).get("interfaces") or {}).items()
        if link.get("cidrs")
    )


def format_speed(megabits: int | None) -> str:
    """Return a speed in words."""
    if megabits is None:
        return "no link speed"
    return f"{megabits / 1000:g} Gbit/s" if megabits >= 1000 else f"{megabits} Mbit/s"  # noqa: PLR2004


def nic_driver(facts: Facts) -> str | None:
    """Return the network cards' drivers, with their version where that is not the kernel's."""
    cards = [nic for nic in _host_facts(facts).get("nics") or [] if nic.get("driver")]
    return _join(f"{nic['driver']} {nic.get('driver_version') or ''}".strip() for nic in cards)


def gpus(facts: Facts) -> str | None:
    """Return model, number and memory of the GPUs."""
    return _format_counts(map(_gpu, _host_facts(facts).get("gpus") or []))


def link(facts: Facts) -> str | None:
    """Return the links between one host's GPUs; None for one GPU or none."""
    return (_host_facts(facts).get("topology") or {}).get("link")


def driver(facts: Facts) -> str | None:
    """Return the version of the loaded GPU driver."""
    version = _host_facts(facts).get("driver")
    return f"{version} (open modules)" if version and _host_facts(facts).get("open_modules") else version


def nccl(facts: Facts) -> str | None:
    """Return NCCL's version, with the CUDA release it was built for where a package tells."""
    packages = _host_facts(facts).get("packages") or {}
    version: str | None = (
        packages.get("libnccl2") or packages.get("libnccl") or _host_facts(facts).get("nccl")
    )
    return version


def mpi(facts: Facts) -> str | None:
    """Return Open MPI's version, its CUDA flag, and the UCX it was built with."""
    recorded = read_role_record(facts, "openmpi")
    if not recorded.get("version"):
        return None
    version = recorded["version"]
    if recorded.get("method") == "distro":
        packages = _host_facts(facts).get("packages") or {}
        named = packages.get("openmpi-bin") or packages.get("openmpi") or ""
        # Without an epoch and the package's own revision.
        version = f"{named.rpartition(':')[2].partition('-')[0]} ({version})".strip()
    ucx = f", UCX {recorded['ucx']}" if recorded.get("ucx") else ""
    return f"Open MPI {version}, {'with' if recorded.get('cuda') else 'without'} CUDA{ucx}"


def mpi_cuda(facts: Facts) -> str | None:
    """Return yes or no: whether Open MPI takes GPU memory; None without Open MPI."""
    recorded = read_role_record(facts, "openmpi")
    return ("yes" if recorded.get("cuda") else "no") if recorded.get("version") else None


def frameworks(facts: Facts) -> str | None:
    """Return the frameworks with their versions and builds, and Python's."""
    recorded = read_role_record(facts, "python_env")
    names = [
        f"{item['framework']} {item.get('version')}" + (f" ({item['build']})" if item.get("build") else "")
        for item in (recorded.get("environments") or {}).values()
    ]
    if recorded.get("torch"):
        names.append(f"torch {recorded['torch']}")
    return _join([*names, *([f"Python {recorded['python']}"] if recorded.get("python") else [])])


def horovod(facts: Facts) -> str | None:
    """Return Horovod's version and the operations of each of its builds."""
    recorded = read_role_record(facts, "horovod")
    builds = (
        f"{name}: {', '.join(item.get('operations') or [])}"
        for name, item in (recorded.get("variants") or {}).items()
    )
    return f"{recorded['version']} ({'; '.join(builds)})" if recorded.get("version") else None


def gpudirect(facts: Facts) -> str | None:
    """Return the way GPU memory reaches the network without a copy, or the reason why it cannot."""
    rdma = _host_facts(facts).get("rdma") or {}
    reason = rdma.get("gdr_reason")
    return rdma.get("way") or (f"{NONE}: {reason}" if reason else None)


def _gpu(gpu: Mapping[str, Any]) -> str:
    name = gpu.get("name") or f"NVIDIA device {gpu.get('pci_device')}"
    return f"{name}, {gpu['memory_mib'] / 1024:.0f} GiB" if gpu.get("memory_mib") else str(name)


def _os(facts: Facts) -> str:
    return f"{facts.get('distribution')} {facts.get('distribution_version')}"


def _host_facts(facts: Facts) -> Mapping[str, Any]:
    return facts.get("hvlab") or {}


def read_role_record(facts: Facts, role: str) -> Mapping[str, Any]:
    """Return a role's record on a host; an empty one if the role never ran."""
    recorded = (facts.get("ansible_local") or {}).get(f"hvlab_{role}")
    return recorded if isinstance(recorded, Mapping) else {}


def components(facts: Facts) -> dict[str, str]:
    """Return the recorded versions of what can lie beside another of its kind, by the names of pins."""
    built, environments = read_role_record(facts, "horovod"), read_role_record(facts, "python_env")
    frameworks = {
        item["framework"]: item.get("version") for item in (environments.get("environments") or {}).values()
    }
    given = {
        "openmpi": read_role_record(facts, "openmpi").get("version"),
        "horovod": built.get("version"),
        "python": environments.get("python"),
        **frameworks,
    }
    return {name: str(version) for name, version in given.items() if version}


def of_stack(facts: Facts, name: str) -> Facts:
    """Return a host's facts with what the roles recorded of a stack beside the lab's own, if it is named.

    Their records have its name behind an @.
    """
    if not name:
        return facts
    recorded = facts.get("ansible_local") or {}
    roles = {f"hvlab_{role}": recorded.get(f"hvlab_{role}@{name}") for role in BUILD_ROLES}
    return {**facts, "ansible_local": {**recorded, **roles}}


def _format_counts(items: Iterable[str]) -> str | None:
    return "; ".join(f"{count} x {item}" for item, count in Counter(items).items()) or None


def _join(items: Iterable[str]) -> str | None:
    return "; ".join(dict.fromkeys(items)) or None


def stack(facts: Mapping[str, Mapping[str, Any]], variant: str) -> dict[str, Any]:
    """Return the stack that a record keeps: versions that are the same everywhere, by host where not."""
    rows = {host: _versions(of_host, variant) for host, of_host in facts.items()}
    keys = dict.fromkeys(key for row in rows.values() for key in row)
    by_host = {key: {host: row.get(key) for host, row in rows.items()} for key in keys}
    return {
        key: next(iter(values.values())) if len(set(values.values())) == 1 else values
        for key, values in by_host.items()
    }


def _versions(facts: Mapping[str, Any], variant: str) -> dict[str, Any]:
    built = read_role_record(facts, "horovod")
    horovod = (built.get("variants") or {}).get(variant) or {}
    packages = (facts.get("hvlab") or {}).get("packages") or {}
    environments = read_role_record(facts, "python_env").get("environments") or {}
    versions = {
        "os": _os(facts),
        "kernel": facts.get("kernel"),
        "architecture": facts.get("architecture"),
        "cpus": facts.get("processor_vcpus"),
        "gcc": (facts.get("hvlab") or {}).get("gcc"),
        "openmpi": read_role_record(facts, "openmpi").get("version"),
        "horovod": horovod.get("version") or built.get("version"),
        **{item["framework"]: item["version"] for item in environments.values()},
        "libfabric": packages.get("libfabric1"),
        **hardware(facts),
    }
    return {key: value for key, value in versions.items() if value is not None}


CELLS: Mapping[str, Callable[[Facts], str | None]] = {
    "NIC": nics,
    "GPU": gpus,
    "GPU link": link,
    "OS": lambda facts: f"{_os(facts)}, Linux {facts.get('kernel')}",
    "GPU driver": driver,
    "NIC driver": nic_driver,
    "Frameworks": frameworks,
    "CUDA": lambda facts: _host_facts(facts).get("cuda"),
    "cuDNN": lambda facts: _host_facts(facts).get("cudnn"),
    "NCCL": nccl,
    "MPI": mpi,
    "Horovod": horovod,
    "GPUDirect RDMA": gpudirect,
}
