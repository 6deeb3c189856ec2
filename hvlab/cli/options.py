"""Options of verbs, as `options.yml` lists them, and a command whose help shows them in groups."""

from __future__ import annotations

import difflib
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hvlab.base.errors import UsageError, explain_unknown
from hvlab.base.paths import default_inventory, results_dir
from hvlab.base.yaml_files import read_shipped
from hvlab.bench import suite
from hvlab.cli import candidates
from hvlab.lab.backends import BACKENDS, LIBRARIES
from hvlab.workloads import WORKLOADS, parameters
from hvlab.workloads.parameters import find

if TYPE_CHECKING:
    from hvlab.lab.inventory import Lab
    from hvlab.results.store import Store

F = TypeVar("F", bound=Callable[..., Any])
Rows = Sequence[tuple[str, str]]
# Whether a command line has ``--``, in the context's meta.
AFTER_DASHES = "hvlab.after-dashes"

# Whether all of the help is requested, in the context's meta.
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


class GroupedCommand(click.Command):
    """A verb whose help shows its options under the headings of `options.yml`.

    --help has the first sentence of its brief options alone, and --help-all everything. ``notes`` are
    further sections of the latter, computed when it is shown.
    """

    def __init__(
        self, *given: Any, notes: Sequence[Callable[[], tuple[str, Rows]]] = (), **more: Any
    ) -> None:
        super().__init__(*given, **more)
        self._groups, self._notes = _TABLE[str(self.name)], notes

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Note whether the user's own command follows ``--``."""
        ctx.meta[AFTER_DASHES] = "--" in args
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name.lstrip("-").replace("-", "_")
            if any(find(name, parameters(workload)) for workload in WORKLOADS):
                problem = f"{error.option_name} is a parameter, not an option"
                raise UsageError(problem, remedy=f"write --set {name}=VALUE") from error
            raise

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, with --help-all if --help is short."""
        params = super().get_params(ctx)
        return [*params[:-1], _ALL, params[-1]]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under their headings."""
        whole = ctx.meta.get(WHOLE, False)
        options = [item for item in self.get_params(ctx) if isinstance(item, click.Option)]
        left = {item.name: record for item in options if (record := item.get_help_record(ctx))}
        for heading, rows in self._groups.items():
            own = {name: left.pop(name) for name in rows}
            if not whole:
                own = {
                    name: (spelling, re.sub(r"(.*?\.)(?= [A-Z]).*", r"\1", text))
                    for name, (spelling, text) in own.items()
                    if rows[name] is None or rows[name].get("brief")
                }
            if own:
                with formatter.section(heading):
                    formatter.write_dl(list(own.values()))
        with formatter.section("Other options"):
            formatter.write_dl(list(left.values()))
        for note in self._notes if whole else ():
            title, lines = note()
            with formatter.section(title):
                formatter.write_dl(list(lines))


_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
# Values that people write without the option.
NAMES = {"--suite": suite.NAMES, "--workload": WORKLOADS, "--backend": BACKENDS, "--library": LIBRARIES}


def load_requested_lab(inventory: Path, limit: str | None, *, here: bool, named: str | None) -> Lab:
    """Return the hosts that those options name. Raises UsageError."""
    # They load slowly, and --help needs none of them.
    from hvlab.lab import inventory as inventories  # noqa: PLC0415
    from hvlab.remote import direct  # noqa: PLC0415

    source = click.get_current_context().get_parameter_source("inventory")
    ways = [
        option
        for option, given in (
            ("--inventory", source is click.core.ParameterSource.COMMANDLINE),
            ("--here", here),
            ("--hosts", named is not None),
        )
        if given
    ]
    if len(ways) > 1:
        raise UsageError(f"{' and '.join(ways)} each name the hosts", remedy="give one of them")
    if here:
        return direct.lab_of_job(limit)
    if named is not None:
        return direct.lab_of_list(named, limit)
    return inventories.load(inventory, limit=limit)


def have_listed_lab(text: str, limit: str | None, python: str | None, refused: Sequence[str]) -> Lab:
    """Return the hosts of a list to measure on; they stay usable while the command runs.

    ``refused`` are given options that it does not take. Raises UsageError.
    """
    from hvlab.remote import listed  # noqa: PLC0415 - it loads slowly

    if refused:
        raise UsageError(
            f"--hosts {text} names hosts without an inventory, and takes no {', no '.join(refused)}",
            remedy="leave that out; or name hosts of an inventory with -l, and count them with --hosts",
        )
    return click.get_current_context().with_resource(listed.lab(text, limit, python))


class SubVerbs(click.Group):
    """The commands of a verb; another word is answered as an unknown verb is."""

    def resolve_command(  # noqa: D102 - as in the base class
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0].lower()
        if name not in self.commands and "show" in self.commands and re.match(r"last|\d", name):
            raise UsageError(f"{name} names a run", remedy=f"write `hvlab {ctx.info_name} show {name}`")
        if name not in self.commands and not name.startswith("-"):
            raise explain_unknown(f"command of hvlab {ctx.info_name}", args[0], self.commands)
        return super().resolve_command(ctx, args)


def _is_script(word: str) -> bool:
    """Whether a word is a script of Python that is not started by its own name."""
    return word.endswith(".py") and not shutil.which(word) and (Path(word).is_file() or "/" not in word)


def _refuse_names(context: click.Context, _parameter: click.Parameter, words: tuple[str, ...]) -> Any:
    """Refuse a first word that names a workload or the like, or no program; after ``--`` any is accepted."""
    if words and _is_script(words[0]):
        raise UsageError(
            f"{words[0]} is not a program", remedy=f"write `hvlab {context.info_name} -- python {words[0]}`"
        )
    if not words or context.meta.get(AFTER_DASHES):
        return words
    own = {option for item in context.command.params for option in item.opts}
    options = {name: option for option, names in NAMES.items() if option in own for name in names}
    word = words[0].lower()
    near = [word] if word in options else difflib.get_close_matches(word, options, n=1)
    if word not in options and (Path(words[0]).is_file() or shutil.which(words[0])):
        return words
    what = f"the name of a {options[word].strip('-')}" if word in options else "no file and no program"
    own_training = f"write a training of your own after --: `hvlab {context.info_name} -- {words[0]} ...`"
    raise UsageError(
        f"{words[0]} is {what}", remedy=f"write {options[near[0]]} {near[0]}" if near else own_training
    )


own_command = click.argument(
    "words",
    metavar="[-- COMMAND...]",
    nargs=-1,
    type=click.UNPROCESSED,
    shell_complete=candidates.files,
    callback=_refuse_names,
)


def _open_store(_context: click.Context, _parameter: click.Parameter, folder: Path | None) -> Store:
    from hvlab.results.store import Store  # noqa: PLC0415 - it loads slowly, and --help needs none of it

    return Store(results_dir(folder))


class RepeatsType(click.ParamType[int]):
    """A number of repeats, or auto, which is 0."""

    name = "repeats"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        if value == suite.AUTO:
            return 0
        if not re.fullmatch(r"-?\d{1,9}", str(value)):
            self.fail(f"{value} is neither a number nor {suite.AUTO}", param, ctx)
        return int(click.IntRange(1, suite.MOST_REPEATS).convert(value, param, ctx))


def _format_time(seconds: float) -> str:
    unit = next(name for name, length in reversed(_SECONDS.items()) if seconds >= length)
    return f"{seconds / _SECONDS[unit]:g}{unit}"


class _CountType(click.IntRange):
    """A whole number of 1 or more."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        if param and param.name == "hosts" and not re.fullmatch(r"-?\d+", str(value)):
            self.fail(f"{value} is not a number of hosts; -l {value} names hosts", param, ctx)
        return int(super().convert(value, param, ctx))


class TimeType(click.ParamType[float]):
    """A time such as 90s, 20m, 2h or 7d, in seconds; a bare number is in ``unit``, one of the letters."""

    name = "time"

    def __init__(self, least: float = 1, most: float = 365 * 86400, unit: str = "s") -> None:
        self._least, self._most, self._unit = least, most, unit

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        if isinstance(value, int | float):
            return value
        match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)(ms|[smhd]?)", str(value).strip().lower())
        if match is None:
            self.fail(f"{value} is not a time such as 90s, 20m or 2h", param, ctx)
        seconds = float(match[1]) * _SECONDS[match[2] or self._unit]
        if not self._least <= seconds <= self._most:
            least, most = map(_format_time, (self._least, self._most))
            self.fail(f"{value} is not from {least} to {most}", param, ctx)
        return round(seconds) if self._least >= 1 else seconds


_TABLE: Mapping[str, Mapping[str, Mapping[str, Any]]] = read_shipped(Path(__file__).with_suffix(".yml"))
_TYPES: Mapping[str, Callable[..., click.ParamType[Any]]] = {
    "path": lambda: click.Path(path_type=Path),
    "file": lambda: click.Path(path_type=Path, dir_okay=False),
    "existing": lambda: click.Path(path_type=Path, dir_okay=False, exists=True),
    "folder": lambda: click.Path(path_type=Path, file_okay=False),
    "count": lambda: _CountType(1),
    "number": click.IntRange,
    "fraction": click.FloatRange,
    "time": TimeType,
}


_COMPUTED: Mapping[str, Mapping[str, Any]] = {
    "inventory": {"default": default_inventory},
    "store": {"callback": _open_store},
}


def of_verb(verb: str, **computed: Mapping[str, Any]) -> Callable[[F], F]:
    """Add the options of a verb in `options.yml`; ``computed`` completes them by name."""

    def add(command: F) -> F:
        rows = [row for group in _TABLE[verb].values() for row in group.items()]
        for name, row in reversed(rows):
            command = _option(name, row or {}, computed.get(name, {}))(command)
        return command

    return add


def _option(name: str, row: Mapping[str, Any], computed: Mapping[str, Any]) -> Callable[[F], F]:
    own = {key: value for key, value in row.items() if key != "brief"}
    if "help" not in own:
        own = {**_TABLE["all verbs"][""][name], **_COMPUTED.get(name, {}), **own}
    own |= computed
    spelling = own.pop("as", f"--{name.replace('_', '-')}")
    own["help"] = own["help"].format(name=name, names=", ".join(own.pop("names", ())))
    if "complete" in own:
        own["shell_complete"] = getattr(candidates, own.pop("complete"))
    if "flag" in own:
        own["is_flag"] = own.pop("flag")
    if "choices" in own:
        own["type"] = click.Choice(own.pop("choices"))
    elif isinstance(own.get("type"), str):
        own["type"] = _TYPES[own["type"]](*own.pop("range", ()))
    return click.option(*([spelling] if isinstance(spelling, str) else spelling), name, **own)


inventory = _option("inventory", {}, {})
