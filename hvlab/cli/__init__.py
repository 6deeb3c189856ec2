"""The command line: one module for each verb, one place where an error becomes text and an exit code."""

from __future__ import annotations

import errno
import importlib
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import click
from click.shell_completion import CompletionItem

from hvlab import __version__
from hvlab.base.errors import HvlabError, NoInventoryError, UsageError, explain_unknown
from hvlab.base.paths import default_inventory
from hvlab.lab import inventory

_GROUPS = {
    "Set up, and clean up": {
        "init": "inspect hosts, and write an inventory of them",
        "lab": "boot and remove virtual hosts",
        "plan": "choose versions for every host, and explain the choice",
        "fetch": "fetch what the hosts will be built from",
        "provision": "install the stack on every host (runs site.yml)",
        "keys": "issue, replace and revoke the lab's keys",
        "catalogue": "compare the catalogue of releases with the package index",
        "completion": "print the script by which bash, zsh or fish completes commands",
        "clean": "show what takes space on this machine, and remove what is old",
        "remove": "remove everything hvlab put on the hosts",
    },
    "Check the hosts": {
        "verify": "check the state of every host",
        "health": "find out whether each host is fit for work",
        "doctor": "find out from the hosts, or from a log, what is wrong",
        "find-slow": "find out which host is slow, and which link",
    },
    "Measure": {
        "bench": "run benchmarks on the hosts",
        "watch": "watch a run or a search from another terminal",
        "tune": "find settings that are faster, and prove it",
        "bisect": "find which change of the stack costs speed",
    },
    "Read results": {
        "report": "write a report on a run: tables, plots and findings",
        "results": "list, show, export and import results",
        "compare": "compare two runs, or the settings of one",
        "baseline": "keep a run as the baseline, and check later runs against it",
    },
}
VERBS = {name: text for verbs in _GROUPS.values() for name, text in verbs.items()}


_DRY = "hvlab.dry-run"
# The disk accepts no more data: file system full, quota, file size limit, or read-only.
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
# The user or the machine is out of files, processes or memory.
_MANY = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)


class _Verbs(click.Group):
    """Loads a verb's module only when that verb is used, so that ``--help`` is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0].lower()
        if name not in VERBS and not name.startswith("-"):
            raise self._explain(ctx, name)
        if name == "bench" and not ctx.resilient_parsing:
            _begin_inventory(ctx, args[1:])
        ctx.meta[_DRY] = "--dry-run" in args
        return super().resolve_command(ctx, [name, *args[1:]])

    def _explain(self, ctx: click.Context, name: str) -> HvlabError:
        """Return the error for a word that may be a command of a verb, or a name that bench takes."""
        from hvlab.cli.options import NAMES  # noqa: PLC0415 - it loads slowly

        ways = []
        for verb in VERBS:
            # A verb may need an extra that is not installed.
            with suppress(ModuleNotFoundError):
                if name in getattr(self.get_command(ctx, verb), "commands", ()):
                    ways.append(f"`hvlab {verb} {name}`")
        ways += [f"`hvlab bench {option} {name}`" for option, names in NAMES.items() if name in names]
        if ways:
            return UsageError(f"{name} is not a command", remedy=f"write {' or '.join(ways)}")
        return explain_unknown("command", name, VERBS)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except NoInventoryError as error:
            error.remedy = f"{_other_ways(str(ctx.invoked_subcommand), self, ctx)}{error.remedy}"
            raise

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"hvlab.cli.{name.replace('-', '_')}").command
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        verbs = [
            CompletionItem(name, help=text) for name, text in VERBS.items() if name.startswith(incomplete)
        ]
        return verbs + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, verbs in _GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(max(map(len, VERBS))), text) for name, text in verbs.items()])


def _other_ways(verb: str, verbs: click.Group, context: click.Context) -> str:
    """Return how a verb gets hosts without an inventory, to be followed by the way with one."""
    command = verbs.get_command(context, verb)
    params = command.params if command else []
    options = {item.name for item in params}
    ways = []
    if os.environ.get("SLURM_JOB_ID"):
        ways.append(
            f"use the hosts of this Slurm job: `hvlab {verb if 'here' in options else 'bench'} --here`"
        )
    elif "here" in options and context.meta.get(_DRY):
        ways.append("add --here --hosts 64 --slots 8 to plan for a Slurm job")
    elif "here" in options:
        ways.append(f"in a Slurm job, run `hvlab {verb} --here`")
    if any("--hosts" in item.opts and "NAME" in str(getattr(item, "metavar", "")) for item in params):
        ways.append(f"name hosts: `hvlab {verb} --hosts localhost`")
    return "".join(f"{way}; or " for way in ways)


def _begin_inventory(context: click.Context, words: list[str]) -> None:
    """Have Ansible start while the verb's own modules are imported; both take the better part of a second."""
    if {"--here", "-h", "--help", "--help-all"}.isdisjoint(words):
        with suppress(click.ClickException, HvlabError):
            place = _PLACE.make_context("place", words).params
            context.with_resource(inventory.start_loading(place["inventory"], limit=place["limit"]))


# Only the options that name hosts, as cli.options has them: that module loads slowly.
_PLACE = click.Command(
    "place",
    {"ignore_unknown_options": True, "allow_extra_args": True},
    params=[
        click.Option(["-i", "--inventory"], type=click.Path(path_type=Path), default=default_inventory),
        click.Option(["-l", "--limit"]),
    ],
)


# Verbs in any letter case.
_SETTINGS = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 110,
    "token_normalize_func": str.lower,
}


@click.command(cls=_Verbs, context_settings=_SETTINGS)
@click.version_option(__version__, prog_name="hvlab")
def cli() -> None:
    """\b
    hvlab bench --suite quick
    hvlab help bench            # the same as hvlab bench --help

    From bare hosts to a measured, documented Horovod cluster.
    """


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code.

    0 fine, 1 something measured or checked failed, 2 usage or configuration, 3 hosts unreachable,
    130 interrupted.
    """
    # Whatever the user's umask, nothing created here is writable by others.
    os.umask(os.umask(0o077) | 0o022)
    try:
        with handled_signals():
            if arguments and arguments[0].lower() == "help":
                arguments = [*arguments[1:], "--help"]
            if arguments and arguments[0].lower() == "version":
                arguments = ["--version"]
            # Hosts name this command to anyone else who asks for them meanwhile.
            os.environ["HVLAB_COMMAND"] = " ".join(["hvlab", *arguments[:1]])
            result = cli.main(args=arguments, prog_name="hvlab", standalone_mode=False)
            sys.stdout.flush()
    except HvlabError as error:
        click.echo(f"hvlab: {error}", err=True)
        if error.remedy:
            click.echo(f"  what to do: {error.remedy}", err=True)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("hvlab: interrupted", err=True)
        return 130
    except BrokenPipeError:
        # The reader closed the pipe.
        _drop_output()
        return HvlabError.exit_code
    except OSError as error:
        _drop_output()
        observed, remedy = _explain_os_error(error)
        click.echo(f"hvlab: {observed}", err=True)
        click.echo(f"  what to do: {remedy}, then run this again", err=True)
        return HvlabError.exit_code
    return result if isinstance(result, int) else 0


def _explain_os_error(error: OSError) -> tuple[str, str]:
    words = error.strerror or str(error) or type(error).__name__
    if error.errno in _DISK:
        place = error.filename or "standard output or a temporary file"
        return f"{place}: {words}", "free space there, or make it writable"
    if error.errno in _MANY:
        return words, "end other programs of this user, or raise the limit (`ulimit -a`)"
    if error.filename:
        return f"{error.filename}: {words}", "check that it exists, and that you have access"
    try:
        Path.cwd()
    except OSError:
        return "the working directory is gone", "change to another"
    # Python tests each candidate by writing to it, and reports ENOENT where none has space.
    if "temporary directory" in words:
        return words, "free space in /tmp, or name another folder in TMPDIR"
    return words, "see what this machine lacks (`dmesg`, `df`, `ulimit -a`)"


def _drop_output() -> None:
    """Discard unprinted output, lest Python print it again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        _silence([sys.stdout.fileno()])


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ENDING = b"\nhvlab: already ending what it started; to interrupt that would leave it behind\n"


@contextmanager
def handled_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt at the first of these signals within the block; later ones have no effect.

    The exception ends everything that was started; a second one would cut that short. SIGHUP stays
    ignored where it was (nohup); SIGINT counts in the background of a script, too.
    """
    count = 0
    terminals = [stream for stream in (1, 2) if os.isatty(stream)]

    def interrupt(number: int, _frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        if number == signal.SIGHUP:
            _silence(terminals)
        if count == 1:
            raise KeyboardInterrupt
        os.write(2, _ENDING)

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:
        if number != signal.SIGHUP or before[number] is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in _SIGNALS:
            signal.signal(number, before[number])


def _silence(streams: Iterable[int]) -> None:
    """Stop writing to streams that are gone: a failing write would interrupt the clean-up."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(null, stream)
    os.close(null)
