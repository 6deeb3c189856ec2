"""A command whose help shows its options in groups."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import click

from hvlab.base.errors import UsageError
from hvlab.workloads import WORKLOADS, parameters
from hvlab.workloads.parameters import find

Rows = Sequence[tuple[str, str]]
# Whether a command line has ``--``, in the context's meta.
AFTER_DASHES = "hvlab.after-dashes"

# Whether all of the help is asked for, in the context's meta.
WHOLE = "hvlab.help-all"


def _show_all(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        context.meta[WHOLE] = True
        click.echo(context.get_help())
        context.exit()


_ALL = click.Option(
    ["--help-all"],
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_all,
    help="Show every option and parameter.",
)


def _first_sentence(text: str) -> str:
    match = re.match(r".*?\.(?= [A-Z])", text)
    return match[0] if match else text


class GroupedCommand(click.Command):
    """Like any command; ``groups`` maps a heading to names of options, the rest comes last.

    ``notes`` are further sections at the end of the help, computed when it is shown. With ``brief``, --help
    has the first sentence of these options alone, and --help-all everything.
    """

    groups: Mapping[str, Sequence[str]] = {}
    brief: Sequence[str] = ()
    notes: Sequence[Callable[[], tuple[str, Rows]]] = ()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Note whether words of a command of the user's are marked as such."""
        ctx.meta[AFTER_DASHES] = "--" in args
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name.lstrip("-").replace("-", "_")
            if any(find(name, parameters(workload)) for workload in WORKLOADS):
                problem = f"{error.option_name} is no option, but a parameter"
                raise UsageError(problem, remedy=f"write --set {name}=VALUE") from error
            raise

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, with --help-all where --help is short."""
        params = super().get_params(ctx)
        return [*params[:-1], _ALL, params[-1]] if self.brief else params

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under their headings."""
        whole = not self.brief or ctx.meta.get(WHOLE, False)
        options = [item for item in self.get_params(ctx) if isinstance(item, click.Option)]
        left = {item.name: record for item in options if (record := item.get_help_record(ctx))}
        for heading, names in self.groups.items():
            own = {name: left.pop(name) for name in names}
            if not whole:
                own = {
                    name: (spelling, _first_sentence(text))
                    for name, (spelling, text) in own.items()
                    if name in self.brief
                }
            if own:
                with formatter.section(heading):
                    formatter.write_dl(list(own.values()))
        with formatter.section("Other options"):
            formatter.write_dl(list(left.values()))
        for note in self.notes if whole else ():
            heading, rows = note()
            with formatter.section(heading):
                formatter.write_dl(list(rows))
