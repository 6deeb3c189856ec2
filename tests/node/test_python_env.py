"""Every environment has the versions of its lock file."""

from __future__ import annotations

import json
import re
from typing import Any

from hvlab.stack.provision.requirements import locked, requirements
from tests.node.lab import ROOT, Node, Question, run

AGAIN = "run role python_env"
# Without importing the framework, which takes more than all of this; ranks do that (role horovod).
PROGRAM = """
import importlib.metadata, json, platform, sys
packages, framework = list(importlib.metadata.distributions()), None
for each in packages:
    if sys.argv[1] in (each.metadata["Name"], *(each.read_text("top_level.txt") or "").split()):
        framework = each.version
print(json.dumps({"python": platform.python_version(), "machine": platform.machine(), "version": framework,
                  "packages": {each.metadata["Name"]: each.version for each in packages}}))
"""


def environments(node: Node) -> dict[str, dict[str, Any]]:
    """The environments in the inventory."""
    return dict(node.variables["python_env_environments"])


def asks(node: Node) -> dict[str, Question]:
    return {
        f"environment {name}": run(
            [
                f"{node.variables['python_env_prefix']}/{name}/bin/python",
                "-c",
                PROGRAM,
                environment["framework"],
            ],
            user=node.user,
            timeout=120,
        )
        for name, environment in environments(node).items()
    }


def normal(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_packages_are_those_of_the_lock_file(node: Node) -> None:
    for name, environment in environments(node).items():
        python = json.loads(node.output(f"environment {name}", AGAIN))
        installed = {normal(package): version for package, version in python["packages"].items()}
        minor = ".".join(python["python"].split(".")[:2])
        text = requirements(
            environment, ROOT / "roles/python_env/files", python=minor, architecture=python["machine"]
        )
        wrong = []
        for package, version in re.findall(r"^([\w.-]+)(?:\[\S*\])?==([^\s;\\]+)", text, re.MULTILINE):
            # The package index has one build of torch, and no build in its number.
            if installed.get(normal(package)) not in (version, version.partition("+cu")[0]):
                wrong.append(f"{package} {installed.get(normal(package), 'missing')}, locked {version}")
        node.expect(not wrong, f"environment {name}: {'; '.join(wrong)}", AGAIN)
        node.expect(
            locked(text),
            f"environment {name} does not pin {environment['framework']}",
            "correct its lock file",
        )


def test_framework_is_the_recorded_one(node: Node) -> None:
    recorded = node.fact("python_env")["environments"]
    for name, environment in environments(node).items():
        version = json.loads(node.output(f"environment {name}", AGAIN))["version"] or "missing"
        version = version.split("+")[0]
        expected = recorded[name]["version"].split("+")[0]
        node.expect(
            version == expected,
            f"{environment['framework']} is {version}, recorded is {expected}",
            AGAIN,
        )
