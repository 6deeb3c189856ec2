"""Every environment has what its lock file says."""

from __future__ import annotations

import json
import re
from typing import Any

from hvlab.provision.requirements import locked, requirements
from tests.node.lab import ROOT, Node, Question, run

AGAIN = "run role python_env"
PROGRAM = """
import importlib.metadata, json, platform
found = {{each.metadata["Name"]: each.version for each in importlib.metadata.distributions()}}
import {framework}
print(json.dumps({{"python": platform.python_version(), "machine": platform.machine(),
                   "version": {framework}.__version__, "packages": found}}))
"""


def environments(node: Node) -> dict[str, dict[str, Any]]:
    """The environments asked for."""
    return dict(node.wanted["python_env_environments"])


def asks(node: Node) -> dict[str, Question]:
    return {
        f"environment {name}": run(
            [
                f"{node.wanted['python_env_prefix']}/{name}/bin/python",
                "-c",
                PROGRAM.format(framework=asked["framework"]),
            ],
            user=node.user,
            timeout=120,
        )
        for name, asked in environments(node).items()
    }


def normal(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_packages_are_those_of_the_lock_file(node: Node) -> None:
    for name, asked in environments(node).items():
        found = json.loads(node.output(f"environment {name}", AGAIN))
        have = {normal(package): version for package, version in found["packages"].items()}
        minor = ".".join(found["python"].split(".")[:2])
        text = requirements(
            asked, ROOT / "roles/python_env/files", python=minor, architecture=found["machine"]
        )
        wrong = []
        for package, version in re.findall(r"^([\w.-]+)(?:\[\S*\])?==([^\s;\\]+)", text, re.MULTILINE):
            if have.get(normal(package)) != version:
                wrong.append(f"{package} {have.get(normal(package), 'missing')}, locked {version}")
        node.expect(not wrong, f"environment {name}: {'; '.join(wrong)}", AGAIN)
        node.expect(locked(text), f"environment {name} pins no {asked['framework']}", "mend its lock file")


def test_framework_is_the_recorded_one(node: Node) -> None:
    recorded = node.fact("python_env")["environments"]
    for name, asked in environments(node).items():
        found = json.loads(node.output(f"environment {name}", AGAIN))["version"].split("+")[0]
        told = recorded[name]["version"].split("+")[0]
        node.expect(found == told, f"{asked['framework']} is {found}, recorded {told}", AGAIN)
