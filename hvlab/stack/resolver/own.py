"""Releases that a user adds to the catalogue, in a file of their own. Pure, but for reading it.

The file has the names of the catalogue's files at its top, and below each the entries it adds:

    cuda:
      "13.6": {like: "13.5", driver: "625.10"}
    gpus:
      - {match: "B400", capability: "10.3"}

``like`` copies the fields of a known entry; fields beside it replace some.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from hvlab.base.errors import UsageError, did_you_mean
from hvlab.base.yaml_files import read_yaml
from hvlab.stack.resolver import versions

# Where a file of the catalogue has its entries: by version, or in a list under a name of their own.
_BY_VERSION = {
    "cuda": "releases",
    "cudnn": "releases",
    "nccl": "releases",
    "torch": "releases",
    "tensorflow": "releases",
    "horovod": "releases",
    "openmpi": "releases",
    "drivers": "branches",
    "capabilities": "capabilities",
}
_IN_LISTS = {"systems": ("systems", "name"), "gpus": ("models", "match")}
_FILES = (*_BY_VERSION, *_IN_LISTS)
_LIKE = "like"
# Fields that all entries of a file have but the resolver does not read.
_UNREAD = {"source", "memory"}
# Fields that the resolver reads but no shipped entry has.
_NOT_SHIPPED = {"nccl": {"cuda"}}
Entry = Mapping[str, Any]


class CatalogueError(UsageError):
    """A data file of the catalogue is wrong."""


def read(path: Path) -> dict[str, Any]:
    """Return the entries that a user's file adds. Raises CatalogueError if it cannot be read."""
    try:
        data = read_yaml(path)
    except ValueError as error:
        raise CatalogueError(
            f"{path} cannot be read: {error}", remedy="correct it, or move it away"
        ) from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise CatalogueError(f"{path} is not a mapping", remedy=f"its keys can be {', '.join(_FILES)}")
    return data


def list_added(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the file and the name of every entry that a user's file adds."""
    names = [(file, str(name)) for file in _BY_VERSION for name in data.get(file) or ()]
    for file, (_, key) in _IN_LISTS.items():
        names += [(file, str(item[key])) for item in data.get(file) or () if key in item]
    return names


def merge(data: Mapping[str, Entry], own: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the catalogue's files with a user's entries. Raises CatalogueError that names the entry."""
    for file in own:
        if file not in _FILES:
            hint = did_you_mean(str(file), _FILES)
            raise CatalogueError(
                f"{path}: unknown key {file!r}", remedy=f"{hint}it can be {', '.join(_FILES)}"
            )
    whole = {name: deepcopy(dict(content)) for name, content in data.items()}
    for file, place in _BY_VERSION.items():
        entries = own.get(file) or {}
        if not isinstance(entries, Mapping):
            raise CatalogueError(f"{path}, {file}: not a mapping by version", remedy='write "13.6": {...}')
        for name, entry in entries.items():
            if not isinstance(name, str):
                raise CatalogueError(
                    f"{path}, {file}, {name}: a number", remedy="write the version in quotes"
                )
            if file == "drivers" and not name.isdecimal():
                raise CatalogueError(
                    f"{path}, {file}, {name}: not a branch", remedy='write the branch\'s number: "595"'
                )
            _add(whole[file][place], file, name, entry, f"{path}, {file}, {name}")
    for file, (place, key) in _IN_LISTS.items():
        by_name = {str(item[key]): item for item in whole[file][place]}
        entries = own.get(file) or []
        if not isinstance(entries, list):
            raise CatalogueError(f"{path}, {file}: not a list", remedy=f"write - {{{key}: ...}}")
        for entry in entries:
            if not isinstance(entry, Mapping) or not isinstance(entry.get(key), str):
                raise CatalogueError(f"{path}, {file}: {entry!r} has no {key}", remedy=f"give it a {key}")
            _add(by_name, file, entry[key], entry, f"{path}, {file}, {entry[key]}")
        whole[file][place] = list(by_name.values())
    _offer(whole["systems"]["systems"], data["drivers"]["branches"], own.get("drivers") or {})
    return whole


def _add(entries: dict[str, Any], file: str, name: str, entry: Any, where: str) -> None:
    if not isinstance(entry, Mapping):
        raise CatalogueError(f"{where}: {entry!r} is not a mapping", remedy="write {like: ...} or all fields")
    like = entry.get(_LIKE)
    if like is not None and not isinstance(like, str):
        raise CatalogueError(f"{where}: like {like!r} is not a text", remedy="write it in quotes")
    if like is not None and like not in entries:
        near = versions.nearest(str(like), entries) if like[:1].isdigit() else sorted(entries)
        raise CatalogueError(f"{where}: like {like!r} is not known", remedy=f"known are {', '.join(near)}")
    every = [set(known) for known in entries.values()]
    fields = set().union(*every, _NOT_SHIPPED.get(file, ()))
    needed = set.intersection(*every) - _UNREAD
    for field in entry:
        if field not in {*fields, _LIKE, "note"}:
            hint = did_you_mean(str(field), fields)
            raise CatalogueError(
                f"{where}: unknown field {field!r}", remedy=f"{hint}it has {', '.join(sorted(fields))}"
            )
    filled = {**(entries[like] if like else {}), **entry}
    filled.pop(_LIKE, None)
    missing = sorted(needed - set(filled))
    if missing:
        raise CatalogueError(f"{where}: {', '.join(missing)} missing", remedy="add it, or `like: VERSION`")
    entries[name] = filled


def _offer(systems: Sequence[dict[str, Any]], known: Iterable[str], own: Iterable[str]) -> None:
    """Let the systems whose repositories still get driver branches have the user's newer ones."""
    newest = max(known, key=int)
    for system in systems:
        has = [str(branch) for branch in system["drivers"]]
        if newest in has:
            system["drivers"] = [
                *has,
                *(branch for branch in own if branch not in has and int(branch) > int(newest)),
            ]
