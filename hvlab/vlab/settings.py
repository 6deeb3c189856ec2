"""What the last `up` set of each node and link, kept beside the lab for `status`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hvlab.vlab import files
from hvlab.vlab.limits import NodeLimits
from hvlab.vlab.plan import LabPlan

_FILE = "settings.json"


def write(plan: LabPlan, limits: Mapping[str, NodeLimits]) -> None:
    """Keep the limits of the plan's nodes; those of nodes that an earlier call booted stay."""
    kept = read(plan)
    for node in plan.nodes:
        link, own = plan.link(node.name), limits[node.name]
        rack = plan.topology.rack_of(node.name)
        kept[node.name] = {
            "memory": own.memory,
            "cpu_weight": own.weight,
            **vars(link),
            "pairs": plan.pairs(node.name),
            "rack": plan.topology.racks[rack - 1].name if rack else None,
        }
    files.write(plan.runtime / _FILE, json.dumps(kept, indent=1) + "\n")


def read(plan: LabPlan) -> dict[str, dict[str, Any]]:
    """Return what was kept, by host; empty for a lab that is not up."""
    try:
        kept: dict[str, dict[str, Any]] = json.loads((plan.runtime / _FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return kept
