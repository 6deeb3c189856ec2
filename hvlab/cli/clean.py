"""``hvlab clean``: what takes space on this machine, and which of it is old."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click
from pydantic import ByteSize

from hvlab.base import cache
from hvlab.base.cache import DAY_S, Kept
from hvlab.base.errors import HvlabError, UsageError
from hvlab.cli import options
from hvlab.lab.inventory import Lab, load
from hvlab.results import searches, tables
from hvlab.results.lock import measuring
from hvlab.results.store import Store

if TYPE_CHECKING:
    from hvlab.remote.gather import HostsAnswer
_COLUMNS = ("what", "number", "size", "last used", "goes", "frees")


@click.command("clean")
@options.of_verb("clean", older_than={"type": options.TimeType(cache.DAY_S, unit="d")})
def command(
    *,
    older_than: float,
    size: str | None,
    hosts: bool,
    inventory: Path,
    limit: str | None,
    store: Store,
    yes: bool,
    output_format: str,
) -> None:
    """\b
    hvlab clean                                 # show what takes space
    hvlab clean --older-than 7d --yes
    hvlab clean --on-hosts

    Show the files that hvlab keeps on this machine, and remove old ones.

    This covers the cache (packs, packages, sources, data sets), the images of virtual hosts, partial
    ones left by killed commands, and the output of programs in old runs, including the runs of finished
    searches by tune and bisect. All but the last is made or fetched again when needed. Records, settings
    and keys always stay, and so does what was used within a day or belongs to a lab that is up.

    With --on-hosts it covers files on the hosts: build folders, packs of versions no longer in use, stacks
    of bisect, leftovers of killed commands, and files of runs that hvlab has fetched. A file stays if a link
    points to it, another pack was built on it or a process uses it.

    Without --yes it asks first; without a terminal, it only shows. Whenever something is added to the
    cache, the least recently used is removed until the rest fits $HVLAB_CACHE_LIMIT (20G).
    """
    results = store.folder.resolve()
    most = None if size is None else cache.parse_size(size)
    if limit and not hosts:
        raise UsageError("--limit names hosts", remedy="add --on-hosts to look at them, or leave --limit out")
    cache.limit()  # Reports an invalid limit here, too.
    place: _ThisMachine | _OnHosts = (
        _OnHosts(load(inventory, limit=limit), results) if hosts else _ThisMachine(results)
    )
    each = place.list_items()
    chosen = cache.choose(each, seconds=older_than, size=most, now=time.time())
    if output_format == "json":
        click.echo(json.dumps([_document(one, one in chosen) for one in each], indent=1))
    else:
        click.echo(place.table(each, chosen))
    if any(one.kind == "image" and not os.access(one.paths[0], os.R_OK, effective_ids=True) for one in each):
        click.echo("`sudo hvlab clean` shows the sizes of images, which are root's alone", err=True)
    total = _size_of(chosen)
    if chosen and (
        yes or (sys.stdin.isatty() and click.confirm(f"Remove {len(chosen)} of these, {total}?", err=True))
    ):
        gone = place.remove(chosen)
        click.echo(f"removed {len(gone)}, {_size_of(gone)}", err=True)
    elif chosen:
        click.echo(f"nothing was removed; --yes removes {len(chosen)} of these, {total}", err=True)
    elif not place.problem:
        click.echo("nothing is old", err=True)
    if place.problem:
        raise place.problem


class _ThisMachine:
    def __init__(self, results: Path) -> None:
        self._results = results
        self.problem: HvlabError | None = None

    def list_items(self) -> list[Kept]:
        """Return all of it, without the runs of open searches, which are resumed from their files."""
        ended = [search for search in searches.folders(self._results) if searches.has_ended(search)]
        run_files = (one for folder in [self._results, *ended] for one in cache.run_files(folder))
        return [*cache.entries(), *run_files]

    def remove(self, chosen: Sequence[Kept]) -> list[Kept]:
        """Remove the chosen items; return those removed."""
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
                "size": _size_of(kept),
                "last used": _day(max(one.used_at for one in kept)),
                "goes": len(goes),
                "frees": _size_of(goes) if goes else None,
            }
        )
    return rows


def _day(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d}"


_HOST_COLUMNS = ("host", "what", "path", "size", "days unused", "goes")


class _OnHosts:
    def __init__(self, lab: Lab, results: Path) -> None:
        self._lab, self._results = lab, results
        self.problem: HvlabError | None = None

    def list_items(self) -> list[Kept]:
        """Ask the hosts; those that do not answer are the ``problem``."""
        from hvlab.remote import gather  # noqa: PLC0415 - it loads slowly, and only --on-hosts needs it

        return self._keep_answers(gather.list_unused(self._lab))

    def remove(self, chosen: Sequence[Kept]) -> list[Kept]:
        """Remove the chosen items while nothing else measures the lab; return those removed."""
        from hvlab.remote import gather  # noqa: PLC0415 - as above
        from hvlab.searches.bisect import session  # noqa: PLC0415 - as above

        with measuring(self._results, self._lab.name):
            stacks = [one for one in chosen if one.kind == "stacks"]
            gone = self._keep_answers(gather.remove(self._lab, [one for one in chosen if one not in stacks]))
            having = {one.host for one in stacks}
            if hosts := tuple(host for host in self._lab.hosts if host.name in having):
                session.remove(replace(self._lab, hosts=hosts))
        return [*gone, *stacks]

    def table(self, each: Sequence[Kept], chosen: Sequence[Kept]) -> str:
        """Return a row for each folder."""
        now = time.time()
        rows = [
            {
                "host": one.host,
                "what": one.kind,
                "path": str(one.paths[0]),
                "size": _size_of([one]),
                "days unused": "in use" if one.busy else int((now - one.used_at) / DAY_S),
                "goes": "yes" if one in chosen else None,
            }
            for one in each
        ]
        return tables.render(rows, _HOST_COLUMNS, "table")

    def _keep_answers(self, answer: HostsAnswer) -> list[Kept]:
        from hvlab.remote.playbook import explain  # noqa: PLC0415 - as above

        if answer.failures:
            failed, remedy = "not all hosts could be asked", "correct that on the hosts"
            self.problem = explain(answer.failures, len(self._lab.hosts), failed, remedy=remedy)
        return list(answer.kept)


def _size_of(each: Sequence[Kept]) -> str:
    return ByteSize(sum(one.size for one in each)).human_readable(separator=" ")
