"""Which host is slower than its fellows, as each kind of data tells it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hvlab.report import labels, spread
from hvlab.report.blocks import Block, Column, Paragraph, Say, Table, Value
from hvlab.scaling import HostCheck, SlowHost


def blocks(checks: Sequence[HostCheck]) -> list[Block]:
    """Return the hosts that are slow, and what there is to tell it by."""
    if not checks:
        return [Paragraph(Say("hosts.unknown"), "note")]
    said = [Paragraph(text, "warning") for text in slow(checks)]
    return [*(said or [Paragraph(Say("hosts.none"))]), _table(checks)]


def slow(checks: Sequence[HostCheck]) -> Iterator[Value]:
    """Yield a sentence for each host that is slow, once."""
    seen = set()
    for check in checks:
        for found in check.slow:
            if found.host not in seen:
                seen.add(found.host)
                why = Say(f"hosts.why_{found.source}")
                yield Say("hosts.named", {"host": found.host, "ratio": _ratio(found), "why": why})


def _table(checks: Sequence[HostCheck]) -> Table:
    columns = (
        Column(Say("hosts.source"), text=True),
        Column(Say("hosts.compared")),
        Column(Say("hosts.slowest")),
        Column(Say("hosts.ratio"), numeric=True),
        Column(Say("hosts.launches"), numeric=True),
        Column(Say("hosts.verdict")),
    )
    rows = tuple(
        (
            Say(f"hosts.from_{check.source}"),
            labels.hosts(check.hosts),
            check.slowest.host,
            _ratio(check.slowest),
            Say("hosts.counted", {"launches": check.launches, "needed": check.needed}),
            _verdict(check),
        )
        for check in checks
    )
    return Table("hosts", Say("hosts.caption"), columns, rows, note=Say("hosts.note"))


def _ratio(found: SlowHost) -> Value:
    return spread.both(spread.from_interval(found.slower), "times")


def _verdict(check: HostCheck) -> Say:
    if not check.decided:
        return Say("hosts.few")
    return Say("hosts.slow") if check.slow else Say("hosts.fine")
