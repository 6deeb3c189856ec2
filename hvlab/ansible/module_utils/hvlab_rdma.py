# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""RDMA devices, whether GPU memory can be sent through them without a copy (GPUDirect RDMA), and UCX.

``root`` is where the host's files begin, "" on the host itself.
"""

from __future__ import annotations

import glob
import os
import platform
import re
from typing import Any

from ansible.module_utils import hvlab_gpu, hvlab_kernel
from ansible.module_utils.hvlab_probe import read

MODULES = ("nvidia_peermem", "nv_peer_mem")
# Peer modules register with this: the card maker's ib_core has it, the kernel's own lacks it.
_PEER_API = "ib_register_peer_memory_client"
# What a ConnectX-8 beside a GPU of Grace Blackwell reads its memory through: by translated addresses, with
# ACS as `rdma_topo check` has it (NVIDIA's "Grace Blackwell with CX8 GPUDirect RDMA Guide").
_DATA_DIRECT = ("15b3", "2100")
# In the vital product data of the ConnectX-7 that manage the NVSwitches of HGX B200 and B300.
_SWITCH_MANAGEMENT = b"SW_MNG"
# Library folders of the distributions and of NVIDIA's DOCA-OFED.
LIBRARY_FOLDERS = ("/usr/lib64", "/usr/lib/*-linux-gnu", "/usr/lib")
HEADER = "/usr/include/ucp/api/ucp_version.h"


def rdma(gpus: list[dict[str, Any]] | None, root: str = "") -> dict[str, Any]:
    """Return the RDMA devices, and how GPUDirect stands: ``way`` is peer_memory, dma_buf or None."""
    cards = devices(root)
    present = {"devices": cards, "peer_memory": peer_memory(root), "dma_buf": has_dma_buf(root)}
    if not cards or not gpus:
        return dict(present, way=None, gdr_reason=reason(gpus, cards, None, present))
    addresses = [gpu["pci"] for gpu in gpus] + [card["pci"] for card in cards]
    direct = has_data_direct(root)
    paths = {
        "peer_api": _PEER_API in (read(root + "/proc/kallsyms") or ""),
        "iommu": None if direct else iommu([gpu["pci"] for gpu in gpus], root),
        "acs": [] if direct else hvlab_kernel.redirecting(addresses, root),
    }
    present = dict(present, **paths)
    why = reason(gpus, cards, hvlab_gpu.driver(root), present)
    return dict(present, way=None if why else way(present), gdr_reason=why)


def way(rdma_facts: dict[str, Any]) -> str | None:
    """Return the way to register GPU memory; the kernel's DMA-BUF needs no extra module."""
    if rdma_facts["dma_buf"]:
        return "dma_buf"
    loadable = rdma_facts["peer_memory"] == "available" and rdma_facts.get("peer_api")
    return "peer_memory" if rdma_facts["peer_memory"] == "loaded" or loadable else None


def reason(
    gpus: list[dict[str, Any]] | None,
    cards: list[dict[str, Any]],
    driver: str | None,
    rdma_facts: dict[str, Any],
) -> str | None:
    """Return the first reason why GPUDirect RDMA is not available; None if it is."""
    lacks_module = "driver {} has no nvidia_peermem, and its modules are not the open ones".format(driver)
    lacks_api = "the RDMA drivers have no {}, which nvidia_peermem needs".format(_PEER_API)
    iommu_kind, bridges = rdma_facts.get("iommu"), rdma_facts.get("acs") or []
    faults = (
        (not gpus, "no NVIDIA GPU"),
        (not cards, "no RDMA NIC"),
        (all(card["state"] != "ACTIVE" for card in cards), "no port of an RDMA NIC is active"),
        (driver is None, "the NVIDIA driver is not loaded"),
        (not way(rdma_facts), lacks_api if rdma_facts["peer_memory"] else lacks_module),
        (iommu_kind, "the IOMMU translates addresses ({}): boot with {}".format(iommu_kind, passthrough())),
        (bridges, "ACS redirects peer traffic at {}: switch it off there".format(", ".join(bridges))),
    )
    return next((text for applies, text in faults if applies), None)


def devices(root: str = "") -> list[dict[str, Any]]:
    """Return the RDMA devices that carry data, with the state of their first port."""
    rows = []
    for path in sorted(glob.glob(root + "/sys/class/infiniband/*")):
        if manages_switches(path):
            continue
        port = path + "/ports/1/"
        interfaces = sorted(os.listdir(path + "/device/net")) if os.path.isdir(path + "/device/net") else []
        rows.append(
            {
                "name": os.path.basename(path),
                "netdev": interfaces[0] if interfaces else None,
                "link_layer": read(port + "link_layer"),
                "state": (read(port + "state") or "").partition(":")[2].strip() or None,
                "rate": read(port + "rate"),
                "pci": os.path.basename(os.path.realpath(path + "/device")),
            }
        )
    return rows


def manages_switches(path: str) -> bool:
    """Whether an RDMA device manages NVSwitches: NCCL and MPI send nothing through it."""
    try:
        with open(path + "/device/vpd", "rb") as file:
            return _SWITCH_MANAGEMENT in file.read(32768)
    except OSError:
        return False


def has_data_direct(root: str = "") -> bool:
    """Whether adapters reach the GPUs through functions of their own (Data Direct)."""
    return any((each["vendor"], each["device"]) == _DATA_DIRECT for each in hvlab_kernel.devices(root))


def passthrough() -> str:
    """Return the kernel's parameter by which devices use physical addresses."""
    return "iommu.passthrough=1" if platform.machine() == "aarch64" else "iommu=pt"


def peer_memory(root: str = "") -> str | None:
    """Return ``loaded``, ``available`` or None: the module that lends GPU memory to RDMA NICs."""
    running = hvlab_kernel.list_modules(root)
    if any(name in running for name in MODULES):
        return "loaded"
    if "nvidia" not in running:
        return None
    return "available" if any(hvlab_kernel.is_on_disk(name, root) for name in MODULES) else None


def has_dma_buf(root: str = "") -> bool:
    """Whether kernel (5.12) and driver (open modules, 515) can share GPU memory as DMA-BUF."""
    release = tuple(map(int, re.findall(r"\d+", platform.release())[:2]))
    return release >= (5, 12) and hvlab_gpu.has_open_modules(root) is True


def iommu(addresses: list[str], root: str = "") -> str | None:
    """Return the kind of address translation these devices are behind; None for none (or iommu=pt)."""
    for address in addresses:
        kind = read("{}/sys/bus/pci/devices/{}/iommu_group/type".format(root, address))
        if kind not in (None, "identity"):
            return str(kind)
    return None


def ucx(root: str = "") -> dict[str, Any] | None:
    """Whether programs can be built with the host's UCX, and whether it takes GPU memory.

    None on a host without UCX. CUDA support is a separate module, which distributions leave out.
    """
    folders = [
        os.path.dirname(path) for name in LIBRARY_FOLDERS for path in glob.glob(root + name + "/libucp.so.0")
    ]
    if not folders:
        return None
    return {
        "headers": os.path.isfile(root + HEADER),
        "cuda": any(glob.glob(folder + "/ucx/libuct_cuda.so*") for folder in folders),
    }
