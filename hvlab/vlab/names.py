"""Names of a virtual lab's objects on this machine. Pure."""

from __future__ import annotations

import hashlib
import math
import re
from ipaddress import IPv4Network

from hvlab.base.errors import UsageError

RELEASES = {"11": "bullseye", "12": "bookworm", "13": "trixie"}
# Systems of the Red Hat family: a Debian root with their package manager, files and names.
REDHAT = ("el7", "el8", "el9", "el10", "amzn2023")
DEFAULT_RELEASE = "bookworm"
_LINK_NAME_MAX = 15
_MACHINE_NAME_MAX = 64
_LAB_NAME = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,29}[a-z0-9])?")
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt])(?:i?b)?", re.IGNORECASE)
_RATE = re.compile(r"(\d+(?:\.\d+)?)([kmgt]?)(bit|bps)", re.IGNORECASE)


def _shorten(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return text[: limit - 7] + "-" + hashlib.sha256(text.encode()).hexdigest()[:6]


def check_lab_name(lab: str) -> str:
    """Return the name of a lab; raises UsageError when it cannot name files, links and tables."""
    if not _LAB_NAME.fullmatch(lab):
        raise UsageError(
            f"lab_name {lab!r} cannot name a virtual lab",
            remedy="set lab_name to at most 31 small letters, digits, - and _ (not at its ends)",
        )
    return lab


def bridge(lab: str) -> str:
    """Return the name of the lab's bridge: ``hv-<lab>``, at most 15 characters."""
    return _shorten(f"hv-{lab}", _LINK_NAME_MAX)


def rack_bridge(lab: str, number: int) -> str:
    """Return the name of the bridge of a rack, numbered from 1."""
    return _shorten(f"hv{number}r-{lab}", _LINK_NAME_MAX)


def uplink(lab: str, number: int) -> tuple[str, str]:
    """Return the names of the two ends of a rack's uplink: at the lab's bridge, and at the rack's."""
    return _shorten(f"hv{number}u-{lab}", _LINK_NAME_MAX), _shorten(f"hv{number}d-{lab}", _LINK_NAME_MAX)


def table(lab: str) -> str:
    """Return the name of the lab's firewall table."""
    plain = lab.replace("-", "_")
    return f"hvlab_{plain}" if plain == lab else _shorten(f"hvlab_{plain}_{lab}", 40)


def machine(lab: str, node: str) -> str:
    """Return the machine name of a node; two labs may each have a node of one name."""
    return _shorten(f"{lab.replace('_', '-')}-{node}", _MACHINE_NAME_MAX)


def mac(lab: str) -> str:
    """Return a locally administered MAC address for the lab's bridge, the same each time."""
    digest = hashlib.sha256(lab.encode()).digest()
    return ":".join(f"{byte:02x}" for byte in (0x02, *digest[:5]))


def release(text: str) -> str:
    """Return the name of a release: a Debian by name or number, or one of REDHAT; raises UsageError."""
    name = RELEASES.get(text, text).lower()
    if name not in (*RELEASES.values(), *REDHAT):
        known = ", ".join([*(f"{name} ({number})" for number, name in RELEASES.items()), *REDHAT])
        raise UsageError(f"the virtual lab has no image of release {text!r}", remedy=f"choose one of {known}")
    return name


def debian(release: str) -> str:
    """Return the Debian release whose programs a release runs: its own, but for REDHAT."""
    return DEFAULT_RELEASE if release in REDHAT else release


def rate(text: str) -> int:
    """Return a rate in tc's notation (``1gbit``, ``100mbit``) in bits per second; raises UsageError."""
    match = _RATE.fullmatch(text.strip())
    bits = 0
    if match:
        number, prefix, unit = match.groups()
        factor = 1000 ** ("", "k", "m", "g", "t").index(prefix.lower())
        bits = _times(number, factor) * (8 if unit.lower() == "bps" else 1)
    if not bits:
        raise UsageError(f"{text!r} is not a rate", remedy="write it as tc does, for example 1gbit")
    return bits


def memory(text: str) -> int:
    """Return an amount of memory (``512m``, ``2g``, ``4GiB``) in bytes; raises UsageError."""
    match = _MEMORY.fullmatch(text.strip())
    size = _times(match[1], 1024 ** (1 + "kmgt".index(match[2].lower()))) if match else 0
    if not size:
        raise UsageError(f"{text!r} is not an amount of memory", remedy="write it as 512m or 2g")
    return size


def _times(number: str, factor: int) -> int:
    """Return a product; 0 for one that no float can hold."""
    product = float(number) * factor
    return int(product) if math.isfinite(product) else 0


def gateway(network: IPv4Network) -> str:
    """Return the address of the lab's bridge: the first of the network."""
    return str(network.network_address + 1)
