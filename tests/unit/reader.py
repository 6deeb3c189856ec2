"""ansible-inventory for many tests: Ansible is imported once, and forks of that process read inventories.

Each line of its input is one inventory, for which it prints the exit status. An inventory that is read with
other settings of Ansible, or has programs, gets a process of its own.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from hvlab.base import process
from hvlab.lab import inventory
from tests.unit.forks import become, serve, warm

ORIGINAL = process.run
SECONDS = inventory._SECONDS


class Served:
    """Stands for hvlab.base.process in hvlab.lab.inventory."""

    bound = staticmethod(process.bound)
    TimeLimitError = process.TimeLimitError

    @staticmethod
    def begin(argv, *, env):
        return argv, env

    @staticmethod
    def abandon(_begun):
        pass

    @staticmethod
    def finish(begun, *, seconds):
        argv, env = begun
        server, settings = _server()
        usual = process.run is ORIGINAL and seconds == SECONDS and _settings(env) == settings
        source = Path(argv[argv.index("-i") + 1])
        files = [source, *(source.rglob("*") if source.is_dir() else ())]
        if not usual or any(path.is_file() and os.access(path, os.X_OK) for path in files):
            return process.run(argv, seconds=seconds, env=env)
        with tempfile.TemporaryDirectory() as folder:
            given = {"argv": argv[argv.index("-i") :], "cwd": str(Path.cwd()), "env": env, "folder": folder}
            server.stdin.write(json.dumps(given) + "\n")
            server.stdin.flush()
            assert select.select([server.stdout], [], [], seconds)[0], "the inventory is not read in time"
            status = int(server.stdout.readline())
            out, err = ((Path(folder) / name).read_text(errors="replace") for name in ("stdout", "stderr"))
        return subprocess.CompletedProcess(argv, status, out, err)


def _settings(env):
    """Return what Ansible reads as it is imported."""
    return {key: value for key, value in env.items() if key in ("HOME", "PATH") or key.startswith("ANSIBLE_")}


@cache
def _server():
    """Return the process whose forks read, and its settings: those of most inventories."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "HVLAB_"))}
    env |= {
        "ANSIBLE_CONFIG": str(inventory.project_dir() / "ansible.cfg"),
        "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "1",
        "ANSIBLE_DUPLICATE_YAML_DICT_KEY": "error",
        "ANSIBLE_NOCOLOR": "1",
        "PYTHONPATH": str(inventory.project_dir()),
    }
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.unit.reader"],
        cwd=inventory.project_dir(),
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    atexit.register(server.communicate)
    return server, _settings(env)


def read(argv, cwd, env, folder):
    """Become hvlab.lab.inventory_reader."""
    from hvlab.lab.inventory_reader import InventoryReader  # noqa: PLC0415 - imported before the fork

    def run():
        sys.argv = ["ansible-inventory", *argv]
        InventoryReader.cli_executor(sys.argv)

    become(run, cwd, env, folder)


def main():
    warm(
        "hvlab.lab.inventory_reader", "ansible.plugins.inventory.toml", "ansible.plugins.vars.host_group_vars"
    )
    serve(read)


if __name__ == "__main__":
    main()
