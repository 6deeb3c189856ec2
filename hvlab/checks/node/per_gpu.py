"""One check of several GPUs: those with the same fault share one finding."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from hvlab.checks.node import smi
from hvlab.checks.node.finding import Finding, hard, passed, skipped, soft

_SEVERITIES = {"hard": hard, "soft": soft}


class Fault(NamedTuple):
    """What one GPU has: ``hard`` or ``soft``, what was read, what to do."""

    severity: str
    observed: str
    remedy: str


def names(gpus: Sequence[Mapping[str, Any]], of: int) -> str:
    """Name some of so many GPUs."""
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
