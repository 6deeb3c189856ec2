"""The arguments of an action plugin, checked against the options that its module documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from hvlab.base.paths import project_dir
from hvlab.base.yaml_files import load_shipped

_KEYS = ("type", "elements", "required", "default", "choices")


class Action(Protocol):
    """The part of Ansible's ActionBase that is used here."""

    def validate_argument_spec(self, argument_spec: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return Ansible's result and the arguments with their defaults; fail the task if one is wrong."""


def arguments(action: Action, documentation: str) -> dict[str, Any]:
    """Return a task's arguments; an undocumented option or a wrong value fails the task."""
    options = load_shipped(documentation).get("options") or {}
    return action.validate_argument_spec(argument_spec=spec(options))[1]


def documentation(module: str) -> str:
    """Return a module's documentation unimported: module_utils are missing on the controller."""
    text = (project_dir() / f"hvlab/ansible/modules/{module}.py").read_text(encoding="utf-8")
    return text.partition('DOCUMENTATION = """')[2].partition('"""')[0]


def spec(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return documented options as Ansible's argument spec."""
    known = {}
    for name, option in options.items():
        known[name] = {key: option[key] for key in _KEYS if key in option}
        if "suboptions" in option:
            known[name]["options"] = spec(option["suboptions"])
    return known
