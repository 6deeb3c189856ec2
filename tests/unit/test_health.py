"""`hvlab health`: the verdict, its exit code and its formats, and a run on this machine."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from click.testing import CliRunner

from hvlab.base.errors import Problem
from hvlab.checks import ask, judge
from hvlab.checks.ask import Answered
from hvlab.checks.judge import HealthCheck
from hvlab.checks.node.finding import hard, passed, skipped, soft
from hvlab.cli import cli
from hvlab.lab.inventory import load
from tests.unit.labs import lab

pytestmark = pytest.mark.slow

HERE = {"ansible_host": "192.0.2.1", "ansible_connection": "local", "ansible_become": False}
INVENTORY = {
    "all": {
        "hosts": {"here": {**HERE, "ansible_python_interpreter": sys.executable}},
        "vars": {"lab_network": "192.0.2.0/24", "lab_interface": "lo0", "lab_name": "health"},
    }
}


def subject(*findings):
    return SimpleNamespace(
        QUESTIONS={}, LEARNED=(), readings=lambda answers: {}, findings=lambda values, expected: [*findings]
    )


def outcome(host: str, outcome: str, severity: str = "") -> HealthCheck:
    return HealthCheck(
        host=host, check="cpu count", outcome=outcome, severity=severity, observed="observed", remedy="do"
    )


def test_a_host_that_is_gone_is_known_at_once_and_not_asked(monkeypatch):
    def collect(there, *_, **__):
        assert [host.name for host in there.hosts] == ["n2"]
        return {"n2": "{}"}, []

    gone = Problem("n1", "10.0.0.1:22 does not answer within 8 s", "look at its power")
    monkeypatch.setattr(ask, "problems", lambda hosts: [gone])
    monkeypatch.setattr(ask, "collect", collect)
    answered = ask.ask_hosts(lab(2), {})
    assert (answered.silent, list(answered.readings)) == ({"n1": gone.observed}, ["n2"])
    assert ask.ask_hosts(lab(1), {}).silent == answered.silent


@pytest.mark.parametrize(
    ("checks", "code"),
    [
        ([outcome("n1", "passed"), outcome("n1", "skipped")], 0),
        ([outcome("n1", "failed", "soft")], 0),
        ([outcome("n1", "failed", "soft"), outcome("n2", "failed", "hard")], 1),
        ([outcome("n1", "error")], 1),
        ([outcome("n1", "failed", "hard"), outcome("n2", "unreachable")], 3),
    ],
)
def test_the_exit_code(checks, code):
    error = judge.verdict(checks)
    assert (error.exit_code if error else 0) == code


def test_the_verdict_names_the_hosts():
    checks = [outcome("n2", "failed", "hard"), outcome("n1", "failed", "hard"), outcome("n3", "unreachable")]
    assert str(judge.verdict(checks)) == "1 of 3 hosts cannot be used: n3; unfit for work: n1, n2"


def test_a_silent_host_keeps_none_of_the_others():
    three = lab(3)
    answered = Answered({"n1": {}}, {"n3": "timed out"}, {"n2": "sudo: a password is required"}, (0, 1))
    findings = (passed("a"), soft("b", "slow", "do"), hard("c", "lost", "do"), skipped("d", "none"))
    checks = judge.judge(three, answered, [subject(*findings)], None)
    assert [(check.host, check.check, check.severity or check.outcome) for check in checks] == [
        ("n1", "a", "passed"),
        ("n1", "b", "soft"),
        ("n1", "c", "hard"),
        ("n1", "d", "skipped"),
        ("n2", "host answers", "error"),
        ("n3", "host answers", "unreachable"),
    ]
    assert [check.unfit for check in checks] == [False, False, True, False, True, True]
    report = judge.as_junit(checks, "t")
    assert 'tests="6"' in report
    assert 'failures="3"' in report
    assert "what to do: do" in report


def test_what_the_inventory_says_is_expected():
    observed = []
    one = SimpleNamespace(
        QUESTIONS={}, LEARNED=(), readings=None, findings=lambda _, given: observed.append(given) or []
    )
    answered = Answered({"n1": {}, "n2": {}}, {}, {}, (5.0, 6.0))
    types = [{"name": "big", "own": True, "match": {}, "expect": {"cpu_count": 8}}]
    judge.judge(lab(2, lab_machine_type="big"), answered, [one], types)
    assert observed[0] == {
        "network_interfaces": ["eth0"],
        "controller_clock": (5.0, 6.0),
        "cpu_count": 8,
        "machine_type": "big",
    }


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab/hosts.yml").write_text(yaml.safe_dump(INVENTORY))
    return tmp_path / "lab"


def test_a_run_on_this_machine(inventory, tmp_path):
    """Its inventory names an interface that it does not have."""
    (inventory / "health").mkdir()
    (inventory / "health/own.yml").write_text("match: {product: nothing-like-it}\nexpect: {cpu_count: 3}\n")
    words = ["health", "-i", str(inventory), "--format", "json", "--junit", str(tmp_path / "junit.xml")]
    done = CliRunner().invoke(cli, words, standalone_mode=False)
    assert getattr(done.exception, "exit_code", None) == 1, done.output
    checks = {row["check"]: row for row in json.loads(done.stdout)}
    assert checks["network link lo0"]["severity"] == "hard"
    assert "there is no interface lo0" in checks["network link lo0"]["observed"]
    assert checks["cpu count"]["outcome"] in ("passed", "failed")
    assert "<testsuite " in (tmp_path / "junit.xml").read_text()


def test_an_unknown_type_is_refused_before_any_host_is_asked(tmp_path, monkeypatch):
    monkeypatch.setattr("hvlab.lab.inventory.load", lambda *_, **__: lab(2, lab_machine_type="bigg"))
    monkeypatch.setattr("hvlab.cli.health.ask", lambda *_: pytest.fail("a host was asked"))
    done = CliRunner().invoke(cli, ["health", "-i", str(tmp_path)], standalone_mode=False)
    assert done.exception.exit_code == 2
    assert "unknown machine type 'bigg'" in str(done.exception)


def link(up: bool) -> dict[str, object]:
    """Return the readings of a host without GPUs."""
    interfaces = {"lo0": {"link": up, "card": False}}
    return {"cpu_count": 8, "interfaces": interfaces, "gpu_driver_error": "nvidia-smi is not installed"}


@pytest.mark.parametrize(
    ("readings", "words", "code", "written"),
    [
        (link(True), "here", 0, ["here.yml"]),
        # An unfit host teaches nothing.
        (link(False), "here", 1, []),
        (None, "here", 3, []),
        ({}, "there", 2, []),
    ],
)
def test_learning_from_a_host(tmp_path, monkeypatch, *, readings, words, code, written):
    one = lab(1)
    here = replace(one, hosts=(replace(one.hosts[0], name="here", vars={"lab_interface": "lo0"}),))
    answered = Answered({} if readings is None else {"here": readings}, {}, {}, (0, 1))
    monkeypatch.setattr("hvlab.lab.inventory.load", lambda *_, **__: here)
    monkeypatch.setattr("hvlab.cli.health.ask", lambda *_: answered)
    done = CliRunner().invoke(cli, ["health", "-i", str(tmp_path), "--learn", words], standalone_mode=False)
    assert getattr(done.exception, "exit_code", 0) == code, done.output
    assert [path.name for path in tmp_path.glob("health/*")] == written


def test_an_interpreter_that_ansible_looks_for_is_no_program(inventory, monkeypatch):
    # Without pyenv's stand-ins, which Ansible takes for interpreters.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin")
    hosts = json.loads(json.dumps(INVENTORY))
    hosts["all"]["hosts"]["here"]["ansible_python_interpreter"] = "auto_silent"
    (inventory / "hosts.yml").write_text(yaml.safe_dump(hosts))
    one = SimpleNamespace(
        QUESTIONS={"one": {"run": ["echo", "here"]}}, readings=lambda answers: {"one": answers["one"]["out"]}
    )
    answered = ask.ask(load(inventory), [one])
    assert answered.readings == {"here": {"one": "here\n"}}, answered


def test_questions_reach_the_host_as_they_are(inventory):
    """Braces are no templates of Ansible's; and the answers come back as they were."""
    odd = "{{ 1 + 1 }} {% raw %} {# x #} 'a' \"b\" \\n ü"
    one = SimpleNamespace(
        QUESTIONS={"odd words": {"run": ["printf", "%s", odd]}, "odd none": {"run": ["no-such-program"]}},
        readings=lambda answers: {name: answer["out"] or answer["rc"] for name, answer in answers.items()},
    )
    answered = ask.ask(load(inventory), [one])
    assert answered.readings == {"here": {"odd words": odd, "odd none": 127}}, answered
    assert answered.asked[0] < answered.asked[1]
