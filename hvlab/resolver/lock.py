"""A plan that is kept, in a file beside the inventory: the versions of every host, what they are built with.

In: the hosts of a `Resolution`. Out: pins for hosts that are planned again, and what differs from the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hvlab import __version__
from hvlab.errors import UsageError, some
from hvlab.files import write_file
from hvlab.resolver.lab import HostRequest
from hvlab.resolver.pins import TITLES, Pin, parse

# Ansible leaves names that begin with a dot alone in a folder of inventory files.
NAME = ".hvlab-lock.json"
_GPU_PARTS = ("driver", "cuda", "cudnn", "nccl")
Versions = Mapping[str, str | None]


@dataclass(frozen=True)
class Lock:
    """The versions that hosts got when the file was written, and the variables that roles built with."""

    path: Path
    hosts: Mapping[str, Versions]
    builds: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def versions(self, host: str) -> Versions:
        """Return a host's versions; of one that is not in the file, those that all of its hosts share."""
        if host in self.hosts:
            return self.hosts[host]
        every = list(self.hosts.values())
        components = {name for versions in every for name in versions}
        shared = {}
        for name in components:
            values = {versions.get(name) for versions in every if versions.get(name)}
            if len(values) == 1:
                shared[name] = values.pop()
        return shared

    def pinned(self, lab: Iterable[HostRequest], others: Sequence[Pin] = ()) -> list[HostRequest]:
        """Return the hosts with the versions of the file as pins, where they have no pin of their own.

        ``others`` are pins for all hosts, which come before the file too.
        """
        return [replace(one, pins=(*one.pins, *self._pins(one, others))) for one in lab]

    def _pins(self, one: HostRequest, others: Sequence[Pin]) -> Iterable[Pin]:
        pinned = {pin.name for pin in (*one.pins, *others)}
        for name, version in self.versions(one.host.name).items():
            relevant = one.host.gpus or name not in _GPU_PARTS
            if version and name not in pinned and relevant:
                yield Pin(name, version)

    def differences(self, hosts: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Return what differs from the file, a sentence for each change with the hosts it is on."""
        changed: dict[str, list[str]] = {}
        for host, stack in hosts.items():
            if host not in self.hosts:
                changed.setdefault("not in the lock: it gets what the locked hosts share", []).append(host)
                continue
            for name, version in stack["versions"].items():
                before = self.hosts[host].get(name)
                if before != version:
                    text = f"{TITLES[name]} {version or 'none'}, and {before or 'none'} in the lock"
                    changed.setdefault(text, []).append(host)
        return [f"{some(where)}: {text}" for text, where in changed.items()]


def path_of(inventory: Path) -> Path:
    """Return where the lock of an inventory (file or folder) lies."""
    return (inventory if inventory.is_dir() else inventory.parent) / NAME


def read(path: Path) -> Lock | None:
    """Return the lock in a file; None where there is none. Raises UsageError where it is not one."""
    if not path.is_file():
        return None
    try:
        hosts = json.loads(path.read_text(encoding="utf-8"))["hosts"]
        lock = Lock(
            path,
            {str(host): dict(entry["versions"]) for host, entry in hosts.items()},
            {str(host): dict(entry.get("build") or {}) for host, entry in hosts.items()},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{path} is not a lock of hvlab: {type(error).__name__} {error}",
            remedy="write it again: hvlab plan --write-lock, without --limit",
        ) from error
    _check(lock)
    return lock


def _check(lock: Lock) -> None:
    """Raise UsageError where the file has something else than versions of components."""
    for host, versions in lock.hosts.items():
        for name, version in versions.items():
            if version is None or version == "":
                continue
            where = f"{lock.path}: {host}"
            if not isinstance(version, str):
                raise UsageError(f"{where}: {name} is {version!r}", remedy="write versions in quotes")
            try:
                parse(f"{name}={version}")
            except UsageError as error:
                raise UsageError(f"{where}: {error}", remedy=error.remedy) from error


def write(path: Path, hosts: Mapping[str, Mapping[str, Any]], lab: Iterable[HostRequest]) -> None:
    """Write what these hosts got, and asked for to be built; what the file has of others stays."""
    before = read(path) or Lock(path, {})
    every = {**before.hosts, **{name: stack["versions"] for name, stack in hosts.items()}}
    builds = {**before.builds, **{one.host.name: one.build for one in lab}}
    content = {
        "hvlab": __version__,
        "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "hosts": {
            name: {"versions": dict(versions), **({"build": dict(builds[name])} if builds.get(name) else {})}
            for name, versions in every.items()
        },
    }
    try:
        write_file(path, json.dumps(content, indent=1) + "\n")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", remedy="let it be written there") from error
