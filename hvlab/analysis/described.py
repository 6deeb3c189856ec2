"""GPUs and network cards as people write them, as facts of a host. Pure."""

from __future__ import annotations

import re
from typing import Any

from hvlab.analysis.ceiling import infiniband
from hvlab.base.errors import UsageError

_COUNT = "[1-9][0-9]?"
_GPUS = re.compile(
    rf"(?P<name>[^:,]*[^\s:,]) ?: ?(?P<count>{_COUNT})|(?P<first>{_COUNT}) ?x ?(?P<last>[^\s:,][^:,]*)"
    rf"|(?P<before>[^:,]*\w) ?x ?(?P<after>{_COUNT})",
    re.IGNORECASE,
)
_CARDS = re.compile(
    rf"(?:(?P<count>{_COUNT}) ?[x*×] ?)?(?P<generation>[a-z]dr)? ?"
    r"(?:(?P<rate>[1-9][0-9]{0,3})(?: ?(?:g|gb|gbe|gbps|gbits?|gb/s|gbit/s)(?: [a-z]dr)?)?)?"
)
_OVER_TCP = ("ena", "gvnic", "tcp", "tcpx", "tcpxo")
_TERABITS = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?t(?:b|bps|bits?|b/s|bit/s)?\b")
# What tells no rate.
_WORDS = re.compile(
    r"[,;()]|\b(?:efa|gib|ib|infiniband|rdma|roce|rocev2|slingshot|{})\b".format("|".join(_OVER_TCP))
)
_BYTES = re.compile(r"GB(?:/s|ps|\b)|GiB")


def gpus(text: str) -> dict[str, Any]:
    """Return the facts of H100:8 or 8xH100. Raises UsageError."""
    written = _GPUS.fullmatch(text.strip())
    if written is None:
        raise UsageError(f"--gpus {text} is not MODEL:N, and no file", remedy="write it as --gpus h100:8")
    count = written["count"] or written["first"] or written["after"]
    return {"gpus": [{"name": written["name"] or written["last"] or written["before"]}] * int(count)}


def cards(text: str) -> dict[str, Any]:
    """Return the facts of 8x400, 4 x 200 Gbps RoCE, 2x100 tcp or hdr200. Raises UsageError."""
    words = _TERABITS.sub(lambda rate: f"{1000 * float(rate[1]):g}g", text.lower())
    plain = " ".join(_WORDS.sub(" ", words).split())
    # The number of cards may stand last.
    turned = re.sub(rf"^(.*\w) ?[x*×] ?({_COUNT})$", r"\2x\1", plain)
    written = None if _BYTES.search(text) else _CARDS.fullmatch(plain) or _CARDS.fullmatch(turned)
    rate = int(written["rate"] or 0) if written else 0
    of_port = infiniband(written["generation"] or "") if written else None
    if written and not written["count"]:
        rate = rate or of_port or 0
    if not written or not rate:
        remedy = "8 cards of 400 Gbit/s (50 GB/s) are --nic 8x400, over TCP --nic '8x400 tcp'"
        if written and of_port:
            count, generation = written["count"], written["generation"]
            remedy = (
                f"{count} cards are --nic {count}x{of_port}, one card of {count} lanes --nic {generation}"
            )
        raise UsageError(
            f"--nic {text} does not tell how many cards of how many Gbit/s a host has", remedy=remedy
        )
    names = [f"nic{number}" for number in range(int(written["count"] or 1))]
    if set(re.findall("[a-z]+", words)) & set(_OVER_TCP):
        return {
            "nics": [{"name": name, "speed_mbit": rate * 1000} for name in names],
            "rdma": {"devices": []},
        }
    return {"rdma": {"devices": [{"name": name, "rate": f"{rate} Gb/sec"} for name in names]}}
