"""RDMA devices (InfiniBand, RoCE): how many, their ports' state and rate, and link errors."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping

from hvlab.checks.node.answers import files, parse_whole
from hvlab.checks.node.finding import Finding, hard, passed, skipped, soft
from hvlab.checks.node.limits import LINK_FALLS

_PORTS = "/sys/class/infiniband/*/ports/*/"
_COUNTERS = {"falls": "link_downed", "symbol_errors": "symbol_error"}
_VIRTUAL = "rdma virtual functions"
QUESTIONS: Dict[str, Dict[str, Any]] = {
    # Those of a card of this host come and go with virtual machines and containers.
    _VIRTUAL: {"stat": "/sys/class/infiniband/*/device/physfn"},
    **{f"rdma {name}": {"read": _PORTS + name} for name in ("state", "phys_state", "rate", "link_layer")},
    **{f"rdma {name}": {"read": f"{_PORTS}counters/{name}"} for name in _COUNTERS.values()},
}
# ``rdma_rate_gbit`` is the rate of the fastest active ports, ``rdma_device_count`` how many devices have one.
CHECKS = {"rdma devices": "hard", "rdma ports": "soft", "rdma flaps": "soft", "rdma symbol errors": "soft"}
LEARNED = ("rdma_rate_gbit", "rdma_device_count")

_CABLE = "look at cable and switch port (`mlxlink -d DEVICE`), clean or replace the transceiver"


def readings(answers: Mapping[str, Any]) -> Dict[str, Any]:
    """Return ``rdma_ports`` by ``device/port``: ``state``, ``physical``, ``rate_gbit``, ``layer``, ..."""
    texts = {name: files(answers, f"rdma {name}") for name in ("state", "phys_state", "rate", "link_layer")}
    links = answers.get(_VIRTUAL)
    virtual = set(map(_device, links)) if isinstance(links, dict) else set()
    # A container may have nothing else.
    virtual = virtual if set(map(_device, texts["state"])) - virtual else set()
    ports: Dict[str, Dict[str, Any]] = {}
    for path, state in texts["state"].items():
        folder = path.rpartition("/")[0]
        device, number = _device(path), folder.rpartition("/ports/")[2]
        if device in virtual:
            continue
        # As in "4: ACTIVE" and "5: LinkUp".
        port: Dict[str, Any] = {"state": state.rpartition(":")[2].strip()}
        if f"{folder}/phys_state" in texts["phys_state"]:
            port["physical"] = texts["phys_state"][f"{folder}/phys_state"].rpartition(":")[2].strip()
        rate = re.match(r"(\d+(?:\.\d+)?) Gb/sec", texts["rate"].get(f"{folder}/rate", ""))
        if rate:
            port["rate_gbit"] = float(rate[1])
        if texts["link_layer"].get(f"{folder}/link_layer"):
            port["layer"] = texts["link_layer"][f"{folder}/link_layer"]
        for name, counter in _COUNTERS.items():
            count = parse_whole(files(answers, f"rdma {counter}").get(f"{folder}/counters/{counter}"))
            if count is not None:
                port[name] = count
        ports[f"{device}/{number}"] = port
    return {"rdma_ports": ports, **_fastest(ports)} if ports else {}


def _device(path: str) -> str:
    return path.partition("/infiniband/")[2].partition("/")[0]


def _fastest(ports: Mapping[str, Mapping[str, Any]]) -> Dict[str, Any]:
    rates = [
        port["rate_gbit"] for port in ports.values() if port["state"] == "ACTIVE" and "rate_gbit" in port
    ]
    if not rates:
        return {}
    return {"rdma_rate_gbit": max(rates), "rdma_device_count": len(_fit(ports, max(rates)))}


def _fit(ports: Mapping[str, Mapping[str, Any]], rate: float) -> List[str]:
    fit = {
        name.partition("/")[0]
        for name, port in ports.items()
        if _is_active(port) and port.get("rate_gbit", 0) >= rate
    }
    return sorted(fit)


def _is_active(port: Mapping[str, Any]) -> bool:
    return bool(port["state"] == "ACTIVE")


def findings(values: Mapping[str, Any], expected: Mapping[str, Any]) -> List[Finding]:
    """Judge the devices against their type, the ports' state, and the errors of the links."""
    ports = values.get("rdma_ports", {})
    if not ports and not expected.get("rdma_device_count"):
        return [skipped("rdma devices", "this host has no RDMA device")]
    active = {name: port for name, port in ports.items() if _is_active(port)}
    return [_devices(ports, expected), _state(ports), _links(active), _symbols(active)]


def _devices(ports: Mapping[str, Mapping[str, Any]], expected: Mapping[str, Any]) -> Finding:
    check, count, rate = "rdma devices", expected.get("rdma_device_count"), expected.get("rdma_rate_gbit", 0)
    shown = ", ".join(_describe(name, port) for name, port in ports.items()) or "there is none"
    if count is None or len(_fit(ports, rate)) >= count:
        return passed(check, shown)
    at = f" of {rate:g} Gbit/s" if rate else ""
    observed = (
        f"{len(_fit(ports, rate))} devices with an active port{at}, "
        f"this machine type should have {count}: {shown}"
    )
    return hard(
        check,
        observed,
        "if one is missing: `lspci` and the kernel log; if one is down or slow: its cable and switch port",
    )


def _describe(name: str, port: Mapping[str, Any]) -> str:
    rate = f" {port['rate_gbit']:g} Gbit/s" if "rate_gbit" in port else ""
    return f"{name} {port['state']}{rate}"


def _state(ports: Mapping[str, Mapping[str, Any]]) -> Finding:
    """A link that is up, but not active, waits for the subnet manager; one without cable may be unused."""
    check = "rdma ports"
    waiting = [
        name for name, port in ports.items() if port.get("physical") == "LinkUp" and not _is_active(port)
    ]
    if waiting:
        shown = ", ".join(_describe(name, ports[name]) for name in waiting)
        observed = f"the link is up, but the port is not active: {shown}"
        return soft(
            check,
            observed,
            "start the subnet manager (`sminfo` shows which there is), or set the interface up",
        )
    if not any(_is_active(port) for port in ports.values()):
        return soft(
            check,
            "no port is active: "
            + (", ".join(_describe(name, port) for name, port in ports.items()) or "none"),
            _CABLE,
        )
    return passed(check)


def _links(active: Mapping[str, Mapping[str, Any]]) -> Finding:
    falls = {name: port.get("falls", 0) for name, port in active.items()}
    many = [f"{name} {count} times" for name, count in falls.items() if count > LINK_FALLS]
    if many:
        observed = f"links went down since the counters were cleared: {', '.join(many)}"
        return soft("rdma flaps", observed, _CABLE)
    return passed("rdma flaps")


def _symbols(active: Mapping[str, Mapping[str, Any]]) -> Finding:
    """`ibqueryerrors` reports every one; few are left where the link corrects errors itself."""
    some = [f"{name} {port['symbol_errors']}" for name, port in active.items() if port.get("symbol_errors")]
    if some:
        return soft("rdma symbol errors", f"since the counters were cleared: {', '.join(some)}", _CABLE)
    return passed("rdma symbol errors")
