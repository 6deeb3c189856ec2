"""The facts of a lab's hosts, gathered through Ansible as the inventory says they are reached."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from hvlab.errors import CheckError
from hvlab.lab.inventory import Lab
from hvlab.remote.playbook import Owner, Play


def facts(lab: Lab) -> dict[str, dict[str, Any]]:
    """Return host -> Ansible's facts of every host of the lab. Changes nothing on the hosts.

    Raises UnreachableError where a host does not answer, CheckError where its facts cannot be read.
    """
    descriptor, name = tempfile.mkstemp(prefix="hvlab-facts-", suffix=".json")
    os.close(descriptor)
    file = Path(name)
    hosts = [host.name for host in lab.hosts]
    try:
        with Play("facts.yml", Owner(lab), {"hvlab_hosts": ",".join(hosts), "hvlab_file": name}) as play:
            play.finish()
            recorded = "or plan from recorded facts: --facts"
            play.check("the facts could not be gathered", remedy=recorded, lost=recorded)
            text = file.read_text(encoding="utf-8")
            if not text:
                raise CheckError(f"the facts could not be gathered:\n{play.last_words()}")
        facts_of: dict[str, dict[str, Any]] = json.loads(text)
    finally:
        file.unlink(missing_ok=True)
    return {host: facts_of[host] for host in hosts if host in facts_of}
