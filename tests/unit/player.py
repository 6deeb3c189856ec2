"""ansible-playbook for many tests: Ansible is imported once, and each play runs in a fork of that process.

The importing, and the packing of modules for their hosts, takes longer than the tasks of most tests. Started
with ANSIBLE_CONFIG; each line of its input is one play, for which it prints the exit status.
"""

import sys
from pathlib import Path

from ansible import constants
from ansible.cli import playbook

from tests.unit.forks import become, serve


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
    Path(constants.DEFAULT_LOCAL_TMP, "ansiballz_cache").mkdir()
    serve(play)


if __name__ == "__main__":
    main()
