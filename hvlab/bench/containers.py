"""The containers of a run: started before its first case, removed after its last."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hvlab.bench.schedule import Schedule
from hvlab.files import write_file
from hvlab.lab.inventory import Lab
from hvlab.launchers import container
from hvlab.remote.playbook import HostFailure, Owner, Play

_FILE = "containers.json"


@contextmanager
def running(schedule: Schedule, run_id: str, folder: Path, *, note: Callable[[str], None]) -> Iterator[None]:
    """Run the containers of a run on all its hosts while the block runs; do nothing if it needs none.

    ``folder`` is the run's; containers.json there names the command and the image's id of each host.
    ``note`` is told what could not be removed.
    Raises UnreachableError and CheckError if a container cannot be started.
    """
    commands = schedule.containers(run_id)
    if not commands:
        yield
        return
    starts = {host: {"argv": argv, "port": schedule.spec.ssh_port} for host, argv in commands.items()}
    # The options of docker may have secrets of ranks.
    write_file(folder / _FILE, json.dumps({"hosts": starts, "images": {}}, indent=1), mode=0o600)
    try:
        with _play(
            "start-containers.yml", schedule.lab, run_id, schedule.hosts, file=str(folder / _FILE)
        ) as play:
            play.finish()
            play.check("the containers could not be started", remedy="fix the cause, then run this again")
        yield
    finally:
        for failure in remove(schedule.lab, run_id, folder):
            note(f"{failure.host}: container {container.name(run_id)} is still there: {failure.message}")


def remove(lab: Lab, run_id: str, folder: Path) -> list[HostFailure]:
    """Remove the containers that a run had, if it had any; return the failures."""
    file = folder / _FILE
    if not file.is_file():
        return []
    known = {host.name for host in lab.hosts}
    hosts = [host for host in json.loads(file.read_text("utf-8"))["hosts"] if host in known]
    with _play("stop-containers.yml", lab, run_id, hosts) as play:
        play.finish()
        return play.failures


def images(folder: Path) -> dict[str, str]:
    """Return the id of the image on each host of a run; empty where it had no containers."""
    file = folder / _FILE
    return dict(json.loads(file.read_text("utf-8"))["images"]) if file.is_file() else {}


def _play(playbook: str, lab: Lab, run_id: str, hosts: Sequence[str], **more: Any) -> Play:
    variables = {
        "hvlab_hosts": ",".join(hosts),
        "hvlab_container": container.name(run_id),
        **{f"hvlab_{name}": value for name, value in more.items()},
    }
    return Play(playbook, Owner(lab), variables)
