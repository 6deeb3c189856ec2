"""NVIDIA's packages are named in the catalogue and in the roles: where both name one, they agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from hvlab.stack.resolver import packages
from hvlab.stack.resolver.catalogue import OperatingSystem, load
from tests.contract import tree
from tests.unit.test_container_runtime import trusted

SYSTEMS = load().systems


@cache
def variables(role: str, file: str) -> Mapping[str, Any]:
    """Return a role's variables on a system, with templates that may be evaluated."""
    known: dict[str, Any] = {}
    for name in ("defaults/main.yml", "vars/main.yml", f"vars/{file}"):
        known |= trusted(yaml.safe_load((tree.ROOT / "roles" / role / name).read_text("utf-8")))
    return known


def filled(system: OperatingSystem, role: str, name: str, **given: Any) -> Any:
    """Return one of a role's variables on a system."""
    folder = tree.ROOT / "roles" / role / "vars"
    files = (f"{system.distributions[0]}.yml", f"{system.family}.yml")
    known = variables(role, next(file for file in files if (folder / file).exists()))
    major = system.version if system.distributions == ("Ubuntu",) else system.version.split(".")[0]
    facts = {"distribution_major_version": major, "distribution": system.distributions[0]}
    return Templar(loader=DataLoader(), variables=known | {"ansible_facts": facts} | given).template(
        known[name]
    )


def drivers(system: OperatingSystem) -> Iterator[tuple[str, bool, Mapping[str, Any]]]:
    """Yield each branch, whether its modules are the open ones, and the catalogue's rule for them."""
    for branch in system.drivers:
        for opened in (True, False):
            kind = "open" if opened else "proprietary"
            rule = packages._driver_rule(system, branch, kind)
            if rule["modules"] == kind:
                yield branch, opened, rule


# yum is that of hosts whose Python is too old for the roles.
@pytest.mark.parametrize(
    "system", [system for system in SYSTEMS if system.manager != "yum"], ids=lambda system: system.name
)
def test_packages_of_drivers(system: OperatingSystem) -> None:
    for branch, opened, rule in drivers(system):
        given = {
            "nvidia_driver_version": branch,
            "nvidia_driver_open_modules": opened,
            "nvidia_driver_method": "repo",
        }
        stream = filled(system, "nvidia_driver", "__nvidia_driver_stream", **given)
        assert stream == rule.get("module", "").format(branch=branch)
        named = [name.format(branch=branch) for name in rule["packages"]]
        own = filled(system, "nvidia_driver", "__nvidia_driver_nvidia_packages", **given)
        # Of a stream before 570 the catalogue names none, and leaves them to the role.
        assert not named or [package["name"] for package in own] == named
