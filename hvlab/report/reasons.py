"""What the model explains, as phrases: which term dominates, and why one backend is faster."""

from __future__ import annotations

from collections.abc import Iterable

from hvlab.analysis.model.explanation import Explanation
from hvlab.report import labels
from hvlab.report.blocks import Code, Number, Say, Several, Value

# What the numbers of an explanation are; a name that is not here is a share of 1.
_COUNTS = ("failed", "points", "needed", "ranks", "largest", "factor", "batch", "agreeing", "pairs")
_TIMES = ("fixed_ratio", "bandwidth_ratio", "alpha_ratio", "small_ratio", "large_ratio")


def reason(explanation: Explanation) -> Say:
    """Return an explanation as a phrase."""
    numbers = {name: _number(name, value) for name, value in explanation.numbers.items()}
    names = {name: _name(name, value) for name, value in explanation.names.items()}
    return Say(f"why.{explanation.key}", {**numbers, **names})


def about(explanation: Explanation) -> Value:
    """Return what a comparison is about: a backend, inside one server or across servers."""
    names = explanation.names
    backend: list[Value] = [labels.backend(names["backend"])] if "backend" in names else []
    strong: list[Value] = [labels.scaling("strong")] if names.get("scaling") == "strong" else []
    compression = names.get("compression", "none")
    compressed: list[Value] = [Code(f"compression={compression}")] if compression != "none" else []
    return Several((*backend, Say(f"topology.{names['topology']}"), *strong, *compressed))


def of_kind(explanations: Iterable[Explanation], kind: str) -> list[Explanation]:
    """Return the explanations whose key begins with ``kind``."""
    return [one for one in explanations if one.key.startswith(f"{kind}.")]


def _number(name: str, value: float) -> Value:
    if name in _COUNTS:
        return Number(value, "", len(str(round(value))))
    if name in _TIMES or name.endswith(("_low", "_high")):
        return Number(value, "times")
    if name.endswith("_ms"):
        return Number(value / 1e3, "s")
    if name.endswith("_s"):
        return Number(value, "s")
    if name.endswith("_bytes"):
        return Number(value, "B")
    return Number(value) if name == "flop_per_byte" else Number(value, "share")


def _name(name: str, value: str) -> Value:
    if name == "algorithm":
        return Say(f"algorithm.{value}")
    if name == "scaling":
        return labels.scaling(value)
    return labels.backend(value) if name in ("backend", "faster", "slower") else value
