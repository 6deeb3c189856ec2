"""``hvlab remove``: remove everything hvlab put on the hosts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from hvlab.base.answers.shapes import HostAnswer
from hvlab.base.errors import some
from hvlab.base.groups import grouped
from hvlab.cli import options
from hvlab.lab.inventory import Lab, load
from hvlab.remote.gather import collect
from hvlab.remote.playbook import HostFailure, explain
from hvlab.results import tables
from hvlab.results.lock import measuring
from hvlab.results.store import Store


class Removed(HostAnswer):
    """Removed items of a host, by kind; and the remaining ones, with the reason."""

    gone: dict[str, list[str]]
    stays: list[str]


@click.command("remove")
@options.of_verb("remove")
def command(
    inventory: Path, limit: str | None, store: Store, *, packages: bool, yes: bool, output_format: str
) -> None:
    """\b
    hvlab remove                   # show what would go, then ask
    hvlab remove -l n3 --yes
    hvlab remove --packages        # NVIDIA's driver, CUDA and Slurm, too

    Remove everything hvlab put on the hosts: the stack, its files, the lab's user and keys, holds on
    packages, package sources, and the services of its Slurm.

    It relies on hvlab's records on each host. A file that it replaced gets its former text back if that
    was kept. System packages stay; --packages removes those that hvlab installed and holds, and their
    dependencies that nothing else needs. A driver that was there before stays. Hosts that stay in the lab
    accept a removed one until `hvlab keys revoke` is run for it.

    Without --yes it asks first; without a terminal, it only shows.
    """
    lab = load(inventory, limit=limit)
    found, failures = _ask_hosts(lab, look=True, packages=packages)
    if output_format == "json":
        click.echo(json.dumps(found, indent=1))
    else:
        click.echo(_table(found))
    hosts = [host for host, one in found.items() if any(one["gone"].values())]
    if not hosts:
        click.echo(f"nothing to remove from {some(found) if found else 'any host that answers'}", err=True)
    elif yes or (sys.stdin.isatty() and click.confirm(f"Remove this from {some(hosts)}?", err=True)):
        with measuring(store.folder.resolve(), lab.name):
            lab_of_these = load(inventory, limit=",".join(hosts))
            done, failures = _ask_hosts(lab_of_these, look=False, packages=packages)
        for host, one in done.items():
            for words in one["stays"]:
                click.echo(f"{host}: stays: {words}", err=True)
        click.echo(f"removed from {some(done) if done else 'no host'}", err=True)
    else:
        click.echo(f"nothing was removed; --yes removes it from {some(hosts)}", err=True)
    if failures:
        failed = "not all hosts could be cleared"
        raise explain(failures, len(lab.hosts), failed, remedy="correct that, and run it again")


def _ask_hosts(
    lab: Lab, *, look: bool, packages: bool
) -> tuple[dict[str, dict[str, Any]], list[HostFailure]]:
    variables = {"hvlab_look": look, "hvlab_packages": packages}
    found, failures = collect(lab, "remove.yml", variables, shape=Removed)
    return {host: {name: one[name] for name in Removed.model_fields} for host, one in found.items()}, failures


def _table(found: dict[str, dict[str, Any]]) -> str:
    hosts = grouped(
        ((kind, tuple(names)), host)
        for host, one in found.items()
        for kind, names in (one["gone"] | {"stays": one["stays"]}).items()
        if names
    )
    rows = [
        {"hosts": some(alike), "what": kind, "number": len(names), "names": some(names)}
        for (kind, names), alike in hosts.items()
    ]
    return tables.render(rows, ("hosts", "what", "number", "names"), "table")
