"""What the last `up` set of each node and link, kept beside the lab for `status`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hvlab.vlab import files, links, network
from hvlab.vlab.limits import NodeLimits
from hvlab.vlab.plan import LabPlan

_FILE = "settings.json"
OF_LINK = ("up", "down", "delay", "loss", "rack")


def write(plan: LabPlan, limits: Mapping[str, NodeLimits], ports: Mapping[str, str]) -> None:
    """Keep the limits of the plan's nodes; those of nodes that an earlier call booted stay.

    ``ports`` are the links that were limited, by host.
    """
    kept = read(plan)
    for node in plan.nodes:
        link, own = plan.link(node.name), limits[node.name]
        rack, port = plan.topology.rack_of(node.name), ports.get(node.name)
        kept[node.name] = {
            "memory": own.memory,
            "cpu_weight": own.weight,
            **vars(link),
            "pairs": plan.pairs(node.name),
            "rack": plan.topology.racks[rack - 1].name if rack else None,
            "port": port,
            "port_index": links.index_of(port) if port else None,
            "bridge": network.bridge_of(plan.lab, rack),
        }
    files.write(plan.runtime / _FILE, json.dumps(kept, indent=1) + "\n")


def read(plan: LabPlan) -> dict[str, dict[str, Any]]:
    """Return what was kept, by host; empty for a lab that is not up."""
    try:
        kept: dict[str, dict[str, Any]] = json.loads((plan.runtime / _FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return kept


def link_lost(kept: Mapping[str, Any]) -> bool:
    """Return whether a host's link has no longer the limits and the rack that were kept of it.

    Where systemd runs this machine, a host may reboot itself: it gets a new link, with another number, on the
    lab's bridge.
    """
    limited = kept.get("pairs") or any(kept.get(name) is not None for name in OF_LINK)
    # What an earlier hvlab kept names no port.
    if not limited or "port" not in kept:
        return False
    port = kept["port"]
    same = port is not None and links.index_of(port) == kept["port_index"]
    return not (same and links.is_port(kept["bridge"], port))
