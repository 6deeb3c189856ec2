"""Every command that was run, and where the raw data are."""

from __future__ import annotations

from hvlab.report.blocks import Block, Code, Commands, Heading, Paragraph, Say, Section
from hvlab.report.data import ReportData


def section(data: ReportData, *, attached: bool) -> Section:
    """Return the part with the commands; ``attached`` tells that the records are in the page."""
    blocks: list[Block] = []
    if data.commands:
        cases = sum(len(command.cases) for command in data.commands)
        summary = Say("commands.summary", {"count": len(data.commands), "cases": cases})
        blocks += [Paragraph(Say("commands.intro")), Commands(summary, tuple(data.commands))]
    else:
        blocks.append(Paragraph(Say("commands.none"), "note"))
    key = "commands.attached" if attached else "commands.attached_not"
    text = Say(key, {"count": len(data.records), "folder": Code(f"runs/{data.head.run_id}")})
    return Section("data", Say("commands.title"), (*blocks, Heading(Say("commands.raw")), Paragraph(text)))
