"""ansible-playbook for many tests: Ansible is imported once, and each play runs in a fork of that process.

The importing, and the packing of modules for their hosts, takes longer than the tasks of most tests. Started
with ANSIBLE_CONFIG; each line of its input is one play, for which it prints the exit status.
"""

import sys
import time
from pathlib import Path
from types import SimpleNamespace

from ansible import constants
from ansible.cli import playbook
from ansible.executor import task_executor
from ansible.plugins import loader
from ansible.plugins.connection import local

from hvlab.ansible.module_utils import hvlab_managed
from tests.unit import modules
from tests.unit.forks import become, serve, warm

# What each play would import for itself.
USED = (
    *("ansible.executor.process.worker", "ansible.modules", "ansible.playbook.role_include"),
    *(f"ansible.plugins.action.{name}" for name in ("command", "copy", "normal", "set_fact", "template")),
    *("ansible.plugins.inventory.toml", "ansible.plugins.strategy.linear"),
    *("hvlab.doctor.reading", "multiprocessing.shared_memory", "pydantic.dataclasses"),
)


def play(argv: list[str], cwd: str, env: dict[str, str], folder: str) -> None:
    """Become ansible-playbook."""

    def run() -> None:
        sys.argv = argv
        own = Path(folder, "run")
        own.mkdir()
        (own / "ansiballz_cache").symlink_to(f"{constants.DEFAULT_LOCAL_TMP}/ansiballz_cache")
        constants.DEFAULT_LOCAL_TMP = str(own)
        playbook.main(argv)

    become(run, cwd, env, folder)


def main() -> None:
    """Play what the lines of the input say, one after the other."""
    run_module = modules.start(constants.DEFAULT_LOCAL_TMP)
    run_command = local.Connection.exec_command

    def exec_command(self, cmd, in_data=None, sudoable=True):
        return run_module(cmd, in_data) or run_command(self, cmd, in_data, sudoable)

    local.Connection.exec_command = exec_command
    # A task that is tried again, or asked whether it has ended, waits hardly at all.
    task_executor.time = SimpleNamespace(sleep=lambda seconds: time.sleep(min(seconds, 0.05)))
    constants.DEFAULT_INTERNAL_POLL_INTERVAL = 0.004
    Path(constants.DEFAULT_LOCAL_TMP, "ansiballz_cache").mkdir()
    hvlab_managed.RECORD = f"{constants.DEFAULT_LOCAL_TMP}/record.json"
    warm(*USED)
    # Each play, or each of its tasks, loads every one of these, with the YAML that documents it.
    for kind in (
        loader.action_loader,
        loader.become_loader,
        loader.callback_loader,
        loader.connection_loader,
        loader.filter_loader,
        loader.lookup_loader,
        loader.shell_loader,
        loader.test_loader,
        loader.vars_loader,
    ):
        list(kind.all(class_only=True))
    serve(play)


if __name__ == "__main__":
    main()
