# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""How a host is connected: interfaces, cards, default route, names."""

from __future__ import annotations

import glob
import json
import os
import re
import socket
import threading
import time
from typing import Any

from ansible.module_utils import hvlab_kernel
from ansible.module_utils.hvlab_probe import read, run

RESOLVE_SECONDS = 1.5
CLOUD = "/etc/cloud"
# User and vendor data take precedence.
CLOUD_DATA = "/var/lib/cloud/instance/cloud-config.txt"


def interfaces() -> dict[str, Any]:
    """Return ``{name: {mac, cidrs, up}}``, loopback left out."""
    links = {}
    for link in json.loads(run("ip", "-j", "addr", "show")):
        if "LOOPBACK" in link["flags"]:
            continue
        addresses = [a for a in link.get("addr_info", []) if a.get("scope") == "global" and "local" in a]
        links[link["ifname"]] = {
            "mac": link.get("address"),
            "cidrs": ["{}/{}".format(a["local"], a["prefixlen"]) for a in addresses],
            "up": "UP" in link["flags"] and link.get("operstate") in ("UP", "UNKNOWN"),
            "mtu": link.get("mtu"),
        }
    return links


def default_ipv4() -> dict[str, Any]:
    """Return address, gateway and interface of the default route; empty without one."""
    routes = json.loads(run("ip", "-j", "-4", "route", "get", "192.0.2.1"))
    if not routes:
        return {}
    route = routes[0]
    return {"address": route.get("prefsrc"), "gateway": route.get("gateway"), "interface": route.get("dev")}


def hosts_template() -> str:
    """Return the template from which cloud-init writes /etc/hosts at each boot; empty if it does not."""
    if os.path.exists(CLOUD + "/cloud-init.disabled"):
        return ""
    files = [CLOUD + "/cloud.cfg", *sorted(glob.glob(CLOUD + "/cloud.cfg.d/*.cfg")), CLOUD_DATA]
    said = [re.findall(r"(?m)^manage_etc_hosts:[ \t]*['\"]?(\w+)", read(path) or "") for path in files]
    values = [value.lower() for each in said for value in each]
    if not values or values[-1] not in ("true", "yes", "on", "1", "template"):
        return ""
    family = "debian" if os.path.exists("/etc/debian_version") else "redhat"
    template = "{}/templates/hosts.{}.tmpl".format(CLOUD, family)
    return template if os.path.exists(template) else ""


def resolves(names: list[str]) -> dict[str, Any]:
    """Return ``{name: [IPv4 addresses]}``: empty if unknown, None if nothing answered in time."""
    answers: dict[str, Any] = dict.fromkeys(names)

    def ask(name: str) -> None:
        try:
            infos = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
            answers[name] = sorted({info[4][0] for info in infos})
        except OSError:
            answers[name] = []

    threads = [threading.Thread(target=ask, args=(name,), daemon=True) for name in names]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + RESOLVE_SECONDS
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return dict(answers)


def nics(root: str = "") -> list[dict[str, Any]]:
    """Return the interfaces that have a card; ``speed_mbit`` is None without a link."""
    cards = []
    for path in sorted(glob.glob(root + "/sys/class/net/*/device")):
        name = os.path.basename(os.path.dirname(path))
        speed = read(os.path.join(os.path.dirname(path), "speed")) or ""
        driver = (
            os.path.basename(os.path.realpath(path + "/driver")) if os.path.exists(path + "/driver") else None
        )
        # A virtio device stands below the PCI device that carries it.
        card = next(
            (part for part in reversed(os.path.realpath(path).split("/")) if part.count(":") == 2), None
        )
        cards.append(
            {
                "name": name,
                "driver": driver,
                "driver_version": read("{}/sys/module/{}/version".format(root, driver)),
                "speed_mbit": int(speed) if speed.isdigit() else None,
                "pci": card,
            }
        )
    on_bus = (
        {row["address"]: (row["vendor"], row["device"]) for row in hvlab_kernel.devices(root)}
        if cards
        else {}
    )
    models = hvlab_kernel.names([on_bus[nic["pci"]] for nic in cards if nic["pci"] in on_bus], root)
    return [dict(nic, model=models.get(on_bus.get(nic["pci"], ("", "")))) for nic in cards]
