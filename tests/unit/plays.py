"""Playbooks run on this machine; programs may be stand-ins in a folder that comes first on the path."""

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


def program(folder, name, text):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def play(playbook, programs, variables, *words, expect=0, path=None):
    """Return what Ansible printed, in one line; ``path`` stands in the place of the whole path."""
    settings = {"ansible_python_interpreter": sys.executable, "ansible_become": False}
    done = ansible_playbook(
        *("-i", "localhost,", "-c", "local", playbook, "-e", json.dumps(settings | variables), *words),
        env={"PATH": path or f"{programs}:{os.environ['PATH']}"},
    )
    assert done.returncode == expect, done.stdout + done.stderr
    return " ".join(done.stdout.split())


def ansible_playbook(*words, cwd=None, env=None, timeout=300):
    """Run ansible-playbook with the project's ansible.cfg, and ``env`` besides the caller's environment."""
    argv = [str(Path(sys.executable).parent / "ansible-playbook"), *map(str, words)]
    env = {**os.environ, **_SETTINGS, **(env or {})}
    server, started = _player()
    assert _read_at_import(env) == _read_at_import(started), "Ansible was imported with other settings"
    with tempfile.TemporaryDirectory() as folder:
        given = {"argv": argv, "cwd": str(cwd or Path.cwd()), "env": env, "folder": folder}
        server.stdin.write(json.dumps(given) + "\n")
        server.stdin.flush()
        if not select.select([server.stdout], [], [], timeout)[0]:
            _player.cache_clear()
            os.killpg(server.pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(argv, timeout)
        status = int(server.stdout.readline())
        printed = {name: Path(folder, name).read_text() for name in ("stdout", "stderr")}
    return subprocess.CompletedProcess(argv, status, **printed)


# As over SSH.
_SETTINGS = {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_PIPELINING": "true"}


@cache
def _player():
    """Return the process whose forks play, and its environment."""
    env = os.environ | _SETTINGS
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.unit.player"],
        cwd=ROOT,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    atexit.register(server.communicate)
    return server, env


def _read_at_import(env):
    return {name: value for name, value in env.items() if name == "HOME" or name.startswith("ANSIBLE_")}
