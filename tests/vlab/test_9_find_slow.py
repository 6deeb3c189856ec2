"""`hvlab find-slow` on bare hosts: nothing slow, then one slow thing after another, then an interruption."""

import json
import signal
import subprocess
import time

import pytest

from tests.vlab.labs import booted

pytestmark = pytest.mark.find_slow
RATE = "50mbit"


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with booted("find_slow", tmp_path_factory) as lab:
        yield lab


@pytest.mark.parametrize(
    ("topology", "slow"),
    [
        ({}, []),
        ({"hosts": {"s2": {"up": "12mbit"}}}, [("up", "s2", None)]),
        ({"hosts": {"s4": {"down": "12mbit"}}}, [("down", "s4", None)]),
        ({"pairs": [{"from": "s3", "to": "s1", "rate": "12mbit"}]}, [("pair", "s3", "s1")]),
        ({"hosts": {"s3": {"cpu_weight": 50}}}, [("host", "s3", None)]),
    ],
    ids=["healthy", "up", "down", "pair", "host"],
)
def test_what_is_slow_is_named(lab, tmp_path, topology, slow):
    file = tmp_path / "topology.yml"
    file.write_text(json.dumps({"rate": RATE, **topology}))
    lab.hvlab("lab up", "--topology", str(file))
    done = lab.hvlab("find-slow", "--format", "json", expect=1 if slow else 0)
    found = json.loads(done.stdout)
    assert [(each["kind"], each["host"], each["to"]) for each in found["slow"]] == slow
    assert found["pair_launches"] == 6
    # 50 Mbit/s are 6.25 MB/s, headers included.
    assert 0 < found["median_bytes_per_s"] < 6.25e6


def test_hosts_that_another_run_has_are_not_disturbed(lab):
    hold = r"import socket, time; s = socket.socket(1); s.bind('\0hvlab-lock'); s.listen(); time.sleep(60)"
    pid = lab.on("s2", f'python3 -c "{hold}" >/dev/null 2>&1 & echo $!').strip()
    try:
        for words in (["find-slow"], ["health", "--burn"]):
            said = lab.hvlab(*words, expect=1).stderr
            assert "s2: it is held by" in said
            assert "wait until that has ended" in said
    finally:
        lab.on("s2", f"kill {pid}")


def running(lab):
    """Return, for each host, the pids of the program that measures."""
    return [
        lab.on(f"s{number}", "pgrep -f 'Runs on every host of a la[b]' || true") for number in range(1, 5)
    ]


def test_an_interrupted_search_ends_on_the_hosts_too(lab):
    argv = lab.argv("find-slow", "--transfer-time", "10")
    with subprocess.Popen(argv, env=lab.environment, stderr=subprocess.PIPE, text=True) as search:
        deadline = time.monotonic() + 60
        while not all(running(lab)) and time.monotonic() < deadline:
            time.sleep(0.5)
        search.send_signal(signal.SIGINT)
        search.communicate(timeout=120)
    assert search.returncode == 130
    assert running(lab) == [""] * 4
