"""The lab's private network: a bridge, a firewall table, and the rate of each node's link."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network, ip_network
from pathlib import Path
from typing import Any

from hvlab.errors import UsageError
from hvlab.vlab import names
from hvlab.vlab.command import run, succeeds

_LINKS = Path("/sys/class/net")
_QUEUE_SECONDS = 0.05
_BURST_SECONDS = 0.002
_BURST_LEAST = 128 * 1024


def ensure(lab: str, network: IPv4Network) -> None:
    """Make the bridge and masquerading, or what is missing of them.

    Raises UsageError when the network is in use on this machine already.
    """
    bridge = names.bridge(lab)
    check_free(lab, network)
    if not (_LINKS / bridge).exists():
        run(["ip", "link", "add", "name", bridge, "address", names.mac(lab), "type", "bridge"])
    run(["ip", "address", "replace", f"{names.gateway(network)}/{network.prefixlen}", "dev", bridge])
    run(["ip", "link", "set", bridge, "up"])
    # Ask a booting node for its link address every 0.1 s; the default of 1 s is most of the boot time.
    Path(f"/proc/sys/net/ipv4/neigh/{bridge}/retrans_time_ms").write_text("100", encoding="ascii")
    run(["nft", "-f", "-"], given=ruleset(lab, network))


def remove(lab: str) -> None:
    """Remove the bridge, its ports and the firewall table; what is not there is fine."""
    bridge = names.bridge(lab)
    for port in sorted((_LINKS / bridge / "brif").glob("*")):
        succeeds(["ip", "link", "delete", port.name])
    if (_LINKS / bridge).exists():
        run(["ip", "link", "delete", bridge])
    if has_table(lab):
        run(["nft", "delete", "table", "ip", names.table(lab)])


def present(lab: str) -> bool:
    """Return whether the bridge or the firewall table of the lab is there."""
    return (_LINKS / names.bridge(lab)).exists() or has_table(lab)


def has_table(lab: str) -> bool:
    """Return whether the lab's firewall table is there; it needs root."""
    return succeeds(["nft", "list", "table", "ip", names.table(lab)])


def check_free(lab: str, network: IPv4Network) -> None:
    """Raise UsageError when another link of this machine has an address or a route in the lab's network."""
    addresses = json.loads(run(["ip", "-json", "-4", "address", "show"]))
    routes = json.loads(run(["ip", "-json", "-4", "route", "show"]))
    used = conflict(addresses, routes, network, bridge=names.bridge(lab))
    if used:
        raise UsageError(
            f"the lab's network {network} is in use on this machine: {used}",
            remedy="take down the lab that has it (`hvlab lab down -i ...`), or choose another lab_network",
        )


def conflict(
    addresses: Sequence[Mapping[str, Any]],
    routes: Sequence[Mapping[str, Any]],
    network: IPv4Network,
    *,
    bridge: str,
) -> str | None:
    """Return what uses the network apart from the bridge itself, from `ip -json` address and route. Pure."""
    for link in addresses:
        for address in link.get("addr_info", []):
            cidr = f"{address['local']}/{address['prefixlen']}"
            own = link["ifname"] == bridge
            if own and ip_network(cidr, strict=False) != network:
                return f"the lab is up with {cidr} on {bridge}"
            if not own and ip_network(cidr, strict=False).overlaps(network):
                return f"{link['ifname']} has {cidr}"
    for route in routes:
        target = route.get("dst", "default")
        if target != "default" and route.get("dev") != bridge and ip_network(target).overlaps(network):
            return f"a route to {target} goes over {route.get('dev', 'another way')}"
    return None


def ruleset(lab: str, network: IPv4Network) -> str:
    """Return the firewall table as nft reads it; it replaces an older one in one step. Pure."""
    table, bridge = names.table(lab), names.bridge(lab)
    return f"""\
add table ip {table}
delete table ip {table}
table ip {table} {{
  chain outgoing {{
    type nat hook postrouting priority 100; policy accept;
    ip saddr {network} oifname != "{bridge}" masquerade
  }}
  chain through {{
    type filter hook forward priority 0; policy accept;
    iifname "{bridge}" accept
    oifname "{bridge}" accept
  }}
}}
"""


def port_of(leader: int) -> str | None:
    """Return the host's end of a node's link, by the pid of the node's PID 1; None when it has none."""
    try:
        peer = Path(f"/proc/{leader}/root/sys/class/net/host0/iflink").read_text(encoding="ascii")
    except OSError:
        return None
    for link in _LINKS.iterdir():
        if (link / "ifindex").read_text(encoding="ascii") == peer:
            return link.name
    return None


def attach(lab: str, port: str) -> None:
    """Make a link a port of the lab's bridge, unless it is one."""
    if not (_LINKS / names.bridge(lab) / "brif" / port).exists():
        run(["ip", "link", "set", port, "master", names.bridge(lab), "up"])


def limited() -> set[str]:
    """Return the links of this machine that have a rate limit."""
    queues = json.loads(run(["tc", "-json", "qdisc", "show"]))
    return {queue["dev"] for queue in queues if queue["kind"] == "tbf"}


def shape(leader: int, port: str, rate: str | None, *, limited: bool) -> None:
    """Limit a node's link in both directions to ``rate`` (tc's notation), or lift the limit.

    To the node: a token bucket on the host's end. From the node: the same on its own end, set from here.
    """
    inside = ["nsenter", f"--net=/proc/{leader}/ns/net", "--"]
    for prefix, device in (([], port), (inside, "host0")):
        if rate:
            run([*prefix, "tc", "qdisc", "replace", "dev", device, "root", *bucket(rate)])
        elif limited:
            succeeds([*prefix, "tc", "qdisc", "delete", "dev", device, "root"])


def bucket(rate: str) -> list[str]:
    """Return the token bucket filter of a rate, as tc takes it: 2 ms of burst, 50 ms of queue. Pure."""
    per_second = names.rate(rate) / 8
    burst = max(_BURST_LEAST, int(per_second * _BURST_SECONDS))
    limit = burst + int(per_second * _QUEUE_SECONDS)
    return ["tbf", "rate", f"{names.rate(rate)}bit", "burst", str(burst), "limit", str(limit)]
