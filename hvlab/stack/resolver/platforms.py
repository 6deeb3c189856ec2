"""What a GPU or a host is beside its model, by its names: MIG slice, vGPU, HGX board, WSL2. Pure.

Sources: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/index.html (MIG: what programs can do),
https://docs.nvidia.com/vgpu/latest/grid-vgpu-user-guide/index.html (names of vGPU types),
https://docs.nvidia.com/cuda/wsl-user-guide/index.html (the driver is that of Windows).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# NVIDIA A100-SXM4-40GB MIG 1g.5gb
_MIG = re.compile(r"\bMIG\b|\b\d+g\.\d+gb\b", re.IGNORECASE)
# GRID A100-10C, NVIDIA A40-48Q, NVIDIA A100-4-20C, A100-1-5CME: memory in GB and the series of the licence.
_VGPU = re.compile(r"[A-Za-z0-9]-(\d+-)?\d+[ABCQ](ME|NOME|MEALL|GFX)?$")
# NVIDIA A100-SXM4-80GB, not SXM2, which came before NVSwitch; Hopper of these boards says HBM3 or nothing, of
# cards PCIe or NVL.
_BOARD = re.compile(
    r"\bSXM(?!2)\d?\b|\bH100 80GB HBM3$|\b(H800|H20-3e|(H200|H20|B200|B300)( \d+GB( HBM3e?)?)?)$"
)
VGPU, WSL = "vGPU", "WSL2"


def mig(name: str) -> bool:
    """Whether a GPU's name is that of a MIG slice."""
    return bool(_MIG.search(name))


def vgpu(name: str) -> bool:
    """Whether a GPU's name is that of a vGPU, as a guest sees it."""
    return bool(_VGPU.search(name.strip()))


def board(name: str) -> bool:
    """Whether a GPU is one of an HGX or DGX board that may have NVSwitches."""
    return not vgpu(name) and bool(_BOARD.search(name.strip()))


def wsl(kernel: str | None) -> bool:
    """Whether a kernel is that of the Windows Subsystem for Linux."""
    return "microsoft" in (kernel or "").lower()


def guest(kernel: str | None, gpus: Iterable[str]) -> str | None:
    """Return why a host's driver comes from outside (``WSL2``, ``vGPU``); None where it is the host's own."""
    if wsl(kernel):
        return WSL
    return VGPU if any(map(vgpu, gpus)) else None
