"""The lab's private network: a bridge, below it a bridge for each rack, a firewall table, settings.

The settings are those of this machine's kernel; the last lab puts them back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from ipaddress import IPv4Network, ip_network
from pathlib import Path
from typing import Any

from hvlab.base.errors import UsageError
from hvlab.base.files import lock
from hvlab.vlab import names
from hvlab.vlab.controller import run, succeeds, write
from hvlab.vlab.topology import MAX_RACKS

_LINKS = Path("/sys/class/net")


def ensure(lab: str, network: IPv4Network, *, routes: bool, racks: int = 0) -> None:
    """Make the bridge, those of ``racks`` racks, and the firewall table, if missing.

    ``routes`` says whether this machine is a router even without labs.
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
    run(["nft", "-f", "-"], given=ruleset(lab, network, routes=routes))
    for number in range(1, racks + 1):
        _ensure_rack(lab, number)


def _ensure_rack(lab: str, number: int) -> None:
    rack = names.rack_bridge(lab, number)
    core_end, rack_end = names.uplink(lab, number)
    if not (_LINKS / rack).exists():
        run(["ip", "link", "add", "name", rack, "type", "bridge"])
    if not (_LINKS / core_end).exists():
        run(["ip", "link", "add", "name", core_end, "type", "veth", "peer", "name", rack_end])
    for end, bridge in ((core_end, names.bridge(lab)), (rack_end, rack)):
        run(["ip", "link", "set", end, "master", bridge, "up"])
    run(["ip", "link", "set", rack, "up"])


def trim(lab: str, *, racks: int) -> None:
    """Remove the bridges and uplinks of racks beyond this number; the nodes' links are elsewhere by now."""
    for number in range(racks + 1, MAX_RACKS + 1):
        for link in (names.uplink(lab, number)[0], names.rack_bridge(lab, number)):
            if (_LINKS / link).exists():
                run(["ip", "link", "delete", link])


def bridge_of(lab: str, rack: int | None) -> str:
    """Return the name of the bridge that a host of this rack, or of none, is connected to."""
    return names.bridge(lab) if rack is None else names.rack_bridge(lab, rack)


def remove(lab: str) -> None:
    """Remove the bridges, their ports and the firewall table; missing ones are fine."""
    numbers = range(1, MAX_RACKS + 1)
    bridges = [*(names.rack_bridge(lab, number) for number in numbers), names.bridge(lab)]
    for bridge in bridges:
        for port in sorted((_LINKS / bridge / "brif").glob("*")):
            succeeds(["ip", "link", "delete", port.name])
    # An uplink is no port yet where `up` was killed as soon as it had made it.
    for link in (*(names.uplink(lab, number)[0] for number in numbers), *bridges):
        if (_LINKS / link).exists():
            run(["ip", "link", "delete", link])
    if has_table(lab):
        run(["nft", "delete", "table", "ip", names.table(lab)])


def exists(lab: str) -> bool:
    """Whether the bridge or the firewall table of the lab exists."""
    return (_LINKS / names.bridge(lab)).exists() or has_table(lab)


def has_table(lab: str) -> bool:
    """Whether the lab's firewall table exists; it needs root."""
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
    """Return the other users of the network than the bridge, from `ip -json` address and route. Pure."""
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


def ruleset(lab: str, network: IPv4Network, *, routes: bool) -> str:
    """Return the firewall table as nft reads it; it replaces an older one in one step. Pure.

    Only answers may enter the lab. A machine that is no router itself forwards for labs alone: the names
    of their bridges, and of those of their racks, begin with ``hv``.
    """
    table, bridge = names.table(lab), names.bridge(lab)
    policy = "" if routes else '    iifname != "hv*" oifname != "hv*" drop\n'
    return f"""\
add table ip {table}
delete table ip {table}
table ip {table} {{
  chain outgoing {{
    type nat hook postrouting priority 100; policy accept;
    ip saddr {network} ip daddr != {network} oifname != "{bridge}" masquerade
  }}
  chain through {{
    type filter hook forward priority 0; policy accept;
    iifname "{bridge}" accept
    oifname "{bridge}" ct state established,related accept
    oifname "{bridge}" drop
{policy}  }}
}}
"""


_FORWARD = "net/ipv4/ip_forward"
# At least these. Each node's systemd takes about eight inotify instances; Linux grants root 128 in all.
# Each node keeps the link address of each other one; Linux has room for 1024 in all. With 32 nodes there was
# always one without, whose login or connection ended with "No route to host".
LEAST = {
    _FORWARD: 1,
    "fs/inotify/max_user_instances": 8192,
    "net/ipv4/neigh/default/gc_thresh1": 8192,
    "net/ipv4/neigh/default/gc_thresh2": 16384,
    "net/ipv4/neigh/default/gc_thresh3": 32768,
}
_SETTINGS = Path("/proc/sys")


def set_kernel(runtime: Path, *, settings: Path = _SETTINGS) -> None:
    """Raise the settings, and record in ``runtime`` their values before the first lab."""
    with _record(runtime) as record:
        before = _read(record)
        for name, least in LEAST.items():
            value = int((settings / name).read_text(encoding="ascii"))
            if value < least:
                before.setdefault(name, value)
        write(record, json.dumps(before) + "\n")
        for name, least in LEAST.items():
            if name in before:
                (settings / name).write_text(str(least), encoding="ascii")


def is_router(runtime: Path, *, settings: Path = _SETTINGS) -> bool:
    """Whether this machine forwards packets even without labs."""
    # In this order: a lab that begins now records before it sets.
    forwards = int((settings / _FORWARD).read_text(encoding="ascii"))
    return bool(forwards) and _FORWARD not in _read(runtime / "kernel.json")


def restore_kernel(runtime: Path, *, settings: Path = _SETTINGS) -> None:
    """When no lab is left in ``runtime``, put the settings back, apart from those changed by others since.

    The directory goes with them: nothing is left of the labs.
    """
    with _record(runtime) as record:
        if any(path.is_dir() for path in runtime.iterdir()):
            return
        for name, value in _read(record).items():
            if int((settings / name).read_text(encoding="ascii")) == LEAST[name]:
                (settings / name).write_text(str(value), encoding="ascii")
        record.unlink(missing_ok=True)
        with suppress(OSError):
            runtime.rmdir()


def _read(record: Path) -> dict[str, int]:
    try:
        recorded: Mapping[str, int] = json.loads(record.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return {name: value for name, value in recorded.items() if name in LEAST}


@contextmanager
def _record(runtime: Path) -> Iterator[Path]:
    """Hold the record for oneself; labs come and go at the same time."""
    with lock(runtime):
        yield runtime / "kernel.json"
