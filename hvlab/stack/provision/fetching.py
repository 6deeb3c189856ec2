"""What a stack is built from, which files the controller has, and copying them to a portable folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hvlab.base.files import write_file
from hvlab.base.paths import cache_dir
from hvlab.stack.provision.packs import pack_key

# Fields that differ between hosts with the same stack.
_OWN = ("host", "gpus", "reasons", "notes", "role_packages")


def stack_key(stack: Mapping[str, Any]) -> str:
    """Return a key shared by all hosts that get the same versions."""
    return pack_key("stack", {name: value for name, value in stack.items() if name not in _OWN})


def _record(stack: Mapping[str, Any]) -> Path:
    return cache_dir() / "sources" / f"fetched-{stack_key(stack)}.json"


def note(stack: Mapping[str, Any], needed: Mapping[str, list[str]]) -> None:
    """Record what a stack is built from: each item with its alternative files in the cache."""
    path = _record(stack)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, json.dumps(needed, indent=1) + "\n")


def find_missing(stacks: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the known inputs of these stacks that the controller lacks."""
    absent: dict[str, None] = {}
    for stack in {stack_key(stack): stack for stack in stacks}.values():
        try:
            needed = json.loads(_record(stack).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            versions = {
                name: stack["versions"][name] for name in ("openmpi", "torch", "tensorflow", "horovod")
            }
            needed = {f"{name} {version}": [] for name, version in versions.items() if version}
        absent |= {name: None for name, files in needed.items() if not _glob(files)}
    return list(absent)


def _glob(patterns: Iterable[str]) -> list[Path]:
    return [path for pattern in patterns for path in cache_dir().glob(pattern)]


def carry(needed: Mapping[str, list[str]], folder: Path) -> None:
    """Copy needed files to a folder that serves as a cache (``HVLAB_CACHE``) and may have some already."""
    for file in _glob(pattern for patterns in needed.values() for pattern in patterns):
        copy = folder / file.relative_to(cache_dir())
        beside = [
            file.with_name(f"{file.name}.sha256"),
            *file.parent.glob(f"{file.name.split('-')[0]}-*.json"),
        ]
        copy.parent.mkdir(parents=True, exist_ok=True)
        for source in (file, *beside):
            target = copy.with_name(source.name)
            if source.is_file() and (not target.is_file() or target.stat().st_size != source.stat().st_size):
                shutil.copy2(source, target)
