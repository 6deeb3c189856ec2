"""Which hosts `hvlab verify` logs in from and to: few at once at each sshd, and all are reached."""

import json
import subprocess
import sys
from collections import Counter
from types import SimpleNamespace

import pytest

from tests.node import test_ssh_trust as checks
from tests.node.lab import PROBE, run

# The default of MaxStartups: from then on sshd drops logins that have only begun.
SSHD_TAKES = 10


def tries(number):
    """Return for each host of a lab the hosts that it logs in to."""
    names = [f"n{index}" for index in range(number)]
    tried = {}
    for index, name in enumerate(names):
        peers = {peer: f"192.0.2.{peer}" for peer in names[index + 1 :] + names[:index]}
        questions = checks.asks(SimpleNamespace(name=name, user="hvlab", peers=peers))
        logins = [
            question for question in questions.values() if question.get("run", [])[-2:] == ["id", "-un"]
        ]
        assert {question["queue"] for question in logins} == {"ssh"}
        targets = [question["run"][-3] for question in logins]
        assert [f"192.0.2.{target}" for target in targets[: len(targets) // 2]] == targets[
            len(targets) // 2 :
        ]
        tried[name] = set(targets) & set(names)
    return tried


@pytest.mark.parametrize(("number", "each"), [(2, 1), (8, 7), (9, 4), (16, 4), (1000, 10)])
def test_every_host_is_tried_by_a_few(number, each):
    tried = tries(number)
    assert {len(targets) for targets in tried.values()} == {each}
    assert set(Counter(target for targets in tried.values() for target in targets).values()) == {each}
    assert each <= SSHD_TAKES
    reached, todo = {"n0"}, ["n0"]
    while todo:
        todo += (new := tried[todo.pop()] - reached)
        reached |= new
    assert len(reached) == number


def test_commands_of_a_queue_run_one_after_another(tmp_path):
    busy = ["sh", "-c", 'mkdir "$0" && sleep 0.1 && rmdir "$0"', str(tmp_path / "busy")]
    questions = {str(number): run(busy, queue="one") for number in range(3)}
    argv = [sys.executable, "-c", PROBE, json.dumps(questions)]
    answers = json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)
    assert {name: answer["rc"] for name, answer in answers.items()} == {"0": 0, "1": 0, "2": 0}
