"""Runs the checks of roles (``hvlab/checks``) against the hosts of an inventory.

``pytest tests/node`` takes every host of $ANSIBLE_INVENTORY or inventory/lab; ``--hosts=n1,n2`` and
``--hosts=ansible://all --ansible-inventory=PATH`` choose.
"""

from __future__ import annotations

import getpass
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import testinfra
from testinfra.utils.ansible_runner import AnsibleRunner

from hvlab.base import process
from hvlab.checks import round_trips
from hvlab.checks.provisioned import ROOT, RoleHost, UnreachableHostError, WrongNodeError, is_local
from hvlab.checks.registry import after_roles
from hvlab.lab.inventory_reader import Inventory

INVENTORY = pytest.StashKey[Inventory]()
CONNECTION = [
    *("ansible_host", "ansible_port", "ansible_user", "ansible_connection"),
    *("ansible_become", "ansible_become_user", "ansible_private_key_file", "ansible_ssh_private_key_file"),
    *("ansible_ssh_common_args", "ansible_ssh_extra_args"),
]
Asked = tuple[dict[str, RoleHost], dict[tuple[str, str], Exception]]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--hvlab-report", help="File that gets one line of JSON per finished check.")
    parser.addoption("--hvlab-deep", action="store_true", help="Read every file of the packs.")


def pytest_configure(config: pytest.Config) -> None:
    """Turn --hosts, an Ansible pattern with or without ``ansible://``, into hosts of the inventory."""
    # With its logins ends what they ask on the hosts.
    signal.signal(signal.SIGTERM, lambda *_: process.kill(os.getpid()))
    option = config.option
    option.ansible_inventory = (
        option.ansible_inventory or os.environ.get("ANSIBLE_INVENTORY") or str(ROOT / "inventory" / "lab")
    )
    if not Path(option.ansible_inventory).exists():
        raise pytest.UsageError(f"there is no inventory {option.ansible_inventory}")
    pattern = (option.hosts or "all").replace("ansible://", "")
    if "://" in pattern:
        raise pytest.UsageError(f"--hosts={option.hosts}: give hosts of the inventory, as in --hosts=n1,n2")
    inventory = config.stash[INVENTORY] = Inventory(option.ansible_inventory)
    names = inventory.names(pattern)
    if not names:
        raise pytest.UsageError(f"no host of {option.ansible_inventory} matches {pattern}")
    # Testinfra would take templates for plain values.
    AnsibleRunner.get_runner(option.ansible_inventory).inventory = {
        "_meta": {"hostvars": {name: connection(inventory, name) for name in inventory.names()}},
        "all": {"hosts": inventory.names()},
    }
    option.hosts = ",".join(f"ansible://{name}" for name in names)


def connection(inventory: Inventory, name: str) -> dict[str, Any]:
    """Return how a host is reached. As Ansible does, root uses no sudo."""
    variables = inventory.variables(name)
    given = {key: variables[key] for key in CONNECTION if key in variables}
    user = given.get("ansible_user", getpass.getuser() if is_local(given) else None)
    return {"ansible_become": user != "root", **given}


@pytest.fixture(scope="session")
def asked(request: pytest.FixtureRequest) -> Asked:
    """Every chosen host, with its answers to the questions of the chosen checks."""
    option = request.config.option
    hosts = testinfra.get_hosts(option.hosts.split(","), ansible_inventory=option.ansible_inventory)
    chosen = dict.fromkeys(item.callspec.params["check"].role for item in request.session.items)  # type: ignore[attr-defined]
    reached = [(host.backend.get_hostname(), host) for host in hosts]
    return round_trips.nodes(reached, request.config.stash[INVENTORY], list(chosen), deep=option.hvlab_deep)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    checks = after_roles()
    metafunc.parametrize("check", checks, ids=[f"{check.role.name}-{check.name}" for check in checks])


def _outcome(report: pytest.TestReport, error: BaseException | None) -> str:
    if isinstance(error, UnreachableHostError):
        return "unreachable"
    return "error" if report.failed and not isinstance(error, AssertionError) else report.outcome


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Write the outcome of a check to the file of --hvlab-report."""
    report = yield
    path = item.config.getoption("--hvlab-report", None)
    if not path or not (report.when == "call" or report.outcome != "passed"):
        return report
    error = call.excinfo.value if call.excinfo else None
    wrong = isinstance(error, WrongNodeError)
    parameters = item.callspec.params  # type: ignore[attr-defined]
    line = {
        "host": parameters["_testinfra_host"].backend.get_hostname(),
        "role": parameters["check"].role.name,
        "check": parameters["check"].name,
        "outcome": _outcome(report, error),
        "observed": error.observed if wrong else str(error or dict(item.user_properties).get("observed", "")),
        "remedy": error.remedy if wrong else "",
    }
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    return report
