"""The inventory's pins: the variable of each component, and those filled by chosen versions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hvlab.base.paths import project_dir
from hvlab.base.yaml_files import read_shipped, read_yaml

_ROWS: Mapping[str, Mapping[str, Any]] = read_shipped(Path(__file__).with_name("components.yml"))
COMPONENTS = tuple(_ROWS)
TITLES: Mapping[str, str] = {name: row["title"] for name, row in _ROWS.items()}
EXAMPLES: Mapping[str, str] = {name: row["example"] for name, row in _ROWS.items()}
# CUDA without a method: from the repository if it has the release, else from the distribution.
AUTO = "auto"
# How components get onto a host, the default first.
METHODS: Mapping[str, tuple[str, ...]] = {
    name: tuple(row["methods"]) for name, row in _ROWS.items() if "methods" in row
}
VERSION_PINS: Mapping[str, str] = {name: f"lab_{name}" for name in COMPONENTS}
METHOD_PINS: Mapping[str, str] = {name: f"lab_{name}_method" for name in METHODS}
PINS = frozenset((*VERSION_PINS.values(), *METHOD_PINS.values()))
# The value of lab_horovod with which hosts get neither Horovod nor what it is built on: torch answers for it.
TORCH = "torch"
# The roles' variables that group_vars/all.yml fills with chosen versions and methods, and their pins.
WIRED: Mapping[str, str] = {
    **{f"{row['role']}_version": VERSION_PINS[name] for name, row in _ROWS.items() if "role" in row},
    **{f"{_ROWS[name]['role']}_method": pin for name, pin in METHOD_PINS.items()},
}


# The roles whose work depends on more than versions, and can lie beside another of its kind.
BUILD_ROLES = ("openmpi", "python_env", "horovod")
# Their variables that are pins, or only name a place or a source.
_NO_BUILD = (
    *("openmpi_version", "python_env_version", "horovod_version", "horovod_python_version", "_method"),
    *("_prefix", "_record", "_profile", "_user"),
    *("_build_dir", "_build_jobs", "_source_dir", "_sources", "_mpi_dir", "_parameters_file", "_shared"),
    *("_refresh", "_at_least", "_below", "_fallback_index"),
)


def builds(name: str) -> bool:
    """Whether a variable is one that these roles build with, such as flags and variants."""
    return name.startswith(tuple(f"{role}_" for role in BUILD_ROLES)) and not name.endswith(_NO_BUILD)


def is_plain(value: object) -> bool:
    """Whether an inventory gives this value itself: not nothing, not a template, not a list or a mapping."""
    return not (
        value is None or isinstance(value, list | dict) or "{{" in str(value) or not str(value).strip()
    )


def is_true(value: object) -> bool:
    """Whether Ansible takes a value for true."""
    return str(value).lower() in ("true", "yes", "on", "1", "y", "t")


def plain_values(variables: dict[str, Any]) -> dict[str, Any]:
    """Return the variables that roles build with, without those that only a play can evaluate."""
    return {name: value for name, value in variables.items() if builds(name) and "{{" not in str(value)}


def defaults() -> dict[str, Any]:
    """Return the roles' defaults; what the project's wiring sets from the hosts' facts is none."""
    files = [project_dir() / "roles" / role / "defaults/main.yml" for role in BUILD_ROLES]
    merged: dict[str, Any] = {}
    for file in (*files, project_dir() / "group_vars/all.yml"):
        merged |= read_yaml(file)
    return plain_values(merged)


def patches() -> str:
    """Return 16 hex digits that stand for hvlab's patches of Horovod, and for when each is applied."""
    role = project_dir() / "roles/horovod"
    rules = read_yaml(role / "files/patches/rules.yml")
    texts = {file.name: file.read_text("utf-8") for file in (role / "files/patches").glob("*.patch")}
    return hashlib.sha256(json.dumps([rules, texts], sort_keys=True).encode()).hexdigest()[:16]
