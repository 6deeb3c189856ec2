"""The search whose proof a run is: `hvlab tune` keeps it beside the runs."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hvlab.report.blocks import (
    NOTHING,
    Block,
    Code,
    Column,
    Number,
    Paragraph,
    Range,
    Say,
    Section,
    Several,
    Table,
    Value,
)
from hvlab.results import searches

_SHOWN = 10
_Changes = dict[str, str | int | float]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class Tried(_Part):
    """Settings that were tried: logarithms of their time over today's; they ``failed`` on the way or not."""

    changes: _Changes
    log_ratios: list[float]
    failed: bool

    @property
    def change(self) -> float:
        """Return how much longer they take, as a part of today's time."""
        return math.expm1(statistics.fmean(self.log_ratios))


class Gain(_Part):
    """A comparison of the proof: the new settings' figure over today's, with its interval."""

    metric: str
    unit: str
    size_bytes: int | None = None
    ratio: tuple[float, float, float]


class ProvedSearch(_Part):
    """What a search wrote of itself. ``best`` is what its best settings change; ``run`` is its proof."""

    run: str | None
    kind: Literal["better", "as_good", "not_accepted"]
    against: Literal["", "failed", "worse", "loss"] = ""
    best: _Changes
    loss_checked: bool | None = None
    launches: int
    seconds: float
    tried: Annotated[list[Tried], Field(min_length=1)]
    gains: list[Gain] = []
    importance: dict[str, tuple[float, float, float]] = {}


def read(results: Path, run_id: str) -> ProvedSearch | None:
    """Return the search that ended with this run as its proof; None where there is none, or no file of it."""
    for folder in searches.folders(results):
        try:
            search = ProvedSearch.model_validate_json((folder / searches.RESULT).read_bytes())
        except (OSError, ValidationError):
            continue
        if search.run == run_id:
            return search
    return None


def section(search: ProvedSearch | None) -> Section | None:
    """Return the part of the report on the search; None where the run is no proof."""
    if search is None:
        return None
    blocks: list[Block] = [Paragraph(_answer(search))]
    if search.loss_checked is False:
        blocks.append(Paragraph(Say("tuning.unchecked"), "note"))
    blocks += [_gains(search)] if search.gains else []
    blocks.append(_tried(search))
    blocks.append(_importance(search) if search.importance else Paragraph(Say("tuning.few"), "note"))
    return Section("tuning", Say("tuning.title"), tuple(blocks))


def _answer(search: ProvedSearch) -> Say:
    values: dict[str, Value] = {"what": _changes(search.best)}
    if search.against:
        values["why"] = Say(f"tuning.against_{search.against}")
    return Say(f"tuning.{search.kind}", values)


def _changes(changes: _Changes) -> Value:
    words = tuple(Code(f"{name}={value}") for name, value in changes.items())
    return Several(words) if words else Say("tuning.today")


def _tried(search: ProvedSearch) -> Table:
    """Return the best of what was tried."""
    ran = sorted(
        (one for one in search.tried if one.log_ratios and not one.failed), key=lambda one: one.change
    )
    columns = (
        Column(Say("tuning.settings"), text=True),
        Column(Say("tuning.time"), numeric=True),
        Column(Say("tuning.rounds"), numeric=True),
    )
    rows = tuple(
        (_changes(one.changes), Number(one.change, "ratio"), len(one.log_ratios)) for one in ran[:_SHOWN]
    )
    counts: dict[str, Value] = {
        "tried": len(search.tried),
        "failed": sum(one.failed for one in search.tried),
        "launches": search.launches,
        "minutes": f"{search.seconds / 60:.1f}",
    }
    return Table("tuning-tried", Say("tuning.tried", counts), columns, rows, note=Say("tuning.note"))


def _gains(search: ProvedSearch) -> Table:
    columns = (
        Column(Say("tuning.metric")),
        Column(Say("sweeps.size"), numeric=True),
        Column(Say("tuning.change"), numeric=True),
        Column(Say("tuning.interval"), numeric=True),
    )
    rows = tuple(
        (
            Code(one.metric),
            NOTHING if one.size_bytes is None else Number(one.size_bytes, "B"),
            Number(one.ratio[1] - 1, "ratio"),
            Range(one.ratio[0] - 1, one.ratio[2] - 1, "ratio"),
        )
        for one in search.gains
    )
    return Table("tuning-gains", Say("tuning.gains"), columns, rows)


def _importance(search: ProvedSearch) -> Table:
    columns = (
        Column(Say("tuning.setting")),
        Column(Say("tuning.share"), numeric=True),
        Column(Say("tuning.interval"), numeric=True),
    )
    rows = tuple(
        (Code(name), Number(mid, "share"), Range(low, high, "ratio", digits=2))
        for name, (low, mid, high) in search.importance.items()
    )
    return Table("tuning-importance", Say("tuning.importance"), columns, rows, note=Say("tuning.shares"))
