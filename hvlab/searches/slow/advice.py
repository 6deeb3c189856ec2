"""The outcome of a search in words: what is slow, what was measured, what to do next. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hvlab.lab.cores import fair_shares
from hvlab.searches.slow import suspects
from hvlab.searches.slow.search import SlowSearch
from hvlab.searches.slow.steps import STILL
from hvlab.searches.slow.suspects import Groups
from hvlab.searches.slow.trials import Judgement

# A host with less than this share of the processor time of the others is short of time, not speed.
_LESS_TIME = 0.85
# Larger ratios carry no information: hardly anything arrives.
_MOST_TIMES = 1000
_CARD = "check this host's network card, cable and switch port while"
_REMEDIES = {
    "time": "look for other processes there (`top`), for steal time on a virtual machine, and for a CPU "
    "quota or weight of its control group",
    "speed": "compare clock, temperature and power limit of its processors with another host's "
    "(`hvlab health`)",
    "copy": "compare PCIe generation and width of its GPUs with another host's (`hvlab health`). "
    "`hvlab health --burn` measures each GPU",
    "up": f"{_CARD} it sends: speed, errors and drops (`ethtool`, `ethtool -S`, `tc -s qdisc`), and receive "
    "errors on the switch",
    "down": f"{_CARD} it receives: errors and drops of the card (`ethtool -S`), its interrupts, and transmit "
    "drops on the switch port",
    "pair": "check the path between these two (route, switch, firewall and `tc` rules): both are fast with "
    "all other hosts",
    **dict.fromkeys(
        ("out", "in"),
        "check the uplink that these hosts share, such as that of their rack: a bundle member that is down, "
        "its rate, and drops on the switch",
    ),
}
_NOTHING = "look for a firewall rule, a route or a cable that lets nothing through. Then"


@dataclass(frozen=True)
class SlowPlace:
    """A judgement in words: which host or link, what was seen, what to do."""

    title: str
    observed: str
    remedy: str


def describe(
    judgement: Judgement, names: Sequence[str], shares: Mapping[int, Sequence[float]] | None = None
) -> SlowPlace:
    """Put a judgement into words; ``shares`` are the shares of a processor that each host got, by place."""
    suspect = judgement.suspect
    host, other = (names[place] for place in suspect.cell)
    members = ", ".join(names[place] for place in suspect.members)
    slower = judgement.slower
    low, middle, high = map(format_times, (slower.low, slower.mid, slower.high))
    observed = f"{middle} times as long as the others ({low} to {high})"
    if suspect.kind == "host":
        share = relative_share(suspect.host, shares or {})
        less = share is not None and share < _LESS_TIME
        title = f"{host} computes slowly"
        remedy = _REMEDIES["time" if less else "speed"]
        if share is not None:
            observed += f"; it got {share:.0%} of the processor time that the others got"
    else:
        title = {
            "copy": f"{host} copies slowly to and from its devices",
            "up": f"{host} sends slowly, to every host",
            "down": f"{host} receives slowly, from every host",
            "pair": f"{host} to {other} is slow, in this direction",
            "out": f"{members} share a slow uplink, sending to the others at once",
            "in": f"{members} share a slow uplink, receiving from the others at once",
        }[suspect.kind]
        remedy = _REMEDIES[suspect.kind]
        if _has_nothing_arrived(judgement):
            observed, remedy = (
                f"nothing arrived, beside {format_speed(judgement.others)}",
                f"{_NOTHING} {remedy}",
            )
        else:
            observed += f": {format_speed(judgement.rate)} beside {format_speed(judgement.others)}"
    observed += f"; in {judgement.wins} of {judgement.trials} trials, by chance {judgement.chance:.1g}"
    return SlowPlace(title, observed, remedy)


def relative_share(host: int, shares: Mapping[int, Sequence[float]]) -> float | None:
    """Return a host's processor time over the median of the others'; None if it was not read."""
    if host not in shares or len(shares) == 1:
        return None
    others = [statistics.median(each) for place, each in shares.items() if place != host]
    return statistics.median(shares[host]) / max(statistics.median(others), 1e-9)


def lacks_shared_cores(
    judgement: Judgement,
    names: Sequence[str],
    shares: Mapping[int, Sequence[float]],
    cores: Mapping[str, Sequence[int]],
) -> Sequence[str]:
    """Return the virtual hosts that share a slow host's cores, if that explains its processor time."""
    suspect = judgement.suspect
    share = relative_share(suspect.host, shares) if suspect.kind == "host" else None
    fair = fair_shares({name: cores[name] for name in names if name in cores})
    expected = relative_share(suspect.host, {names.index(name): [part] for name, part in fair.items()})
    if share is None or expected is None or not expected * _LESS_TIME <= share < _LESS_TIME:
        return []
    own = set(cores[names[suspect.host]])
    return [name for name in fair if name != names[suspect.host] and own & set(cores[name])]


def format_times(value: float) -> str:
    """Format a ratio for people."""
    return f"{value:.2f}" if value < _MOST_TIMES else f"over {_MOST_TIMES}"


def _has_nothing_arrived(judgement: Judgement) -> bool:
    return judgement.suspect.kind not in suspects.WORK and judgement.rate <= STILL


def format_speed(rate: float) -> str:
    """Format bytes per second for people."""
    for unit, size in (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)):
        if rate >= size:
            return f"{rate / size:.3g} {unit}"
    return f"{rate:.0f} B/s"


def compare_effort(result: SlowSearch) -> str:
    """Compare the launches of the search with those of a full matrix of pairs."""
    launches = f"{result.launches} launch" + ("es" if result.launches > 1 else "")
    return (
        f"{result.hosts} hosts, {len(result.links)} links in {launches} ({result.rounds} rounds); "
        f"`hvlab bench --hosts pairs:all` would need {result.pair_launches} launches"
    )


def explain_shared_links(result: SlowSearch, names: Sequence[str]) -> str:
    """Explain links that were slow only while all hosts sent at once."""
    between = f" ({_list_groups(result.sharing, names)})" if result.sharing else ""
    suspects = f"{result.together} suspect{'s' * (result.together > 1)}"
    return (
        f"{suspects} while all hosts sent at once, so each link was measured alone. Hosts "
        f"share a bottleneck, such as the uplink of a rack{between}"
    )


def _list_groups(groups: Groups, names: Sequence[str]) -> str:
    return " | ".join(", ".join(names[host] for host in group) for group in groups)


def describe_far_groups(result: SlowSearch, names: Sequence[str]) -> str:
    """Describe the groups of hosts that are far from each other."""
    listed = _list_groups(result.groups, names)
    between = _times_between(result)
    longer = (
        "nothing arrives over the links between them"
        if math.isinf(between)
        else f"a link between them takes {format_times(between)} times as long as one within"
    )
    return (
        f"groups of hosts are far from each other: {listed}\n  observed: {longer} (medians; each link was "
        "measured once, alone)\n  what to do: check what connects the groups, such as the uplink of a rack"
    )


def _times_between(result: SlowSearch) -> float:
    between = set(suspects.crossing(result.groups))
    within = [value for cell, value in result.links.items() if cell not in between]
    return statistics.median(result.links[cell] for cell in between) / statistics.median(within)


def list_unconfirmed(result: SlowSearch, names: Sequence[str]) -> list[str]:
    """List the suspects of the first launch that the trials did not confirm: hosts, then links."""
    titles: dict[bool, list[str]] = {True: [], False: []}
    for each in result.of("fine"):
        titles[each.suspect.kind in suspects.WORK].append(describe(each, names).title)
    words = {
        True: "slow in the first launch, but not when measured again",
        False: "slow only while all hosts were at work, not alone",
    }
    return [f"{words[host]}: {'; '.join(own)}" for host, own in titles.items() if own]


def explain_untried(result: SlowSearch) -> str:
    """Explain how to judge the suspects that were not measured again."""
    remedy = (
        "fix what is slow, then run this again"
        if result.of("slow")
        else "run this again, for fewer hosts with --limit"
    )
    more = "1 more suspect was" if result.untried == 1 else f"{result.untried} more suspects were"
    return f"{more} not measured again: {remedy}"


def conclude(result: SlowSearch) -> str:
    """Return the last line of a search that found nothing slow."""
    where = "within these groups, " if result.groups else ""
    certain = not result.of("open") and not result.untried
    return where + ("nothing is slow" if certain else "nothing is known to be slow")


def as_json(
    result: SlowSearch,
    names: Sequence[str],
    shares: Mapping[int, Sequence[float]],
    excused: Collection[Judgement] = (),
) -> dict[str, Any]:
    """Return the whole outcome, JSON-ready: rates in bytes per second, ``links_times_median`` by sender.

    A ratio is None where nothing arrived. ``excused`` are slow for lack of cores that they share.
    """
    slow = result.of("slow")
    return {
        "hosts": list(names),
        "slow": [_row(each, names, shares) for each in slow if each not in excused],
        "on_shared_cores": [_row(each, names, shares) for each in slow if each in excused],
        "undecided": [_row(each, names, shares) for each in result.of("open")],
        "not_slow_alone": [_row(each, names, shares) for each in result.of("fine")],
        "untried": result.untried,
        "far_groups": [[names[host] for host in group] for group in result.groups],
        "far_groups_times": _finite(_times_between(result)) if result.groups else None,
        "sharing_groups": [[names[host] for host in group] for group in result.sharing],
        "suspects_together": result.together,
        "launches": result.launches,
        "rounds": result.rounds,
        "pair_launches": result.pair_launches,
        "median_bytes_per_s": result.median_rate,
        "links_times_median": [
            [_finite(result.links.get((sender, receiver))) for receiver in range(result.hosts)]
            for sender in range(result.hosts)
        ],
        "computing_times_median": list(result.computing),
    }


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else value


def _row(judgement: Judgement, names: Sequence[str], shares: Mapping[int, Sequence[float]]) -> dict[str, Any]:
    suspect, slower = judgement.suspect, judgement.slower
    place = describe(judgement, names, shares)
    return {
        "kind": suspect.kind,
        "host": names[suspect.host],
        "to": names[suspect.cell[1]] if suspect.kind == "pair" else None,
        "hosts": [names[place] for place in suspect.members],
        "times_as_long": None
        if _has_nothing_arrived(judgement)
        else {"low": slower.low, "median": slower.mid, "high": slower.high},
        "trials": judgement.trials,
        "slower_in": judgement.wins,
        "chance": judgement.chance,
        "observed": place.observed,
        "remedy": place.remedy,
    }
