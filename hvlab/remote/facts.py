"""The facts of a lab's hosts, gathered through Ansible as the inventory says they are reached."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from hvlab.base.errors import LEAVE_OUT
from hvlab.base.temporary import temporary_folder
from hvlab.lab.facts_shape import Facts
from hvlab.lab.inventory import Host, Lab
from hvlab.remote import probe
from hvlab.remote.collect import collect
from hvlab.remote.playbook import HostFailure, Play

# A host whose GPUs answer slowly takes a minute.
_SECONDS = 180


def facts(lab: Lab) -> dict[str, dict[str, Any]]:
    """Return host -> Ansible's facts of every host of the lab. Changes nothing on the hosts.

    Raises UnreachableError where a host does not answer, CheckError where its facts cannot be read.
    """

    def check(play: Play) -> None:
        if any(failure.unreachable for failure in play.failures):
            probe.probe(lab.hosts)  # it says more
        play.check("the facts could not be gathered", remedy="`hvlab doctor` looks closer", lost=LEAVE_OUT)

    return _gathered(lab, check)[0]


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
    with temporary_folder() as folder:
        source = folder / "hosts.json"
        source.write_text(json.dumps({"all": {"hosts": listing}}), "utf-8")
        return _gathered(Lab("init", source, "", "", tuple(hosts), {}))


def _gathered(
    lab: Lab, check: Callable[[Play], None] | None = None
) -> tuple[dict[str, dict[str, Any]], list[HostFailure]]:
    return collect(lab, "facts.yml", {"hvlab_seconds": _SECONDS}, check=check, shape=Facts)
