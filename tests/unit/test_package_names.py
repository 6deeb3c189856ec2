"""The role names NVIDIA's packages as the resolver does, on every system that both know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from hvlab.ansible.action.hvlab_driver import as_request
from hvlab.stack.resolver import packages
from hvlab.stack.resolver.catalogue import OperatingSystem, load

SYSTEMS = load().systems


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
    facts = {
        "distribution": system.distributions[0],
        "os_family": system.family,
        "distribution_major_version": system.version.split(".")[0],
    }
    for branch, opened, rule in drivers(system):
        request = as_request({"method": "repo", "version": branch, "opened": opened}, facts)
        assert request.stream == rule.get("module", "").format(branch=branch)
        named = [name.format(branch=branch) for name in rule["packages"]]
        # The catalogue names none for a stream before 570; the role takes those of later ones.
        assert not named or [package["name"] for package in request.packages] == named
