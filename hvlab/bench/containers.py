"""The containers of a run, started before its first case and removed after its last; a case's stack."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hvlab.base.errors import UsageError
from hvlab.base.files import write_file
from hvlab.bench.schedule import Schedule
from hvlab.lab import environment
from hvlab.lab.inventory import Host, Lab
from hvlab.remote.playbook import HostFailure, Owner, Play
from hvlab.remote.ssh_keys import make_key, public, read_certificate, sign
from hvlab.remote.trust import USER_LIFE, Trust
from hvlab.workloads.case import Case
from hvlab.workloads.launchers import container
from hvlab.workloads.parameters import STACK

_FILE = "containers.json"


@contextmanager
def running(
    schedule: Schedule, run_id: str, folder: Path, *, trust: Trust | None, note: Callable[[str], None]
) -> Iterator[None]:
    """Run the containers of a run on all its hosts while the block runs; do nothing if it needs none.

    ``folder`` is the run's; containers.json there names the command and the image's id of each host.
    ``trust`` signs the keys of their sshd. ``note`` is told what could not be removed.
    Raises UsageError for this machine alone, which is reached without ssh; UnreachableError and CheckError
    if a container cannot be started.
    """
    commands = schedule.containers(run_id)
    if not commands:
        yield
        return
    if trust is None:
        raise UsageError(
            "ranks of this machine alone are started without ssh, and so outside of its container",
            remedy="leave out --container",
        )
    starts = {host: {"argv": argv, "port": schedule.spec.ssh_port} for host, argv in commands.items()}
    # The options of docker may have secrets of ranks.
    write_file(folder / _FILE, json.dumps({"hosts": starts, "images": {}}, indent=1), mode=0o600)
    try:
        with (
            _host_keys(schedule, run_id, trust) as keys,
            _play(
                "start-containers.yml",
                schedule.lab,
                run_id,
                schedule.hosts,
                file=str(folder / _FILE),
                host_keys=str(keys),
            ) as play,
        ):
            play.finish()
            play.check("the containers could not be started", remedy="fix the cause, then run this again")
        yield
    finally:
        for failure in remove(schedule.lab, run_id, folder):
            note(f"{failure.host}: container {container.name(run_id)} is still there: {failure.message}")


@contextmanager
def _host_keys(schedule: Schedule, run_id: str, trust: Trust) -> Iterator[Path]:
    """Yield a file with each host's files of its container; no results folder keeps private keys."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "host_keys.json"
        files = {name: host_files(trust, schedule.lab.host(name), run_id) for name in schedule.hosts}
        write_file(file, json.dumps(files), mode=0o600)
        yield file


def host_files(trust: Trust, host: Host, run_id: str) -> dict[str, str]:
    """Return the private key and the certificate of the sshd in a host's container, by their paths there.

    The image's maker can take them, so they belong to no other host, and are valid for a week.
    """
    signed = trust.signed / f"{host.name}-cert.pub"
    held = read_certificate(signed.read_text("utf-8")) if signed.is_file() else None
    names = sorted(held.principals if held else {host.name.lower(), host.address.lower()})
    with tempfile.TemporaryDirectory() as folder:
        key = Path(folder) / "key"
        make_key(key, container.name(run_id))
        # Before an image can take the private one: it is revoked with the host.
        trust.keep_key(host.name, public(key))
        identity = f"{container.name(run_id)} on {host.name} of {trust.lab}"
        certificate = sign(trust.host_ca, public(key), identity, names, USER_LIFE, host=True)
        return {
            container.host_key(run_id): key.read_text("utf-8"),
            container.host_certificate(run_id): certificate + "\n",
        }


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
    """Return the id of the image on each host of a run; empty if it had no containers."""
    file = folder / _FILE
    return dict(json.loads(file.read_text("utf-8"))["images"]) if file.is_file() else {}


def _play(playbook: str, lab: Lab, run_id: str, hosts: Sequence[str], **more: Any) -> Play:
    variables = {
        "hvlab_hosts": ",".join(hosts),
        "hvlab_container": container.name(run_id),
        "hvlab_container_folder": str(Path(container.host_key(run_id)).parent),
        **{f"hvlab_{name}": value for name, value in more.items()},
    }
    return Play(playbook, Owner(lab), variables)


_OUTSIDE = ("os", "gcc", "libfabric", "cuda", "cudnn", "nccl_installed")


def stack(folder: Path, case: Case) -> dict[str, Any]:
    """Return the versions on the hosts of a case, and its image; ``folder`` is the run's."""
    facts = json.loads((folder / "facts.json").read_text("utf-8"))
    name = case.params.get(STACK.name, "")
    versions = environment.stack(
        {host: environment.of_stack(facts[host], name) for host in case.hosts}, case.variant
    )
    if not case.container:
        return versions
    image = images(folder).get(case.hosts[0])
    if image is None:
        # srun starts the ranks inside, and the facts are those of the host outside.
        versions = {name: value for name, value in versions.items() if name not in _OUTSIDE}
    return versions | {"image": image or case.container}
