"""Text for the reader: a resolution, or why there is none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hvlab.base.errors import some
from hvlab.results import tables
from hvlab.stack.resolver import Infeasible, Resolution

_COLUMNS = (
    "hosts",
    "driver",
    "cuda",
    "cudnn",
    "nccl",
    "openmpi",
    "python",
    "gcc",
    "torch",
    "tensorflow",
    "horovod",
)


_ALIKE = ("system", "versions", "reasons", "notes", "compute_capabilities")


def resolution(result: Resolution, *, explain: bool = False) -> str:
    """Return the versions of all hosts, identical hosts in one row, and the notes; reasons if requested."""
    like = _alike(result.hosts, ("versions",))
    rows = [{"hosts": some(hosts), **_marked(stack)} for hosts, stack in like]
    text = [tables.render(rows, _used(rows), "table")]
    if explain:
        for hosts, stack in _alike(result.hosts, _ALIKE):
            text += ["", *_explained(hosts, stack)]
    notes = _notes(result)
    if notes:
        text += ["", "notes", *(f"  {line}" for line in notes)]
    return "\n".join(text)


def _marked(stack: Mapping[str, Any]) -> dict[str, Any]:
    unknown = stack["not_known"]
    return {name: f"{value} ?" if name in unknown else value for name, value in stack["versions"].items()}


def infeasible(result: Infeasible) -> str:
    """Return why nothing fits, with the pins and facts in conflict."""
    lines = [result.message, "", "conflict:", *(f"  {_item(item)}" for item in result.conflict)]
    if result.nearest:
        lines += ["what would resolve it:", *(f"  {remedy.text}" for remedy in result.nearest)]
    return "\n".join(lines)


def changes(before: Resolution | Infeasible, after: Resolution) -> str:
    """Return the differences between two plans, one line per version and the hosts where it changes."""
    if isinstance(before, Infeasible):
        return f"as it is, it does not resolve: {before.message}"
    hosts_of: dict[tuple[str, str, str], list[str]] = {}
    for host, stack in after.hosts.items():
        old = before.hosts.get(host, {"versions": {}})["versions"]
        for name, version in stack["versions"].items():
            if old.get(name) != version:
                hosts_of.setdefault((name, str(old.get(name) or "-"), str(version or "-")), []).append(host)
    if not hosts_of:
        return "nothing changes"
    rows = [
        {"component": name, "now": old, "then": new, "hosts": some(hosts)}
        for (name, old, new), hosts in hosts_of.items()
    ]
    return tables.render(rows, ("component", "now", "then", "hosts"), "table")


def _alike(
    hosts: Mapping[str, Mapping[str, Any]], parts: Iterable[str]
) -> list[tuple[list[str], Mapping[str, Any]]]:
    chosen = list(parts)
    alike: list[tuple[list[str], Mapping[str, Any]]] = []
    places: dict[str, int] = {}
    for name, stack in hosts.items():
        key = repr([stack[part] for part in chosen])
        if key not in places:
            places[key] = len(alike)
            alike.append(([], stack))
        alike[places[key]][0].append(name)
    return alike


def _used(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    every = list(rows)
    return [name for name in _COLUMNS if name != "tensorflow" or any(row.get(name) for row in every)]


def _explained(hosts: list[str], stack: Mapping[str, Any]) -> list[str]:
    system = stack["system"]
    gpus = [gpu["name"] for gpu in stack["gpus"]]
    cards = ", ".join(f"{gpus.count(name)}x {name}" for name in dict.fromkeys(gpus)) or "no GPU"
    lines = [f"{some(hosts)}: {system['distribution']} {system['version']} {system['architecture']}, {cards}"]
    for name, version in stack["versions"].items():
        lines.append(f"  {name:<11}{version or '-':<22}{stack['reasons'][name]}")
        packages = [_package(package) for package in stack["packages"].get(name, ())]
        if packages:
            lines.append(f"  {'':<33}packages: {' '.join(packages)}")
    return lines


def _package(package: Mapping[str, Any]) -> str:
    return f"{package['name']}={package['version']}" if package["version"] else str(package["name"])


def _notes(result: Resolution) -> list[str]:
    shared: dict[str, list[str]] = {}
    for host, stack in result.hosts.items():
        for note in stack["notes"]:
            shared.setdefault(note, []).append(host)
    return [*result.notes, *(f"{some(hosts)}: {note}" for note, hosts in shared.items())]


def _item(item: Mapping[str, Any]) -> str:
    return f"{item['kind']}: {item['text']}"
