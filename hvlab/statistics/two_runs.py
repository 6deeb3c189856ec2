"""Whether figures differ between two single runs, of which the times may be all the difference."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from hvlab.statistics.verdict import ALPHA, MATTERS, Kind, Pair, Verdict, compare_all

PERHAPS = "perhaps only because of the time of measurement"


def compare_two_runs(
    pairs: Sequence[Pair], *, matters: float = MATTERS, alpha: float = ALPHA
) -> list[Verdict]:
    """Return the verdict on each pair of which A and B were measured at different times.

    The repeats of a run share its conditions, which repeats cannot show. So nothing is "faster" or "slower",
    but "differs", and what is "same" may be so by those conditions. Two runs have no round in common.
    """
    apart = [
        dataclasses.replace(pair, b={~repeat: value for repeat, value in pair.b.items()}) for pair in pairs
    ]
    return [_of_runs(judged) for judged in compare_all(apart, matters=matters, alpha=alpha)]


def _of_runs(judged: Verdict) -> Verdict:
    """Return a verdict on repeats as one on runs."""
    if judged.kind not in ("faster", "slower", "same"):
        return judged
    kind: Kind = "same" if judged.kind == "same" else "differs"
    return dataclasses.replace(judged, kind=kind, reason=f"{judged.reason}; {PERHAPS}")
