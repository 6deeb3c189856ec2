"""``hvlab bisect``."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import click

from hvlab.bench.request import specify
from hvlab.cli import candidates, options
from hvlab.cli.one_configuration import COMPUTED, read_request
from hvlab.cli.options import GroupedCommand
from hvlab.lab.inventory import load
from hvlab.results import searches
from hvlab.results.store import Store


@click.command("bisect", cls=GroupedCommand)
@options.of_verb("bisect", **COMPUTED)
@click.argument("good", metavar="GOOD", shell_complete=candidates.stacks)
@click.argument("bad", metavar="BAD", shell_complete=candidates.stacks)
@options.own_command
def command(
    *,
    inventory: Path,
    limit: str | None,
    restart: bool,
    keep: bool,
    store: Store,
    output_format: str,
    good: str,
    bad: str,
    **values: Any,
) -> int:
    """\b
    hvlab bisect last~5 lab                     # from a run to today's stack
    hvlab bisect good.yml bad.yml --workload mnist

    Find which change of the stack makes one configuration slower.

    GOOD and BAD are each a stack file, a lock of `hvlab plan --write-lock`, a run by its id, a baseline by
    its name, or `lab`, the stack in use. What either leaves out is taken from the stack in use: a run or a
    baseline has versions, but no build flags.

    Stacks between the two are installed beside the one in use and measured in turn with GOOD, until one
    change is left that brings the difference: a release of Open MPI, Python, torch, TensorFlow or Horovod, a
    variable of their roles, a parameter of Open MPI, or a setting of the ranks. Then it is tried alone, and
    all others without it.

    Allreduce on all hosts is measured, whatever a run or a baseline measured, unless the options say
    otherwise. The exit code is 1 where BAD is not significantly slower. The same command again resumes an
    interrupted search.
    """
    lab = load(inventory, limit=limit)
    # These load slowly, and --help needs none of them.
    from hvlab.remote.gather import facts  # noqa: PLC0415
    from hvlab.searches.bisect import ends  # noqa: PLC0415
    from hvlab.searches.bisect.session import REPORT, BisectRequest, bisect  # noqa: PLC0415
    from hvlab.searches.bisect.stack import Stack  # noqa: PLC0415
    from hvlab.stack.resolver.facts import from_ansible  # noqa: PLC0415
    from hvlab.stack.resolver.lab import request  # noqa: PLC0415

    spec = specify(read_request(values, lab), lab, store)
    given = [ends.read(text, store, lab) for text in (good, bad)]
    notes = tuple(note for text in (good, bad) for note in ends.notes(text))
    for note in notes:
        click.echo(f"note: {note}", err=True)
    known = facts(lab)
    in_use = ends.in_use(lab, known)
    own, fast, slow = ends.with_defaults(in_use, *(Stack({**in_use.items, **items}) for items in given))
    asked = BisectRequest(
        good=fast,
        bad=slow,
        own=own,
        spec=spec,
        lab=lab,
        notes=notes,
        hosts=[
            request(from_ansible(host.name, known[host.name]), host.vars, gpu=host.gpu) for host in lab.hosts
        ],
    )
    place = searches.folder_of(store.folder, "bisect", asked.key(), restart=restart)
    if place.is_dir():
        click.echo(f"resuming the search in {place}", err=True)
    result = bisect(asked, store, place, keep=keep, note=partial(click.echo, err=True))
    click.echo(json.dumps(result.as_json(), indent=1) if output_format == "json" else result.markdown())
    click.echo(f"report: {place / REPORT}", err=True)
    return 0 if result.culprit else 1
