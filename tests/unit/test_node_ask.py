"""What verify makes of a host that does not answer as it should."""

import json
from types import SimpleNamespace

import pytest

from hvlab.checks import round_trips as lab
from hvlab.checks.provisioned import RoleHost, run


def node(stdout: str) -> RoleHost:
    host = SimpleNamespace(run=lambda *_: SimpleNamespace(rc=0, stdout=stdout, stderr=""))
    return RoleHost("n1", host, {})


def test_a_question_that_is_left_out_is_answered_for_good():
    asked = lab.ask(node(json.dumps({"facts": {}})), {"clock": run(["date"])})
    assert asked["clock"] == lab.UNANSWERED
    assert not asked.silence


def test_what_bashrc_prints_stands_before_the_answers():
    asked = lab.ask(node(f"welcome\n{json.dumps({'facts': {}})}\n"), {})
    assert not asked.silence


@pytest.mark.parametrize("stdout", ["[]", "[1]", '"text"', "3"])
def test_what_are_no_answers_is_silence(stdout):
    asked = lab.ask(node(stdout), {"clock": run(["date"])})
    assert "in place of its answers" in asked.silence
    assert asked.answers == {}
