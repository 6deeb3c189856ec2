"""The base environment has what its lock file says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.node.lab import ROOT, Node, Question, run

AGAIN = "run role python_env"
PROGRAM = """
import importlib.metadata, json, platform, torch
found = {each.metadata["Name"]: each.version for each in importlib.metadata.distributions()}
print(json.dumps({"python": platform.python_version(), "machine": platform.machine(),
                  "torch": torch.__version__, "packages": found}))
"""


def asks(node: Node) -> dict[str, Question]:
    python = f"{node.wanted['python_env_prefix']}/bin/python"
    return {"base environment": run([python, "-c", PROGRAM], user=node.user, timeout=60)}


def normal(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def lock_file(node: Node, found: dict[str, Any]) -> Path:
    """The lock file asked for: the inventory's, or the role's for this Python and machine."""
    asked = str(node.wanted.raw("python_env_requirements"))
    if "{{" not in asked:
        return Path(asked)
    minor = ".".join(found["python"].split(".")[:2])
    names = [f"requirements-{minor}-{found['machine']}.txt", f"requirements-{minor}.txt"]
    paths = [ROOT / "roles/python_env/files" / name for name in names]
    known = [path for path in paths if path.is_file()]
    node.expect(
        known, f"Python is {found['python']}, for which there is no lock file", "add one to roles/python_env"
    )
    return known[0]


def test_packages_are_those_of_the_lock_file(node: Node) -> None:
    found = json.loads(node.output("base environment", AGAIN))
    have = {normal(name): version for name, version in found["packages"].items()}
    lock = lock_file(node, found)
    wrong = []
    for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)\s*$", lock.read_text("utf-8"), re.MULTILINE):
        if have.get(normal(name)) != version:
            wrong.append(f"{name} {have.get(normal(name), 'missing')}, locked {version}")
    node.expect(not wrong, f"not as in {lock.name}: {'; '.join(wrong)}", AGAIN)


def test_torch_is_the_recorded_one(node: Node) -> None:
    found = json.loads(node.output("base environment", AGAIN))
    recorded = node.fact("python_env")["torch"]
    node.expect(found["torch"] == recorded, f"torch is {found['torch']}, recorded {recorded}", AGAIN)
