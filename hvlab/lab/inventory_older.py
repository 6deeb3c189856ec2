"""What an inventory of an earlier hvlab may still hold; each finding says what to do instead."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from hvlab.errors import Problem
from hvlab.lab.inventory_files import variable_files
from hvlab.lab.pin_variables import METHOD_PINS, OLDER_METHOD_PINS, OLDER_VERSION_PINS, VERSION_PINS, plain

WIRING = "group_vars/all.yml"
# What the wiring is known by: where the chosen versions are, today and before.
_STACKS = re.compile(r"__stacks|hvlab_stacks")


def older_pins(hostvars: Mapping[str, Mapping[str, Any]]) -> Iterator[Problem]:
    """Find role variables that stand for pins. Raw variables by host go in."""
    names = {
        **{OLDER_VERSION_PINS[name]: VERSION_PINS[name] for name in OLDER_VERSION_PINS},
        **{OLDER_METHOD_PINS[name]: METHOD_PINS[name] for name in OLDER_METHOD_PINS},
    }
    for host, variables in hostvars.items():
        for variable, pin in names.items():
            if plain(variables.get(variable)):
                seen = f"{variable} is set; pins are lab_* now"
                yield Problem(host, seen, f"write {pin}: {variables[variable]} instead")


def copied_wiring(source: Path, project: Path) -> Iterator[Problem]:
    """Find copies of the project's wiring: every inventory used to hold one, as group_vars/all/roles.yml."""
    current = yaml.safe_load((project / WIRING).read_text("utf-8"))
    for path in variable_files(source):
        text = path.read_text("utf-8", errors="replace")
        if not _STACKS.search(text):
            continue
        try:
            values = yaml.safe_load(text)
        except yaml.YAMLError:
            continue
        if not isinstance(values, dict) or not _STACKS.search(str(values.get("__stack"))):
            continue
        own = [name for name, value in values.items() if current.get(name, ...) != value]
        remedy = f"delete {path}"
        if own:
            remedy += (
                f"; first move what you changed in it into another file of {path.parent}. "
                f"These lines differ from the project's: {', '.join(own)}"
            )
        seen = f"it is a copy of hvlab's wiring, which the project's own {WIRING} holds, and outranks it"
        yield Problem(path.name, seen, remedy)
