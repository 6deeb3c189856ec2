"""A plan or a refusal for the reader."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hvlab.resolver import Plan, Refusal
from hvlab.resolver.lab import names
from hvlab.results import tables

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


def plan(found: Plan, *, explain: bool = False) -> str:
    """Return the versions of all hosts, like ones in one row, and the notes; with the reasons if asked."""
    like = _alike(found.hosts, ("versions",))
    rows = [{"hosts": names(hosts), **stack["versions"]} for hosts, stack in like]
    text = [tables.render(rows, _used(rows), "table")]
    if explain:
        for hosts, stack in _alike(found.hosts, _ALIKE):
            text += ["", *_explained(hosts, stack)]
    told = _notes(found)
    if told:
        text += ["", "notes", *(f"  {line}" for line in told)]
    return "\n".join(text)


def refusal(found: Refusal) -> str:
    """Return why there is no plan, with the wishes and facts in conflict."""
    lines = [found.message, "", "in conflict:", *(f"  {_item(item)}" for item in found.conflict)]
    if found.nearest:
        lines += ["what would work:", *(f"  {remedy.text}" for remedy in found.nearest)]
    return "\n".join(lines)


def changes(before: Plan | Refusal, after: Plan) -> str:
    """Return what differs between two plans, a line for each version and the hosts it changes on."""
    if isinstance(before, Refusal):
        return f"as it is, it does not resolve: {before.message}"
    found: dict[tuple[str, str, str], list[str]] = {}
    for host, stack in after.hosts.items():
        old = before.hosts.get(host, {"versions": {}})["versions"]
        for name, version in stack["versions"].items():
            if old.get(name) != version:
                found.setdefault((name, str(old.get(name) or "-"), str(version or "-")), []).append(host)
    if not found:
        return "nothing changes"
    rows = [
        {"component": name, "now": old, "then": new, "hosts": names(hosts)}
        for (name, old, new), hosts in found.items()
    ]
    return tables.render(rows, ("component", "now", "then", "hosts"), "table")


def _alike(
    hosts: Mapping[str, Mapping[str, Any]], parts: Iterable[str]
) -> list[tuple[list[str], Mapping[str, Any]]]:
    """Return the hosts together whose stacks have the same parts."""
    chosen = list(parts)
    found: list[tuple[list[str], Mapping[str, Any]]] = []
    places: dict[str, int] = {}
    for name, stack in hosts.items():
        key = repr([stack[part] for part in chosen])
        if key not in places:
            places[key] = len(found)
            found.append(([], stack))
        found[places[key]][0].append(name)
    return found


def _used(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    made = list(rows)
    return [name for name in _COLUMNS if name != "tensorflow" or any(row.get(name) for row in made)]


def _explained(hosts: list[str], stack: Mapping[str, Any]) -> list[str]:
    system = stack["system"]
    gpus = [gpu["name"] for gpu in stack["gpus"]]
    seen = ", ".join(f"{gpus.count(name)}x {name}" for name in dict.fromkeys(gpus)) or "no GPU"
    lines = [f"{names(hosts)}: {system['distribution']} {system['version']} {system['architecture']}, {seen}"]
    for name, version in stack["versions"].items():
        lines.append(f"  {name:<11}{version or '-':<22}{stack['reasons'][name]}")
        bought = [_package(package) for package in stack["packages"].get(name, ())]
        if bought:
            lines.append(f"  {'':<33}packages: {' '.join(bought)}")
    return lines


def _package(package: Mapping[str, Any]) -> str:
    return f"{package['name']}={package['version']}" if package["version"] else str(package["name"])


def _notes(found: Plan) -> list[str]:
    shared: dict[str, list[str]] = {}
    for host, stack in found.hosts.items():
        for note in stack["notes"]:
            shared.setdefault(note, []).append(host)
    return [*found.notes, *(f"{names(hosts)}: {note}" for note, hosts in shared.items())]


def _item(item: Mapping[str, Any]) -> str:
    return f"{item['kind']}: {item['text']}"
