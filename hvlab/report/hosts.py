"""The stragglers, and what each kind of data says of the hosts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hvlab.analysis.scaling import HostCheck
from hvlab.report import labels, spread
from hvlab.report.blocks import Block, Column, Paragraph, Say, Table, Value
from hvlab.statistics.straggler import Straggler


def blocks(checks: Sequence[HostCheck]) -> list[Block]:
    """Return the stragglers, and the checks they come from."""
    if not checks:
        return [Paragraph(Say("hosts.unknown"), "note")]
    warnings = [Paragraph(text, "warning") for text in stragglers(checks)]
    return [*(warnings or [Paragraph(Say("hosts.none"))]), _table(checks)]


def stragglers(checks: Sequence[HostCheck]) -> Iterator[Value]:
    """Yield a sentence for each straggler, once."""
    named = set()
    for check in checks:
        for straggler in check.stragglers:
            if straggler.host not in named:
                named.add(straggler.host)
                why = Say(f"hosts.why_{check.source}")
                yield Say("hosts.named", {"host": straggler.host, "ratio": _ratio(straggler), "why": why})


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
    folded = None if any(check.stragglers for check in checks) else Say("hosts.caption")
    return Table("hosts", Say("hosts.caption"), columns, rows, note=Say("hosts.note"), folded=folded)


def _ratio(straggler: Straggler) -> Value:
    return spread.both(spread.from_interval(straggler.slower), "times")


def _verdict(check: HostCheck) -> Say:
    if not check.decided:
        return Say("hosts.few")
    return Say("hosts.slow") if check.stragglers else Say("hosts.fine")
