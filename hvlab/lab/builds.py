"""What roles build with besides what an inventory says: their defaults, and hvlab's patches of Horovod."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from hvlab.base.paths import project_dir
from hvlab.base.yaml_files import read_yaml
from hvlab.lab.pin_variables import BUILD_ROLES, builds


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
