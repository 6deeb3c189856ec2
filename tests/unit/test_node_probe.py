"""The program that answers the questions of `verify` and `health` on a node."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hvlab.checks.node import probe


def test_a_file_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    """As /sys/class/net/*/speed of an interface that is down: EINVAL."""
    (tmp_path / "eth0").write_text("10000\n")
    (tmp_path / "eth1").mkdir()
    assert probe.answers({"speed": {"read": f"{tmp_path}/*"}}) == {"speed": {f"{tmp_path}/eth0": "10000\n"}}


def test_a_command_whose_output_never_ends_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "GRACE_S", 0.2)
    began = time.monotonic()
    answer = probe.run({"run": ["sh", "-c", "sleep 20 &"], "timeout": 0.3})
    assert answer["rc"] == 124
    assert "did not finish within" in answer["err"]
    assert time.monotonic() - began < 15


@pytest.mark.parametrize("channel", ["pipe", "socket"])
def test_it_ends_with_what_it_runs_once_nobody_reads_the_answers(channel: str, tmp_path: Path) -> None:
    """As after Ctrl-C in `hvlab verify`: sshd, whose channel is a pipe or a socket, closes it."""
    if channel == "pipe":
        reader, writer = os.pipe()
    else:
        reader, writer = (end.detach() for end in socket.socketpair())
    began = tmp_path / "began"
    script = f"echo $$ > {began}.new; mv {began}.new {began}; exec sleep 60"
    question = json.dumps({"long": {"run": ["sh", "-c", script], "timeout": 60}})
    with subprocess.Popen(
        [sys.executable, probe.__file__, question], stdout=writer, stderr=subprocess.DEVNULL
    ) as program:
        os.close(writer)
        wait_until(began.exists)
        assert program.poll() is None
        os.close(reader)
        assert program.wait(20) == 1
        wait_until(lambda: not Path("/proc", began.read_text().strip()).exists())


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_program_that_is_not_there() -> None:
    assert probe.run({"run": ["hvlab-has-no-such-program"]})["rc"] == 127


def test_a_file_that_hangs_keeps_none_of_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a pipe does that nobody writes to."""
    monkeypatch.setattr(probe, "READ_S", 0.2)
    (tmp_path / "file").write_text("text")
    os.mkfifo(tmp_path / "pipe")
    questions = {
        "hangs": {"read": f"{tmp_path}/pipe"},
        "file": {"read": f"{tmp_path}/file"},
        "command": {"run": ["echo", "it"]},
    }
    answers = probe.answers(questions)
    os.close(os.open(tmp_path / "pipe", os.O_RDWR | os.O_NONBLOCK))
    assert answers["hangs"] == {}
    assert answers["file"] == {f"{tmp_path}/file": "text"}
    assert answers["command"]["out"] == "it\n"


def test_a_file_that_goes_while_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe.glob, "glob", lambda _: ["/proc/no-such-process"])
    assert probe.stat("/proc/*") == {}


def test_python_is_the_one_that_runs_the_probe() -> None:
    asked = {"run": ["python3", "-c", "import sys; print(sys.executable)"]}
    assert probe.run(asked)["out"].strip() == sys.executable


def test_programs_of_wsl_are_on_the_path() -> None:
    assert "/usr/lib/wsl/lib" in probe.run({"run": ["printenv", "PATH"]})["out"].strip().split(":")
