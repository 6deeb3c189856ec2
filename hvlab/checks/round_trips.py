"""Asks all hosts the questions of the roles' checks, in parallel and in few round trips."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from hvlab.checks.node import probe
from hvlab.checks.provisioned import (
    FACTS,
    TIMED_OUT,
    Question,
    Role,
    RoleHost,
    WrongNodeError,
    is_logged_in,
    is_virtual,
    read,
)
from hvlab.lab.inventory_reader import Inventory

PROBE = Path(probe.__file__).read_text(encoding="utf-8")
AT_ONCE = 32
UNANSWERED = {"rc": 255, "out": "", "err": "the host did not answer this question"}
_NOT_PROVISIONED = ("no versions are recorded on it", "run `hvlab provision` first")


def nodes(
    hosts: Iterable[tuple[str, Any]], inventory: Inventory, roles: Sequence[Role], *, deep: bool
) -> tuple[dict[str, RoleHost], dict[tuple[str, str], Exception]]:
    """Return the hosts with their answers, and why a role's questions could not be put to one of them.

    ``hosts`` are names, each with what testinfra reaches it by.
    """
    addresses = {name: str(inventory.variables(name).get("ansible_host", name)) for name in inventory.names()}
    names = list(addresses)
    contacts: list[tuple[RoleHost, dict[str, Question]]] = []
    for name, host in hosts:
        place = names.index(name)
        peers = {peer: addresses[peer] for peer in names[place + 1 :] + names[:place]}
        contacts.append((RoleHost(name, host, inventory.variables(name), peers, deep=deep), {}))
    # Virtual hosts share the cores of this machine and slow one another down.
    virtual = any(is_virtual(node) for node, _ in contacts)
    cores = os.cpu_count() or 1
    broken: dict[tuple[str, str], Exception] = {}
    pairs, silent, at_once = [], {}, 2 * cores if virtual else AT_ONCE
    for answered in ask_all(contacts, at_once=at_once).values():
        if answered.silence:
            silent[answered.name] = answered
            continue
        node = replace(answered, variables=inventory.variables(answered.name, answered.stack))
        questions: dict[str, Question] = {}
        for role in roles:
            try:
                questions.update(role.asks(node))
            except Exception as error:  # only that role's checks are to fail
                reason = error if node.stack else WrongNodeError(node.name, *_NOT_PROVISIONED)
                broken[node.name, role.name] = reason
        pairs.append((node, questions))
    every = with_mute(silent | ask_all(pairs, at_once=at_once))
    while further := list(_further(every, roles, broken)):
        # Further questions start ranks.
        every |= ask_all(further, at_once=cores if virtual else AT_ONCE)
    return every, broken


def _further(
    every: Mapping[str, RoleHost], roles: Sequence[Role], broken: Mapping[tuple[str, str], Exception]
) -> Iterator[tuple[RoleHost, dict[str, Question]]]:
    for node in every.values():
        questions: dict[str, Question] = {}
        for role in roles if not node.silence else ():
            if role.asks_after and (node.name, role.name) not in broken:
                questions.update(role.asks_after(node, every))
        if questions:
            yield node, questions


def ask(node: RoleHost, questions: dict[str, Question]) -> RoleHost:
    """Ask one host everything, in one round trip, and return it with these and its earlier answers."""
    questions = {"facts": read(f"{FACTS}/*.fact"), **questions}
    python = node.variables.get("ansible_python_interpreter", "/usr/bin/python3")
    try:
        completed = node.host.run("%s -c %s %s", python, PROBE, json.dumps(questions))
        # Output of ~/.bashrc may precede it.
        line = completed.stdout.strip().rpartition("\n")[2] if completed.rc == 0 else "{}"
        answers, silence = json.loads(line), completed.stderr.strip()
    except (RuntimeError, ValueError) as error:
        result = error.args[0] if error.args else error
        answers, silence = {}, str(getattr(result, "stderr", result)).strip()
    if not isinstance(answers, dict):
        answers, silence = {}, f"it sent a {type(answers).__name__} in place of its answers"
    silence = "" if answers else silence or "no answer"
    # An unanswered question is not repeated.
    answers = {**{name: UNANSWERED for name in questions if answers}, **answers}
    return replace(node, answers={**node.answers, **answers}, silence=silence)


def with_mute(nodes: Mapping[str, RoleHost]) -> dict[str, RoleHost]:
    """Mark each host on which another's login ended well, or timed out, without running its command."""
    mute = {
        question.removeprefix("ssh ")
        for node in nodes.values()
        for question, answer in node.answers.items()
        if question.startswith("ssh ")
        and answer.get("rc") in (0, TIMED_OUT)
        and not is_logged_in(answer, node.user)
    }
    return {name: replace(node, mute=name in mute) for name, node in nodes.items()}


def ask_all(
    nodes: Iterable[tuple[RoleHost, dict[str, Question]]], *, at_once: int = AT_ONCE
) -> dict[str, RoleHost]:
    """Ask every host its own questions, at most ``at_once`` hosts at a time."""
    pairs = list(nodes)
    with ThreadPoolExecutor(max_workers=at_once) as pool:
        return {node.name: node for node in pool.map(lambda pair: ask(*pair), pairs)}
