"""The best backend here: by how much, how surely, or how many repeats would decide."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hvlab.base.groups import grouped
from hvlab.lab.backends import SERIAL
from hvlab.report.data import ReportData
from hvlab.report.verdicts import BackendVerdict, times
from hvlab.report.words import Words
from hvlab.statistics.looks import LOOKS
from hvlab.statistics.sequential import holds, is_decided, is_narrow, repeats_to_decide
from hvlab.statistics.verdict import Pair, Verdict

# Most labs ask about the first.
_PLACES = ("across", "inside")
_OPEN = ("unclear", "too_few", "upset", "differs", "alike")
# Figures measured at different times may be equal by chance.
_IMPORTED = {"unclear": "alike", "too_few": "alike", "same": "even"}


@dataclass(frozen=True)
class _Pool:
    """Two backends at a place, in one figure for each repeat; ``best`` has the smaller one.

    ``cells`` counts the trainings, or the sizes of ``collective`` operations, in its geometric mean;
    ``left_out`` those with too few repeats.
    """

    best: str
    other: str
    pair: Pair
    cells: int
    collective: bool
    left_out: int

    @property
    def repeats(self) -> int:
        """Smaller number of repeats."""
        return min(len(self.pair.a), len(self.pair.b))

    @property
    def ratio(self) -> float:
        """The other's time over the best's."""
        return statistics.median(self.pair.b.values()) / statistics.median(self.pair.a.values())


@dataclass(frozen=True)
class Answer(_Pool):
    """The fastest backend at a place against the next one, or against one that may be as fast.

    ``verdict`` compares ``best`` with ``other``. ``needed``: repeats of each side that would decide, None if
    unknown or decided. With ``sides`` they are A and B of an A/B run; ``imported`` figures share no rounds;
    ``auto`` repeats went to single open comparisons, so no number of them is promised here.
    """

    place: str
    verdict: Verdict
    needed: int | None
    sides: bool
    imported: bool
    auto: bool

    @property
    def faster(self) -> bool:
        """The best is faster than all others."""
        return _is_faster(self.verdict)

    @property
    def open(self) -> bool:
        """The figures leave open which is faster, or show both as equal."""
        return self._kind in _OPEN

    def card(self, words: Words) -> tuple[str, str, str]:
        """Return the answer as a tile: its name, the backend, by how much and how surely."""
        names = [words.backend(self.best)] if self.faster else map(words.backend, (self.best, self.other))
        title = words.say(f"answer.card_{self.place}", what=self._what(words))
        return title, words.join(names, "or"), self._say(f"answer.tile_{self._kind}", words)

    def sentence(self, words: Words) -> str:
        """Return the answer as a sentence."""
        return self._say(f"answer.{self._kind}", words)

    @property
    def _kind(self) -> str:
        """Kind of answer: near (narrow interval), alike and even (imported), upset (contradicted later)."""
        kind, ratio = self.verdict.kind, self.verdict.ratio
        if is_decided(self.verdict) and not self.faster:
            return "upset"
        if kind in _IMPORTED and self.imported:
            return _IMPORTED[kind]
        return "near" if kind == "unclear" and ratio is not None and is_narrow(ratio) else kind

    def _what(self, words: Words) -> str:
        return words.say("answer.setting" if self.sides else "answer.backend")

    def _say(self, key: str, words: Words) -> str:
        over = ("one_size", "sizes") if self.collective else ("one_training", "trainings")
        needed = self.verdict.needed or self.needed
        known = "needed_least" if self.verdict.needed else "needed" if needed else "needed_unknown"
        known = "needed_auto" if self.auto and not needed else known
        mean = words.say(f"answer.{over[self.cells > 1]}", count=self.cells)
        return words.say(
            key,
            best=words.backend(self.best),
            other=words.backend(self.other),
            what=self._what(words),
            where=words.place(self.place),
            ratio=words.both(times(self.verdict.ratio), "times"),
            over=words.say("answer.but", over=mean, count=self.left_out) if self.left_out else mean,
            repeats=self.repeats,
            chance=words.number(self.verdict.chance, "ratio", 2),
            needed=words.say(f"answer.{known}", count=needed or 0),
        )


def _is_faster(verdict: Verdict) -> bool:
    return verdict.kind == "faster" and holds(verdict)


def answers(data: ReportData, judged: Sequence[BackendVerdict]) -> list[Answer]:
    """Return the answers across servers and inside one server, if backends were compared.

    They rest on trainings if there are any, else on collectives. All their comparisons are a family of tests
    of their own, so the first sentence of a report is false as rarely as its table of verdicts.
    """
    asked = [(place, _pool_places(judged, place, auto=data.auto)) for place in _PLACES]
    pools = [pool for _, pooled in asked for pool in pooled]
    verdicts = dict(zip(map(id, pools), data.compare([pool.pair for pool in pools]), strict=True))
    return [
        _build_answer(data, place, pool, verdicts[id(pool)], family=len(pools))
        for place, pooled in asked
        if (pool := _deciding(pooled, verdicts))
    ]


def find_only_backend(data: ReportData) -> str | None:
    """Return the only backend with figures; None if several have, or none, or A and B are compared."""
    names = {one.backend for one, repeats in data.configurations.items() if repeats.ok} - {SERIAL}
    return names.pop() if len(names) == 1 and not data.sides else None


def _build_answer(data: ReportData, place: str, pool: _Pool, verdict: Verdict, *, family: int) -> Answer:
    open_ = verdict.kind == "unclear" and not data.auto
    needed = repeats_to_decide(pool.pair, family=family) if open_ else None
    return Answer(
        **vars(pool), place=place, verdict=verdict, needed=needed,
        sides=bool(data.sides), imported=data.imported, auto=data.auto,
    )  # fmt: skip


def _pool_places(judged: Sequence[BackendVerdict], place: str, *, auto: bool) -> list[_Pool]:
    """Return a pool for every two backends at a place; figures of an unknown place are in none."""
    pairs = [
        one.backends
        for one in judged
        if one.backends.layout[1] and (one.backends.layout[0] == 1) == (place == "inside")
    ]
    collective = all(pair.collective for pair in pairs)
    groups = grouped(((pair.one, pair.other), pair.pair) for pair in pairs if pair.collective == collective)
    pools = (_pool(place, names, cells, collective=collective, auto=auto) for names, cells in groups.items())
    return [pool for pool in pools if pool]


def _pool(
    place: str, names: tuple[str, str], cells: Sequence[Pair], *, collective: bool, auto: bool
) -> _Pool | None:
    kept = _usual(cells, auto=auto)
    (one, other), a, b = (
        names,
        geometric_means([cell.a for cell in kept]),
        geometric_means([cell.b for cell in kept]),
    )
    if not a or not b:
        return None
    if statistics.median(a.values()) > statistics.median(b.values()):
        one, other, a, b = other, one, b, a
    # Pools of a backend share its launches.
    pair = Pair(a, b, launches=((place, one), (place, other)))
    return _Pool(one, other, pair, len(kept), collective, len(cells) - len(kept))


def _usual(cells: Sequence[Pair], *, auto: bool) -> list[Pair]:
    """Return the cells with at least half of the usual number of repeats.

    A repeat counts only if all cells have it, so a cell that mostly failed would leave hardly any. With
    ``auto``, a cell decided at the first look has enough.
    """
    counts = [min(len(cell.a), len(cell.b)) for cell in cells]
    most = max(statistics.multimode(counts))
    usual = min(most, LOOKS[0].repeats) if auto else most
    return [cell for cell, count in zip(cells, counts, strict=True) if 2 * count >= usual]


def geometric_means(cells: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Return the geometric mean over all cells, for each repeat that they share."""
    complete = set.intersection(*(set(cell) for cell in cells))
    return {
        repeat: statistics.geometric_mean(cell[repeat] for cell in cells)
        for repeat in sorted(complete)
        if min(cell[repeat] for cell in cells) > 0
    }


def _deciding(pools: Sequence[_Pool], verdicts: Mapping[int, Verdict]) -> _Pool | None:
    """Return the pool of the fastest backend and its nearest rival.

    A rival that it does not significantly beat comes first, though another may be nearer: until both are
    slower, it is not the fastest.
    """
    if not pools:
        return None
    lead: dict[str, float] = {}
    for pool in pools:
        for name, sign in ((pool.best, 1), (pool.other, -1)):
            lead[name] = lead.get(name, 0.0) + sign * math.log(pool.ratio)
    fastest = max(lead, key=lambda name: lead[name])
    own = [pool for pool in pools if fastest == pool.best]
    open_ = [pool for pool in own if not _is_faster(verdicts[id(pool)])]
    return min(open_ or own, key=lambda pool: pool.ratio)
