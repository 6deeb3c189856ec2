"""The decisions of a run as rows and sentences to read, and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from hvlab.analysis.compare import rows
from hvlab.analysis.compare.decisions import Decision, Decisions, Unmeasured
from hvlab.analysis.compare.rows import case_names, place
from hvlab.results.configurations import Configuration
from hvlab.statistics.sequential import POWER

COLUMNS = (
    *("workload", "backend", "hosts", "slots", "case", "metric", "A", "B"),
    *("median A", "median B", "A/B", "95 %", "verdict", "why", "needs"),
)
NOTE = (
    "Each figure is the median over the repeats. A and B were measured in turn in one run, so the time of "
    "measurement is the same for both."
)
ASSUMPTION = (
    f"needs: repeats of each side after which a verdict has a chance of {100 * POWER:.0f} %, if the measured "
    "ratio and spread are the true ones; few repeats know them roughly."
)


def table(decisions: Decisions) -> list[dict[str, Any]]:
    """Return a row for each decision; see COLUMNS."""
    names = case_names(_without_switched(each.a, decisions) for each in decisions.rows)
    return [
        _row(each, _without_switched(each.a, decisions), names, ab=bool(decisions.sides))
        for each in decisions.rows
    ]


def _row(
    each: Decision, shown: Configuration, names: Mapping[Configuration, str], *, ab: bool
) -> dict[str, Any]:
    row, (one, other), unset = each.row, each.names, "unchanged" if ab else "default"
    backend = {} if each.a.backend == each.b.backend else {"backend": None}
    return {
        **place(shown, names),
        **backend,
        "metric": f"{row.metric} {row.unit}",
        "A": one or unset,
        "B": other or unset,
        "median A": row.a.median.mid if row.a.median else None,
        "median B": row.b.median.mid if row.b.median else None,
        **rows.ratio(row.verdict.ratio),
        "verdict": word(each),
        "why": rows.why(row),
        "needs": each.needed,
    }


def _without_switched(configuration: Configuration, decisions: Decisions) -> Configuration:
    switched = {name for values in decisions.sides.values() for name in values}
    return replace(configuration, params=configuration.without("side", *switched))


def word(each: Decision) -> str:
    """Return the verdict in a word or two, with the better side."""
    kind = each.row.verdict.kind
    if kind in ("faster", "slower"):
        better = "A" if kind == "faster" else "B"
        return f"{better} is better"
    return "within 5 %" if kind == "unclear" and each.answered else rows.word(each.row)


def sentences(decisions: Decisions) -> list[str]:
    """Return the notes that belong to the rows, a sentence each."""
    if not decisions.rows:
        none = "No two settings of this run have figures to compare."
        return [*map(_explain_missing, decisions.unmeasured)] or [none]
    count = len(decisions.rows)
    open_ = [each for each in decisions.rows if not each.answered]
    counts = {
        "A better in": decisions.count("faster"),
        "B better in": decisions.count("slower"),
        "the same in": decisions.count("same"),
    }
    counts |= {"within 5 % in": count - sum(counts.values()) - len(open_), "open in": len(open_)}
    parts = ", ".join(f"{text} {number}" for text, number in counts.items() if number)
    lines = [f"{count} comparison{'s' * (count != 1)}: {parts}.", NOTE]
    if open_:
        known = [each.needed for each in open_ if each.needed]
        if known:
            span = f"{min(known)} to {max(known)}" if min(known) < max(known) else f"{known[0]}"
            lines.append(f"{span} repeats would probably decide {len(known)} of the open ones.")
        lines.append(ASSUMPTION)
    return [*lines, *map(_explain_missing, decisions.unmeasured)]


def _explain_missing(side: Unmeasured) -> str:
    """Describe how many of a setting's cases have no figure, and why."""
    ended = f"failed in {side.failed}" if side.failed else f"was skipped in {side.skipped}"
    reasons = "; ".join(" ".join(text.split()) for text in side.reasons)
    return f"{side.name} {ended} of {side.tried} cases: {reasons}"


def as_json(decisions: Decisions) -> dict[str, Any]:
    """Return all decisions of a run, JSON-ready."""
    return {
        "run": rows.run_json(decisions.run),
        "sides": {name: dict(values) for name, values in decisions.sides.items()},
        "looks": [asdict(look) for look in decisions.looks],
        "rows": [_json(each) for each in decisions.rows],
        "unmeasured": [asdict(each) for each in decisions.unmeasured],
        "note": NOTE,
    }


def _json(each: Decision) -> dict[str, Any]:
    row, (one, other) = each.row, each.names
    return {
        "a": rows.configuration_json(each.a),
        "b": rows.configuration_json(each.b),
        "differ": {"a": one, "b": other},
        "unit": row.unit,
        "answered": each.answered,
        "needed": each.needed,
        "figures": rows.figures_json(row),
    }
