"""NVIDIA's driver: matches the inventory, is in use, its library and headers; and GPUs for all slots."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hvlab.checks.provisioned import Question, Role, RoleHost, read, run, stat
from hvlab.checks.site import HostFault, HostReplies, Site
from hvlab.doctor import reading

_GPUS = "gpus"
_MODES = "gpu modes"
_PROCESSES = "gpu processes"
_LOADER = "loader"
_KERNEL = "kernel"
_HEADERS = "kernel headers"
_DKMS = "dkms"
# GPUDirect Storage: DKMS builds it even if the driver's own modules are prebuilt.
_STORAGE = "/var/lib/dkms/nvidia-fs"
_RELEASE = re.compile(r"[0-9]{1,3}\.[0-9]{1,4}[\w.+~-]{0,80}")


# Faults that a comparison of hosts shows, and the role that fixes each.
FAULTS = {"kernel-headers": "", "invalid-ordinal": "", "libcuda-missing": "", "gpu-busy": ""}


def questions(site: Site) -> dict[str, dict[str, Any]]:
    """Ask all hosts about GPUs if any host of the lab should have some."""
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
    """Judge the hosts that have GPUs according to the inventory."""
    for host in site.hosts:
        if host.gpu and host.name in every:
            yield from _judge_host(host.name, host.slots, every[host.name])


def _judge_host(name: str, slots: int, replies: HostReplies) -> Iterator[HostFault]:
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
        observed = f"the kernel is {kernel}, there are headers of {others}, and DKMS builds the driver"
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
    taken = list(_find_taken(replies))
    if taken:
        yield HostFault("gpu-busy", name, "; ".join(taken))


def _find_taken(replies: HostReplies) -> Iterator[str]:
    """Yield the GPUs that accept no further process. An exclusive one without a process accepts its rank."""
    processes = dict(re.findall(r"^(\S+), (\d+)$", replies.output(_PROCESSES), re.M))
    for bus, gpu, mode in re.findall(r"^(\S+), (\d+), (\w+)$", replies.output(_MODES), re.M):
        if mode == "Prohibited":
            yield f"GPU {gpu} is in compute mode Prohibited"
        elif mode.startswith("Exclusive") and bus in processes:
            yield f"GPU {gpu} is in compute mode {mode}, and process {processes[bus]} has it"


AGAIN = "run role nvidia_driver"


def asks(node: RoleHost) -> dict[str, Question]:
    return {
        "dkms": run(["dkms", "status"]),
        "kernels": stat("/boot/vmlinuz-*"),
        "modules": run(["find", "/lib/modules", "-name", "nvidia*.ko*"]),
        "loaded driver": read("/proc/driver/nvidia/version"),
        "modprobe.d": read("/etc/modprobe.d/hvlab-nvidia.conf"),
        "nvidia-smi": run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]),
        "fabric manager": run(["systemctl", "is-enabled", "nvidia-fabricmanager"]),
        "IMEX": run(["systemctl", "is-active", "nvidia-imex"]),
        "module of the subnet manager": stat("/sys/module/ib_umad"),
        "IMEX channel": stat("/dev/nvidia-caps-imex-channels/channel0"),
        "persistence daemon": run(["systemctl", "is-enabled", "nvidia-persistenced"]),
    }


ROLE = Role("nvidia_driver", asks, without="this host has no GPU driver")


@ROLE.check
def method_matches_the_inventory(node: RoleHost, fact: Mapping[str, Any]) -> None:
    requested = node.variables["nvidia_driver_method"]
    node.expect(
        fact["method"] == requested,
        f"the driver was installed by method {fact['method']}; the inventory asks for {requested}",
    )


@ROLE.check
def modules_are_built(node: RoleHost, fact: Mapping[str, Any]) -> None:
    if fact["method"] == "none" or not any("/" in module for module in fact["modules"]):
        return
    output = node.output("dkms", "install dkms, then run role nvidia_driver")
    lines = [
        line for line in output.splitlines() if line.startswith("nvidia") and str(fact["kernel"]) in line
    ]
    node.expect(
        any("installed" in line for line in lines),
        f"DKMS has built nothing for kernel {fact['kernel']}: {output}",
    )


def _numbers(release: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", release)]


@ROLE.check
def the_kernels_that_boot_next_have_a_module(node: RoleHost, fact: Mapping[str, Any]) -> None:
    if fact["method"] == "none" or not fact["version"]:
        return
    newer = [path.partition("vmlinuz-")[2] for path in node["kernels"]]
    newer = [kernel for kernel in newer if _numbers(kernel) > _numbers(fact["kernel"])]
    # Named as in NVIDIA's and the distributions' packages; the kernel has others: nvidiafb, nvidia_cspmu.
    module = r"/lib/modules/([^/]+)/\S*/nvidia(?:-current)?(?:-tesla(?:-\d+)?)?(?:-open)?[.]ko"
    paths = re.findall(module, node["modules"]["out"])
    bare = sorted(set(newer) - set(paths))
    node.expect(
        not bare,
        f"kernels without a module of the driver: {', '.join(bare)}; booted, they have no GPU",
        f"install their headers, then {AGAIN}; or remove these kernels",
    )


@ROLE.check
def nouveau_is_kept_out(node: RoleHost, fact: Mapping[str, Any]) -> None:
    if fact["method"] == "none" or not node.variables["nvidia_driver_nouveau_blacklisted"]:
        return
    texts = "".join(node["modprobe.d"].values())
    for name in ("nouveau", "nova_core", "nova_drm"):
        node.expect(f"blacklist {name}" in texts, f"{name} is not blacklisted in /etc/modprobe.d")


@ROLE.check
def installed_driver_is_in_use(node: RoleHost, fact: Mapping[str, Any]) -> None:
    if not fact["loaded"]:
        node.expect(fact["reason"], "the driver is not loaded, and no reason is recorded")
        return
    text = "".join(node["loaded driver"].values())
    match = re.search(r"\s(\d+\.\d+(\.\d+)?)\s", text)
    loaded = match[1] if match else "no version"
    node.expect(
        fact["version"] in (None, loaded),
        f"driver {loaded} is loaded, {fact['version']} is installed (Driver/library version mismatch)",
        f"{AGAIN}, or reboot the host",
    )
    node.output("nvidia-smi", f"{AGAIN}; see `dmesg` there")


@ROLE.check
def services(node: RoleHost, fact: Mapping[str, Any]) -> None:
    enabled = node["fabric manager"]["out"].strip() == "enabled"
    if fact["method"] != "none":
        node.expect(
            enabled == fact["fabric_manager"],
            f"the fabric manager is {'enabled' if enabled else 'disabled'}, unlike when the role ran",
        )
    daemon = node["persistence daemon"]["out"].strip()
    enabled = node.variables["nvidia_driver_persistence_enabled"]
    node.expect(
        fact["method"] == "none" or not enabled or daemon != "disabled", "the persistence daemon is disabled"
    )


@ROLE.check
def gpus_are_linked(node: RoleHost, fact: Mapping[str, Any]) -> None:
    if not fact["loaded"]:
        return
    if fact.get("subnet_manager"):
        node.expect(
            node["module of the subnet manager"],
            "ib_umad is not loaded, so NVLink has no subnet manager, and CUDA stops with error 802",
            f"`modprobe ib_umad mlx5_ib`, restart nvidia-fabricmanager, or {AGAIN}",
        )
    if fact.get("imex"):
        active = node["IMEX"]["out"].strip()
        node.expect(active == "active", f"nvidia-imex is {active}", "see `journalctl -u nvidia-imex` there")
        node.expect(
            node["IMEX channel"],
            "there is no /dev/nvidia-caps-imex-channels/channel0, so no program shares memory between hosts",
            "reboot the host: the driver makes it when its modules are loaded",
        )
