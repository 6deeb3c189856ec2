"""`hvlab find-slow`: the program that measures, three times on this machine, and the command."""

from __future__ import annotations

import json
import math
import random
import socket
import subprocess
import sys

import pytest

from hvlab.cli import run
from hvlab.errors import CheckError, UnreachableError
from hvlab.remote.playbook import HostFailure
from hvlab.slow import hosts
from hvlab.slow.hosts import HostProbe
from hvlab.slow.programs import transfers
from hvlab.slow.steps import ProbeStep
from tests.unit.labs import lab
from tests.unit.test_slow import HOST, PAIR, Links

STEPS = [ProbeStep(1), ProbeStep(), ProbeStep(transfers=((2, 0),))]


def launched(places, **changes):
    """Return what each host of three prints, of those that are started."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    plan = {
        "mark": "m",
        "names": ["n1", "n2", "n3"],
        "meet": ["127.0.0.1", port],
        "interface": "lo",
        "transfer_s": 0.1,
        "compute_s": 0.1,
        "meet_s": 20,
        "limit_s": 40,
        "steps": [step.content() for step in STEPS],
        **changes,
    }
    argv = [sys.executable, transfers.__file__, json.dumps(plan)]
    started = [
        subprocess.Popen([*argv, str(place)], stdout=subprocess.PIPE, text=True) for place in reversed(places)
    ]
    printed = [process.communicate(timeout=60)[0] for process in started][::-1]
    return [json.loads(text) if text else None for text in printed]


def test_three_hosts_measure_one_another():
    first, *others = launched([0, 1, 2])
    assert others == [None, None]
    shift, computed, single = first["steps"]
    assert all(rate > 1e6 for rate in shift)
    assert all(blocks > 0 and 0 < share < 1.5 for blocks, share in computed)
    assert single[0] > 1e6
    assert single[1:] == [None, None]


def test_a_host_that_does_not_come_is_named():
    first, second = launched([0, 1], meet_s=0.5)
    assert first == {"missing": ["n3"]}
    assert "error" in second


def answering(monkeypatch, answer, failures=()):
    given = []

    def collect(lab, playbook, variables, *, at_once):
        given.append((playbook, at_once))
        return ({"n1": json.dumps(answer)} if answer else {}, list(failures))

    monkeypatch.setattr(hosts, "collect", collect)
    return given


def test_readings_are_of_receivers(monkeypatch):
    answer = {"steps": [[3.0, 1.0, 2.0], [[9.0, 0.5]] * 3, [5.0, None, None]]}
    given = answering(monkeypatch, answer)
    probe = HostProbe(lab(3))
    assert probe(STEPS) == [
        {(0, 1): 1.0, (1, 2): 2.0, (2, 0): 3.0},
        {(0, 0): 9.0, (1, 1): 9.0, (2, 2): 9.0},
        {(2, 0): 5.0},
    ]
    assert given == [("find-slow.yml", 3)]
    assert probe.shares == {0: [0.5], 1: [0.5], 2: [0.5]}


@pytest.mark.parametrize(
    ("answer", "failures", "error", "text"),
    [
        ({"missing": ["n3"]}, [], UnreachableError, "n3 cannot reach n1 at 10.0.0.1"),
        ({"lost": "n2"}, [], UnreachableError, "n2 was lost"),
        (None, [HostFailure("n2", "timed out", True)], UnreachableError, "n2: timed out"),
        (None, [HostFailure("n2", "no python", False)], CheckError, "n2: no python"),
    ],
)
def test_what_goes_wrong_is_told_with_the_host(monkeypatch, answer, failures, error, text):
    answering(monkeypatch, answer, failures)
    with pytest.raises(error, match=text):
        HostProbe(lab(3))(STEPS)


@pytest.fixture
def command(monkeypatch):
    """Return a function that runs the command on a lab of so many hosts, with something slow."""

    def call(count, slow, *words):
        def measure(lab, **options):
            links = Links(count, slow)
            links.shares = {}
            return links

        monkeypatch.setattr("hvlab.cli.find_slow.inventories.load", lambda path, limit: lab(count))
        monkeypatch.setattr("hvlab.cli.find_slow.probe.probe", lambda hosts: None)
        monkeypatch.setattr("hvlab.cli.find_slow.HostProbe", measure)
        return run(["find-slow", *words])

    random.seed(1)
    return call


def test_nothing_slow(command, capsys):
    assert command(4, {}, "--ratio", "1.5") == 0
    out = capsys.readouterr().out
    assert "4 hosts, 12 links in 1 launch (6 rounds)" in out
    assert "takes: 6" in out
    assert "nothing is slow" in out


def test_something_slow(command, capsys):
    assert command(4, {HOST: 3.0}, "--matrix") == 1
    shown = capsys.readouterr()
    assert "n2 computes slowly" in shown.err
    assert "what to do: compare the clock" in shown.out
    row = next(line.split() for line in shown.out.splitlines() if line.startswith("n2 "))
    assert float(row[-1]) == pytest.approx(3, rel=0.2)


def test_a_link_that_carries_nothing_in_the_matrix(command, capsys):
    assert command(4, {PAIR: math.inf}, "--matrix") == 1
    row = next(line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("n1 "))
    assert row[1:5] == ["·", *row[2:4], "none"]


def test_no_data_flows(command, capsys):
    assert command(3, {("down", (place, place)): math.inf for place in range(3)}) == 1
    shown = capsys.readouterr()
    assert "most links carry nothing" in shown.err
    assert "nothing is slow" not in shown.out


def test_as_json(command, capsys):
    assert command(4, {HOST: 3.0}, "--format", "json") == 1
    content = json.loads(capsys.readouterr().out)
    assert [(row["kind"], row["host"]) for row in content["slow"]] == [("host", "n2")]
    assert content["alpha"] == 0.01


def test_too_few_hosts(command, capsys):
    assert command(2, {}) == 2
    assert "2 are too few" in capsys.readouterr().err
