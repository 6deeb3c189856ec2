"""``hvlab clean``: what takes space on this machine, and what of it is old."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

import click
from pydantic import ByteSize

from hvlab import cache
from hvlab.cache import Kept
from hvlab.cli import options
from hvlab.errors import HvlabError
from hvlab.paths import results_dir
from hvlab.results import searches, tables

_COLUMNS = ("what", "number", "size", "last used", "goes", "frees")


@click.command("clean")
@click.option(
    "--older-than",
    type=click.FloatRange(min=1),
    default=30.0,
    show_default=True,
    metavar="DAYS",
    help="Remove what was not used for so many days.",
)
@click.option(
    "--max-size",
    "size",
    metavar="SIZE",
    help="Then remove the longest unused until the rest fits SIZE (10G).",
)
@options.results
@click.option("--yes", is_flag=True, help="Do not ask.")
@options.table_or_json
def command(
    *, older_than: float, size: str | None, folder: Path | None, yes: bool, output_format: str
) -> None:
    """Show what hvlab keeps on this machine, with sizes, and remove what is old.

    That is the cache (packs, packages, sources, data sets), the images of virtual hosts, what killed commands
    left of these, and what the programs of old runs printed, including those of searches by tune and bisect
    that have ended. All of it but the last is made or fetched again when it is needed. Records, settings and
    keys always stay, and so does what was used within a day or belongs to a lab that is up.

    Without --yes it asks first; where there is no terminal, it only shows. Whenever something is added to the
    cache, the longest unused goes by itself until the rest fits $HVLAB_CACHE_LIMIT (20G).
    """
    now = time.time()
    results = (folder or results_dir()).resolve()
    # An open search is resumed from the files of its runs.
    ended = [search for search in searches.folders(results) if searches.ended(search)]
    each = [*cache.kept(), *(one for place in [results, *ended] for one in cache.run_files(place))]
    chosen = cache.older(each, older_than * cache.DAY_S, now=now)
    if size is not None:
        rest = [one for one in each if one not in chosen]
        chosen += cache.beyond(rest, cache.parse_size(size), now=now)
    if output_format == "json":
        click.echo(json.dumps([_document(one, one in chosen) for one in each], indent=1))
    else:
        click.echo(tables.render(_rows(each, chosen), _COLUMNS, "table"))
    total = _size(chosen)
    if not chosen:
        click.echo("nothing is old", err=True)
    elif yes or (sys.stdin.isatty() and click.confirm(f"Remove {len(chosen)} of these, {total}?", err=True)):
        _remove(chosen)
    else:
        click.echo(f"nothing was removed; --yes removes {len(chosen)} of these, {total}", err=True)


def _remove(chosen: Sequence[Kept]) -> None:
    problems, gone = [], []
    for one in chosen:
        try:
            gone += [one] if cache.remove(one) else []
        except OSError as error:
            problems.append(f"{error.filename or one.paths[0]}: {error.strerror}")
    click.echo(f"removed {len(gone)}, {_size(gone)}", err=True)
    if problems:
        raise HvlabError(
            f"not removed: {'; '.join(problems)}", remedy="run it as the user who owns them (sudo for images)"
        )


def _document(one: Kept, goes: bool) -> dict[str, object]:
    used = _day(one.used_at)
    own = {"kind": one.kind, "name": one.name, "bytes": one.size, "last_used": used, "in_use": one.busy}
    return own | {"paths": [str(path) for path in one.paths], "goes": goes}


def _rows(each: Sequence[Kept], chosen: Sequence[Kept]) -> list[dict[str, object]]:
    rows = []
    for kind, group in groupby(sorted(each, key=lambda one: one.kind), key=lambda one: one.kind):
        kept = list(group)
        goes = [one for one in kept if one in chosen]
        rows.append(
            {
                "what": kind,
                "number": len(kept),
                "size": _size(kept),
                "last used": _day(max(one.used_at for one in kept)),
                "goes": len(goes),
                "frees": _size(goes) if goes else None,
            }
        )
    return rows


def _day(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d}"


def _size(each: Sequence[Kept]) -> str:
    return ByteSize(sum(one.size for one in each)).human_readable(separator=" ")
