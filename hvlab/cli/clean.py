"""``hvlab clean``: what takes space on this machine, and what of it is old."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

import click

from hvlab.base import cache
from hvlab.base.cache import Kept
from hvlab.base.errors import HvlabError, UsageError
from hvlab.base.paths import results_dir
from hvlab.cli import options
from hvlab.cli.clean_hosts import CleanedPlace, OnHosts, size_of
from hvlab.lab.inventory import load
from hvlab.results import searches, tables

_COLUMNS = ("what", "number", "size", "last used", "goes", "frees")


@click.command("clean")
@click.option(
    "--older-than",
    type=options.TimeType(cache.DAY_S, unit="d"),
    default="30d",
    show_default=True,
    metavar="TIME",
    help="Remove what was not used for longer.",
)
@click.option(
    "--max-size",
    "size",
    metavar="SIZE",
    help="Then remove the longest unused until the rest fits SIZE (10G).",
)
@click.option(
    "--on-hosts", "hosts", is_flag=True, help="Look at the hosts of the inventory instead of this machine."
)
@options.inventory
@options.limit
@options.results
@click.option("--yes", is_flag=True, help="Do not ask.")
@options.table_or_json
def command(
    *,
    older_than: float,
    size: str | None,
    hosts: bool,
    inventory: Path,
    limit: str | None,
    folder: Path | None,
    yes: bool,
    output_format: str,
) -> None:
    """\b
    hvlab clean                                 # show what takes space
    hvlab clean --older-than 7d --yes
    hvlab clean --on-hosts

    Show what hvlab keeps on this machine, with sizes, and remove what is old.

    That is the cache (packs, packages, sources, data sets), the images of virtual hosts, what killed commands
    left of these, and what the programs of old runs printed, including those of searches by tune and bisect
    that have ended. All of it but the last is made or fetched again when it is needed. Records, settings and
    keys always stay, and so does what was used within a day or belongs to a lab that is up.

    With --on-hosts it is what lies on the hosts: build folders, packs of versions that are no longer in use,
    stacks of bisect, what killed commands left, and files of runs, which hvlab has fetched. What a link
    points to, another pack was built on or a process uses stays.

    Without --yes it asks first; where there is no terminal, it only shows. Whenever something is added to the
    cache, the longest unused goes by itself until the rest fits $HVLAB_CACHE_LIMIT (20G).
    """
    results = results_dir(folder).resolve()
    most = None if size is None else cache.parse_size(size)
    if limit and not hosts:
        raise UsageError("--limit names hosts", remedy="add --on-hosts to look at them, or leave --limit out")
    cache.limit()  # A wrong one is named here, too.
    place: CleanedPlace = OnHosts(load(inventory, limit=limit), results) if hosts else _ThisMachine(results)
    each = place.listed()
    chosen = cache.chosen(each, seconds=older_than, size=most, now=time.time())
    if output_format == "json":
        click.echo(json.dumps([_document(one, one in chosen) for one in each], indent=1))
    else:
        click.echo(place.table(each, chosen))
    if any(one.kind == "image" and not os.access(one.paths[0], os.R_OK, effective_ids=True) for one in each):
        click.echo("`sudo hvlab clean` shows the sizes of images, which are root's alone", err=True)
    total = size_of(chosen)
    if chosen and (
        yes or (sys.stdin.isatty() and click.confirm(f"Remove {len(chosen)} of these, {total}?", err=True))
    ):
        gone = place.remove(chosen)
        click.echo(f"removed {len(gone)}, {size_of(gone)}", err=True)
    elif chosen:
        click.echo(f"nothing was removed; --yes removes {len(chosen)} of these, {total}", err=True)
    elif not place.problem:
        click.echo("nothing is old", err=True)
    if place.problem:
        raise place.problem


class _ThisMachine:
    """What hvlab keeps on this machine."""

    def __init__(self, results: Path) -> None:
        self._results = results
        self.problem: HvlabError | None = None

    def listed(self) -> list[Kept]:
        """Return all of it; an open search is resumed from the files of its runs, so these are not in it."""
        ended = [search for search in searches.folders(self._results) if searches.ended(search)]
        run_files = (one for folder in [self._results, *ended] for one in cache.run_files(folder))
        return [*cache.kept(), *run_files]

    def remove(self, chosen: Sequence[Kept]) -> list[Kept]:
        """Remove what is chosen; return what went."""
        problems, gone = [], []
        for one in chosen:
            try:
                gone += [one] if cache.remove(one) else []
            except OSError as error:
                problems.append(f"{error.filename or one.paths[0]}: {error.strerror}")
        if problems:
            remedy = "run it as the user who owns them (sudo for images)"
            self.problem = HvlabError(f"not removed: {'; '.join(problems)}", remedy=remedy)
        return gone

    def table(self, each: Sequence[Kept], chosen: Sequence[Kept]) -> str:
        """Return a row for each kind."""
        return tables.render(_rows(each, chosen), _COLUMNS, "table")


def _document(one: Kept, goes: bool) -> dict[str, object]:
    used = _day(one.used_at)
    own = {"kind": one.kind, "name": one.name, "bytes": one.size, "last_used": used, "in_use": one.busy}
    where = {"host": one.host} if one.host else {}
    return where | own | {"paths": [str(path) for path in one.paths], "goes": goes}


def _rows(each: Sequence[Kept], chosen: Sequence[Kept]) -> list[dict[str, object]]:
    rows = []
    for kind, group in groupby(sorted(each, key=lambda one: one.kind), key=lambda one: one.kind):
        kept = list(group)
        goes = [one for one in kept if one in chosen]
        rows.append(
            {
                "what": kind,
                "number": len(kept),
                "size": size_of(kept),
                "last used": _day(max(one.used_at for one in kept)),
                "goes": len(goes),
                "frees": size_of(goes) if goes else None,
            }
        )
    return rows


def _day(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d}"
