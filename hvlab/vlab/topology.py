"""A topology file: racks with their uplinks, and limits of single links and pairs of hosts. Pure.

docs/virtual-lab.md describes the format. Rates are in tc's notation (``100mbit``); up is traffic out of a
host or a rack, down is traffic into it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hvlab.base.errors import UsageError
from hvlab.base.yaml_files import read_yaml
from hvlab.vlab import names

_TIME = re.compile(r"\d+(?:\.\d+)?(?:us|ms|s)")
_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_LINK_KEYS = ("rate", "up", "down", "delay", "loss")
MAX_RACKS = 64
FULL_WEIGHT = 100
_WEIGHTS = range(1, 10001)


@dataclass(frozen=True)
class LinkLimits:
    """The limits of a link: ``up`` and ``down`` are rates; None limits nothing.

    ``delay`` (``2ms``) and ``loss`` (``0.1%``) hold for each packet in each direction.
    """

    up: str | None = None
    down: str | None = None
    delay: str | None = None
    loss: str | None = None

    def over(self, other: LinkLimits) -> LinkLimits:
        """Return these limits, and those of ``other`` where these say nothing."""
        own = {name: value for name, value in vars(self).items() if value is not None}
        return replace(other, **own)


@dataclass(frozen=True)
class Rack:
    """Hosts on a switch of their own, connected to the others by one uplink."""

    name: str
    hosts: tuple[str, ...]
    uplink: LinkLimits = LinkLimits()


@dataclass(frozen=True)
class PairLimit:
    """The rate of what ``source`` sends to ``target``."""

    source: str
    target: str
    rate: str


@dataclass(frozen=True)
class Topology:
    """``link`` is for every host, ``links`` for single ones; ``weights`` are CPU weights, normally 100."""

    link: LinkLimits = LinkLimits()
    racks: tuple[Rack, ...] = ()
    links: Mapping[str, LinkLimits] = field(default_factory=dict)
    weights: Mapping[str, int] = field(default_factory=dict)
    pairs: tuple[PairLimit, ...] = ()

    def rack_of(self, host: str) -> int | None:
        """Return the number of a host's rack, from 1; None outside of all racks."""
        numbers = (number for number, rack in enumerate(self.racks, 1) if host in rack.hosts)
        return next(numbers, None)


def load(path: Path, hosts: Sequence[str]) -> Topology:
    """Return the topology in a file. Raises UsageError with all that is wrong; ``hosts`` are the lab's."""
    try:
        content = read_yaml(path)
    except ValueError as error:
        raise UsageError(f"the topology {path} cannot be read: {error}") from error
    return parse(content, hosts, name=str(path))


def parse(content: object, hosts: Sequence[str], *, name: str = "file") -> Topology:
    """Return the topology that a file's content describes. Raises UsageError like ``load``."""
    reader = _Reader(hosts)
    topology = reader.topology(content)
    if reader.problems:
        lines = "".join(f"\n  {problem}" for problem in reader.problems)
        raise UsageError(
            f"the topology {name} cannot be used:{lines}", remedy="docs/virtual-lab.md describes the format"
        )
    return topology


class _Reader:
    """Reads each part, and keeps every problem instead of stopping at the first."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self.hosts = hosts
        self.problems: list[str] = []

    def topology(self, content: object) -> Topology:
        table = self.table(content, "it", ("rate", "racks", "hosts", "pairs"))
        rate = self.rate(table.get("rate"), "rate")
        racks = tuple(self.racks(table.get("racks")))
        per_host = self.mapping(table.get("hosts"), "hosts")
        links, weights = {}, {}
        for host, entry in per_host.items():
            where = f"hosts: {host}"
            self.check_known(host, "hosts")
            own = self.table(entry, where, (*_LINK_KEYS, "cpu_weight"))
            links[host] = self.link(own, where)
            if "cpu_weight" in own:
                weights[host] = self.weight(own["cpu_weight"], where)
        return Topology(
            link=LinkLimits(rate, rate), racks=racks, links=links, weights=weights,
            pairs=tuple(self.pairs(table.get("pairs"))),
        )  # fmt: skip

    def racks(self, content: object) -> Iterator[Rack]:
        racks = self.mapping(content, "racks")
        if len(racks) > MAX_RACKS:
            self.problems.append(f"racks: there are {len(racks)}, a lab can have {MAX_RACKS}")
        rack_of: dict[str, str] = {}
        for name, entry in racks.items():
            where = f"racks: {name}"
            table = self.table(entry, where, ("hosts", "uplink"))
            members = tuple(str(host) for host in self.sequence(table.get("hosts"), f"{where}: hosts"))
            for host in members:
                self.check_known(host, where)
                if host in rack_of:
                    self.problems.append(f"{where}: {host} is in rack {rack_of[host]}, too")
                rack_of[host] = name
            if not members:
                self.problems.append(f"{where}: it has no hosts")
            uplink = self.table(table.get("uplink"), f"{where}: uplink", _LINK_KEYS)
            yield Rack(name, members, self.link(uplink, f"{where}: uplink"))

    def pairs(self, content: object) -> Iterator[PairLimit]:
        limited: set[tuple[str, str]] = set()
        for number, entry in enumerate(self.sequence(content, "pairs"), 1):
            where = f"pairs: entry {number}"
            table = self.table(entry, where, ("from", "to", "between", "rate"))
            if "between" in table:
                ends = [str(host) for host in self.sequence(table["between"], f"{where}: between")]
            else:
                ends = [str(table[name]) for name in ("from", "to") if name in table]
            rate = self.rate(table.get("rate"), where)
            if len(set(ends)) != 2 or len(ends) != 2 or rate is None:  # noqa: PLR2004
                self.problems.append(
                    f"{where}: write {{from: n1, to: n2, rate: 20mbit}} or between: [n1, n2]"
                )
                continue
            for host in ends:
                self.check_known(host, where)
            for source, target in [ends, ends[::-1]] if "between" in table else [ends]:
                if (source, target) in limited:
                    self.problems.append(f"{where}: {source} to {target} is limited twice")
                limited.add((source, target))
                yield PairLimit(source, target, rate)

    def link(self, table: Mapping[str, Any], where: str) -> LinkLimits:
        rate = self.rate(table.get("rate"), where)
        up, down = (self.rate(table.get(name), where) for name in ("up", "down"))
        delay, loss = (None if table.get(name) is None else str(table[name]) for name in ("delay", "loss"))
        if delay is not None and not _TIME.fullmatch(delay):
            self.problems.append(f"{where}: delay {delay!r} is not a time such as 2ms")
        share = _SHARE.fullmatch(loss) if loss is not None else None
        if loss is not None and not (share and 0 < float(share[1]) < 100):  # noqa: PLR2004
            self.problems.append(f"{where}: loss {loss!r} is not a share such as 0.1%")
        return LinkLimits(up or rate, down or rate, delay, f"{share[1]}%" if share else None)

    def rate(self, value: object, where: str) -> str | None:
        if value is None:
            return None
        try:
            names.rate(str(value))
        except UsageError as error:
            self.problems.append(f"{where}: {error}, write it as tc does (100mbit)")
        return str(value).strip()

    def weight(self, value: object, where: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value not in _WEIGHTS:
            self.problems.append(f"{where}: cpu_weight {value!r} is not a whole number from 1 to 10000")
            return FULL_WEIGHT
        return value

    def check_known(self, host: str, where: str) -> None:
        if host not in self.hosts:
            self.problems.append(f"{where}: {host} is not a virtual host of the inventory")

    def mapping(self, value: object, where: str) -> dict[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.problems.append(f"{where} is not a mapping")
            return {}
        return {str(key): inner for key, inner in value.items()}

    def table(self, value: object, where: str, keys: Sequence[str]) -> dict[str, Any]:
        """Return a mapping that may have these keys only."""
        table = self.mapping(value, where)
        self.problems += [
            f"{where} has no key {key}, only {', '.join(keys)}" for key in table if key not in keys
        ]
        return table

    def sequence(self, value: object, where: str) -> list[Any]:
        if value is not None and not isinstance(value, list):
            self.problems.append(f"{where} is not a list")
            return []
        return value or []
