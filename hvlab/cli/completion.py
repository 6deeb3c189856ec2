"""``hvlab completion``, and the answers to the shells that have its script."""

from __future__ import annotations

import os
from contextlib import redirect_stderr, suppress
from pathlib import Path

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete

_VARIABLE = "_HVLAB_COMPLETE"
_NO_ERRORS = " 2>/dev/null)"


class _WholeWords(ShellComplete):
    """For shells in which ``--suite=quick`` is one word: candidates repeat all of it."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        """Return the candidates for the last word."""
        items = super().get_completions(args, incomplete)
        option, equals, _ = incomplete.partition("=")
        if not equals or not option.startswith("--"):
            return items
        return [
            CompletionItem(f"{option}={item.value}", help=item.help) for item in items if item.type == "plain"
        ]


class _Bash(BashComplete):
    source_template = BashComplete.source_template.replace(" $1)", f" $1{_NO_ERRORS}")

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before, and the one being typed; bash splits ``--suite=quick`` into three."""
        args, incomplete = super().get_completion_args()
        return (args[:-1] if args[-1:] == ["="] else args), incomplete


class _Zsh(_WholeWords, ZshComplete):
    source_template = ZshComplete.source_template.replace(
        '_complete %(prog_name)s)}")', f'_complete %(prog_name)s{_NO_ERRORS}}}")'
    )

    def format_completion(self, item: CompletionItem[str]) -> str:
        """Return the three lines of a candidate; zsh drops empty ones, as for a file not yet typed."""
        return super().format_completion(item if item.value else CompletionItem("_", type=item.type))


class _Fish(_WholeWords, FishComplete):
    source_template = FishComplete.source_template.replace(
        " %(prog_name)s);", f" %(prog_name)s{_NO_ERRORS};"
    ).replace(
        # A value may be a list with commas.
        'split ","',
        'split --max 1 ","',
    )


SHELLS: dict[str, type[ShellComplete]] = {"bash": _Bash, "zsh": _Zsh, "fish": _Fish}


@click.command("completion")
@click.argument("shell", type=click.Choice(list(SHELLS)))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """\b
    eval "$(hvlab completion bash)"             # in ~/.bashrc
    eval "$(hvlab completion zsh)"              # in ~/.zshrc, after compinit
    hvlab completion fish | source              # in ~/.config/fish/config.fish

    Print the script by which SHELL completes hvlab's commands, options and values.

    Then TAB also knows runs, cases, inventories, hosts, groups, suites and baselines. It contacts no host.
    """
    click.echo(_completion(shell, context.find_root().command).source(), nl=False)


def is_requested() -> bool:
    """Whether a shell is asking for candidates."""
    return os.environ.get(_VARIABLE, "").endswith("_complete")


def answer(cli: click.Command) -> int:
    """Print the candidates, one per line in the form of the shell's script; never an error."""
    shell = os.environ[_VARIABLE].partition("_")[0]
    with Path(os.devnull).open("w") as nowhere, redirect_stderr(nowhere), suppress(Exception):
        click.echo(_completion(shell, cli).complete().encode())
    return 0


def _completion(shell: str, cli: click.Command) -> ShellComplete:
    return SHELLS[shell](cli, {}, "hvlab", _VARIABLE)
