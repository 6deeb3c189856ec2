"""Completions of values for shells: runs, cases, inventories, hosts, suites, baselines.

No host is contacted, and no program of an inventory is run. Anything unreadable gives no candidates.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from hvlab.base.paths import default_inventory, project_dir, results_dir

Items = list[CompletionItem[str]]
Complete = Callable[[click.Context, click.Parameter, str], Items]

# Names that every shell takes as one word without quoting.
_WORD = re.compile(r"[\w@%+=:,./~-]+")


def _offer(names: Callable[[click.Context, str], Iterable[CompletionItem[str]]]) -> Complete:
    """Turn a function that lists all names into a completion; an error offers none."""

    @functools.wraps(names)
    def complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> Items:
        try:
            items = list(names(context, incomplete))
        except Exception:
            return []
        return [
            item
            for item in items
            if item.type != "plain" or (item.value.startswith(incomplete) and _WORD.fullmatch(item.value))
        ]

    return complete


def _complete_name(names: Iterable[str]) -> Iterator[CompletionItem[str]]:
    return (CompletionItem(name) for name in names)


def _complete_list(names: Iterable[str], incomplete: str) -> Iterator[CompletionItem[str]]:
    before, comma, _ = incomplete.rpartition(",")
    used = before.split(",")
    return _complete_name(f"{before}{comma}{name}" for name in names if name not in used)


def words(names: Iterable[str]) -> Complete:
    """Return the completion of a list with commas of these names."""
    known = tuple(names)
    return _offer(lambda _, incomplete: _complete_list(known, incomplete))


@_offer
def files(_context: click.Context, incomplete: str) -> Items:
    """Let the shell offer files."""
    return [CompletionItem(incomplete, type="file")]


def _runs(context: click.Context, _incomplete: str = "") -> Iterator[CompletionItem[str]]:
    from hvlab.results.store import Store  # noqa: PLC0415 - it loads slowly, and --help needs none of it

    for run in reversed(Store(_results(context)).runs()):
        yield CompletionItem(run.run_id, help=f"{run.lab}, {run.state}")


def _baselines(context: click.Context, _incomplete: str = "") -> Iterator[CompletionItem[str]]:
    from hvlab.analysis.baseline import names  # noqa: PLC0415 - as above

    return _complete_name(names(_results(context)))


# The runs of the store, the newest first, and the baselines of all labs.
runs, baselines = _offer(_runs), _offer(_baselines)


@_offer
def stacks(context: click.Context, incomplete: str) -> Iterator[CompletionItem[str]]:
    """Yield names of stacks: the one in use, baselines, runs, and any file."""
    yield CompletionItem(incomplete, type="file")
    yield CompletionItem("lab", help="what is in use")
    yield from _baselines(context)
    yield from _runs(context)


@_offer
def cases(context: click.Context, _incomplete: str) -> Iterator[CompletionItem[str]]:
    """Yield the cases of the run named earlier on the command line, else of the last run."""
    from hvlab.results.store import Store  # noqa: PLC0415 - as above

    store = Store(_results(context))
    # While an option lacks its value, click has the arguments unparsed.
    named = next(iter(context.args), None)
    return _complete_name(sorted(store.finished_cases(store.run(named).run_id)))


@_offer
def inventories(_context: click.Context, incomplete: str) -> Iterator[CompletionItem[str]]:
    """Yield the inventories in ./inventory and in the current clone, besides any file."""
    yield CompletionItem(incomplete, type="file")
    here, project = Path.cwd(), project_dir()
    places = [here / "inventory", *([project / "inventory"] if here.is_relative_to(project) else [])]
    for folder in dict.fromkeys(places):
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if path.is_dir() and not path.name.startswith("."):
                yield CompletionItem(os.path.relpath(path, here))


@_offer
def hosts(context: click.Context, _incomplete: str) -> Iterator[CompletionItem[str]]:
    """Yield the hosts of the inventory."""
    return _complete_name(_hosts_and_groups(context)[0])


@_offer
def patterns(context: click.Context, incomplete: str) -> Iterator[CompletionItem[str]]:
    """Yield the hosts and groups of the inventory, for a pattern."""
    of_inventory, groups = _hosts_and_groups(context)
    return _complete_list([*of_inventory, *groups], incomplete)


@_offer
def suites(_context: click.Context, incomplete: str) -> Iterator[CompletionItem[str]]:
    """Yield the suites, besides any file."""
    from hvlab.bench import suite  # noqa: PLC0415 - as above

    yield CompletionItem(incomplete, type="file")
    yield from _complete_name(suite.NAMES)


@_offer
def causes(_context: click.Context, _incomplete: str) -> Iterator[CompletionItem[str]]:
    """Yield the causes that doctor knows."""
    from hvlab.doctor import knowledge  # noqa: PLC0415 - as above

    return _complete_name(cause.id for cause in knowledge.CAUSES)


def _results(context: click.Context) -> Path:
    store = context.params.get("store")
    return store.folder if store else results_dir()


def _hosts_and_groups(context: click.Context) -> tuple[list[str], list[str]]:
    from hvlab.lab.inventory_files import list_names  # noqa: PLC0415 - as above

    return list_names(context.params.get("inventory") or default_inventory())
