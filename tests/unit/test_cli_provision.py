"""``hvlab provision``: what Ansible is called with, and what its status means."""

import sys
from pathlib import Path

import pytest

from hvlab.cli import provision, run
from hvlab.errors import UnreachableError

LAB = Path(__file__).parents[2] / "inventory/lab"


@pytest.fixture
def calls(monkeypatch):
    """Replace the probe and Ansible; return what would have been called."""
    made: list[list[str]] = []
    monkeypatch.setattr(provision.probe, "probe", lambda hosts: None)
    monkeypatch.setattr(provision, "_call", lambda argv: made.append(argv) or 0)
    return made


def test_options_are_handed_on(calls):
    assert run(["provision", "-i", str(LAB), "-l", "n1", "-t", "openmpi", "-C", "-D"]) == 0
    program = str(Path(sys.executable).parent / "ansible-playbook")
    options = ["--limit", "n1", "--tags", "openmpi", "--check", "--diff"]
    assert calls == [[program, "site.yml", "-i", str(LAB), *options]]


@pytest.mark.parametrize(
    ("status", "code"), [(0, 0), (1, 1), (2, 1), (4, 3), (5, 2), (99, 130), (130, 130), (-2, 130), (250, 1)]
)
def test_exit_codes(calls, monkeypatch, status, code):
    monkeypatch.setattr(provision, "_call", lambda argv: status)
    assert run(["provision", "-i", str(LAB)]) == code


def test_a_host_that_does_not_answer(calls, monkeypatch, capsys):
    def fail(hosts):
        raise UnreachableError("n2: no answer")

    monkeypatch.setattr(provision.probe, "probe", fail)
    assert run(["provision", "-i", str(LAB)]) == 3
    assert "n2: no answer" in capsys.readouterr().err
    assert calls == []


def test_a_wrong_inventory(calls, tmp_path):
    assert run(["provision", "-i", str(tmp_path / "none")]) == 2
    assert calls == []
