"""A job that stands still: which rank, on which host, and why, from what its hosts saw. Pure.

In: the answers of `workloads/programs/standing.py`, by host. Nothing is said of a rank that still moves.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import permutations
from pathlib import Path
from typing import Any

from hvlab.base.ranges import format_ranges
from hvlab.base.yaml_files import read_shipped
from hvlab.doctor import last_words, recorders
from hvlab.doctor.last_words import LastWords
from hvlab.doctor.places import RankPlace, by_majority, groups, of_rank

_TABLES = read_shipped(Path(__file__).with_suffix(".yml"))
_FINDINGS, _UNSEEN, _BLOCKS = _TABLES["findings"], _TABLES["unseen"], _TABLES["blocks"]
# A busy rank's share of one core, and the bytes in a few seconds that show reading or writing.
_BUSY, _READS = 0.5, 2**16
# Times what the ranks that wait read and write.
_MORE = 4


@dataclass(frozen=True)
class Holdup:
    """What holds the job up: ranks and hosts, where they stand, why, and what to do."""

    id: str
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    where: str
    why: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.named}: {self.where}: {self.why}"

    @property
    def named(self) -> str:
        """The ranks and hosts, as far as they are known."""
        ranks = f"rank{'s' * (len(self.ranks) > 1)} {format_ranges(self.ranks)}" if self.ranks else ""
        return " on ".join(filter(None, (ranks, ", ".join(self.hosts)))) or "a rank that is not named"


@dataclass(frozen=True)
class Standing:
    """A job, where its ranks are, and what holds it up; None where nothing does, or nothing shows it."""

    job: str
    hosts: tuple[str, ...]
    ranks: int
    groups: tuple[str, ...]
    culprit: Holdup | None
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it for machines."""
        return asdict(self)


@dataclass(frozen=True)
class _Job:
    """All that is known of one job; ``over`` says that it is over its time, so that slow counts, too."""

    places: Sequence[RankPlace]
    answers: Mapping[str, Mapping[str, Any]]
    silent: Mapping[str, str]
    over: bool

    @property
    def waiting(self) -> list[RankPlace]:
        """The ranks that wait for others."""
        return [place for place in self.places if place.waits]

    @property
    def apart(self) -> list[RankPlace]:
        """The ranks that do not."""
        return [place for place in self.places if not place.waits]

    @property
    def moves(self) -> bool:
        """Whether any of those that wait came further."""
        return any(place.seen["moved"] for place in self.waiting)


def judge(
    answers: Mapping[str, Mapping[str, Any]],
    silent: Mapping[str, str],
    *,
    which: str = "",
    over: bool = False,
    log: str = "",
) -> list[Standing]:
    """Return every job on the hosts, or the one that ``which`` names: a pid, a Slurm job or a case.

    A ``log`` tells which rank ended its job, unless ``which`` runs with all its ranks.
    """
    jobs: dict[str, list[tuple[str, Mapping[str, Any]]]] = defaultdict(list)
    for host, answer in answers.items():
        for rank in answer["ranks"]:
            # One that ended while its host looked counts as gone.
            if not rank["states"].endswith(("X", "Z")):
                jobs[rank["job"]].append((host, rank))
    _join(jobs)
    chosen = {
        name: ranks
        for name, ranks in jobs.items()
        if not which
        or any(own == which or own.endswith(f"/{which}") for _, rank in ranks for own in rank["names"])
    }
    now = [_judge_job(name, ranks, answers, silent, over) for name, ranks in sorted(chosen.items())]
    whole = [job for job in now if not job.culprit or job.culprit.id not in ("missing", "memory")]
    last = last_words.read(log) if log and not (which and whole) else None
    return [*whole, _explain_end(which, last, answers)] if last else now


def _join(jobs: dict[str, list[tuple[str, Mapping[str, Any]]]]) -> None:
    """Join two jobs of one program that have exactly each other's missing ranks."""
    for name, other in permutations(sorted(jobs, key=lambda name: -len(jobs[name])), 2):
        both = [rank for each in (name, other) for _, rank in jobs.get(each, ())]
        numbers = sorted(rank["rank"] for rank in both)
        alike = len({(rank["program"], rank["size"]) for rank in both}) == 1
        if name in jobs and other in jobs and alike and numbers == [*range(both[0]["size"] or 0)]:
            jobs[name] += jobs.pop(other)


def _explain_end(which: str, last: LastWords, answers: Mapping[str, Mapping[str, Any]]) -> Standing:
    """Return the job with the ranks that ended it; without a host, on the only one whose kernel killed."""
    killed = [host for host, answer in answers.items() if _ran_out_of_memory(answer)]
    names = {answer["host"].partition(".")[0]: host for host, answer in answers.items()}
    homes = {rank: names.get(host.partition(".")[0], host) for rank, host in last.homes.items()}
    if last.kind == "killed" and len(killed) == 1:
        homes = dict.fromkeys(last.ranks, killed[0]) | homes
    culprit = blame(last, homes, list(answers))
    if culprit.id == "killed" and set(culprit.hosts) & set(killed):
        culprit = blame(replace(last, kind="memory"), homes, list(answers))
    return Standing(which or "that has ended", tuple(answers), 0, (), culprit, ())


def blame(last: LastWords, homes: Mapping[int, str], hosts: Sequence[str]) -> Holdup:
    """Return the ranks that ended a job; their hosts are in ``homes``, or ranks fill ``hosts`` in order."""
    order = last_words.by_order(last.size, hosts)
    # The log knows better.
    if any(order.get(rank) != host for rank, host in homes.items()):
        order = {}
    placed = {rank: (order | dict(homes))[rank] for rank in last.ranks if rank in {*order, *homes}}
    where = "its log shows that" if last.kind in ("behind", "error") else "the job has ended"
    if set(placed) - set(homes):
        where += (
            f" (its {last.size} ranks fill {', '.join(hosts[:3])}{' ...' * (len(hosts) > 3)} in this order)"  # noqa: PLR2004
        )
    if placed and len(placed) < len(last.ranks):
        where += "".join(f"; rank {rank} ran on {host}" for rank, host in placed.items())
    own = tuple(dict.fromkeys(placed.values())) if len(placed) == len(last.ranks) else ()
    words = {"host": ", ".join(own) or "its host, which the log does not name", "detail": last.detail}
    row = {name: text.format(**words, pid="") for name, text in _FINDINGS[last.kind].items()}
    return Holdup(last.kind, tuple(last.ranks), own, where, row["why"], row["remedy"])


def _judge_job(
    name: str,
    ranks: Sequence[tuple[str, Mapping[str, Any]]],
    answers: Mapping[str, Mapping[str, Any]],
    silent: Mapping[str, str],
    over: bool,
) -> Standing:
    places = sorted((of_rank(host, rank) for host, rank in ranks), key=lambda place: place.rank)
    if not any(place.waits for place in places):
        places = by_majority(places)
    job = _Job(places, answers, silent, over)
    culprit = next(filter(None, (find(job) for find in _FINDERS)), None)
    return Standing(
        name,
        tuple(dict.fromkeys(place.host for place in places)),
        len(places),
        tuple(groups(places)),
        culprit,
        tuple(dict.fromkeys(_list_notes(job, culprit))),
    )


def _blame_places(kind: str, places: Sequence[RankPlace], detail: str = "", *, where: str = "") -> Holdup:
    words = {
        "detail": detail,
        "host": ", ".join(dict.fromkeys(place.host for place in places)),
        "pid": ", ".join(str(place.seen["pid"]) for place in places),
    }
    return _make_holdup(kind, tuple(place.rank for place in places), places, where or places[0].where, words)


def _make_holdup(
    kind: str, ranks: tuple[int, ...], places: Sequence[RankPlace], where: str, words: Mapping[str, str]
) -> Holdup:
    row = _FINDINGS[kind]
    hosts = tuple(dict.fromkeys(place.host for place in places)) or (words["host"],)
    return Holdup(kind, ranks, hosts, where, row["why"].format(**words), row["remedy"].format(**words))


def _find_stopped(job: _Job) -> Holdup | None:
    own = [place for place in job.places if place.seen["states"].endswith(("TT", "tt"))]
    if own:
        return _blame_places("traced" if own[0].seen["states"].endswith("t") else "stopped", own)
    own = [place for place in job.apart if place.seen["stopped"] and _is_still(job, place)]
    detail = ", ".join(str(pid) for place in own for pid in place.seen["stopped"])
    return _blame_places("worker", own, detail) if own and not job.moves else None


def _find_split(job: _Job) -> Holdup | None:
    """Return the ranks that look for the others at another address: not the most, or not rank 0's."""
    most = Counter(place.seen["job"] for place in job.places).most_common()[0][0]
    own = [place for place in job.places if place.seen["job"] != most]
    if not own or job.moves:
        return None
    return _blame_places("split", own, f"{own[0].seen['job']}, the others at {most}")


def _find_waiting_for_disk(job: _Job) -> Holdup | None:
    own = [place for place in job.places if place.seen["disk_waits"] and not _is_reading(job, place)]
    return _blame_places("disk", own, ", ".join(own[0].seen["disk_waits"])) if own and not job.moves else None


def _find_missing(job: _Job) -> Holdup | None:
    """Return ranks without a process, on the host that has fewer than it should."""
    size = max((place.seen["size"] or 0 for place in job.places), default=0)
    gone = tuple(rank for rank in range(size) if rank not in {place.rank for place in job.places})
    if not gone or job.moves:
        return None
    if job.silent:
        host = ", ".join(job.silent)
        return _make_holdup("silent", gone, (), "not known", {"host": host, "detail": "", "pid": ""})
    killed = [host for host, answer in job.answers.items() if _ran_out_of_memory(answer)]
    held = Counter(place.host for place in job.places)
    fewer = [place.host for place in job.places if held[place.host] < (place.seen["local_size"] or 0)]
    empty = [host for host in job.answers if not held[host]]
    hosts = [*dict.fromkeys([host for host in killed if host in fewer + empty] or fewer or empty or killed)]
    if not hosts:
        return None
    most = max((place.seen["local_size"] or 0 for place in job.places), default=0)
    # Where more are gone than ran there, who ended first is not known.
    ranks = gone if not most or len(gone) <= sum(most - held[host] for host in hosts) else ()
    words = {"host": ", ".join(hosts), "detail": "", "pid": ""}
    return _make_holdup(
        "memory" if hosts[0] in killed else "missing", ranks, (), "its process is gone", words
    )


def _ran_out_of_memory(answer: Mapping[str, Any]) -> bool:
    return bool(answer["memory_kills"]) or any(
        re.search(r"Killed process|oom-kill:|out of memory", line) for line in answer["kernel"]
    )


def _find_unanswering(job: _Job) -> Holdup | None:
    """Return the host that acknowledges nothing of what others send."""
    if job.moves or any(_is_still(job, place) for place in job.apart):
        return None
    homes = {address: host for host, answer in job.answers.items() for address in answer["addresses"]}
    ends: Counter[str] = Counter()
    for place in job.places:
        for host in {homes.get(address, address) for address in place.seen["unacknowledged"]}:
            ends.update({host, place.host} if host != place.host else ())
    most = _select_most(ends, [*ends])
    # Both ends of one connection: which of them answers the others?
    silent: Counter[str] = Counter()
    for host, answer in job.answers.items():
        for address in answer.get("unanswered") or ():
            silent.update((host, homes.get(address, address)))
    most = _select_most(silent, most)
    down = [host for host in most if host in job.answers and job.answers[host]["dead_links"]]
    detail = "what is sent between it and other hosts is not acknowledged (TCP repeats it)"
    return _blame_link(job, down or most, detail) if ends else None


def _select_most(numbers: Counter[str], hosts: Sequence[str]) -> list[str]:
    return [host for host in hosts if numbers[host] == max(numbers[each] for each in hosts)]


def _find_down(job: _Job) -> Holdup | None:
    """Return the host whose own link is down, where nothing else shows why a job stands."""
    own = {place.host for place in job.places}
    down = [host for host, answer in job.answers.items() if host in own and answer["dead_links"]]
    stands = not job.moves and not any(_is_still(job, place) for place in job.apart)
    return _blame_link(job, down, "") if down and stands else None


def _blame_link(job: _Job, hosts: Sequence[str], detail: str) -> Holdup:
    links = job.answers[hosts[0]]["dead_links"] if hosts[0] in job.answers else ()
    places = [place for place in job.places if place.host in hosts[:2]]
    detail = f"{', '.join(links)} is down there" if links else detail
    words = {"host": ", ".join(hosts[:2]), "detail": detail, "pid": ""}
    ranks = tuple(place.rank for place in places)
    return _make_holdup("link", ranks, places, places[0].where if places else "", words)


def _find_recorded(job: _Job) -> Holdup | None:
    """Return the ranks that torch's flight recorder, or NCCL itself, misses in a collective."""
    if job.moves:
        return None
    for found in (recorders.flight(job.places), recorders.ras(job.answers, job.places)):
        if found:
            kind, ranks, detail = found
            own = [
                place
                for place in job.places
                if place.rank in ranks and (job.over or not _is_busy(job, place))
            ]
            if own:
                return _blame_places(kind, own, detail)
    return None


def _is_still(job: _Job, place: RankPlace) -> bool:
    """Say whether a rank outside the collectives, workers included, neither computes nor reads."""
    return not place.seen["moved"] and _wanted_cpu(job, place) < _BUSY and not _is_reading(job, place)


def _is_reading(job: _Job, place: RankPlace) -> bool:
    """Say whether a rank reads or writes more than those that wait: Horovod's Gloo never rests."""
    idle = max((each.seen["io"] for each in job.waiting), default=0)
    return bool(place.seen["io"] > max(_READS, _MORE * idle))


def _is_busy(job: _Job, place: RankPlace) -> bool:
    return not place.waits and _wanted_cpu(job, place) >= _BUSY


def _wanted_cpu(job: _Job, place: RankPlace) -> float:
    """Return the cores that a rank uses or, on a busy host, waits for; threads of libraries never rest."""
    idle = max((_number(each, "threads_cpu") for each in job.waiting), default=0)
    own = [_number(place, name) for name in ("cpu", "wanted_cpu", "below_cpu")]
    return max(*own, _number(place, "threads_cpu") - idle)


def _number(place: RankPlace, name: str) -> float:
    return float(place.seen.get(name) or 0)


def _find_apart(job: _Job) -> Holdup | None:
    """Return the ranks that are somewhere else while the others wait."""
    if job.moves or not job.waiting:
        return None
    for place in job.apart:
        full = job.answers[place.host]["full_disks"]
        if full and (place.kind == "save" or not _is_still(job, place)):
            return _blame_places("full", [place], ", ".join(full))
    still = [place for place in job.apart if _is_still(job, place) and place.seen["stack"]]
    if still:
        kind = "loader" if still[0].kind == "loader" else "elsewhere"
        own = [place for place in still if place.site == still[0].site]
        return _blame_places(kind, own, _explain_block(still[0]))
    busy = [place for place in job.apart if _is_busy(job, place)]
    return _blame_places("computes", busy) if busy and job.over else None


def _explain_block(place: RankPlace) -> str:
    """Return what a rank waits for in the kernel; empty if that is unknown."""
    inside, named = place.seen.get("blocked") or ("", "")
    words = next((words for sign, words in _BLOCKS.items() if re.search(sign, inside)), "")
    ended = ", ".join(map(str, place.seen.get("ended") or ()))
    return f"; it waits for {words.format(named=named or 'a file or connection')}" * bool(
        words
    ) + f"; its process {ended} has ended" * bool(ended)


def _find_in_other_call(job: _Job) -> Holdup | None:
    """Return the fewer ranks, where all wait, but not in the same call."""
    if job.moves or job.apart:
        return None
    sites = Counter(place.site for place in job.waiting).most_common()
    missing = {
        rank for answer in job.answers.values() for rank in recorders.list_stalled(answer["stall_lines"])
    }
    if len(sites) < 2:  # noqa: PLR2004 - all in one call
        return None
    few = [place for place in job.waiting if place.site != sites[0][0]]
    known = [place for place in few if place.rank in missing] if sites[0][1] <= len(few) else few
    unsure = "" if known else "; as many ranks are elsewhere as there, so the others may be wrong"
    few = known or few
    others = next(place for place in job.waiting if place.site == sites[0][0])
    if few[0].where != others.where:
        detail = f"it waits there, the others in {others.where}"
    elif few[0].callers != others.callers:
        detail = "it came there by {}, the others by {}".format(*few[0].parting(others))
    else:
        detail = f"it is there with {_format_counters(few[0])}, the others with {_format_counters(others)}"
    return _blame_places("behind", few, detail + unsure)


def _format_counters(place: RankPlace) -> str:
    counters = place.seen.get("counters") or {}
    return ", ".join(f"{name} = {value}" for name, value in counters.items())


_FINDERS = (
    _find_split,
    _find_stopped,
    _find_missing,
    _find_waiting_for_disk,
    _find_apart,
    _find_unanswering,
    _find_recorded,
    _find_in_other_call,
    _find_down,
)


def _explain_unseen(why: str, answer: Mapping[str, Any]) -> str:
    """Return the remedy for a refusal to show stacks."""
    scope = answer["ptrace_scope"]
    refused = re.search(r"ermission|not permitted", why)
    closed = "closed" if scope == "3" else "container" if answer["user"] == 0 else "scope"
    kind = closed if refused else "absent" if "no py-spy" in why else ""
    return f"; {_UNSEEN[kind].format(scope=scope)}" if kind else ""


def _list_notes(job: _Job, culprit: Holdup | None) -> Iterator[str]:
    """Yield what could not be seen, and what is no fault yet."""
    for place in job.places:
        if not place.seen["stack"]:
            why = str(place.seen["why"])
            yield f"{place.host}: no stacks: {why}{_explain_unseen(why, job.answers[place.host])}"
    yield from (f"{host} does not answer: {words}" for host, words in job.silent.items())
    if not (culprit or job.apart or job.moves):
        yield f"no rank came further: {_UNSEEN['alike']}"
    if not job.moves and not job.over:
        for place in job.apart:
            if _is_busy(job, place) and job.waiting:
                who = f"rank {place.rank} on {place.host}"
                yield f"{who} computes in {place.where} while others wait: that alone is no fault"
    for host, answer in job.answers.items():
        yield from (f"{host}: {line}" for line in answer["kernel"][-3:])
