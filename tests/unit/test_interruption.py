"""Signals to a command: it ends once, in order, and says so where somebody is impatient."""

import os
import pty
import signal
import subprocess
import sys
import time

import pytest

from hvlab.cli import provision

# Stands for a command: begins, then ends what it started as long as its input is open.
COMMAND = """
import sys, time
from hvlab import cli
try:
    with cli.handled_signals():
        try:
            print("begun", flush=True)
            time.sleep(30)
        finally:
            print("ending", flush=True)
            sys.stdin.read()
            open(sys.argv[1], "w").write("ended")
except KeyboardInterrupt:
    sys.exit(130)
"""


# These tests may run under nohup.
LISTENING = f"import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)\n{COMMAND}"


def start(path, **streams):
    argv, pipe = [sys.executable, "-c", LISTENING, str(path)], subprocess.PIPE
    return subprocess.Popen(argv, text=True, stdin=pipe, **streams)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("again", [False, True])
def test_it_ends_what_it_started_however_impatient_one_is(tmp_path, number, again):
    with start(tmp_path / "mark", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == "begun\n"
        process.send_signal(number)
        assert process.stdout.readline() == "ending\n"
        if again:
            process.send_signal(signal.SIGINT)
            assert process.stderr.readline() == "\n"
            assert "already ending what it started" in process.stderr.readline()
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert (tmp_path / "mark").read_text() == "ended"
    assert "already ending" not in errors


def test_it_ends_in_order_when_its_terminal_is_closed(tmp_path):
    """Writing to a terminal that is gone fails; that must not cut the ending short."""
    controller, terminal = pty.openpty()
    with start(tmp_path / "mark", stdout=terminal, stderr=terminal, start_new_session=True) as process:
        os.close(terminal)
        # With its end: until then, it may still be writing.
        printed = b""
        while not printed.endswith(b"begun\r\n"):
            printed += os.read(controller, 100)
        os.close(controller)
        process.send_signal(signal.SIGHUP)
        process.stdin.close()
        assert process.wait(20) == 130
    assert (tmp_path / "mark").read_text() == "ended"


def test_under_nohup_it_goes_on(tmp_path):
    program = f"import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n{COMMAND}"
    argv = [sys.executable, "-c", program, str(tmp_path / "mark")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        assert process.poll() is None
        process.terminate()
        assert process.wait(20) == 130


def test_ansible_ends_with_hvlab(monkeypatch):
    """A signal to hvlab alone does not reach Ansible, as Ctrl-C does."""
    monkeypatch.setattr(provision, "_ENDS_S", 0.2)
    real, processes = subprocess.Popen, []

    class Interrupted(real):
        def wait(self, timeout=None):
            processes.append(self)
            if len(processes) == 1:
                raise KeyboardInterrupt
            return super().wait(timeout)

    monkeypatch.setattr(provision.subprocess, "Popen", Interrupted)
    assert provision._call(["sleep", "30"]) == 130
    assert processes[0].returncode == -signal.SIGTERM
