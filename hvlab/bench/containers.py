"""The containers of a run: started before its first case, gone after its last."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hvlab.bench.schedule import Schedule
from hvlab.errors import CheckError, HvlabError, UnreachableError
from hvlab.lab.inventory import Lab
from hvlab.launchers import container
from hvlab.remote.playbook import Fault, Owner, Play

_FILE = "containers.json"


@contextmanager
def running(plan: Schedule, run_id: str, folder: Path, *, tell: Callable[[str], None]) -> Iterator[None]:
    """Have the run's containers on all its hosts; do nothing where the plan asks for none.

    ``folder`` is the run's; containers.json there names the command and the image's id of each host.
    ``tell`` gets what could not be removed.
    Raises UnreachableError and CheckError where a container cannot be started.
    """
    commands = plan.containers(run_id)
    if not commands:
        yield
        return
    wanted = {host: {"argv": argv, "port": plan.spec.ssh_port} for host, argv in commands.items()}
    (folder / _FILE).write_text(json.dumps({"hosts": wanted, "images": {}}, indent=1), "utf-8")
    try:
        faults, words = _play("start-containers.yml", plan.lab, run_id, plan.hosts, file=str(folder / _FILE))
        _judge(faults, words)
        yield
    finally:
        for fault in remove(plan.lab, run_id, folder):
            tell(f"{fault.host}: container {container.name(run_id)} is still there: {fault.message}")


def remove(lab: Lab, run_id: str, folder: Path) -> list[Fault]:
    """Remove the containers that a run had, if it had any; return what could not be done."""
    file = folder / _FILE
    if not file.is_file():
        return []
    known = {host.name for host in lab.hosts}
    hosts = [host for host in json.loads(file.read_text("utf-8"))["hosts"] if host in known]
    faults, _ = _play("stop-containers.yml", lab, run_id, hosts)
    return faults


def images(folder: Path) -> dict[str, str]:
    """Return the image's id on each host of a run; nothing where it had no containers."""
    file = folder / _FILE
    return dict(json.loads(file.read_text("utf-8"))["images"]) if file.is_file() else {}


def _play(
    playbook: str, lab: Lab, run_id: str, hosts: Sequence[str], **more: Any
) -> tuple[list[Fault], str | None]:
    """Run a playbook to its end; return its faults, and its last words where it failed."""
    variables = {
        "hvlab_hosts": ",".join(hosts),
        "hvlab_container": container.name(run_id),
        **{f"hvlab_{name}": value for name, value in more.items()},
    }
    with Play(playbook, Owner(lab), variables) as play:
        while not play.wait(0.2):
            pass
        return list(play.faults), play.last_words() if play.rc else None


def _judge(faults: Sequence[Fault], words: str | None) -> None:
    text = "\n".join(f"  {fault.host}: {fault.message.strip()}" for fault in faults)
    if any(fault.unreachable for fault in faults):
        raise UnreachableError(
            f"a host was lost:\n{text}", remedy="bring it back; the same command goes on from there"
        )
    if faults:
        raise CheckError(f"the containers do not run:\n{text}", remedy="see to that, then run this again")
    if words is not None:
        raise HvlabError(f"the containers could not be started:\n{words}")
