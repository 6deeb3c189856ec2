"""Runs the checks of this folder against the hosts of an inventory.

``pytest tests/node`` takes every host of $ANSIBLE_INVENTORY or inventory/lab; ``--hosts=n1,n2`` and
``--hosts=ansible://all --ansible-inventory=PATH`` choose. A module of checks may define ``asks(node)``:
questions by name (see lab.py). All of them are put to a host in one round trip before its first check.
It may define ``asks_after(node, nodes)``, too: what to ask once all hosts have answered, again and again.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import testinfra

from tests.node import lab
from tests.node.lab import Inventory, Node, UnreachableHostError, WrongNodeError

INVENTORY = pytest.StashKey[Inventory]()
BROKEN = pytest.StashKey[dict[tuple[str, str], Exception]]()


NOT_PROVISIONED = ("no versions are recorded on it", "run `hvlab provision` first")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--hvlab-report", help="File that gets one line of JSON per finished check.")
    parser.addoption("--hvlab-deep", action="store_true", help="Read every file of the packs.")


def pytest_configure(config: pytest.Config) -> None:
    """Turn --hosts, an Ansible pattern with or without ``ansible://``, into hosts of the inventory."""
    option = config.option
    option.ansible_inventory = (
        option.ansible_inventory or os.environ.get("ANSIBLE_INVENTORY") or str(lab.ROOT / "inventory" / "lab")
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
    inventory.hand_to_testinfra()
    config.stash[BROKEN] = {}
    option.hosts = ",".join(f"ansible://{name}" for name in names)


@pytest.fixture(scope="session")
def nodes(request: pytest.FixtureRequest) -> dict[str, Node]:
    """Every chosen host, with its answers to the questions of the chosen checks."""
    inventory = request.config.stash[INVENTORY]
    addresses = {name: str(inventory.variables(name).get("ansible_host", name)) for name in inventory.names()}
    names = list(addresses)
    modules = {item.module: None for item in request.session.items if hasattr(item.module, "asks")}
    hosts = testinfra.get_hosts(
        request.config.option.hosts.split(","), ansible_inventory=request.config.option.ansible_inventory
    )
    contacts, deep = [], request.config.getoption("--hvlab-deep")
    for host in hosts:
        name = host.backend.get_hostname()
        place = names.index(name)
        peers = {peer: addresses[peer] for peer in names[place + 1 :] + names[:place]}
        contacts.append((Node(name, host, inventory.variables(name), peers, deep=deep), {}))
    # Virtual hosts share the cores of this machine: what many of them do at once takes each of them longer.
    virtual = any(lab.is_virtual(node) for node, _ in contacts)
    cores = os.cpu_count() or 1
    pairs, silent, at_once = [], {}, 2 * cores if virtual else lab.AT_ONCE
    for answered in lab.ask_all(contacts, at_once=at_once).values():
        if answered.silence:
            silent[answered.name] = answered
            continue
        node = replace(answered, variables=inventory.variables(answered.name, answered.stack))
        questions: dict[str, lab.Question] = {}
        for module in modules:
            try:
                questions.update(module.asks(node))
            except Exception as error:  # only that module's checks are to fail
                broken = error if node.stack else WrongNodeError(node.name, *NOT_PROVISIONED)
                request.config.stash[BROKEN][node.name, module.__name__] = broken
        pairs.append((node, questions))
    answered = lab.with_mute(silent | lab.ask_all(pairs, at_once=at_once))
    later = [module for module in modules if hasattr(module, "asks_after")]
    while more := _further(request.config, answered, later):
        # Further questions start ranks.
        answered |= lab.ask_all(more, at_once=cores if virtual else lab.AT_ONCE)
    return answered


def _further(
    config: pytest.Config, nodes: dict[str, Node], modules: list[Any]
) -> list[tuple[Node, dict[str, lab.Question]]]:
    """What is still to be asked, now that all hosts have answered what they were asked before."""
    further = []
    for node in nodes.values():
        questions: dict[str, lab.Question] = {}
        for module in modules if not node.silence else ():
            if (node.name, module.__name__) not in config.stash[BROKEN]:
                questions.update(module.asks_after(node, nodes))
        further += [(node, questions)] if questions else []
    return further


@pytest.fixture
def node(host: testinfra.host.Host, nodes: dict[str, Node], request: pytest.FixtureRequest) -> Node:
    """The host of this check. Skips when it did not answer, which `test_host.py` reports once."""
    chosen = nodes[host.backend.get_hostname()]
    if chosen.silence and request.module.__name__ != "tests.node.test_host":
        pytest.skip(f"{chosen.name} did not answer")
    broken = request.config.stash[BROKEN].get((chosen.name, request.module.__name__))
    if broken:
        raise broken
    return chosen


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
    host = item.callspec.params["_testinfra_host"].backend.get_hostname()  # type: ignore[attr-defined]
    function = (
        item.name.removeprefix("test_").replace(f"ansible://{host}", "").replace("[-", "[").replace("[]", "")
    )
    properties = dict(item.user_properties)
    line = {
        "host": host,
        "role": item.module.__name__.rpartition("test_")[2],  # type: ignore[attr-defined]
        "check": function.replace("_", " "),
        "outcome": _outcome(report, error),
        "observed": error.observed
        if isinstance(error, WrongNodeError)
        else str(error or properties.get("observed", "")),
        "remedy": error.remedy if isinstance(error, WrongNodeError) else "",
    }
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    return report
