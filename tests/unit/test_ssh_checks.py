"""What `hvlab verify` asks each host of a large lab: few logins at once at each sshd, and all are reached."""

import json
import subprocess
import sys
from collections import Counter
from types import SimpleNamespace

import pytest

from hvlab.checks import openmpi
from hvlab.checks import ssh as checks
from hvlab.checks.names import RESOLVE
from hvlab.checks.names import asks as asks_names
from hvlab.checks.provisioned import run
from hvlab.checks.round_trips import PROBE

# The default of MaxStartups: from then on sshd drops logins that have only begun.
SSHD_TAKES = 10


def asking(name, peers, groups=()):
    return SimpleNamespace(name=name, user="hvlab", peers=peers, variables={"group_names": groups})


def tries(number, groups=()):
    """Return for each host of a lab the hosts that it logs in to."""
    names = [f"n{index}" for index in range(number)]
    tried = {}
    for index, name in enumerate(names):
        peers = {peer: f"192.0.2.{peer}" for peer in names[index + 1 :] + names[:index]}
        questions = checks.asks(asking(name, peers, groups))
        logins = [
            question for question in questions.values() if question.get("run", [])[-2:] == ["id", "-un"]
        ]
        assert {question["queue"] for question in logins} == {"ssh"}
        targets = [question["run"][-3] for question in logins]
        # The last login is by the address of the first of them, the next host of the ring.
        assert targets.pop() == f"192.0.2.{targets[0]}" == f"192.0.2.{names[(index + 1) % number]}"
        assert set(targets) <= set(names)
        tried[name] = set(targets)
    return tried


@pytest.mark.parametrize(
    ("number", "each", "groups"),
    [
        (2, 1, ()),
        (8, 7, ()),
        (9, 4, ()),
        (16, 4, ()),
        (1000, 10, ()),
        (8, 7, ["virtual"]),
        (32, 1, ["virtual"]),
    ],
)
def test_every_host_is_tried_by_a_few(number, each, groups):
    tried = tries(number, groups)
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


def test_questions_of_a_thousand_hosts_fit_into_an_argument():
    """Linux takes 128 KiB; the program that answers and the questions of the other checks come on top."""
    peers = {f"h{number:04}": f"198.18.{number // 250}.{number % 250}" for number in range(1000)}
    node = asking("h", peers)
    questions = asks_names(node) | checks.asks(node)
    assert len(json.dumps(questions)) < 2**14


def test_names_are_resolved_in_one_question():
    argv = [sys.executable, "-c", RESOLVE, "localhost", "no-such-host.invalid"]
    resolved = json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)
    assert resolved == {"localhost": ["127.0.0.1"], "no-such-host.invalid": []}


def test_only_what_is_looked_at_of_ompi_info_is_sent(tmp_path):
    program = tmp_path / "ompi_info"
    lines = [
        "mca:mpi:base:param:mpi_built_with_cuda_support:value:true",
        "mca:mpi:base:param:mpi_param_check:value:true",
        'mca:pml:ucx:version:"mca:2.1.0"',
    ]
    program.write_text("#!/bin/sh\ncat <<'END'\n" + "\n".join(lines) + "\nEND\n")
    program.chmod(0o755)
    argv = ["sh", "-c", openmpi.COMPONENTS, "sh", str(program)]
    out = subprocess.run(argv, capture_output=True, check=True, text=True).stdout
    assert out.splitlines() == [lines[0], lines[2]]
