"""Sweeps that other tools measured, as records. Pure."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hvlab.errors import CheckError, UsageError
from hvlab.formats import osu
from hvlab.formats.names import PROGRAMS
from hvlab.formats.sweep import Row, Sweep, busbw_factor
from hvlab.results.store import UNKNOWN, Record
from hvlab.workloads.metrics import METRICS

_BACKENDS = {"nccl-tests": "nccl", "osu": "mpi"}
# Libraries in OSU's titles beside MPI.
_LIBRARIES = {"NCCL": "nccl", "RCCL": "nccl"}
_IN_NAMES = {name.replace("_", ""): workload for name, workload in PROGRAMS.items()} | {"bcast": "broadcast"}
# Half of the last digit that nccl-tests prints.
_PRINTED = 0.00501
# The same of a time in us, where milliseconds are printed.
_PRINTED_US = 0.5
# How far size/time and algbw may be apart: before 2019 an allgather's algbw was (n-1)/n of it.
_APART = 2.0
_MOST = 2**31


@dataclass(frozen=True)
class Told:
    """What the person says of the files: it stands before what a file says; None: nothing."""

    workload: str | None = None
    backend: str | None = None
    hosts: tuple[str, ...] | None = None
    slots: int | None = None


@dataclass(frozen=True)
class Source:
    """A file that was read: its name, where it is kept (relative to the results), what is in it."""

    name: str
    raw_path: str
    reader: str
    sweeps: Sequence[Sweep]


def records(sources: Iterable[Source], told: Told, *, run_id: str, started_at: str) -> list[Record]:
    """Return every figure of the files as a record; a launch that failed is one without a metric.

    Launches that are alike are repeats of one another. Raises UsageError where it cannot be told what a file
    holds, or how large its messages are, and CheckError where a row's time and bandwidth contradict each
    other.
    """
    made: list[Record] = []
    repeats: Counter[tuple[Any, ...]] = Counter()
    for source in sources:
        for sweep in source.sweeps:
            made += _Launch(sweep, source, told, run_id, started_at).records(repeats)
    return made


class _Launch:
    """One launch, with all that is known of it."""

    def __init__(self, sweep: Sweep, source: Source, told: Told, run_id: str, started_at: str) -> None:
        origin = sweep.origin
        self.source = source
        self.hosts = told.hosts or sweep.hosts or _texts(origin.get("hosts"))
        self.slots = told.slots or sweep.slots or _count(origin.get("slots"))
        self.ranks = self._ranks(sweep, told)
        self.workload = told.workload or sweep.workload or _text(origin.get("workload")) or self._named()
        self.backend = told.backend or _text(origin.get("backend")) or _carrier(sweep, source.reader)
        self.sweep = self._scaled(sweep)
        params = origin.get("params")
        self.params: dict[str, Any] = _known({"device": sweep.device, "iterations": sweep.iterations})
        if isinstance(params, Mapping) and params:
            self.params = dict(params)
        self.first = Record(
            run_id=run_id,
            case_id="",
            started_at=started_at,
            workload=self.workload,
            launcher=_text(origin.get("launcher")) or UNKNOWN,
            backend=self.backend,
            proved_backend=_text(origin.get("proved")),
            hosts=self.hosts,
            slots_per_host=self.slots or 0,
            world_size=self.ranks,
            params={},
            repeat=1,
            metric=None,
            value=None,
            unit=None,
            status="ok",
            error=None,
            stack={**sweep.about, "file": source.name} | ({"warmup": sweep.warmup} if sweep.warmup else {}),
            raw_path=source.raw_path,
        )

    def records(self, repeats: Counter[tuple[Any, ...]]) -> list[Record]:
        """Return the records; ``repeats`` counts the launches seen before, by what was launched."""
        found: list[Record] = []
        for marks, params, rows in self._cases():
            case = self._case(marks, params, repeats)
            for row in rows:
                found += self._of(
                    row, replace(case, params=params | ({"size_bytes": row.size} if row.size else {}))
                )
        if self.sweep.error:
            first = found[0] if found else self._case((), self._whole(), repeats)
            params = {name: value for name, value in first.params.items() if name != "size_bytes"}
            bare = replace(first, params=params, metric=None, value=None, unit=None)
            found.append(replace(bare, status="failed", error=self.sweep.error))
        return found

    def _cases(self) -> list[tuple[tuple[str, ...], dict[str, Any], list[Row]]]:
        """Return the rows with the same parameters; of several of one size the second is a repeat."""
        cases: dict[tuple[Any, ...], tuple[tuple[str, ...], dict[str, Any], list[Row]]] = {}
        seen: Counter[tuple[Any, ...]] = Counter()
        in_place = {row.in_place for row in self.sweep.rows}
        for row in self.sweep.rows:
            told = {"dtype": row.dtype, "op": row.op, "root": row.root or None}
            if self.sweep.origin.get("in_place") != [None]:
                told["in_place"] = row.in_place
            params = _known(told) | self.params
            key = _plain(params)
            seen[(*key, row.size)] += 1
            marks = ("in" if row.in_place else "out",) if len(in_place) > 1 else ()
            cases.setdefault((*key, seen[(*key, row.size)]), (marks, params, []))[2].append(row)
        return list(cases.values())

    def _whole(self) -> dict[str, Any]:
        """Return the parameters of a launch that gave no row."""
        told = self.sweep.origin.get("in_place")
        one = told[0] if isinstance(told, list) and len(told) == 1 else None
        return self.params | ({"in_place": one} if isinstance(one, bool) else {})

    def _case(
        self, marks: tuple[str, ...], params: Mapping[str, Any], repeats: Counter[tuple[Any, ...]]
    ) -> Record:
        """Return what the records of a case have in common; its id is one that was not there before."""
        key = (self.workload, self.backend, self.hosts, self.slots, *_plain(params))
        repeats[key] += 1
        place = f"{len(self.hosts)}x{self.slots or 0}"
        case = "-".join((self.workload, self.backend, place, *marks, f"r{repeats[key]}"))
        repeats[(case,)] += 1
        if repeats[(case,)] > 1:
            case += f"-{repeats[(case,)]}"
        return replace(self.first, case_id=case, repeat=repeats[key], params=params)

    def _of(self, row: Row, case: Record) -> Iterator[Record]:
        if row.error:
            yield replace(case, status="failed", error=row.error)
            return
        for metric, value in self._figures(row).items():
            yield replace(case, metric=metric, value=value, unit=METRICS[metric].unit)

    def _figures(self, row: Row) -> dict[str, float]:
        """Return the figures, the bandwidths with all their digits where the printed ones agree."""
        figures = dict(row.figures)
        time = figures.get("time")
        self._agree(row.size, time, figures.get("algbw"))
        if time and time > 0 and row.size and self.workload in PROGRAMS.values():
            algbw = row.size / time / 1e3
            figures["algbw"] = _finer(figures.get("algbw"), algbw)
            if self.ranks:
                busbw = algbw * busbw_factor(self.workload, self.ranks)
                figures["busbw"] = _finer(figures.get("busbw"), busbw)
        return figures

    def _agree(self, size: int, time: float | None, algbw: float | None) -> None:
        """Raise CheckError where the size (bytes) over the time (us) is not the printed bandwidth (GB/s)."""
        if not time or time < 0 or not size or algbw is None or algbw <= _PRINTED:
            return
        least = size / (time + _PRINTED_US) / 1e3
        most = size / (time - _PRINTED_US) / 1e3 if time > _PRINTED_US else math.inf
        if least / _APART > algbw + _PRINTED or most * _APART < algbw - _PRINTED:
            raise CheckError(
                f"{self.source.name}: {size} bytes in {time:g} us are {size / time / 1e3:.3g} GB/s, but algbw"
                f" in its row is {algbw:g} GB/s",
                remedy="the time is in another unit, or that of the CPU (-C): give the whole output, whose"
                " head tells the unit, or measure without -C",
            )

    def _ranks(self, sweep: Sweep, told: Told) -> int | None:
        if told.hosts or told.slots:
            return len(self.hosts) * (self.slots or 0) or None
        return sweep.ranks or len(self.hosts) * (self.slots or 0) or None

    def _named(self) -> str:
        """Return the operation that the file's name has in it."""
        name = re.sub(r"[^a-z]", "", self.source.name.lower())
        for word in sorted(_IN_NAMES, key=len, reverse=True):
            if word in name:
                return _IN_NAMES[word]
        raise UsageError(
            f"{self.source.name} does not say which operation it measured (old versions print no name)",
            remedy="say it with --workload, such as --workload alltoall",
        )

    def _scaled(self, sweep: Sweep) -> Sweep:
        scaled = osu.scaled(sweep, self.ranks) if self.source.reader == "osu" else sweep
        if scaled is None:
            raise UsageError(
                f"{self.source.name}: OSU gives {sweep.workload} the size of one message, hvlab that of the"
                " whole buffer, and how many ranks there were is not in the file",
                remedy="say it with --hosts and --slots",
            )
        return scaled


def _carrier(sweep: Sweep, reader: str) -> str:
    """Return the backend that a tool's output tells."""
    return _LIBRARIES.get(str(sweep.about.get("library")), _BACKENDS[reader])


def _finer(printed: float | None, derived: float) -> float:
    """Return a value with all its digits where it rounds to what was printed, else what was printed.

    The time is rounded too, so that a relative error of a thousandth is taken for agreement.
    """
    if printed is None or abs(printed - derived) <= _PRINTED + derived / 1000:
        return derived
    return printed


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _texts(value: object) -> tuple[str, ...]:
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MOST else None


def _plain(params: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, repr(value)) for name, value in params.items()))


def _known(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if value is not None}
