"""Data gathered from all hosts in one file on the controller: facts, answers, removable folders."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paramiko.config import SSH_PORT

from hvlab.base import answers
from hvlab.base.answers import AnswerError
from hvlab.base.answers.shapes import Count, HostAnswer, NotNegative
from hvlab.base.cache import Kept
from hvlab.base.errors import LEAVE_OUT, CheckError
from hvlab.base.temporary import temporary_folder
from hvlab.lab.facts_shape import Facts
from hvlab.lab.inventory import BUILDS, ROOT, STACKS, Host, Lab
from hvlab.remote import probe
from hvlab.remote.playbook import HostFailure, Owner, Play

# A host whose GPUs answer slowly takes a minute.
_SECONDS = 180


def collect(
    lab: Lab,
    playbook: str,
    variables: Mapping[str, Any],
    *,
    check: Callable[[Play], None] | None = None,
    at_once: int = 0,
    shape: Any = Any,
) -> tuple[dict[str, Any], list[HostFailure]]:
    """Return the playbook's answers, by host in the lab's order, and the failures of the other hosts.

    The playbook gets ``hvlab_hosts`` and ``hvlab_file``; ``check`` may raise on failures; ``at_once`` is the
    minimum number of hosts served at the same time. An answer that lacks the ``shape``, a type that pydantic
    checks, is a failure; with ``check`` it is raised.
    Raises CheckError if Ansible itself fails, AnswerError.
    """
    hosts = [host.name for host in lab.hosts]
    with temporary_folder() as folder:
        file = folder / "gathered.json"
        file.touch(mode=0o600)
        given = {"hvlab_hosts": ",".join(hosts), "hvlab_file": str(file), **variables}
        with Play(playbook, Owner(lab), given, at_once=at_once) as play:
            play.finish()
            if check:
                check(play)
            if not file.stat().st_size and not play.failures:
                raise CheckError(f"nothing could be gathered:\n{play.last_words()}")
            failures = list(play.failures)
        gathered = _read_answers(file, len(hosts))
    answered = {}
    for host in hosts:
        if host not in gathered:
            continue
        try:
            answered[host] = answers.check(gathered[host], host, shape)
        except AnswerError as error:
            if check:
                raise
            failures.append(HostFailure(host, f"{error.observed}; {error.remedy}", False))
    return answered, failures


def _read_answers(file: Path, hosts: int) -> dict[str, Any]:
    if not file.stat().st_size:
        return {}
    limit = hosts * answers.LIMIT
    if file.stat().st_size > limit:
        raise AnswerError("the hosts", f"together they answered more than {limit // 2**20} MiB")
    try:
        return dict(json.loads(file.read_bytes()))
    except (ValueError, TypeError, RecursionError) as error:
        raise AnswerError("the hosts", f"their answers are no JSON ({error})") from error


def facts(lab: Lab) -> dict[str, dict[str, Any]]:
    """Return host -> Ansible's facts of every host of the lab. Changes nothing on the hosts.

    Raises UnreachableError if a host does not answer, CheckError where its facts cannot be read.
    """

    def check(play: Play) -> None:
        if any(failure.unreachable for failure in play.failures):
            probe.probe(lab.hosts)  # it says more
        play.check("the facts could not be gathered", remedy="`hvlab doctor` looks closer", lost=LEAVE_OUT)

    return _gather(lab, check)[0]


def first_facts(hosts: Sequence[Host]) -> tuple[dict[str, dict[str, Any]], list[HostFailure]]:
    """Return the facts of hosts that are in no inventory yet, without root's rights, and the failures.

    Raises CheckError if Ansible itself fails.
    """
    listing = {
        host.name: {
            "ansible_host": host.address,
            # Otherwise as ~/.ssh/config has it.
            **({"ansible_port": host.port} if host.port != SSH_PORT else {}),
            "ansible_become": False,
            **({"ansible_user": host.user} if host.user else {}),
            **host.vars,
        }
        for host in hosts
    }
    with temporary_folder() as folder:
        source = folder / "hosts.json"
        source.write_text(json.dumps({"all": {"hosts": listing}}), "utf-8")
        return _gather(Lab("init", source, "", "", tuple(hosts), {}))


def _gather(
    lab: Lab, check: Callable[[Play], None] | None = None
) -> tuple[dict[str, dict[str, Any]], list[HostFailure]]:
    return collect(lab, "facts.yml", {"hvlab_seconds": _SECONDS}, check=check, shape=Facts)


_PROGRAM = Path(__file__).parent / "programs/unused.py"
# Removing a build's folder takes seconds, from a slow disk minutes.
_LISTING_S = 900
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
    """Return the removable folders of the hosts. Raises CheckError if Ansible itself fails."""
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
        "hvlab_seconds": _LISTING_S,
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
