"""Put questions to every host of a lab, in one round trip each."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from hvlab.base import answers
from hvlab.base.answers import AnswerError
from hvlab.checks.node import probe, subjects
from hvlab.lab.inventory import Lab
from hvlab.remote import direct
from hvlab.remote.gather import collect
from hvlab.remote.playbook import HostFailure, explain
from hvlab.remote.probe import problems

# Time limit of a question, see probe; then extra time for the round trip.
_QUESTION_S = 20
_ROUND_TRIP_S = 60
# Each subject picks out the answers to its own questions.
_Answers = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Answered:
    """The hosts' answers: ``readings`` by host; ``silent`` and ``broken`` hosts with the reason.

    ``asked`` is the controller's clock before and after, in seconds since the epoch.
    """

    readings: Mapping[str, Mapping[str, Any]]
    silent: Mapping[str, str]
    broken: Mapping[str, str]
    asked: tuple[float, float]


def ask(lab: Lab, chosen: Sequence[ModuleType], *, python: str = "", busy: bool = False) -> Answered:
    """Ask all hosts about the subjects at the same time, and read their answers.

    ``python`` asks hosts without an inventory, by default the first that is new enough. ``busy``: the
    questions load the hosts of an inventory, which no other run may have. Raises CheckError if one has, or if
    Ansible itself fails.
    """
    taken = {"hvlab_takes_hosts": True} if busy else {}
    answered = ask_hosts(lab, subjects.questions(chosen), further=taken, python=python)
    readings = {host: subjects.readings(chosen, each) for host, each in answered.readings.items()}
    return replace(answered, readings=readings)


def ask_hosts(
    lab: Lab,
    questions: Mapping[str, Mapping[str, Any]],
    *,
    at_once: int = 0,
    further: Mapping[str, Any] | None = None,
    python: str = "",
) -> Answered:
    """Put questions to all hosts; ``readings`` are the probe's answers, by question.

    A silent host does not hold up the others; at least ``at_once`` are asked at the same time. ``further``
    are variables of ask.yml. Raises CheckError as ``ask``.
    """
    seconds = _ROUND_TRIP_S + _longest(questions)
    if lab.listed:
        return _ask_directly(lab, questions, python, seconds)
    variables = {
        "hvlab_probe": probe.__file__,
        "hvlab_questions": base64.b64encode(json.dumps(questions).encode()).decode(),
        "hvlab_seconds": seconds,
        **(further or {}),
    }
    began = time.time()
    # Ansible would wait long for a dead host, or mistake an old connection for an answer.
    silent = {problem.host: problem.observed for problem in problems(lab.hosts)}
    there = replace(lab, hosts=tuple(host for host in lab.hosts if host.name not in silent))
    gathered, failures = (
        collect(there, "ask.yml", variables, at_once=at_once, shape=str) if there.hosts else ({}, [])
    )
    if held := [each for each in failures if each.held]:
        raise explain(held, len(there.hosts), "nothing was measured", remedy="")
    return _sort_answers(gathered, failures, silent, began)


def _ask_directly(
    lab: Lab, questions: Mapping[str, Mapping[str, Any]], python: str, seconds: int
) -> Answered:
    """Put questions without an inventory: each host answers as the user who asks."""
    own = json.dumps({name: {**question, "user": None} for name, question in questions.items()})
    silent = direct.silent_hosts(lab)
    began = time.time()
    gathered, failures = direct.run(
        replace(lab, hosts=tuple(host for host in lab.hosts if host.name not in silent)),
        Path(probe.__file__).read_text("utf-8"),
        arguments=lambda host: [own.replace("@HOST@", host)],
        python=python,
        seconds=seconds,
    )
    return _sort_answers(gathered, failures, silent, began)


def _sort_answers(
    gathered: Mapping[str, str], failures: Sequence[HostFailure], silent: Mapping[str, str], began: float
) -> Answered:
    asked = (began, time.time())
    silent = {**silent, **{each.host: each.message.strip() for each in failures if each.unreachable}}
    broken = {each.host: each.message.strip() for each in failures if not each.unreachable}
    readings = {}
    for host, answer in gathered.items():
        try:
            readings[host] = answers.load(answer, host, _Answers)
        except AnswerError as error:
            broken[host] = f"its answer cannot be read: {error.observed}"
    return Answered(readings, silent, broken, asked)


def _longest(questions: Mapping[str, Mapping[str, Any]]) -> int:
    """Return the time limit in seconds for questions, some of which run one after another."""
    alone = sum(each.get("timeout", _QUESTION_S) for each in questions.values() if each.get("alone"))
    beside = [each.get("timeout", _QUESTION_S) for each in questions.values() if not each.get("alone")]
    # Eight run at a time, so the worst case is the sum of the slowest of each eight.
    return int(alone + sum(sorted(beside, reverse=True)[:: probe.AT_ONCE]))
