"""Run a playbook that gathers something of each host into one file on the controller."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hvlab.errors import CheckError
from hvlab.lab.inventory import Lab
from hvlab.remote.playbook import HostFailure, Owner, Play


def collect(
    lab: Lab,
    playbook: str,
    variables: Mapping[str, Any],
    *,
    check: Callable[[Play], None] | None = None,
    at_once: int = 0,
) -> tuple[dict[str, Any], list[HostFailure]]:
    """Return what the playbook gathered, by host in the lab's order, and why some hosts give nothing.

    The playbook gets ``hvlab_hosts`` and ``hvlab_file``; ``check`` may raise on what happened; ``at_once`` is
    how many hosts at least take part at the same time.
    Raises CheckError where Ansible itself fails.
    """
    descriptor, name = tempfile.mkstemp(prefix="hvlab-gathered-", suffix=".json")
    os.close(descriptor)
    file = Path(name)
    hosts = [host.name for host in lab.hosts]
    given = {"hvlab_hosts": ",".join(hosts), "hvlab_file": name, **variables}
    try:
        with Play(playbook, Owner(lab), given, at_once=at_once) as play:
            play.finish()
            if check:
                check(play)
            text = file.read_text(encoding="utf-8")
            if not text and not play.failures:
                raise CheckError(f"nothing could be gathered:\n{play.last_words()}")
            failures = list(play.failures)
        gathered: dict[str, Any] = json.loads(text or "{}")
    finally:
        file.unlink(missing_ok=True)
    return {host: gathered[host] for host in hosts if host in gathered}, failures
