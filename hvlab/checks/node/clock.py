"""The clock: whether something keeps it right, and how far it is off."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, Optional, Tuple

from hvlab.checks.node.answers import number, output
from hvlab.checks.node.finding import Finding, hard, passed, skipped, soft
from hvlab.checks.node.limits import CLOCK_CONTROLLER_S, CLOCK_DOUBTFUL_S, CLOCK_OFFSET_S

QUESTIONS: Dict[str, Dict[str, Any]] = {
    "clock now": {"run": ["date", "+%s.%N"], "timeout": 5},
    "clock chrony": {"run": ["chronyc", "-n", "tracking"], "timeout": 5},
    "clock timesyncd": {"run": ["timedatectl", "timesync-status"], "timeout": 5},
    "clock ntpd": {"run": ["ntpq", "-pn"], "timeout": 5},
    "clock kernel": {"run": ["timedatectl", "show", "--property=NTPSynchronized"], "timeout": 5},
}
CHECKS = {"clock synchronised": "soft", "clock offset": "hard"}
LEARNED: Tuple[str, ...] = ()
# When the node was asked, by the controller's clock: [before, after], in seconds since the epoch.
GIVEN = ("controller_clock",)

_NTPQ_COLUMNS = 10
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_KEEP = "install chrony (or start systemd-timesyncd), give it a server that the node reaches"


def readings(answers: Mapping[str, Any]) -> Dict[str, Any]:
    """Return ``clock_s``, ``clock_synchronised``, ``clock_source``, ``clock_offset_s`` (positive: ahead)."""
    values: Dict[str, Any] = {}
    now = number(output(answers, "clock now"))
    if now is not None:
        values["clock_s"] = now
    kernel = output(answers, "clock kernel").strip()
    if kernel in ("NTPSynchronized=yes", "NTPSynchronized=no"):
        values["clock_synchronised"] = kernel.endswith("yes")
    for source, parse in (("ntpd", _ntpd), ("systemd-timesyncd", _timesyncd), ("chrony", _chrony)):
        synchronised, offset = parse(output(answers, f"clock {source.rpartition('-')[2]}"))
        if synchronised is not None:
            values.update(clock_synchronised=synchronised, clock_source=source)
            values.pop("clock_offset_s", None)
            if offset is not None:
                values["clock_offset_s"] = offset
    return values


def _chrony(tracking: str) -> Tuple[Optional[bool], Optional[float]]:
    fields = dict(re.findall(r"^([\w ()]+?)\s*: (.*)$", tracking, re.M))
    if "Leap status" not in fields:
        return None, None
    if fields["Leap status"] == "Not synchronised":
        return False, None
    system = re.match(r"(\d+\.\d+) seconds (slow|fast) of NTP time", fields.get("System time", ""))
    return True, float(system[1]) * (1 if system[2] == "fast" else -1) if system else None


def _timesyncd(status: str) -> Tuple[Optional[bool], Optional[float]]:
    server = re.search(r"^ *Offset: ([+-])(.+)$", status, re.M)
    if not server:
        return (None, None) if "Server:" not in status else (False, None)
    # It says how far the server is ahead.
    spans = re.findall(r"(\d+(?:\.\d+)?)(us|ms|min|s|h|d)\b", server[2])
    return True, sum(float(span) * _UNITS[unit] for span, unit in spans) * (-1 if server[1] == "+" else 1)


def _ntpd(peers: str) -> Tuple[Optional[bool], Optional[float]]:
    if "remote" not in peers:
        return None, None
    chosen = [line.split() for line in peers.splitlines() if line.startswith(("*", "o"))]
    # The last columns are delay, offset and jitter, in ms; the offset is how far the server is ahead.
    offset = number(chosen[0][-2]) if chosen and len(chosen[0]) == _NTPQ_COLUMNS else None
    return bool(chosen), None if offset is None else -offset / 1000


def findings(values: Mapping[str, Any], expected: Mapping[str, Any]) -> List[Finding]:
    """Judge whether the clock is kept right, and its offset."""
    return [_judge_synchronisation(values), _offset(values, expected)]


def _judge_synchronisation(values: Mapping[str, Any]) -> Finding:
    check, synchronised = "clock synchronised", values.get("clock_synchronised")
    if synchronised is None:
        return skipped(check, "neither chrony, systemd-timesyncd, ntpd nor the kernel says it")
    source = values.get("clock_source", "the kernel")
    return (
        passed(check, source)
        if synchronised
        else soft(check, f"{source} says that the clock is not synchronised", _KEEP)
    )


def _offset(values: Mapping[str, Any], expected: Mapping[str, Any]) -> Finding:
    check, offset, source = "clock offset", values.get("clock_offset_s"), values.get("clock_source")
    limit = CLOCK_OFFSET_S
    if offset is None:
        # No time service knows better than the controller.
        offset, source = (
            _compare_with_controller(values.get("clock_s"), expected.get("controller_clock")),
            "the controller",
        )
        limit = CLOCK_CONTROLLER_S
    if offset is None:
        return skipped(check, "there is no time service to compare with")
    observed = (
        f"the clock is {abs(offset):.3g} s {'ahead' if offset > 0 else 'behind'}, compared with {source}"
    )
    remedy = "set it: `chronyc makestep` or `systemctl restart systemd-timesyncd`; then see its server"
    if abs(offset) >= limit:
        return hard(check, observed, remedy)
    return (
        soft(check, observed, remedy)
        if abs(offset) > CLOCK_DOUBTFUL_S
        else passed(check, f"{offset:+.3g} s, by {source}")
    )


def _compare_with_controller(now: Optional[float], window: Any) -> Optional[float]:
    """Return seconds by which a clock lies outside the interval in which it was read; 0 inside."""
    if now is None or not window:
        return None
    began, ended = (float(end) for end in window)
    return now - began if now < began else max(now - ended, 0.0)
