"""A fact stands in one table: what repeats it has to agree, and what need not repeat it does not."""

from __future__ import annotations

import re

from hvlab.lab.pin_variables import AUTO, METHOD_PINS, METHODS, WIRED
from hvlab.lab.variants import DEFAULT_VARIANTS
from hvlab.stack.resolver.catalogue import load
from tests.contract import tree


def test_methods_of_installation_are_those_of_the_roles() -> None:
    """A role installs by one method: auto is one of the others by then."""
    options = {name: option for role in tree.ROLES for name, option in tree.options(role).items()}
    roles = {pin: options[variable]["choices"] for variable, pin in WIRED.items() if pin.endswith("_method")}
    assert roles == {
        METHOD_PINS[name]: [one for one in methods if one != AUTO] for name, methods in METHODS.items()
    }


def test_the_default_variants_are_those_of_the_role() -> None:
    default = tree.load(tree.ROOT / "roles/horovod/defaults/main.yml")["horovod_variants"]
    read = {name: {key: variant[key] for key in DEFAULT_VARIANTS[name]} for name, variant in default.items()}
    assert read == DEFAULT_VARIANTS


def test_what_the_chosen_versions_fill_is_what_the_wiring_fills() -> None:
    options = {name for role in tree.ROLES for name in tree.options(role)}
    wiring = tree.load(tree.ROOT / "group_vars/all.yml")
    filled = re.compile(r"__stack\.(versions|methods|driver_requested)\b")
    roles = re.compile(rf"({'|'.join({name.rpartition('_')[0] for name in WIRED})})_(version|method)")
    assert set(WIRED) <= options
    assert set(WIRED) == {
        name for name, value in wiring.items() if roles.fullmatch(name) and filled.search(str(value))
    }


def test_operating_systems_are_listed_in_the_catalogue_only() -> None:
    names = {name for system in load().systems for name in system.distributions}
    listing = re.compile(rf"\b({'|'.join(names)})\b:? \[?\"?\d")
    repeats: list[str] = []
    for folder in ("defaults", "meta", "tasks"):
        for path in sorted((tree.ROOT / "roles").glob(f"*/{folder}/*.yml")):
            text = path.read_text("utf-8")
            lines = [line for line in text.splitlines() if listing.search(line) and "such as" not in line]
            if folder == "meta" and "platforms:" in text:
                lines.append("platforms:")
            if lines:
                repeats.append(f"{path.relative_to(tree.ROOT)}: {lines}")
    assert not repeats
