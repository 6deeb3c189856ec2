"""What one check of a node came to."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """One check of one node.

    ``check`` begins with its subject: ``gpu count``. ``outcome`` is ``passed``, ``failed`` or ``skipped``.
    ``severity`` of a failed one is ``hard`` (work would fail or be wrong: drain the node) or ``soft`` (slow
    or doubtful); else empty. ``observed`` is what was read, or why it was skipped; ``remedy`` what to do.
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
