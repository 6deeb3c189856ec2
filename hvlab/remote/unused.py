"""Removable folders on a lab's hosts: listed in one round trip, removed in another."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hvlab.base import answers
from hvlab.base.answers import AnswerError
from hvlab.base.answers.shapes import Count, HostAnswer, NotNegative
from hvlab.base.cache import Kept
from hvlab.lab.inventory import BUILDS, ROOT, STACKS, Lab
from hvlab.remote.gather import collect
from hvlab.remote.playbook import HostFailure

_PROGRAM = Path(__file__).parent / "programs/unused.py"
# Removing a build's folder takes seconds, from a slow disk minutes.
_SECONDS = 900
# Maximum number of paths in one word of a command line, which Linux limits to 128 KiB.
_AT_ONCE = 500


class UnusedFolder(HostAnswer):
    """A folder on a host that may go; ``idle`` is how many seconds it was not used."""

    kind: str
    path: str
    size: Count
    idle: NotNegative
    busy: bool


@dataclass(frozen=True)
class HostsAnswer:
    """The hosts' removable folders, and why some hosts did not answer."""

    kept: tuple[Kept, ...]
    failures: tuple[HostFailure, ...]


def list_unused(lab: Lab) -> HostsAnswer:
    """Return the removable folders of the hosts. Raises CheckError where Ansible itself fails."""
    on_hosts = _ask_hosts(lab, None)
    # A run in progress may have no process on one of its hosts, and hosts may share the folder of its files.
    busy = {one.name for one in on_hosts.kept if one.kind == "run files" and one.busy}
    kept = (replace(one, busy=one.busy or one.name in busy) for one in on_hosts.kept)
    return replace(on_hosts, kept=tuple(kept))


def remove(lab: Lab, chosen: Sequence[Kept]) -> HostsAnswer:
    """Remove the chosen folders unless used meanwhile; return those removed, and hosts not reached."""
    gone: list[Kept] = []
    failures: list[HostFailure] = []
    names = [host.name for host in lab.hosts]
    places = [(name, str(one.paths[0])) for name in names for one in chosen if one.host == name]
    for begin in range(0, len(places), _AT_ONCE):
        paths: dict[str, list[str]] = {}
        for name, path in places[begin : begin + _AT_ONCE]:
            paths.setdefault(name, []).append(path)
        done = _ask_hosts(replace(lab, hosts=tuple(lab.host(name) for name in paths)), paths)
        gone += done.kept
        failures += done.failures
    return HostsAnswer(tuple(gone), tuple(failures))


def _ask_hosts(lab: Lab, remove: Mapping[str, Sequence[str]] | None) -> HostsAnswer:
    """Return the removable folders; with paths by host, those of them that were removed."""
    request = {
        "host": "@HOST@",
        "builds": BUILDS,
        "root": ROOT,
        "stacks": STACKS,
        "user": lab.text("lab_user_name", "hvlab"),
        "remove": remove,
    }
    variables = {
        "hvlab_probe": str(_PROGRAM),
        "hvlab_questions": base64.b64encode(json.dumps(request).encode()).decode(),
        "hvlab_seconds": _SECONDS,
    }
    gathered, failures = collect(lab, "ask.yml", variables, shape=str)
    now, kept = time.time(), []
    for host, answer in gathered.items():
        try:
            rows = answers.load(answer, host, list[UnusedFolder])
        except AnswerError as error:
            failures.append(HostFailure(host, f"its answer cannot be read: {error.observed}", False))
            continue
        for row in rows:
            path = Path(row["path"])
            kept.append(
                Kept(row["kind"], path.name, (path,), row["size"], now - row["idle"], row["busy"], host)
            )
    return HostsAnswer(tuple(kept), tuple(failures))
