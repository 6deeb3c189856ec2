"""ansible-playbook for many tests: Ansible is imported once, and each play runs in a fork of that process.

The importing, and the packing of modules for their hosts, takes longer than the tasks of most tests. Started
with ANSIBLE_CONFIG; each line of its input is one play, for which it prints the exit status.
"""

import gc
import json
import os
import sys
from pathlib import Path

from ansible import constants
from ansible.cli import playbook


def play(argv: list[str], cwd: str, env: dict[str, str], folder: str) -> None:
    """Become ansible-playbook, which prints into the files stdout and stderr of the folder."""
    sys.stdin = open(os.devnull)  # noqa: SIM115, PTH123 - until the end of the process
    os.dup2(sys.stdin.fileno(), 0)
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT), descriptor)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = argv
    run = Path(folder, "run")
    run.mkdir()
    (run / "ansiballz_cache").symlink_to(f"{constants.DEFAULT_LOCAL_TMP}/ansiballz_cache")
    constants.DEFAULT_LOCAL_TMP = str(run)
    status = 1
    try:
        playbook.main(argv)
    except SystemExit as end:
        status = int(end.code or 0)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Not sys.exit, which does what the parent's end is to do: remove its folder of packed modules.
        os._exit(status)


def main() -> None:
    """Play what the lines of the input say, one after the other."""
    Path(constants.DEFAULT_LOCAL_TMP, "ansiballz_cache").mkdir()
    gc.freeze()
    for line in sys.stdin:
        given = json.loads(line)
        pid = os.fork()
        if not pid:
            play(**given)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
