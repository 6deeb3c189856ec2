"""The outcome of one check of a node, and of one check of all its GPUs."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from hvlab.checks.node import smi


class Finding(NamedTuple):
    """One check of one node.

    ``check`` begins with its subject: ``gpu count``. ``outcome`` is ``passed``, ``failed`` or ``skipped``.
    ``severity`` of a failed one is ``hard`` (work would fail or be wrong: drain the node) or ``soft`` (slow
    or doubtful); else empty. ``observed`` is the reading, or why it was skipped; ``remedy`` what to do.
    """

    check: str
    outcome: str
    severity: str
    observed: str
    remedy: str


def passed(check: str, observed: str = "") -> Finding:
    """Return a check that holds."""
    return Finding(check, "passed", "", observed, "")


def skipped(check: str, reason: str) -> Finding:
    """Return a check that could not be judged here, and why."""
    return Finding(check, "skipped", "", reason, "")


def hard(check: str, observed: str, remedy: str) -> Finding:
    """Return a fault for which the node is drained."""
    return Finding(check, "failed", "hard", observed, remedy)


def soft(check: str, observed: str, remedy: str) -> Finding:
    """Return a fault that makes work slow, or is doubtful."""
    return Finding(check, "failed", "soft", observed, remedy)


_SEVERITIES = {"hard": hard, "soft": soft}


class Fault(NamedTuple):
    """The fault of one GPU: ``hard`` or ``soft``, the reading, the remedy."""

    severity: str
    observed: str
    remedy: str


def names(gpus: Sequence[Mapping[str, Any]], of: int) -> str:
    """Name GPUs, out of ``of``."""
    if len(gpus) == of and of > 1:
        return f"all {of} GPUs"
    return ", ".join(smi.name(gpu) for gpu in gpus)


def judge(
    check: str,
    gpus: Sequence[Mapping[str, Any]],
    fault: Callable[[Mapping[str, Any]], Optional[Fault]],
    needs: Sequence[str] = (),
) -> List[Finding]:
    """Return one finding for every distinct fault, one ``passed`` if there is none.

    ``needs`` are names of values; GPUs that have none of them cannot be judged.
    """
    able = [gpu for gpu in gpus if not needs or any(name in gpu for name in needs)]
    if not able:
        return [skipped(check, "the driver does not show it for these GPUs" if gpus else "no GPU to ask")]
    faults: Dict[Fault, List[Mapping[str, Any]]] = {}
    for gpu in able:
        one = fault(gpu)
        if one:
            faults.setdefault(one, []).append(gpu)
    if not faults:
        return [passed(check, f"{len(able)} GPU{'s' if len(able) > 1 else ''}")]
    return [
        _SEVERITIES[one.severity](check, f"{names(which, len(gpus))}: {one.observed}", one.remedy)
        for one, which in faults.items()
    ]
