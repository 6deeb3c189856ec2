"""Each Python environment: its locked packages, and whether ranks can import Horovod and its framework."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from packaging.utils import canonicalize_name

from hvlab.base.answers.shapes import HostAnswer
from hvlab.checks.programs import source
from hvlab.checks.provisioned import ROOT, Question, Role, RoleHost, run
from hvlab.checks.site import HostFault, HostReplies, Site
from hvlab.doctor import knowledge, reading
from hvlab.stack.provision.python_env import read_locked, requirements

_ENVIRONMENTS = "environments"
_RECORDS = {name: f"/etc/ansible/facts.d/hvlab_{name}.fact" for name in ("python_env", "horovod")}
_IMPORT_S = 60
# Ended by the time limit or for lack of memory, which says nothing about the environment.
_NO_ANSWER = (0, 124, 137, -9)
_BUILT = re.compile(r"^built ([01]) ([01])$", re.MULTILINE)
_WARNED = [cause for cause in knowledge.CAUSES if cause.id == "horovod-version-mismatch"]
# Roles that restore files, since they compare the files of their packs.
_ROLES = {
    "horovod-not-built": "horovod",
    "horovod-version-mismatch": "python_env",
    "python-module-missing": "python_env",
    "no-packaging": "python_env",
    "no-distutils": "python_env",
}


class Printed(HostAnswer):
    """The outcome of an import, and its output."""

    rc: int
    out: str
    err: str


class Environment(HostAnswer):
    """One environment as ``programs/environments.py`` prints it.

    ``build`` is the requested build; ``torch_cuda`` is torch's CUDA, None without torch.
    """

    looked: int
    said: str
    build: str
    packages: dict[str, str]
    torch_cuda: str | None
    libmpi: list[str]
    imports: dict[str, Printed]


# Faults that a comparison of hosts shows, and the role that fixes each.
FAULTS = {
    "environment-broken": "python_env",
    **_ROLES,
    "horovod-no-controller": "horovod",
    "torch-without-cuda": "python_env",
}


def questions(site: Site) -> dict[str, dict[str, Any]]:
    """Ask last: importing torch keeps a core busy for seconds, which would disturb the timed meeting."""
    given = {"horovod": site.horovod, "records": _RECORDS, "seconds": _IMPORT_S}
    argv = ["python3", "-c", source("environments"), json.dumps(given)]
    return {_ENVIRONMENTS: {"run": argv, "user": site.user, "timeout": 240, "alone": True}}


def environments(replies: HostReplies) -> dict[str, Environment]:
    """Return a host's environments by path."""
    return replies.parse(_ENVIRONMENTS, dict[str, Environment]) or {}


def faults(site: Site, every: Mapping[str, HostReplies]) -> Iterator[HostFault]:
    """Judge the imports, then what they depend on."""
    for name, replies in every.items():
        for path, environment in environments(replies).items():
            role = "horovod" if path.startswith(f"{site.horovod}/") else "python_env"
            if environment.looked not in _NO_ANSWER:
                words = " ".join(environment.said.split())[-200:]
                yield HostFault("environment-broken", name, f"{path}/bin/python: {words}", role)
            for framework, printed in environment.imports.items():
                yield from _import(name, path, framework, printed)
            if environment.build not in ("", "cpu") and environment.torch_cuda == "":
                release = environment.packages.get("torch", "")
                observed = f"{path}: torch {release} is built without CUDA; {environment.build} was installed"
                yield HostFault("torch-without-cuda", name, observed, "python_env")


def _import(name: str, path: str, framework: str, printed: Printed) -> Iterator[HostFault]:
    what = f"{path}: import horovod.{framework}"
    text = f"{printed.err}\n{printed.out}".splitlines()
    if printed.rc == 0:
        # Horovod only warns of another release of the framework if its extension still loads.
        for warned in reading.diagnose(text, _WARNED).causes:
            id_ = warned.cause.id
            yield HostFault(id_, name, f"{what}: {warned.lines[0][1][:200]}", _ROLES[id_])
        built = _BUILT.search(printed.out)
        if built and "1" not in built.groups():
            yield HostFault(
                "horovod-no-controller", name, f"{what}: built with neither MPI nor Gloo", "horovod"
            )
    elif printed.rc not in _NO_ANSWER:
        root = reading.root(text)
        id_ = root.cause.id if root else "environment-broken"
        said = root.lines[-1][1] if root else " ".join(printed.err.split())[-200:]
        yield HostFault(id_, name, f"{what}: {said[:200] or f'ended with {printed.rc}'}", _ROLES.get(id_, ""))


# Does not import the framework, which would take longer than all of this; ranks do that (role horovod).
PROGRAM = """
import importlib.metadata, json, platform, sys
packages, framework = list(importlib.metadata.distributions()), None
for each in packages:
    if sys.argv[1] in (each.metadata["Name"], *(each.read_text("top_level.txt") or "").split()):
        framework = each.version
print(json.dumps({"python": platform.python_version(), "machine": platform.machine(), "version": framework,
                  "packages": {each.metadata["Name"]: each.version for each in packages}}))
"""


def read_requested(node: RoleHost) -> dict[str, dict[str, Any]]:
    """The environments that the inventory requests."""
    return dict(node.variables["python_env_environments"])


def asks(node: RoleHost) -> dict[str, Question]:
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
        for name, environment in read_requested(node).items()
    }


ROLE = Role("python_env", asks)


@ROLE.check
def packages_are_those_of_the_lock_file(node: RoleHost) -> None:
    for name, environment in read_requested(node).items():
        python = json.loads(node.output(f"environment {name}"))
        installed = {canonicalize_name(package): version for package, version in python["packages"].items()}
        minor = ".".join(python["python"].split(".")[:2])
        text = requirements(
            environment, ROOT / "roles/python_env/files", python=minor, architecture=python["machine"]
        )
        wrong = []
        for package, version in re.findall(r"^([\w.-]+)(?:\[\S*\])?==([^\s;\\]+)", text, re.MULTILINE):
            # The package index has one build of torch, without a build in its version number.
            there = installed.get(canonicalize_name(package), "missing")
            if there not in (version, version.partition("+")[0]):
                wrong.append(f"{package} {there}, locked {version}")
        node.expect(not wrong, f"environment {name}: {'; '.join(wrong)}")
        node.expect(
            read_locked(text),
            f"environment {name} does not pin {environment['framework']}",
            "correct its lock file",
        )


@ROLE.check
def framework_is_the_recorded_one(node: RoleHost) -> None:
    recorded = node.fact("python_env")["environments"]
    for name, environment in read_requested(node).items():
        version = json.loads(node.output(f"environment {name}"))["version"] or "missing"
        version = version.split("+")[0]
        expected = recorded[name]["version"].split("+")[0]
        node.expect(version == expected, f"{environment['framework']} is {version}, recorded is {expected}")
