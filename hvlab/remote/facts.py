"""The facts of a lab's hosts, gathered through Ansible as the inventory says they are reached."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hvlab.errors import CheckError
from hvlab.lab.inventory import Host, Lab
from hvlab.remote.playbook import HostFailure, Owner, Play


def facts(lab: Lab) -> dict[str, dict[str, Any]]:
    """Return host -> Ansible's facts of every host of the lab. Changes nothing on the hosts.

    Raises UnreachableError where a host does not answer, CheckError where its facts cannot be read.
    """
    recorded = "or plan from recorded facts: --facts"

    def check(play: Play) -> None:
        play.check("the facts could not be gathered", remedy=recorded, lost=recorded)

    return _gather(lab, check)[0]


def first_facts(hosts: Sequence[Host]) -> tuple[dict[str, dict[str, Any]], list[HostFailure]]:
    """Return the facts of hosts that are in no inventory yet, without root's rights; and why some give none.

    Raises CheckError where Ansible itself fails.
    """
    listing = {
        host.name: {
            "ansible_host": host.address,
            "ansible_port": host.port,
            "ansible_become": False,
            **({"ansible_user": host.user} if host.user else {}),
            **host.vars,
        }
        for host in hosts
    }
    with tempfile.TemporaryDirectory(prefix="hvlab-init-") as folder:
        source = Path(folder) / "hosts.json"
        source.write_text(json.dumps({"all": {"hosts": listing}}), "utf-8")
        return _gather(Lab("init", source, "", "", tuple(hosts), {}), None)


def _gather(
    lab: Lab, check: Callable[[Play], None] | None
) -> tuple[dict[str, dict[str, Any]], list[HostFailure]]:
    descriptor, name = tempfile.mkstemp(prefix="hvlab-facts-", suffix=".json")
    os.close(descriptor)
    file = Path(name)
    hosts = [host.name for host in lab.hosts]
    try:
        with Play("facts.yml", Owner(lab), {"hvlab_hosts": ",".join(hosts), "hvlab_file": name}) as play:
            play.finish()
            if check:
                check(play)
            text = file.read_text(encoding="utf-8")
            if not text and not play.failures:
                raise CheckError(f"the facts could not be gathered:\n{play.last_words()}")
            failures = list(play.failures)
        facts_of: dict[str, dict[str, Any]] = json.loads(text or "{}")
    finally:
        file.unlink(missing_ok=True)
    return {host: facts_of[host] for host in hosts if host in facts_of}, failures
