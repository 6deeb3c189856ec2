"""NVIDIA: driver, its library, kernel headers, compute mode, and GPUs for all slots."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hvlab.checks.replies import HostReplies
from hvlab.checks.site import HostFault, Site
from hvlab.doctor import reading

_GPUS = "gpus"
_MODES = "gpu modes"
_PROCESSES = "gpu processes"
_LOADER = "loader"
_KERNEL = "kernel"
_HEADERS = "kernel headers"
_DKMS = "dkms"
# GPUDirect Storage, which DKMS builds also where the driver's own modules come built.
_STORAGE = "/var/lib/dkms/nvidia-fs"
_RELEASE = re.compile(r"[0-9]{1,3}\.[0-9]{1,4}[\w.+~-]{0,80}")


def questions(site: Site) -> dict[str, dict[str, Any]]:
    """Ask hosts about their GPUs where any host of the lab should have some."""
    if not any(host.gpu for host in site.hosts):
        return {}
    asked: dict[str, dict[str, Any]] = {
        _GPUS: _smi("-L"),
        _MODES: _smi("--query-gpu=pci.bus_id,index,compute_mode", "--format=csv,noheader"),
        _PROCESSES: _smi("--query-compute-apps=gpu_bus_id,pid", "--format=csv,noheader"),
        _LOADER: {"run": ["ldconfig", "-p"], "timeout": 10},
        _KERNEL: {"run": ["uname", "-r"], "timeout": 5},
        _HEADERS: {"stat": "/lib/modules/*/build/Makefile"},
        _DKMS: {"stat": "/var/lib/dkms/nvidia*"},
    }
    return asked


def _smi(*options: str) -> dict[str, Any]:
    return {"run": ["nvidia-smi", *options], "timeout": 30, "queue": "nvidia"}


def faults(site: Site, every: Mapping[str, HostReplies]) -> Iterator[HostFault]:
    """Judge the hosts that the inventory says have GPUs."""
    for host in site.hosts:
        if host.gpu and host.name in every:
            yield from _one(host.name, host.slots, every[host.name])


def _one(name: str, slots: int, replies: HostReplies) -> Iterator[HostFault]:
    failed = replies.failed(_GPUS)
    root = reading.root(failed.splitlines()) if failed else None
    if failed and root:
        yield HostFault(root.cause.id, name, " ".join(failed.split())[:200])
    kernel, headers = replies.output(_KERNEL).strip(), replies.paths(_HEADERS)
    if (
        _RELEASE.fullmatch(kernel)
        and {*replies.paths(_DKMS)} - {_STORAGE}
        and f"/lib/modules/{kernel}/build/Makefile" not in headers
    ):
        others = (
            ", ".join(path.split("/")[-3] for path in headers if path.startswith("/lib/modules/")) or "none"
        )
        observed = f"the kernel is {kernel}, headers are there of {others}, and DKMS builds the driver"
        yield HostFault("kernel-headers", name, observed)
    gpus = re.findall(r"^GPU \d+:", replies.output(_GPUS), re.M)
    if not gpus:
        return
    if len(gpus) < slots and "MIG" not in replies.output(_GPUS):
        yield HostFault(
            "invalid-ordinal", name, f"{len(gpus)} GPU{'s' * (len(gpus) != 1)} for {slots} slots (lab_slots)"
        )
    if replies.output(_LOADER) and "libcuda.so.1 " not in replies.output(_LOADER):
        yield HostFault("libcuda-missing", name, "nvidia-smi works, but ldconfig -p has no libcuda.so.1")
    taken = list(_taken(replies))
    if taken:
        yield HostFault("gpu-busy", name, "; ".join(taken))


def _taken(replies: HostReplies) -> Iterator[str]:
    """Yield the GPUs that take no further process. An exclusive one without a process takes its rank."""
    processes = dict(re.findall(r"^(\S+), (\d+)$", replies.output(_PROCESSES), re.M))
    for bus, gpu, mode in re.findall(r"^(\S+), (\d+), (\w+)$", replies.output(_MODES), re.M):
        if mode == "Prohibited":
            yield f"GPU {gpu} is in compute mode Prohibited"
        elif mode.startswith("Exclusive") and bus in processes:
            yield f"GPU {gpu} is in compute mode {mode}, and process {processes[bus]} has it"
