"""Ethernet: the links, their rate, how often they went down, and errors."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Set

from hvlab.checks.node.answers import files, number, parse_whole
from hvlab.checks.node.finding import Finding, hard, passed, skipped, soft
from hvlab.checks.node.limits import LINK_FALLS, PACKET_ERRORS

_NET = "/sys/class/net/*/"
_COUNTERS = ("rx_errors", "tx_errors", "rx_packets", "tx_packets")
QUESTIONS: Dict[str, Dict[str, Any]] = {
    "network devices": {"stat": _NET + "device"},
    # Virtual functions of a card of this host: they come and go with virtual machines and containers.
    "network virtual functions": {"stat": _NET + "device/physfn"},
    **{
        f"network {name}": {"read": _NET + name}
        for name in ("carrier", "speed", "duplex", "carrier_down_count")
    },
    **{f"network {name}": {"read": f"{_NET}statistics/{name}"} for name in _COUNTERS},
}
# ``nic_rate_gbit`` is the rate of the fastest interfaces, ``nic_count`` how many of them have a link.
CHECKS = {
    "network link": "hard",
    "network rate": "hard",
    "network flaps": "soft",
    "network errors": "soft",
    "network duplex": "soft",
}
LEARNED = ("nic_rate_gbit", "nic_count")
# Interfaces that must have a link, by name.
GIVEN = ("network_interfaces",)


def readings(answers: Mapping[str, Any]) -> Dict[str, Any]:
    """Return ``interfaces`` by name: ``link``, ``rate_gbit``, ``duplex``, ``falls``, ``errors``, ``packets``.

    ``card`` is set for those of a device; the loopback, bridges, virtual functions and the like have none.
    """
    parts = {
        name: _name_by_interface(files(answers, f"network {name}")) for name in ("carrier", "speed", "duplex")
    }
    falls = _name_by_interface(files(answers, "network carrier_down_count"))
    counts = {name: _name_by_interface(files(answers, f"network {name}")) for name in _COUNTERS}
    devices = _find_linked(answers, "devices")
    # A container may have nothing else.
    cards = devices - _find_linked(answers, "virtual functions") or devices
    interfaces: Dict[str, Dict[str, Any]] = {}
    # An interface that is switched off gives no carrier, but counts.
    for name in sorted({*counts["rx_packets"], *parts["carrier"]}):
        interface: Dict[str, Any] = {"card": name in cards, "link": parts["carrier"].get(name) == "1"}
        rate = number(parts["speed"].get(name))
        if interface["link"] and rate is not None and rate > 0:
            interface["rate_gbit"] = rate / 1000
        if parts["duplex"].get(name) in ("full", "half"):
            interface["duplex"] = parts["duplex"][name]
        if parse_whole(falls.get(name)) is not None:
            interface["falls"] = parse_whole(falls.get(name))
        totals = {counter: parse_whole(counts[counter].get(name)) for counter in _COUNTERS}
        if None not in totals.values():
            interface["errors"] = sum(totals[counter] or 0 for counter in _COUNTERS[:2])
            interface["packets"] = sum(totals[counter] or 0 for counter in _COUNTERS[2:])
        interfaces[name] = interface
    return {"interfaces": interfaces, **_fastest(interfaces)} if interfaces else {}


def _name_by_interface(texts: Mapping[str, str]) -> Dict[str, str]:
    return {path.split("/")[4]: value for path, value in texts.items() if path.startswith("/sys/class/net/")}


def _find_linked(answers: Mapping[str, Any], question: str) -> Set[str]:
    links = answers.get(f"network {question}")
    paths = links if isinstance(links, dict) else {}
    return {path.split("/")[4] for path in paths if path.startswith("/sys/class/net/")}


def _fastest(interfaces: Mapping[str, Mapping[str, Any]]) -> Dict[str, Any]:
    rates = [
        interface["rate_gbit"]
        for interface in interfaces.values()
        if interface["card"] and "rate_gbit" in interface
    ]
    return {"nic_rate_gbit": max(rates), "nic_count": rates.count(max(rates))} if rates else {}


def findings(values: Mapping[str, Any], expected: Mapping[str, Any]) -> List[Finding]:
    """Judge the links that the lab uses and those its type has, their falls and their errors."""
    interfaces = values.get("interfaces")
    if not interfaces:
        return [skipped("network link", "/sys/class/net lists no interface")]
    needed = expected.get("network_interfaces", ())
    # Containers' and bridges' interfaces come and go.
    up = {
        name: each for name, each in interfaces.items() if each["link"] and (each["card"] or name in needed)
    }
    return [
        *[_link(name, interfaces) for name in needed],
        _rate(interfaces, expected),
        _falls(up),
        _errors(up),
        _duplex(up),
    ]


def _link(name: str, interfaces: Mapping[str, Mapping[str, Any]]) -> Finding:
    check = f"network link {name}"
    if name not in interfaces:
        observed = f"there is no interface {name}; there are {', '.join(interfaces)}"
        return hard(check, observed, "look for its card with `lspci` and for its driver in the kernel log")
    if not interfaces[name]["link"]:
        return hard(
            check,
            f"{name} has no link",
            f"run `ip link set {name} up`; look at its cable and its switch's port",
        )
    rate = interfaces[name].get("rate_gbit")
    return passed(check, "up" if rate is None else f"up, {rate:g} Gbit/s")


def _rate(interfaces: Mapping[str, Mapping[str, Any]], expected: Mapping[str, Any]) -> Finding:
    check = "network rate"
    cards = {name: interface for name, interface in interfaces.items() if interface["card"]}
    rate, count = expected.get("nic_rate_gbit"), expected.get("nic_count", 1)
    shown = ", ".join(f"{name} {_describe(card)}" for name, card in cards.items()) or "no card"
    if rate is None:
        return passed(check, shown) if cards else skipped(check, "no interface is of a card")
    fast = [name for name, card in cards.items() if card.get("rate_gbit", 0) >= rate]
    if len(fast) < count:
        observed = f"{len(fast)} links of {rate:g} Gbit/s, this machine type should have {count}: {shown}"
        return hard(
            check,
            observed,
            "look at cable, transceiver and switch port: `ethtool NAME` says what both sides offer",
        )
    return passed(check, shown)


def _describe(card: Mapping[str, Any]) -> str:
    if not card["link"]:
        return "without link"
    return f"{card['rate_gbit']:g} Gbit/s" if "rate_gbit" in card else "up"


def _falls(up: Mapping[str, Mapping[str, Any]]) -> Finding:
    check = "network flaps"
    counted = {name: interface["falls"] for name, interface in up.items() if "falls" in interface}
    if not counted:
        return skipped(check, "this kernel does not count how often a link falls")
    many = {name: falls for name, falls in counted.items() if falls > LINK_FALLS}
    if not many:
        return passed(check, f"at most {max(counted.values())} since boot")
    shown = ", ".join(f"{name} {falls} times" for name, falls in many.items())
    return soft(
        check,
        f"links went down since boot: {shown}",
        "look at the times in the kernel log; replace cable or transceiver",
    )


def _errors(up: Mapping[str, Mapping[str, Any]]) -> Finding:
    check = "network errors"
    counted = {name: interface for name, interface in up.items() if "errors" in interface}
    if not counted:
        return skipped(check, "no interface counts its errors")
    many = [
        f"{name} {interface['errors']} in {interface['packets']} packets"
        for name, interface in counted.items()
        if interface["errors"] > PACKET_ERRORS * max(interface["packets"], 1)
    ]
    if many:
        return soft(
            check,
            f"errors since boot: {', '.join(many)}",
            "`ethtool -S NAME` tells their kinds; replace cable or transceiver",
        )
    return passed(check, f"{sum(interface['errors'] for interface in counted.values())} since boot")


def _duplex(up: Mapping[str, Mapping[str, Any]]) -> Finding:
    half = [name for name, interface in up.items() if interface.get("duplex") == "half"]
    if half:
        remedy = "let both sides negotiate: `ethtool -s NAME autoneg on`, and the same at the switch"
        return soft("network duplex", f"half duplex: {', '.join(half)}", remedy)
    return passed("network duplex")
