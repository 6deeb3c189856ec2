"""A role is its folder, one line in a playbook and one file of checks, and its specs tell all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hvlab.checks.host import applied_roles
from hvlab.checks.registry import ROLES
from tests.contract import tree

TYPES: dict[str, type | tuple[type, ...]] = {
    "str": str, "path": str, "int": int, "float": (int, float), "bool": bool, "list": list, "dict": dict,
}  # fmt: skip
each_role = pytest.mark.parametrize("role", tree.ROLES)


@each_role
def test_specs_and_defaults_have_the_same_keys(role: str) -> None:
    required = {name for name, option in tree.options(role).items() if option.get("required")}
    assert set(tree.options(role)) - required == set(tree.defaults(role))


@each_role
def test_specs_and_defaults_agree(role: str) -> None:
    for name, value in tree.defaults(role).items():
        option = tree.options(role)[name]
        if "default" in option:
            assert option["default"] == value, (
                f"{name}: the specs say {option['default']!r}, defaults {value!r}"
            )
        if not _template(value) and value is not None:
            kind = option.get("type", "str")
            right = isinstance(value, TYPES.get(kind, object)) and (
                kind == "bool" or not isinstance(value, bool)
            )
            assert right, f"{name}: {value!r} is no {kind}"


@each_role
def test_specs_name_literal_defaults(role: str) -> None:
    for name, value in tree.defaults(role).items():
        literal = value is not None and not _template(value)
        assert not literal or "default" in tree.options(role)[name], f"{name}: its specs have no default"


@each_role
def test_every_variable_is_described_and_prefixed(role: str) -> None:
    assert tree.specs(role).get("short_description"), (
        f"{role}: meta/argument_specs.yml has no short_description"
    )
    for name, option in tree.options(role).items():
        assert name.startswith(f"{role}_"), f"{name} does not begin with {role}_"
        assert option.get("description"), f"{name} has no description"


@each_role
def test_internal_names_are_marked(role: str) -> None:
    allowed = (f"__{role}_", f"{role}_", "ansible_")
    for place, task in tree.tasks():
        if not place.startswith(f"roles/{role}/"):
            continue
        facts = task.get("ansible.builtin.set_fact") or {}
        names = [name for name in (*facts, task.get("register")) if name not in ("cacheable", None)]
        for name in names:
            assert name.startswith(allowed), f"{place}: {name} should begin with __{role}_"


@each_role
def test_reads_no_other_role(role: str) -> None:
    others = [
        other
        for other in tree.ROLES
        if other not in {role} | tree.CALLED and not role.startswith(f"{other}_")
    ]
    foreign = {name for other in others for name in tree.options(other)}
    for path in sorted((tree.ROOT / "roles" / role).rglob("*")):
        if path.is_file() and path.suffix in (".yml", ".j2"):
            observed = foreign & set(re.findall(r"\b[a-z]\w+\b", path.read_text(encoding="utf-8")))
            where = path.relative_to(tree.ROOT)
            assert not observed, f"{where} reads {sorted(observed)}: wire them in group_vars/all.yml"
            past = role != "preflight" and "__preflight_" in path.read_text(encoding="utf-8")
            assert not past, f"{where} reads past the wiring"


def test_only_role_variables_are_wired() -> None:
    known = {name for role in tree.ROLES for name in tree.options(role)}
    assert (
        not {name for name in tree.load(tree.ROOT / "group_vars/all.yml") if not name.startswith("__")}
        - known
    )


@each_role
def test_offline_installs_ignore_the_hosts_pip_configuration(role: str) -> None:
    folder = tree.ROOT / "roles" / role
    parts = [path for part in ("vars", "tasks") for path in (folder / part).glob("*.yml")]
    text = "".join(path.read_text(encoding="utf-8") for path in parts)
    assert ("--no-index" in text) <= ("PIP_CONFIG_FILE: /dev/null" in text)


@each_role
def test_what_a_pack_is_made_of_is_found_from_the_role_pack_too(role: str) -> None:
    """Its variables are read in tasks of the role pack, whose role_path is another."""
    folder = tree.ROOT / "roles" / role
    if any("name: pack\n" in path.read_text("utf-8") for path in folder.glob("tasks/*.yml")):
        text = "".join((folder / part).read_text("utf-8") for part in ("defaults/main.yml", "vars/main.yml"))
        assert not re.search(r"\brole_path\b(?! \| dirname\b| is)", text)


@each_role
def test_has_meta(role: str) -> None:
    info = (tree.load(tree.ROOT / "roles" / role / "meta/main.yml") or {}).get("galaxy_info", {})
    assert info.get("description"), f"roles/{role}/meta/main.yml has no description"
    assert info.get("license") == "Apache-2.0", f"roles/{role}/meta/main.yml names another license"


@each_role
def test_has_checks(role: str) -> None:
    written = any(each.checks for each in ROLES if each.name == role)
    assert role in tree.CALLED or written, f"write the checks of {role} in hvlab/checks"


@each_role
def test_stands_in_a_playbook(role: str) -> None:
    assert role in {*applied_roles(), *tree.CALLED}, f"no playbook names {role}"


def _template(value: Any) -> bool:
    return any("{{" in text for text in tree.texts(value))


_WHOLE = {"when", "that", "until", "failed_when", "changed_when"}
_FOLDERS = ("roles", "playbooks", "group_vars", "templates")


def _expressions(value: Any, key: str = "") -> Iterator[str]:
    """Yield what of a YAML file is an expression: conditions, and what stands in braces."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _expressions(item, str(name))
    elif isinstance(value, list):
        for item in value:
            yield from _expressions(item, key)
    elif isinstance(value, str):
        yield from [value] if key in _WHOLE else re.findall(r"{{.*?}}|{%.*?%}", value, re.DOTALL)


def test_a_switch_may_be_a_text_and_is_never_turned_round() -> None:
    """`-e NAME=false`, and an INI inventory, give the text false, which counts as true."""
    switches = {
        name
        for role in tree.ROLES
        for name, option in tree.options(role).items()
        if option.get("type") == "bool"
    }
    bare = re.compile(rf"\b({'|'.join(sorted(switches))})\b(?!\s*(\|\s*default\([^)]*\)\s*)?\|\s*bool)")
    files = [
        file
        for folder in _FOLDERS
        for file in (tree.ROOT / folder).rglob("*")
        if file.suffix in (".yml", ".j2") and not {"meta", "defaults"} & set(file.parts)
    ]
    wrong = [
        f"{file.relative_to(tree.ROOT)}: {expression}"
        for file in files
        for expression in _expressions(
            yaml.safe_load(file.read_text("utf-8")) if file.suffix == ".yml" else file.read_text("utf-8")
        )
        if bare.search(re.sub("'[^']*'", "''", expression))
    ]
    assert len(files) > 100
    assert wrong == [], "say `| bool`"


@each_role
def test_a_number_may_be_a_text_and_planners_get_a_number(role: str) -> None:
    """`-e NAME=5` gives a text: a module gets a number for it, a planner the text."""
    file = tree.ROOT / "roles" / role / "vars/main.yml"
    numbers = [name for name, option in tree.options(role).items() if option.get("type") in ("int", "float")]
    bare = re.compile(rf"\b({'|'.join(numbers) or '(?!)'})\b(?!\s*\|\s*(int|float)\b)")
    read = _expressions(tree.load(file)) if file.is_file() else ()
    assert [text for text in read if bare.search(text)] == [], "say `| int`"


def test_a_path_is_set_for_one_user_alone() -> None:
    """Other people's logins keep theirs."""
    files = [
        path for path in tree.ROOT.glob("roles/*/templates/etc/profile.d/*") if "PATH=" in path.read_text()
    ]
    assert files
    assert not [path for path in files if "LOGNAME" not in path.read_text()]
    wired = tree.load(tree.ROOT / "group_vars/all.yml")
    assert not [path for path in files if f"{path.parents[3].name}_profile_user" not in wired]


def test_nobody_elses_limits_and_work_change_by_default() -> None:
    limits = tree.ROOT / "roles/common/templates/etc/security/limits.d/90-hvlab.conf.j2"
    lines = [line for line in limits.read_text("utf-8").splitlines() if line[0] != "#"]
    assert lines
    assert all(line.startswith("{{ common_limit_user }} ") for line in lines)
    driver = tree.defaults("nvidia_driver")
    assert driver["nvidia_driver_reboot"] == "never"
    # A DGX takes 10 to 20 minutes to start.
    assert driver["nvidia_driver_reboot_timeout"] >= 1800


_WIDTH = 120


def _long(path: Path) -> Iterator[str]:
    """Yield lines and expressions of a YAML file that are too long; folding does not shorten the latter."""
    lines = path.read_text("utf-8").splitlines()
    yield from (line for line in lines if len(line) > _WIDTH and not line.lstrip().startswith("#"))
    folded = (" ".join(expression.split()) for expression in _expressions(tree.load(path)))
    yield from (expression for expression in folded if len(expression) > _WIDTH)


def test_expressions_are_short() -> None:
    """What decides more is a function of hvlab/stack/provision, with a test."""
    places = ("roles/*/[dhtv]*/*.yml", "playbooks/**/*.yml", "group_vars/*.yml", "inventory/**/*.yml")
    files = [path for place in places for path in tree.ROOT.glob(place)]
    assert len(files) > 100
    assert not [f"{path.relative_to(tree.ROOT)}: {text}" for path in files for text in _long(path)]
    chains = re.compile(r"\b(zip|product|regex_findall|items2dict)\b")
    texts = ((path, text) for path in files for text in _expressions(tree.load(path)))
    assert not [f"{path.relative_to(tree.ROOT)}: {text}" for path, text in texts if chains.search(text)]


@each_role
def test_internal_variables_fit_on_a_page(role: str) -> None:
    path = tree.ROOT / "roles" / role / "vars/main.yml"
    text = path.read_text("utf-8") if path.exists() else ""
    assert len(text.splitlines()) <= 40
    assert [file.name for file in path.parent.glob("*.yml")] in ([], ["main.yml"])
