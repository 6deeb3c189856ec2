"""Limits of a lab's links: each host's, each rack's uplink, and traffic between pairs of hosts.

Commands of tc are built by pure functions. To a host: the queue of this machine's end of its link. From a
host: the queue of its own end, set from here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from hvlab.base import process
from hvlab.base.errors import UsageError
from hvlab.vlab import names, reality
from hvlab.vlab.controller import SECONDS, environment, run, succeeds
from hvlab.vlab.topology import LinkLimits, Topology

_LINKS = Path("/sys/class/net")
_QUEUE_SECONDS = 0.05
_BURST_SECONDS = 0.002
_BURST_LEAST = 128 * 1024
_UNLIMITED = "100gbit"
# Maximum delayed packets. The default of 1000 would drop some at 1 Gbit/s and 20 ms.
_NETEM_PACKETS = "10000"
# Kernel features by kind, and commands that test for them.
_TBF = "qdisc add dev lo root tbf rate 1mbit burst 10kb limit 10kb\n"
_HTB = "qdisc add dev lo root handle 1: htb\n"
FEATURES: Mapping[str, tuple[str, str]] = {
    "tbf": ("CONFIG_NET_SCH_TBF", _TBF),
    "htb": ("CONFIG_NET_SCH_HTB", _HTB),
    "u32": (
        "CONFIG_NET_CLS_U32",
        f"{_HTB}filter add dev lo parent 1: u32 match ip dst 192.0.2.1/32 flowid 1:1\n",
    ),
    "netem": ("CONFIG_NET_SCH_NETEM", "qdisc add dev lo root netem delay 1ms\n"),
}


def port_of(leader: int) -> str | None:
    """Return the host's end of a node's link, by the pid of the node's PID 1; None when it has none."""
    try:
        path = reality.PROC / str(leader) / "root/sys/class/net/host0/iflink"
        peer = int(path.read_text(encoding="ascii"))
    except OSError:
        return None
    return next((link.name for link in _LINKS.iterdir() if index_of(link.name) == peer), None)


def index_of(link: str) -> int | None:
    """Return the kernel's number of a link, which no other gets later; None if it is no link."""
    # Beside the links lie files such as bonding_masters, and a link may go at any time.
    with suppress(OSError):
        return int((_LINKS / link / "ifindex").read_text(encoding="ascii"))
    return None


def is_port(bridge: str, link: str) -> bool:
    """Whether a link is a port of a bridge."""
    return (_LINKS / bridge / "brif" / link).exists()


def attach(bridge: str, port: str) -> None:
    """Make a link a port of a bridge, unless it is one."""
    if not is_port(bridge, port):
        run(["ip", "link", "set", port, "master", bridge, "up"])


def shape(leader: int, port: str, link: LinkLimits, pairs: Mapping[str, str]) -> None:
    """Give a node's link these limits in place of earlier ones.

    ``pairs`` are the rates of what it sends to single addresses.
    """
    inside = ["nsenter", f"--net=/proc/{leader}/ns/net", "--"]
    _replace(inside, "host0", egress("host0", link.up, link, pairs=pairs))
    _replace([], port, egress(port, link.down, link))


def shape_uplink(core_end: str, rack_end: str, link: LinkLimits) -> None:
    """Give a rack's uplink these limits in place of earlier ones."""
    _replace([], rack_end, egress(rack_end, link.up, link))
    _replace([], core_end, egress(core_end, link.down, link))


def _replace(prefix: Sequence[str], device: str, commands: Sequence[Sequence[str]]) -> None:
    succeeds([*prefix, "tc", "qdisc", "delete", "dev", device, "root"])
    if commands:
        lines = "".join(" ".join(words) + "\n" for words in commands)
        run([*prefix, "tc", "-batch", "-"], given=lines)


def egress(
    device: str, rate: str | None, link: LinkLimits, *, pairs: Mapping[str, str] | None = None
) -> list[list[str]]:
    """Return the commands of tc that limit what a device sends; none where nothing is limited. Pure.

    Delay and loss come first, the rates below them.
    """
    commands = []
    parent = ["root"]
    if link.delay or link.loss:
        words = ["netem", "limit", _NETEM_PACKETS]
        words += ["delay", link.delay] if link.delay else []
        words += ["loss", link.loss] if link.loss else []
        commands.append(["qdisc", "add", "dev", device, "root", "handle", "1:", *words])
        parent = ["parent", "1:1"]
    if pairs:
        commands += _classes(device, parent, rate or _UNLIMITED, pairs)
    elif rate:
        commands.append(["qdisc", "add", "dev", device, *parent, "handle", "10:", *bucket(rate)])
    return commands


def _classes(device: str, parent: Sequence[str], rate: str, pairs: Mapping[str, str]) -> Iterator[list[str]]:
    """Yield a hierarchy of token buckets: one for all, below it one for each address, one for the rest."""
    on = ["dev", device]
    yield ["qdisc", "add", *on, *parent, "handle", "10:", "htb", "default", "2"]
    yield ["class", "add", *on, "parent", "10:", "classid", "10:1", *_htb(rate, rate)]
    # A class may always send at its own rate: together they must not exceed that of all.
    part = names.rate(rate) // (len(pairs) + 1)
    for number, (address, limit) in enumerate({"": rate, **pairs}.items(), 2):
        name = f"10:{number:x}"
        own = f"{min(part, names.rate(limit))}bit"
        yield ["class", "add", *on, "parent", "10:1", "classid", name, *_htb(own, limit)]
        yield ["qdisc", "add", *on, "parent", name, "bfifo", "limit", str(_burst(limit) + _queue(limit))]
        if address:
            match = ["protocol", "ip", "prio", "1", "u32", "match", "ip", "dst", f"{address}/32"]
            yield ["filter", "add", *on, "parent", "10:", *match, "flowid", name]


def _htb(rate: str, ceil: str) -> list[str]:
    burst = str(_burst(ceil))
    words = ["htb", "rate", f"{names.rate(rate)}bit", "ceil", f"{names.rate(ceil)}bit"]
    return [*words, "burst", burst, "cburst", burst, "quantum", "65536"]


def bucket(rate: str) -> list[str]:
    """Return the token bucket filter of a rate, as tc takes it: 2 ms of burst, 50 ms of queue. Pure."""
    burst, limit = _burst(rate), _burst(rate) + _queue(rate)
    return ["tbf", "rate", f"{names.rate(rate)}bit", "burst", str(burst), "limit", str(limit)]


def _burst(rate: str) -> int:
    """Return the bytes that may be sent at once; a segment before segmentation has 64 KiB."""
    return max(_BURST_LEAST, int(names.rate(rate) / 8 * _BURST_SECONDS))


def _queue(rate: str) -> int:
    return int(names.rate(rate) / 8 * _QUEUE_SECONDS)


def needs(topology: Topology) -> dict[str, list[str]]:
    """Return the kernel features that a topology needs, and their purpose. Pure."""
    links = {f"the uplink of rack {rack.name}": rack.uplink for rack in topology.racks}
    links = {"every host": topology.link, **topology.links, **links}
    needed: dict[str, list[str]] = {}
    for name, link in links.items():
        if link.up or link.down:
            needed.setdefault("tbf", []).append(f"the rate of {name}")
        for what in ("delay", "loss"):
            if getattr(link, what):
                needed.setdefault("netem", []).append(f"the {what} of {name}")
    for pair in topology.pairs:
        for feature in ("htb", "u32"):
            needed.setdefault(feature, []).append(f"the rate from {pair.source} to {pair.target}")
    return needed


def check(topology: Topology) -> None:
    """Raise UsageError if this machine's kernel cannot shape what the topology asks for."""
    missing = [(feature, uses) for feature, uses in needs(topology).items() if not _has(feature)]
    if missing:
        lines = "".join(
            f"\n  {', '.join(uses)}: it has no {feature} ({FEATURES[feature][0]})"
            for feature, uses in missing
        )
        raise UsageError(
            f"this machine's kernel cannot limit all that is asked for:{lines}",
            remedy="boot a kernel that has it (or load its module), or leave these out",
        )


def _has(feature: str) -> bool:
    """Whether the kernel has a feature; tried in a network of its own, which ends with the command."""
    argv = ["unshare", "--net", "--", "tc", "-batch", "-"]
    done = process.run(argv, seconds=SECONDS, given=FEATURES[feature][1], env=environment())
    return not done.returncode
