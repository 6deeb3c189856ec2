"""The most that hosts' links can carry, the share of it that was reached, and the limiting link. Pure.

In: the facts of hosts, and configurations of collectives with their repeats. Out: for each configuration a
ceiling in GB/s of bus bandwidth, or the reason why none is known. Nothing is guessed: if facts leave several
wirings open, the slowest that can carry the figures counts.

A link separates the ranks behind it, a host's or one GPU's, from all others. A ring sends busbw/algbw times
the buffer over each link in each direction, so a link of r GB/s carries a busbw of r (nccl-tests,
doc/PERFORMANCE.md). Trees over two hosts, and switches that reduce, send less: the cut is the least that must
cross, and the bound that follows from it limits every figure.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from hvlab.base import answers
from hvlab.base.yaml_files import read_shipped
from hvlab.lab.environment import format_speed
from hvlab.lab.facts_shape import Facts
from hvlab.results.configurations import Configuration, Repeats, configuration_of
from hvlab.results.store import Record
from hvlab.vlab import names
from hvlab.workloads.operations import OPERATIONS

# Figures further above the bound are wrong, or the facts are: less may come of rounding, and over TCP of
# bursts in queues of virtual links and of devices that carry little.
_ROUNDING, _BURSTS = 1.02, 1.1
# Larger messages would be faster if the last size and one of at most half of it differ by more.
_RISING = 1.1
# From this size on, one size alone is enough, in bytes.
_LARGE = 2**27
_GPUS = ("cuda", "rocm")
# This many ranks use all cards of their host.
_WHOLE_HOST = 4
# Their links depend on the root or the partners: no ceiling is known.
_BY_PLACE = ("gather", "scatter", "hypercube")
# Copies of OSU, between two ranks.
_COPIES = ("bandwidth", "bidirectional-bandwidth")
# Between a rank and one partner; and between pairs of ranks, in no ring.
_PAIRS = ("sendrecv", *_COPIES)
_PAIRWISE = ("alltoall", *_PAIRS)
_NVLINK = re.compile(r"NVLink \(NV(\d+)\)$")
_MEMORY = re.compile(r"\d+GB?|HBM\d\w?")
_BITS = 8


@dataclass(frozen=True)
class LinkCapacity:
    """A link of ``gb_per_s`` in each direction; ``kind`` is a key of the usual shares, ``text`` its rate.

    ``ranks`` are behind it. ``place`` is its host or rack, empty if all hosts have the same. ``assumed`` is
    what facts do not tell and is taken as absent: bridges, mesh (further NVLinks) or rack (NVLink between
    hosts).
    """

    kind: str
    text: str
    gb_per_s: float
    ranks: int
    place: str = ""
    assumed: str = ""

    @property
    def usual(self) -> float:
        """Share of a ring's ceiling that large messages usually reach over such a link."""
        return float(_table()["usual"][self.kind])


@dataclass(frozen=True)
class Ceiling:
    """``busbw`` is a ring's or of pairs, ``bound`` limits every figure, in GB/s; ``limit`` is the link.

    ``unknown`` says which links are not known: they may be slower.
    """

    busbw: float
    bound: float
    limit: LinkCapacity
    ring: bool = True
    unknown: str = ""

    @property
    def most(self) -> float:
        """The highest bus bandwidth that can be measured, in GB/s."""
        return self.bound * (_BURSTS if self.limit.kind in ("network", "uplink") else _ROUNDING)

    def share(self, busbw: float) -> float:
        """Return a bus bandwidth as a share of the ceiling."""
        return busbw / self.busbw

    def impossible(self, busbw: float) -> bool:
        """The links cannot carry such a bus bandwidth."""
        return busbw > self.most


@dataclass(frozen=True)
class JudgedCollective:
    """The fastest size of a collective beside its ceiling.

    ``verdict``: ``normal``, ``slow``, ``rising`` (larger messages would be faster), ``impossible``, or
    ``unclear`` if unknown links may be the limit.
    """

    configuration: Configuration
    busbw: float
    ceiling: Ceiling
    verdict: str


def ceiling(
    one: Configuration, facts: Mapping[str, Any], carriers: str = "", reached: float = 0.0
) -> Ceiling | str:
    """Return a collective's ceiling on its hosts, or why none is known ("" for one rank, which sends
    nothing).

    ``carriers`` names the network devices that carried the data, as records have them; by default all cards.
    ``reached`` is the highest bus bandwidth that was measured: slower wirings are ruled out by it.
    """
    operation = OPERATIONS.get(one.workload)
    # With one rank a host or one host, it is known where each rank's partner is.
    by_place = one.workload in _BY_PLACE or (one.workload in _PAIRS and one.across and one.slots > 1)
    if not (operation or one.workload in _COPIES):
        return f"which links {one.workload} uses is not known"
    if by_place:
        return f"which links {one.workload} uses depends on the placement of its ranks"
    if one.ranks < 2:  # noqa: PLR2004
        return ""
    try:
        wirings, unknown = _wirings(one, facts, carriers)
    except LookupError as reason:
        return str(reason.args[0])
    factor = operation.busbw(one.ranks) if operation else 1.0

    def ring(link: LinkCapacity) -> float:
        personal = link.ranks * (one.ranks - link.ranks) / one.ranks
        return link.gb_per_s * factor / personal if one.workload == "alltoall" else link.gb_per_s

    tops = []
    for links in wirings:
        limit = min(links, key=ring)
        bound = min(link.gb_per_s * factor / _cut(one.workload, link.ranks, one.ranks) for link in links)
        tops.append(Ceiling(ring(limit), bound, limit, one.workload not in _PAIRWISE, unknown))
    tops.sort(key=lambda top: top.busbw)
    return next((top for top in tops if not top.impossible(reached)), tops[-1])


def _cut(workload: str, inside: int, ranks: int) -> float:
    """Return the least that crosses a link in its fuller direction, in buffers; ``inside`` are behind it."""
    outside = ranks - inside
    if workload == "alltoall":
        return inside * outside / ranks
    if workload in ("allgather", "reducescatter"):
        return max(inside, outside) / ranks
    return 1.0


def ceilings(records: Sequence[Record], facts: Mapping[str, Any]) -> dict[Configuration, Ceiling | str]:
    """Return the ceiling of each collective of a run, or why none is known; ``facts`` are by host.

    Facts without GPUs take those that an imported run's records name.
    """
    firsts: dict[Configuration, Record] = {}
    reached: dict[tuple[Any, ...], float] = {}
    for record in records:
        if record.metric == "busbw":
            one = configuration_of(record)
            firsts.setdefault(one, record)
            reached[_family(one)] = max(reached.get(_family(one), 0.0), record.value or 0.0)
    result: dict[Configuration, Ceiling | str] = {}
    for one, record in firsts.items():
        known = {host: _add_gpus(facts.get(host) or {}, record.stack) for host in one.hosts}
        if any(answers.mismatch(of_host, Facts) for of_host in known.values()):
            known = {}
        carriers = str(record.stack.get("transport") or "")
        result[one] = ceiling(one, known, carriers, reached[_family(one)])
    return result


def _family(one: Configuration) -> tuple[Any, ...]:
    return (one.workload, one.backend, one.hosts, one.slots, one.without("size_bytes", "in_place"))


def _add_gpus(facts: Mapping[str, Any], stack: Mapping[str, Any]) -> Mapping[str, Any]:
    own = facts.get("hvlab") or {}
    parts = [part.partition(" x ") for part in str(stack.get("gpus") or "").split("; ")]
    gpus = [{"name": name} for count, _, name in parts if count.isdigit() and name for _ in range(int(count))]
    if own.get("gpus") or not gpus:
        return facts or {"hvlab": {}}
    return {**facts, "hvlab": {**own, "gpus": gpus}}


def judge(
    gathered: Mapping[Configuration, Repeats], limits: Mapping[Configuration, Ceiling | str]
) -> list[JudgedCollective]:
    """Judge each collective with a known ceiling by its fastest size."""
    ceilings = {one: each for one, each in limits.items() if isinstance(each, Ceiling)}
    families: dict[tuple[Any, ...], list[tuple[int, float, Configuration]]] = {}
    for one, repeats in gathered.items():
        if one in ceilings and (figures := sorted(repeats.of("busbw"))):
            size = int(one.get("size_bytes", 0))
            families.setdefault(_family(one), []).append((size, figures[len(figures) // 2], one))
    judgements = []
    for sizes in families.values():
        _, busbw, best = max(sizes, key=lambda each: each[1])
        judgements.append(
            JudgedCollective(best, busbw, ceilings[best], _verdict(sizes, busbw, ceilings[best]))
        )
    return judgements


def _verdict(sizes: Sequence[tuple[int, float, Configuration]], busbw: float, limit: Ceiling) -> str:
    if limit.impossible(busbw):
        return "impossible"
    if limit.share(busbw) >= limit.limit.usual:
        return "normal"
    if limit.unknown:
        return "unclear"
    by_size: dict[int, float] = {}
    for size, figure, _ in sizes:
        by_size[size] = max(figure, by_size.get(size, 0.0))
    last = max(by_size)
    # Sizes near the last one say nothing of larger ones.
    first = max((size for size in by_size if size <= last / 2), default=last)
    small = first == last and last < _LARGE
    # For each doubling of the size: logs may have rows left out.
    rises = by_size[last] > by_size[first] * _RISING ** max(1.0, math.log2(max(last, 1) / max(first, 1)))
    return "rising" if small or not by_size[last] or rises else "slow"


def _wirings(
    one: Configuration, facts: Mapping[str, Any], carriers: str
) -> tuple[list[list[LinkCapacity]], str]:
    """Return the links under each wiring that facts leave open, and which links are not known."""
    network: dict[str, list[LinkCapacity]] = {}
    device: dict[str, list[LinkCapacity]] = {}
    to_network: dict[str, list[LinkCapacity]] = {}
    unknown = ""
    for host in one.hosts:
        of_host = facts.get(host)
        if of_host is None:
            raise LookupError(f"no facts of {host}")
        if one.across:
            network[host], reason = _to_hosts(host, of_host, carriers, one)
            unknown = unknown or reason
        if one.get("device") not in _GPUS:
            continue
        try:
            ranks = 2 if one.workload in _PAIRS else one.slots
            device[host] = _device(host, of_host, ranks) if one.slots > 1 else []
        except LookupError as reason:
            if not one.across:
                raise
            unknown = unknown or str(reason.args[0])
        if one.across and (link := _to_network(of_host, one.slots)):
            to_network[host] = [link]
    if one.inside and not device:
        raise LookupError("the ranks of one host share its memory, whose bandwidth is not known")
    uplinks = list(_uplinks(one, facts)) if one.across else []
    parts = [_choices(part) for part in (network, device, to_network) if any(part.values())]
    return [[*itertools.chain(*chosen), *uplinks] for chosen in itertools.product(*parts)], unknown


def _choices(part: Mapping[str, Sequence[LinkCapacity]]) -> Iterator[list[LinkCapacity]]:
    """Yield the links of hosts, the first wiring of each, then the second."""
    for number in range(max(map(len, part.values()))):
        links = {host: wirings[min(number, len(wirings) - 1)] for host, wirings in part.items() if wirings}
        alike = len({(link.text, link.gb_per_s) for link in links.values()}) == 1
        yield [replace(link, place="" if alike else host) for host, link in links.items()]


def _to_hosts(
    host: str, facts: Mapping[str, Any], carriers: str, one: Configuration
) -> tuple[list[LinkCapacity], str]:
    """Return a host's links to others under each wiring, and what is not known of them."""
    row = _gpu(_models(facts)) or {} if one.get("device") in _GPUS else {}
    if "rack" not in row:
        return _network(host, facts, carriers, one), ""
    count, each = row["nvlink"]
    between = LinkCapacity("nvlink", f"{count} x {each} GB/s", count * each, 1)
    reason = f"which hosts share a rack, whose NVLink joins {row['rack']} GPUs, is not known"
    try:
        network = _network(host, facts, carriers, one)
    except LookupError as unknown:
        return [between], str(unknown.args[0])
    if one.ranks > row["rack"]:
        return [*network, between], reason
    return [*(replace(link, assumed="rack") for link in network), between], ""


def _uplinks(one: Configuration, facts: Mapping[str, Any]) -> Iterator[LinkCapacity]:
    racks: dict[tuple[str, str], list[str]] = {}
    for host in one.hosts:
        virtual = facts[host].get("virtual_link") or {}
        if virtual.get("rack") and virtual.get("uplink"):
            racks.setdefault((virtual["rack"], virtual["uplink"]), []).append(host)
    for (rack, rate), hosts in racks.items():
        if len(hosts) < len(one.hosts):
            yield LinkCapacity("uplink", rate, _gigabytes(rate), len(hosts) * one.slots, rack)


def _network(host: str, facts: Mapping[str, Any], carriers: str, one: Configuration) -> list[LinkCapacity]:
    slots = one.slots
    virtual = facts.get("virtual_link") or {}
    limited = [virtual[way] for way in ("up", "down") if virtual.get(way)]
    if limited:
        rate = min(limited, key=_gigabytes)
        return [LinkCapacity("network", rate, _gigabytes(rate), slots)]
    if facts.get("virtual_link"):
        raise LookupError("links of virtual hosts have no rate unless lab_rate sets one")
    own = facts.get("hvlab") or {}
    rates = {
        f"{port['name']}:1": float(port["rate"].split()[0]) * 1000
        for port in (own.get("rdma") or {}).get("devices") or []
        if port.get("rate") and port.get("state", "ACTIVE") == "ACTIVE"
    }
    cards = {nic["name"]: nic.get("speed_mbit") for nic in own.get("nics") or []}
    used = [name.strip() for name in carriers.split(",") if name.strip()] or list(rates or cards)
    speeds = [float(rates.get(name) or cards.get(name) or 0) for name in used]
    if not speeds or not all(speeds):
        raise LookupError(f"{host}: the rate of {carriers or 'its network'} is not known")
    each = ", ".join(sorted({format_speed(int(speed)) for speed in speeds}))
    text = f"{len(speeds)} x {each}" if len(speeds) > 1 else each
    kind = "rdma" if rates.keys() & set(used) else "network"
    whole = LinkCapacity(kind, text, sum(speeds) / 1000 / _BITS, slots)
    if carriers or slots >= min(_WHOLE_HOST, len(speeds)) or len(set(speeds)) > 1:
        return [whole]
    # A rank uses the card beside it, and may use others.
    beside = sum(speeds[:slots]) / 1000 / _BITS
    return [replace(whole, text=f"{slots} of {text}", gb_per_s=beside), whole]


def _to_network(facts: Mapping[str, Any], slots: int) -> LinkCapacity | None:
    """Return the links over which a host's GPUs reach its network cards, if known."""
    gpus = (facts.get("hvlab") or {}).get("gpus") or [{}]
    row = _gpu(_models(facts)) or {}
    return _pcie(gpus, row, slots) if "pcie" in row else None


def _pcie(gpus: Sequence[Mapping[str, Any]], row: Mapping[str, Any], slots: int) -> LinkCapacity:
    negotiated = [str(gpu["pcie"]) for gpu in gpus if gpu.get("pcie")]
    link = min(negotiated, key=_lanes, default=f"{row['pcie']} x16")
    text = " GT/s x".join(link.split(" x"))
    return LinkCapacity("pcie", text if slots == 1 else f"{slots} x {text}", _lanes(link) * slots, slots)


def _device(host: str, facts: Mapping[str, Any], slots: int) -> list[LinkCapacity]:
    """Return the links of a host's GPUs with one another under each wiring."""
    own, name = facts.get("hvlab") or {}, _models(facts)
    row = _gpu(name)
    if "; " in name or not name:
        raise LookupError(f"{host}: its GPUs are {name or 'not known'}")
    if row is None:
        raise LookupError(f"{host}: the links of {name} are not known")
    if "xgmi" in row:
        # Each pair has links of its own.
        count, each = row["xgmi"]
        return [_bundle("xgmi", count * (slots - 1), each)]
    topology = own.get("topology") or {}
    connected = topology.get("link")
    match = _NVLINK.match(connected or "")
    joined, *bridge = row.get("bridges") or [0]
    if (links := row.get("nvlink") or (bridge if match or slots <= joined else None)) and (
        match or connected is None
    ):
        count, each = links
        count = int(topology.get("nvlinks") or count)
        # A switch connects all links of a GPU with each other one; without, each pair has links of its own.
        count = min(count, int(match.group(1)) * (slots - 1)) if match else count
        certain = match or topology.get("nvlinks")
        fewer = [one * (slots - 1) for one in row.get("pairs") or [] if one * (slots - 1) < count]
        mesh = [replace(_bundle("nvlink", one, each), assumed="mesh") for one in fewer if not certain]
        without = (
            [] if "nvlink" in row or certain else [replace(_pcie(own["gpus"], row, 1), assumed="bridges")]
        )
        return [*without, *mesh, _bundle("nvlink", count, each)]
    if connected and not connected.startswith("PCIe") and not joined:
        raise LookupError(f"{host}: its GPUs are connected by {connected}")
    if "pcie" not in row:
        raise LookupError(f"{host}: the PCIe link of {name} is not known")
    link = _pcie(own["gpus"], row, 1)
    if not joined or (connected or "").startswith("PCIe"):
        return [link]
    # Two that a bridge joins reach the others over both their links.
    both = replace(link, text=f"{joined} x {link.text}", gb_per_s=joined * link.gb_per_s)
    return [replace(link, assumed="bridges"), both]


def _bundle(kind: str, count: int, each: float) -> LinkCapacity:
    return LinkCapacity(kind, f"{count} x {each} GB/s", count * each, 1)


def _lanes(text: str) -> float:
    generation, _, width = text.partition(" x")
    return float(_table()["pcie"].get(generation, 0)) * int(width or 0)


def _models(facts: Mapping[str, Any]) -> str:
    gpus = (facts.get("hvlab") or {}).get("gpus") or []
    return "; ".join(sorted({str(gpu.get("name")) for gpu in gpus}))


def _gpu(name: str) -> Mapping[str, Any] | None:
    """Return the row of a GPU, the one with most words in its name; None for several or none."""
    if "; " in name or not name:
        return None
    upper = re.sub(r"\b([RG]TX)(?=\d)|(?<=\d)(?=TI\b)", r"\1 ", name.upper())
    words = [word for word in re.split(r"[\s_-]+", upper) if word != "NVIDIA"]
    rows: Mapping[str, Mapping[str, Any]] = _table()["gpus"]
    # A row's SXM also stands for SXM4 and the like.
    named = {*words, *("SXM" for word in words if word.startswith("SXM"))}
    if fitting := [key for key in rows if named.issuperset(key.split())]:
        return rows[max(fitting, key=len)]
    # People say H100 where they mean the model with NVLink, and 4090 without RTX.
    said = {word for word in words if not _MEMORY.fullmatch(word)}
    fitting = [key for key in rows if said and said <= set(key.split())]
    linked = [key for key in fitting if "nvlink" in rows[key]]
    return rows[linked[0]] if linked else rows[fitting[0]] if len(fitting) == 1 else None


@cache
def _table() -> Mapping[str, Any]:
    content: Mapping[str, Any] = read_shipped(Path(__file__).with_name("links.yml"))
    return content


def is_known(gpu: str) -> bool:
    """Whether the links of a GPU of this name are known."""
    return _gpu(gpu) is not None


def models() -> list[str]:
    """Return the words that name one model of a GPU, such as h100, in lower case."""
    words = {word.lower() for name in _table()["gpus"] for word in name.split()}
    return sorted(word for word in words if re.search("[a-z]", word) and re.search("[0-9]", word))


def infiniband(generation: str) -> int | None:
    """Return the rate of a port in Gbit/s."""
    rate: int | None = _table()["infiniband"].get(generation)
    return rate


def _gigabytes(rate: str) -> float:
    return names.rate(rate) / 1e9 / _BITS
