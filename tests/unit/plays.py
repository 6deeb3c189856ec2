"""A playbook run on this machine, whose programs are stand-ins in a folder that comes first on the path."""

import json
import os
import subprocess
import sys
from pathlib import Path

from hvlab.paths import project_dir


def program(folder, name, text):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def play(playbook, programs, variables, *words, expect=0, path=None):
    """Return what Ansible printed, in one line; ``path`` stands in the place of the whole path."""
    root = project_dir()
    settings = {"ansible_python_interpreter": sys.executable, "ansible_become": False}
    argv = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "localhost,", "-c", "local"]
    done = subprocess.run(
        [*argv, str(playbook), "-e", json.dumps(settings | variables), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=os.environ
        | {
            "ANSIBLE_CONFIG": str(root / "ansible.cfg"),
            "ANSIBLE_ROLES_PATH": str(root / "roles"),
            "PATH": path or f"{programs}:{os.environ['PATH']}",
        },
    )
    assert done.returncode == expect, done.stdout + done.stderr
    return " ".join(done.stdout.split())
