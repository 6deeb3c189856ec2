"""What the roles take, by their argument specs, and whether the values of an inventory fit. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hvlab.base.errors import Problem
from hvlab.base.masking import masked
from hvlab.base.yaml_files import read_shipped

# Types for which text is refused, and how to write a value: Ansible splits text at commas, loops at letters.
# Switches and numbers may be texts, as `-e name=false` and INI give them: roles say `| bool`.
_NO_TEXT = {
    "list": """write a list in YAML, ['a', 'b'] in INI, -e '{{"{0}": ["a", "b"]}}' for a command""",
    "dict": """write a mapping in YAML, {{'a': 'b'}} in INI, -e '{{"{0}": {{"a": "b"}}}}' for a command""",
}
Options = Mapping[str, Mapping[str, Any]]


def role_options(roles_dir: Path) -> dict[str, Options]:
    """Return the options of each role by their names; a role without specs has those of its defaults."""
    roles = sorted(roles_dir.iterdir()) if roles_dir.is_dir() else []
    return {role.name: _options(role) for role in roles}


def _options(role: Path) -> Options:
    specs, defaults = role / "meta/argument_specs.yml", role / "defaults/main.yml"
    if specs.is_file():
        entry_points = _mapping(specs).get("argument_specs", {}).values()
        return {
            name: option for entry in entry_points for name, option in (entry.get("options") or {}).items()
        }
    return {name: {"type": "raw"} for name in _mapping(defaults)} if defaults.is_file() else {}


def _mapping(file: Path) -> dict[str, Any]:
    return read_shipped(file) or {}


def argument_problems(host: str, variables: Mapping[str, Any], options: Options) -> Iterator[Problem]:
    """Yield the values of a host's variables that a role would refuse; templates only the role can judge."""
    # Completion, which checks nothing, is not to wait until it is loaded.
    from ansible.module_utils.common.arg_spec import ArgumentSpecValidator  # noqa: PLC0415

    for name in sorted(variables.keys() & options.keys()):
        if _templated(variables[name]):
            continue
        kind = str(options[name].get("type", "str"))
        if kind in _NO_TEXT and isinstance(variables[name], str):
            given = masked(f"{name} is the text {variables[name]!r}")
            yield Problem(host, f"{given}, where a {kind} is needed", _NO_TEXT[kind].format(name))
            continue
        spec = {name: {**options[name], "required": False}}
        for message in ArgumentSpecValidator(spec).validate({name: variables[name]}).error_messages:
            yield Problem(host, masked(message), f"{name}: {_description(options[name])}")


def _description(option: Mapping[str, Any]) -> str:
    text = option["description"]
    return re.sub(r"\b[CV]\(([^)]*)\)", r"`\1`", text if isinstance(text, str) else " ".join(text))


def _templated(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(map(_templated, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_templated, value))
    return isinstance(value, str) and ("{{" in value or "{%" in value)
