"""What a killed process leaves: its folder goes with the next call, what it started goes with it."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hvlab.base import process
from hvlab.base.temporary import temporary_folder
from hvlab.remote.playbook import _end_workers

HOLDER = """
import time
from hvlab.base.temporary import temporary_folder
with temporary_folder() as folder:
    (folder / "secret").write_text("x")
    print(folder, flush=True)
    time.sleep(60)
"""


def test_it_is_private_and_gone_afterwards():
    with temporary_folder() as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()


def test_a_file_system_without_locks_has_one_too(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    signal.alarm(5)
    with temporary_folder() as folder, temporary_folder() as other:
        assert sorted(tmp_path.iterdir()) == sorted([folder, other])
    signal.alarm(0)
    assert not any(tmp_path.iterdir())


def test_a_killed_process_leaves_it_until_the_next_call():
    with subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True) as holder:
        folder = Path(holder.stdout.readline().strip())
        with temporary_folder():
            assert folder.exists()
        holder.kill()
    assert folder.exists()
    with temporary_folder():
        assert not folder.exists()


def test_what_looks_like_one_is_left_alone(monkeypatch, tmp_path):
    """A link, a file, and the folder of another user."""
    monkeypatch.setattr("hvlab.base.temporary.tempfile.tempdir", str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "hvlab-tmp-link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "hvlab-tmp-file").write_text("x")
    with temporary_folder():
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "elsewhere",
        "hvlab-tmp-file",
        "hvlab-tmp-link",
    ]


STARTER = """
import subprocess, sys, time
from hvlab.base import process
child = subprocess.Popen(process.bound([sys.executable, "-c", "import time; time.sleep(60)"]))
print(child.pid, flush=True)
time.sleep(60)
"""


def test_what_is_bound_ends_with_who_started_it():
    with subprocess.Popen([sys.executable, "-c", STARTER], stdout=subprocess.PIPE, text=True) as starter:
        pid = int(starter.stdout.readline())
        os.kill(pid, 0)
        time.sleep(0.3)  # setpriv has asked for it
        starter.send_signal(signal.SIGKILL)
    assert _ends(pid)


def test_reading_an_inventory_ends_with_the_command_that_reads_it(tmp_path):
    script, reader = tmp_path / "slow", tmp_path / "reader"
    script.write_text(f"#!/bin/sh\necho $PPID > {reader}.part && mv {reader}.part {reader}\nexec sleep 60\n")
    script.chmod(0o755)
    argv = [sys.executable, "-m", "hvlab", "plan", "-i", str(script)]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as command:
        deadline = time.monotonic() + 60
        while not reader.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        pid = int(reader.read_text())
        command.kill()
    assert _ends(pid)


def _ends(pid):
    """Return whether a process ends within ten seconds."""
    deadline = time.monotonic() + 10
    while _runs(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not _runs(pid)


def _runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_bound_without_setpriv(monkeypatch):
    monkeypatch.setattr(process.shutil, "which", lambda name: None)
    assert process.bound(["a", "b"]) == ["a", "b"]


def test_workers_of_an_ansible_that_was_killed_end_and_connections_stay(tmp_path):
    env = os.environ | {"ANSIBLE_LOCAL_TEMP": str(tmp_path)}
    words = [sys.executable, "-c", "import time; time.sleep(60)"]
    with (
        subprocess.Popen([*words, "ansible-playbook"], env=env) as worker,
        subprocess.Popen([*words, "ssh"], env=env) as connection,
        subprocess.Popen([*words, "ansible-playbook"]) as other,
    ):
        time.sleep(0.3)
        _end_workers(tmp_path)
        assert worker.wait(10) == -signal.SIGKILL
        assert (connection.poll(), other.poll()) == (None, None)
        connection.kill()
        other.kill()
