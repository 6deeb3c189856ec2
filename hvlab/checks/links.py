"""What a host's GPU links can carry, from the readings of its checks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hvlab.analysis import ceiling
from hvlab.results.configurations import Configuration

# The rate of a PCIe generation's lanes, in GT/s.
_RATES = {1: "2.5", 2: "5.0", 3: "8.0", 4: "16.0", 5: "32.0", 6: "64.0"}


def capacity(readings: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``allreduce_ceiling``, in GB/s of an allreduce over all GPUs of a host; empty if not known.

    ``most`` is the upper bound of figures, ``usual`` the least that large messages usually reach,
    ``text`` the ring's and the link.
    """
    gpus = readings.get("gpus") or []
    links = readings.get("nvlink_count")
    own: dict[str, Any] = {"gpus": [{"name": gpu.get("model"), "pcie": _pcie(gpu)} for gpu in gpus]}
    if links is not None:
        own["topology"] = {"nvlinks": links} if links else {"link": "PCIe"}
    one = Configuration("allreduce", "", "", ("host",), len(gpus), (("device", "cuda"),))
    facts = {"host": {"hvlab": own}}
    top, highest = ceiling.ceiling(one, facts), ceiling.ceiling(one, facts, reached=math.inf)
    if isinstance(top, str) or isinstance(highest, str):
        return {}
    return {
        "allreduce_ceiling": {
            "most": highest.most,
            "usual": top.busbw * top.limit.usual,
            "ring": top.busbw,
            "text": f"{top.busbw:.3g} GB/s that a ring can do over {top.limit.text}",
        }
    }


def _pcie(gpu: Mapping[str, Any]) -> str:
    rate, width = _RATES.get(int(gpu.get("pcie_generation_max") or 0)), gpu.get("pcie_width")
    return f"{rate} x{width:g}" if rate and width else ""
