"""Update the catalogue's files from the index, line by line, so that a diff shows only the change. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from hvlab.base.errors import HvlabError
from hvlab.base.yaml_files import load_shipped
from hvlab.stack.catalogue.differences import SOURCES, Difference
from hvlab.stack.resolver import versions

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_WORDS = {"null", "true", "false", "yes", "no", "on", "off"}
# Fields that a new entry of these files does not copy from a known one.
_OWN = {"source", "note", "points", "cudnn", "nccl", "sha256"}
_BLOCKS = ("torch",)
# Longer entries get one line per field.
_LONGEST = 160


def update(text: str, entries: Mapping[str, Mapping[str, Any]], changes: Iterable[Difference]) -> str:
    """Return a catalogue file with the changes to its releases, each in its place.

    ``entries``: the file's releases. Raises HvlabError if the text lacks a release.
    """
    lines = text.splitlines()
    for change in changes:
        if change.missing:
            entry = _build_entry(change, entries[str(change.like)])
            older = [name for name in entries if versions.numbers(name) < versions.numbers(change.release)]
            lines[_end(lines, older[-1]) : _end(lines, older[-1])] = _format_entry(change, entry)
            entries = dict(
                sorted({**entries, change.release: entry}.items(), key=lambda e: versions.numbers(e[0]))
            )
        else:
            first, last = _place(lines, change.release)
            entry = {**entries[change.release], **change.changes}
            lines[first:last] = _correct(lines[first:last], change, entry)
    return "\n".join(lines) + "\n"


def apply_changes(text: str, changes: Iterable[Difference]) -> str:
    """Return a user's file of releases with the changes.

    A release in the file keeps its other fields. A new one is ``like`` the release that supplies the rest,
    and is added last because it may be ``like`` one of the others. Raises HvlabError if aliases prevent the
    change.
    """
    for change in changes:
        text = _insert(text, change)
    return text


def _insert(text: str, change: Difference) -> str:
    lines = text.splitlines()
    whole = yaml.safe_load(text) or {}
    entries = whole.get(change.file) or {}
    entry = {**entries.get(change.release, {"like": change.like or change.release}), **change.changes}
    section = _pair(yaml.compose("\n".join([*lines, ""])), change.file)
    if section is None:
        lines += [f"{change.file}:", f"  {_key(change.release)}: {flow(entry)}"]
    elif isinstance(section[1], yaml.MappingNode) and not section[1].flow_style:
        pair = _pair(section[1], change.release)
        indent = " " * section[1].start_mark.column
        first, last = _span(lines, pair) if pair else (_span(lines, section)[1],) * 2
        comments = [line for line in lines[first:last] if line.lstrip().startswith("#")]
        behind = lines[last - 1][pair[1].end_mark.column :] if pair and last == first + 1 else ""
        lines[first:last] = [*comments, f"{indent}{_key(change.release)}: {flow(entry)}{behind}"]
    else:
        first, last = _span(lines, section)
        rows = [f"  {_key(name)}: {flow(item)}" for name, item in {**entries, change.release: entry}.items()]
        lines[first:last] = [f"{change.file}:", *rows]
    changed = "\n".join(lines) + "\n"
    if not _holds(changed, change, entry):
        raise HvlabError(
            f"{change.file}, {change.release} of your own file of releases cannot be changed: an alias of "
            "YAML stands for it, or for a part of it",
            remedy=f"write out what has & and * there, or add to it by hand: {flow(change.changes)}",
        )
    return changed


def _holds(text: str, change: Difference, entry: Mapping[str, Any]) -> bool:
    try:
        return bool(yaml.safe_load(text)[change.file][change.release] == entry)
    except yaml.YAMLError:
        return False


def _pair(node: yaml.Node | None, name: str) -> tuple[yaml.Node, yaml.Node] | None:
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return next(((key, value) for key, value in pairs if key.value == name), None)


def _span(lines: list[str], pair: tuple[yaml.Node, yaml.Node]) -> tuple[int, int]:
    """Return the lines of a key and its value: the first, and the one after the last."""
    key, value = pair
    if not isinstance(value, yaml.CollectionNode) or value.flow_style:
        return key.start_mark.line, value.end_mark.line + 1
    # A block ends where the next one begins: blank lines and comments between belong to the next.
    last = value.end_mark.line
    while not lines[last - 1].strip() or lines[last - 1].lstrip().startswith("#"):
        last -= 1
    return key.start_mark.line, last


def flow(value: object) -> str:
    """Return a value in one line of YAML, as the catalogue's files are written."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(str(name))}: {flow(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) and value.lower() not in _WORDS else json.dumps(value)
    return json.dumps(value)


def _key(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else json.dumps(name)


def _build_entry(change: Difference, like: Mapping[str, Any]) -> dict[str, Any]:
    rest = {name: value for name, value in like.items() if name not in _OWN}
    entry = {**rest, **change.changes, "source": SOURCES[change.file]}
    if change.file == "torch":
        builds = [str(build) for build in rest["cuda"]]
        index = str(change.changes.get("index", builds[-1]))
        if index not in builds:
            entry["cuda"] = sorted([*builds, index], key=versions.numbers)
            for part in ("capabilities", "aarch64"):
                codes = rest.get(part) or {}
                entry[part] = {**codes, index: codes.get(builds[-1], [])}
        entry["note"] = (
            f"its other builds, and the code in all of them, are those of {change.like}: to be reviewed"
        )
    return entry


def _format_entry(change: Difference, entry: Mapping[str, Any]) -> list[str]:
    line = f"  {_key(change.release)}: {flow(entry)}"
    if change.file not in _BLOCKS and len(line) <= _LONGEST:
        return [line]
    return [f"  {_key(change.release)}:", *(line for name in entry for line in _field(name, entry[name]))]


def _field(name: str, value: object) -> list[str]:
    """Return a field in block style; nested mappings of lists get one line per key."""
    if isinstance(value, Mapping) and value and all(isinstance(item, list) for item in value.values()):
        return [f"    {name}:", *(f"      {_key(str(key))}: {flow(item)}" for key, item in value.items())]
    return [f"    {name}: {flow(value)}"]


def _correct(lines: list[str], change: Difference, entry: Mapping[str, Any]) -> list[str]:
    if len(lines) == 1:
        return _format_entry(change, entry)
    for name, value in change.changes.items():
        own_lines = [n for n, line in enumerate(lines) if line.startswith(f"    {name}:")]
        at = own_lines[0] if own_lines else len(lines)
        lines[at : at + bool(own_lines)] = _field(name, value)
    return lines


def _place(lines: list[str], release: str) -> tuple[int, int]:
    starts = [n for n, line in enumerate(lines) if line.startswith(f'  "{release}":')]
    if not starts:
        raise HvlabError(f"no entry {release} in the file", remedy="correct it by hand")
    first = starts[0]
    rest = (n for n in range(first + 1, len(lines)) if not lines[n].startswith("    "))
    return first, next(rest, len(lines))


def _end(lines: list[str], release: str) -> int:
    return _place(lines, release)[1]


def entries_of(text: str) -> dict[str, Any]:
    """Return the releases of a catalogue file's text."""
    return dict(load_shipped(text)["releases"])
