"""The search that a run proves: `hvlab tune` keeps it beside the runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hvlab.report.labels import Code, Value
from hvlab.results import searches

_SHOWN = 10
_Changes = dict[str, str | int | float]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class Tried(_Part):
    """Settings in trials: logarithms of their time over today's; ``failed``: some trial failed."""

    changes: _Changes
    log_ratios: list[float]
    failed: bool

    @property
    def change(self) -> float:
        """Their extra time, as a share of today's time."""
        return math.expm1(statistics.fmean(self.log_ratios))


class Gain(_Part):
    """A comparison of the proof: the new settings' figure over today's, with its interval."""

    metric: str
    unit: str
    size_bytes: int | None = None
    ratio: tuple[float, float, float]


class ProvedSearch(_Part):
    """A search's own result. ``best`` are the changes of its best settings; ``run`` is its proof."""

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
    """Return the search that ended with this run as its proof, if any."""
    for folder in searches.folders(results):
        try:
            search = ProvedSearch.model_validate_json((folder / searches.RESULT).read_bytes())
        except (OSError, ValidationError):
            continue
        if search.run == run_id:
            return search
    return None


def list_tried(search: ProvedSearch) -> list[Tried]:
    """Return the best trials."""
    ran = (one for one in search.tried if one.log_ratios and not one.failed)
    return sorted(ran, key=lambda one: one.change)[:_SHOWN]


def settings(changes: Mapping[str, Any]) -> tuple[Value, ...]:
    """Return settings as written."""
    return tuple(Code(f"{name}={value}") for name, value in changes.items())
