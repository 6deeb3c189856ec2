"""What doctor adds at the end of a playbook that failed."""

import json
import sys
from pathlib import Path

import pytest

from tests.unit.plays import ansible_playbook

PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - name: Fail
      {task}
"""
FULL = "cc1: error: write error: No space left on device"
FAIL = "ansible.builtin.fail: {msg: '" + FULL + "'}"


@pytest.fixture
def play(tmp_path: Path):
    """Return a function that plays a task on two hosts, and returns what was printed after the recap."""

    def played(task: str) -> str:
        (tmp_path / "site.yml").write_text(PLAY.format(task=task))
        own = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        done = ansible_playbook("site.yml", "-i", "n1,n2,", "-e", json.dumps(own), cwd=tmp_path)
        return done.stdout.partition("PLAY RECAP")[2]

    return played


@pytest.mark.slow
@pytest.mark.parametrize(
    "task",
    [
        FAIL,
        "ansible.builtin.command: {argv: [sh, -c, 'echo \"" + FULL + "\" >&2; exit 1']}",
        "ansible.builtin.fail: {msg: '{{ item }}'}\n      loop: ['" + FULL + "', other]",
    ],
    ids=["msg", "stderr", "loop"],
)
def test_a_failure_ends_with_its_cause_and_remedy(play, task: str) -> None:
    printed = play(task)
    assert "n1, n2: " in printed
    assert f"observed: {FULL}" in printed
    assert "what to do: " in printed


@pytest.mark.parametrize(
    "task",
    [
        FAIL + "\n      ignore_errors: true",
        "block: [{" + FAIL + "}]\n      rescue: [{ansible.builtin.debug: {msg: mended}}]",
        "ansible.builtin.fail: {msg: '" + FULL + ". What to do: free space there'}",
        "ansible.builtin.fail: {msg: 'nothing that anybody knows'}",
    ],
    ids=["ignored", "rescued", "says it itself", "unknown"],
)
def test_it_is_silent_otherwise(play, task: str) -> None:
    assert "what to do: " not in play(task)
