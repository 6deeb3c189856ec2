"""A resolution as text, and saved in a file beside the inventory: every host's versions and build variables.

The variables are all those that roles build with, defaults included, and a sum of hvlab's patches of Horovod,
which may differ in another release of hvlab. A saved plan gives pins for replanned hosts, and differences.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hvlab import __version__
from hvlab.base.errors import UsageError, some
from hvlab.base.files import write_file
from hvlab.base.groups import grouped
from hvlab.lab.pin_variables import TITLES, defaults, patches, plain_values
from hvlab.results import tables
from hvlab.stack.resolver import Infeasible, Resolution
from hvlab.stack.resolver.lab import HostRequest
from hvlab.stack.resolver.pins import Pin, parse
from hvlab.stack.resolver.versions import is_prefix

# In a folder of inventory files Ansible ignores names that begin with a dot.
NAME = ".hvlab-lock.json"
_GPU_PARTS = ("driver", "cuda", "cudnn", "nccl")
Versions = Mapping[str, str | None]


@dataclass(frozen=True)
class Lock:
    """The hosts' versions and build variables when the file was written.

    ``patches`` is a sum of hvlab's patches by host, ``release`` that of the hvlab that wrote the file; older
    files lack both.
    """

    path: Path
    hosts: Mapping[str, Versions]
    builds: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    patches: Mapping[str, str] = field(default_factory=dict)
    release: str = ""

    def versions(self, host: str) -> Versions:
        """Return a host's versions; for a host not in the file, the versions that all its hosts share."""
        if host in self.hosts:
            return self.hosts[host]
        values: dict[str, set[str]] = {}
        for versions in self.hosts.values():
            for name, version in versions.items():
                values.setdefault(name, set()).update([version] if version else [])
        return {name: next(iter(known)) for name, known in values.items() if len(known) == 1}

    def pin(self, lab: Iterable[HostRequest], others: Sequence[Pin] = ()) -> list[HostRequest]:
        """Return the hosts with the file's versions as pins, except where they have their own.

        ``others`` are pins for all hosts, which also outrank the file.
        """
        return [replace(one, pins=(*one.pins, *self._pins(one, others))) for one in lab]

    def _pins(self, one: HostRequest, others: Sequence[Pin]) -> Iterable[Pin]:
        pinned = {pin.name for pin in (*one.pins, *others)}
        for name, version in self.versions(one.host.name).items():
            relevant = one.host.gpus or name not in _GPU_PARTS
            if version and name not in pinned and relevant:
                yield Pin(name, version)

    def differences(self, hosts: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Return the differences from the file, one sentence per change with its hosts."""
        changed: dict[str, list[str]] = {}
        for host, stack in hosts.items():
            if host not in self.hosts:
                changed.setdefault("not in the lock: it gets what the locked hosts share", []).append(host)
                continue
            for name, version in stack["versions"].items():
                before = self.hosts[host].get(name)
                of_branch = name == "driver" and is_prefix(str(before), str(version))
                if before != version and not of_branch:
                    text = f"{TITLES[name]} {version or 'none'}, and {before or 'none'} in the lock"
                    changed.setdefault(text, []).append(host)
        return [f"{some(where)}: {text}" for text, where in changed.items()]


def path_of(inventory: Path) -> Path:
    """Return the path of the lock of an inventory (file or folder)."""
    return (inventory if inventory.is_dir() else inventory.parent) / NAME


def read(path: Path) -> Lock | None:
    """Return the lock in a file; None without a file. Raises UsageError for an invalid one."""
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        hosts = content["hosts"]
        lock = Lock(
            path,
            {str(host): dict(entry["versions"]) for host, entry in hosts.items()},
            {str(host): dict(entry.get("build") or {}) for host, entry in hosts.items()},
            {str(host): str(entry["patches"]) for host, entry in hosts.items() if entry.get("patches")},
            str(content.get("hvlab", "")),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        observed = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise UsageError(
            f"{path} is not a lock of hvlab: {observed}",
            remedy="write it again: hvlab plan --write-lock, without --limit",
        ) from error
    _check(lock)
    return lock


def _check(lock: Lock) -> None:
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


def _lock(stack: Mapping[str, Any]) -> Versions:
    """Return a stack's versions; a driver requested by branch has only the branch."""
    versions: Versions = stack["versions"]
    asked = stack.get("driver_requested")
    return {**versions, "driver": asked} if asked and versions.get("driver") else versions


def write(path: Path, hosts: Mapping[str, Mapping[str, Any]], lab: Iterable[HostRequest]) -> None:
    """Write these hosts' versions and build variables; other hosts' entries stay."""
    before = read(path) or Lock(path, {})
    every = {**before.hosts, **{name: _lock(stack) for name, stack in hosts.items()}}
    of_roles, now = defaults(), patches()
    named = {one.host.name: plain_values({**of_roles, **one.build}) for one in lab}
    builds = {**before.builds, **named}
    sums = {**before.patches, **dict.fromkeys(named, now)}
    content = {
        "hvlab": __version__,
        "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "hosts": {
            name: {
                "versions": dict(versions),
                **({"build": dict(builds[name])} if builds.get(name) else {}),
                **({"patches": sums[name]} if name in sums else {}),
            }
            for name, versions in every.items()
        },
    }
    try:
        write_file(path, json.dumps(content, indent=1) + "\n")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", remedy="let it be written there") from error


_ALIKE = ("system", "versions", "reasons", "notes", "compute_capabilities")


def resolution(result: Resolution, *, explain: bool = False) -> str:
    """Return the versions of all hosts, identical hosts in one row, and the notes; reasons if requested."""
    rows: list[dict[str, Any]] = []
    for hosts, stack in _group_alike(result.hosts, ("versions",)):
        marked = {name: f"{stack['versions'][name]} ?" for name in stack["not_known"]}
        rows.append({"hosts": some(hosts), **stack["versions"], **marked})
    columns = [name for name in rows[0] if name != "tensorflow" or any(row[name] for row in rows)]
    text = [tables.render(rows, columns, "table")]
    if explain:
        for hosts, stack in _group_alike(result.hosts, _ALIKE):
            text += ["", *_explain(hosts, stack)]
    notes = _notes(result)
    if notes:
        text += ["", "notes", *(f"  {line}" for line in notes)]
    return "\n".join(text)


def explain_infeasible(result: Infeasible) -> str:
    """Return why nothing fits, with the pins and facts in conflict."""
    lines = [
        result.message,
        "",
        "conflict:",
    ]
    lines += [f"  {item['kind']}: {item['text']}" for item in result.conflict]
    if result.nearest:
        lines += ["what would resolve it:", *(f"  {remedy.text}" for remedy in result.nearest)]
    return "\n".join(lines)


def changes(before: Resolution | Infeasible, after: Resolution) -> str:
    """Return the differences between two plans, one line per version and the hosts where it changes."""
    if isinstance(before, Infeasible):
        return f"as it is, it does not resolve: {before.message}"
    known = {host: stack["versions"] for host, stack in before.hosts.items()}
    hosts_of = grouped(
        ((name, str(old or "-"), str(version or "-")), host)
        for host, stack in after.hosts.items()
        for name, version in stack["versions"].items()
        if (old := known.get(host, {}).get(name)) != version
    )
    if not hosts_of:
        return "nothing changes"
    rows = [
        {"component": name, "now": old, "then": new, "hosts": some(hosts)}
        for (name, old, new), hosts in hosts_of.items()
    ]
    return tables.render(rows, ("component", "now", "then", "hosts"), "table")


def _group_alike(
    hosts: Mapping[str, Mapping[str, Any]], parts: Sequence[str]
) -> list[tuple[list[str], Mapping[str, Any]]]:
    alike: dict[str, tuple[list[str], Mapping[str, Any]]] = {}
    for name, stack in hosts.items():
        alike.setdefault(repr([stack[part] for part in parts]), ([], stack))[0].append(name)
    return list(alike.values())


def _explain(hosts: list[str], stack: Mapping[str, Any]) -> list[str]:
    system = stack["system"]
    gpus = [gpu["name"] for gpu in stack["gpus"]]
    cards = ", ".join(f"{gpus.count(name)}x {name}" for name in dict.fromkeys(gpus)) or "no GPU"
    lines = [f"{some(hosts)}: {system['distribution']} {system['version']} {system['architecture']}, {cards}"]
    for name, version in stack["versions"].items():
        lines.append(f"  {name:<11}{version or '-':<22}{stack['reasons'][name]}")
        packages = [
            f"{each['name']}={each['version']}" if each["version"] else each["name"]
            for each in stack["packages"].get(name, ())
        ]
        if packages:
            lines.append(f"  {'':<33}packages: {' '.join(packages)}")
    return lines


def _notes(result: Resolution) -> list[str]:
    shared = grouped((note, host) for host, stack in result.hosts.items() for note in stack["notes"])
    return [*result.notes, *(f"{some(hosts)}: {note}" for note, hosts in shared.items())]
