"""NVIDIA's Xids as data: what each means, whether the node is still fit, what to do.

Meaning and action come from NVIDIA's catalogue as of October 2025
(https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html) and, for what it calls unused today,
from its table for older GPUs. The severity follows from the action: reset or reboot is hard, support is soft,
an error of the application is none. Kept apart from that:

- 48 is hard: NVIDIA's node checks call it critical
  (https://docs.nvidia.com/health-validation/reference/checks/xid.md).
- 63 and 156 ask for a reset some day; until then work goes on. What is pending shows in
  ``gpu row remapping``.
- 57 and 58, of older GPUs, and 74 are hard because Azure's node health check fails on them
  (https://github.com/Azure/azurehpc-health-checks, customTests/azure_gpu_xid.nhc).
- 144 to 150 say themselves whether they are fatal; 154 names the action that the driver asks for.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Tuple


class Xid(NamedTuple):
    """``none``, ``soft``, ``hard`` or ``line`` (the message decides); the meaning; a key of ``ACTIONS``."""

    severity: str
    meaning: str
    action: str


# The kernel log keeps it after a reset.
_COUNTS = " (the fault counts until the driver is loaded again, or the node rebooted)"

ACTIONS: Dict[str, str] = {
    "ignore": "nothing to do",
    "application": "look at the program that ran: a bug of its own is the usual cause",
    "restart": "start the program again; if it comes back, run dcgmi diag -r 3 and ask NVIDIA's support",
    "support": "run dcgmi diag -r 3; if it comes back, ask NVIDIA's support",
    "reset": "stop its jobs, reset the GPU (nvidia-smi --gpu-reset -i INDEX); if it comes back, replace it"
    + _COUNTS,
    "reboot": "reboot the node; if it comes back, reseat the GPU, then replace it",
    "cables": "power the node off and look at the GPU's power cables",
    "nvlink": "stop all jobs on the node and reset all GPUs; if it comes back, have the links repaired"
    + _COUNTS,
    "driver": "update the driver",
}

_GROUPS: Tuple[Tuple[str, str, Dict[Tuple[int, ...], str]], ...] = (
    (
        "none",
        "application",
        {
            (11, 32): "invalid or corrupted push buffer stream",
            (13,): "exception of the graphics engine",
            (25,): "invalid or illegal push buffer stream",
            (31,): "GPU memory page fault",
            (43,): "GPU stopped processing for one program",
            (45,): "channels cleaned up after an earlier error, or a program that was killed",
            (69,): "class error of the graphics engine",
            (80,): "corrupted data sent to the GPU",
        },
    ),
    (
        "none",
        "ignore",
        {
            (63,): "a memory row or page is marked for replacement at the next reset",
            (106, 107): "test message of the management controller",
            (162,): "power smoothing hardware engaged again",
            (171, 172): "detail of an Xid 48",
        },
    ),
    (
        "soft",
        "restart",
        {
            (8,): "GPU stopped processing",
            (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136)): "error of a copy engine",
            (60, 65, 68, 73, 83, 84, 88, 89, 96, 97, 98, 142): "error of a video engine",
            (82, *range(99, 106)): "error of a JPEG engine",
            (86, 139): "error of an optical flow engine",
            (94,): "uncorrected memory error, contained: only the program that met it is affected",
        },
    ),
    (
        "soft",
        "support",
        {
            (37, 38): "error of the driver's firmware",
            (44,): "fault during a context switch",
            (56,): "error of the display engine",
            (61,): "warning of an internal micro-controller",
            (66, 67): "illegal access by the driver",
            (81,): "error of the VGA subsystem",
            (92,): "many corrected memory errors",
            (93,): "infoROM is written too often",
            (121,): "error of the link between chips",
            (137,): "NVLink privilege error",
            (141,): "error on CUDA's fast path",
            (152, 153): "error of the deep learning accelerator",
            (157, 161): "retirement of a resource failed",
            (159,): "error of the coherent interface",
            (160,): "channel retired",
            (163, 164, 165): "power smoothing hardware at its end",
            (166, 170): "error of encrypted NVLink",
            (167,): "fatal timeout on PCIe",
            (168,): "less GPU memory, because of errors in it",
            (169,): "an internal micro-controller halted",
        },
    ),
    ("soft", "driver", {(78,): "vGPU did not start"}),
    ("soft", "reset", {(156,): "a resource is marked for retirement at the next reset"}),
    (
        "hard",
        "reset",
        {
            (46,): "GPU stopped processing",
            (48,): "double bit ECC error",
            (57, 58): "error of the interface to GPU memory",
            (62,): "an internal micro-controller halted",
            (64,): "a memory row or page could not be replaced",
            (95,): "uncorrected memory error, not contained: any program may be affected",
            (109,): "timeout of a context switch",
            (110,): "security fault",
            (119,): "the GPU's system processor (GSP) does not answer",
            (120,): "error of the GPU's system processor (GSP)",
            (136,): "training of a link failed",
            (140,): "uncorrected ECC error",
            (143,): "the GPU could not be initialized",
            (155,): "NVLink error, defined by software",
            (158,): "fatal timeout of the GPU",
        },
    ),
    ("hard", "reboot", {(79,): "GPU has fallen off the bus", (151,): "key rotation failed"}),
    ("hard", "cables", {(54,): "auxiliary power is not connected"}),
    ("hard", "nvlink", {(74,): "NVLink error"}),
    ("line", "nvlink", {tuple(range(144, 151)): "NVLink 5 error"}),
    ("line", "reset", {(154,): "the action which the driver asks for has changed"}),
)

XIDS: Dict[int, Xid] = {
    code: Xid(severity, meaning, action)
    for severity, action, meanings in _GROUPS
    for codes, meaning in meanings.items()
    for code in codes
}

UNKNOWN = Xid("soft", "not in the table", "support")

# What Xid 154 asks for, as the driver words it.
RECOVERY: Dict[str, str] = {
    "GPU Reset Required": ACTIONS["reset"],
    "Node Reboot Required": ACTIONS["reboot"],
    "Drain P2P": "stop all jobs that move data between GPUs, then look again",
    "Drain and Reset": "let the jobs on the GPU end, then reset it (nvidia-smi --gpu-reset -i INDEX)",
}
