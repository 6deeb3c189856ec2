"""Every plugin is shown by ansible-doc, with the options it really has."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible import module_utils
from ansible.plugins.action import ActionBase

from tests.contract import tree

PLUGINS = tree.ROOT / "hvlab/ansible"


def names(*folders: str) -> list[str]:
    return sorted({path.stem for folder in folders for path in (PLUGINS / folder).glob("hvlab_*.py")})


MODULES = names("modules", "action")


@cache
def shown(kind: str) -> dict[str, Any]:
    """What ansible-doc shows of our plugins of a kind; of those it does not find there is no entry."""
    wanted = MODULES if kind == "module" else names(kind)
    program = str(Path(sys.executable).parent / "ansible-doc")
    done = subprocess.run(
        [program, "--json", "--type", kind, *wanted],
        env=os.environ | {"ANSIBLE_CONFIG": str(tree.ROOT / "ansible.cfg")},
        cwd=tree.ROOT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    return {name: entry["doc"] for name, entry in json.loads(done.stdout or "{}").items()}


class Spec(Exception):  # noqa: N818 - it carries an argument spec out of a plugin
    """Raised where a plugin states its argument spec."""


def refuse(*_: Any, argument_spec: dict[str, Any], **__: Any) -> None:
    raise Spec(argument_spec)


def argument_spec(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The argument spec of what a task calls: the action plugin where there is one, else the module."""
    if (PLUGINS / f"action/{name}.py").exists():
        plugin = importlib.import_module(f"hvlab.ansible.action.{name}").ActionModule
        monkeypatch.setattr(ActionBase, "run", lambda *_: {})
        monkeypatch.setattr(ActionBase, "validate_argument_spec", refuse)
        action = plugin.__new__(plugin)
        action._task = SimpleNamespace(args={}, check_mode=False)
        call = partial(action.run, None, {})
    else:
        monkeypatch.setattr(module_utils, "__path__", [*module_utils.__path__, str(PLUGINS / "module_utils")])
        module = importlib.import_module(f"hvlab.ansible.modules.{name}")
        monkeypatch.setattr(module, "AnsibleModule", refuse)
        call = module.main
    with pytest.raises(Spec) as raised:
        call()
    return dict(raised.value.args[0])


def plain(options: dict[str, Any], nested: str) -> dict[str, Any]:
    """Options of either kind in one form."""
    return {
        name: {
            "type": option.get("type", "str"),
            "elements": option.get("elements"),
            "required": bool(option.get("required")),
            "default": option.get("default"),
            "choices": option.get("choices"),
            "options": plain(option.get(nested) or {}, nested),
        }
        for name, option in options.items()
    }


@pytest.mark.parametrize("name", MODULES)
def test_documented_options_are_the_real_ones(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert name in shown("module"), f"ansible-doc does not find {name}: document it in hvlab/ansible/modules"
    documented = plain(shown("module")[name].get("options") or {}, "suboptions")
    assert documented == plain(argument_spec(name, monkeypatch), "options")


@pytest.mark.parametrize("kind", ["filter", "callback"])
def test_other_plugins_are_shown(kind: str) -> None:
    assert set(shown(kind)) == set(names(kind))


def states(value: Any) -> Iterator[str]:
    """Every word that stands after ``state:``, at whatever depth."""
    if isinstance(value, dict):
        yield from re.findall(r"\w+", str(value.get("state", "")))
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from states(part)


def test_every_documented_state_is_used() -> None:
    used: dict[str, set[str]] = {name: set() for name in MODULES}
    for _, task in tree.tasks():
        for name in used.keys() & task.keys():
            used[name].update(states(task[name]))
    for path in tree.ROOT.glob("roles/*/vars/*.yml"):
        used["hvlab_files"].update(states(tree.load(path)))
    for name in MODULES:
        options = shown("module")[name].get("options") or {}
        nested = (option.get("suboptions") or {} for option in options.values())
        for state in [each["state"] for each in (options, *nested) if "state" in each]:
            unused = set(state["choices"]) - used[name] - {state.get("default")}
            assert not unused, f"{name}: no task uses state {', '.join(sorted(unused))}"


def test_action_plugins_load_on_the_controller() -> None:
    """Ansible finds module_utils of the project for hosts alone, where it packs them with a module."""
    plugins = [f"hvlab.ansible.action.{path.stem}" for path in sorted((PLUGINS / "action").glob("*.py"))]
    load = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    done = subprocess.run(
        [sys.executable, "-c", load, *plugins], capture_output=True, text=True, check=False, cwd=tree.ROOT
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", names("action"))
def test_no_failure_says_its_cause_twice(name: str) -> None:
    """Ansible appends the message of a failure's cause, behind the remedy."""
    parsed = ast.parse((PLUGINS / f"action/{name}.py").read_text("utf-8"))
    caused = [ast.unparse(node) for node in ast.walk(parsed) if isinstance(node, ast.Raise) and node.cause]
    failures = [
        text for text in caused if re.match(r"raise (AnsibleActionFail|self\._(failure|refusal))", text)
    ]
    assert [text for text in failures if not text.endswith("from None")] == []
