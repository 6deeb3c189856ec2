"""``hvlab fetch``: fetch to the controller everything that hosts will be built from."""

from __future__ import annotations

import json
from pathlib import Path

import click

from hvlab.base import cache
from hvlab.cli import options
from hvlab.cli.provision import run_playbook
from hvlab.lab.inventory import load
from hvlab.remote import probe


@click.command("fetch")
@options.of_verb("fetch")
def command(*, inventory: Path, limit: str | None, to: Path | None) -> int:
    """\b
    hvlab fetch                        # what the hosts of inventory/lab lack
    hvlab fetch -i ~/mylab --to /media/usb/hvlab

    Fetch the sources and wheels that all hosts will be built from, or name all that cannot be had.

    They go to this machine's cache; `hvlab provision` fetches them, too. On a machine without network,
    name the folder of --to in HVLAB_CACHE; lab_pack_mirror can name its folder `packs`.
    """
    cache.limit()
    lab = load(inventory, limit=limit)
    probe.probe(lab.hosts)
    words = ["-e", json.dumps({"hvlab_fetch_to": str(to.absolute())})] if to else []
    run_playbook(lab, words, limit=limit, playbook="playbooks/fetch.yml")
    return 0
