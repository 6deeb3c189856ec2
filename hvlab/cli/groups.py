"""A command whose help shows its options in groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import click

Rows = Sequence[tuple[str, str]]
# Whether a command line has ``--``, in the context's meta.
AFTER_DASHES = "hvlab.after-dashes"


class GroupedCommand(click.Command):
    """Like any command; ``groups`` maps a heading to names of options, the rest comes last.

    ``notes`` are further sections at the end of the help, computed when it is shown.
    """

    groups: Mapping[str, Sequence[str]] = {}
    notes: Sequence[Callable[[], tuple[str, Rows]]] = ()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Note whether words of a command of the user's are marked as such."""
        ctx.meta[AFTER_DASHES] = "--" in args
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under their headings."""
        options = [item for item in self.get_params(ctx) if isinstance(item, click.Option)]
        left = {item.name: record for item in options if (record := item.get_help_record(ctx))}
        for heading, names in self.groups.items():
            with formatter.section(heading):
                formatter.write_dl([left.pop(name) for name in names])
        with formatter.section("Other options"):
            formatter.write_dl(list(left.values()))
        for note in self.notes:
            heading, rows = note()
            with formatter.section(heading):
                formatter.write_dl(list(rows))
