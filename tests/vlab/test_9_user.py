"""A student's commands as a plain user with sudo: they work, and leave nothing in the home to root."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hvlab.base.paths import cache_dir
from tests.contract import tree
from tests.unit.test_fill import TWO_TABLES

pytestmark = pytest.mark.user

NAME = "hvlab-tester"
SUDOERS = Path("/etc/sudoers.d/hvlab-tester")
# Where packages come from, on a machine that is told so in its environment.
INHERITED = re.compile(r"PIP_.*|.*_proxy|.*_PROXY|.*CERT.*|.*CA_BUNDLE")
AS_ROOT = 'sudo -E env PATH="$PATH" HOME="$HOME" '
BUILT = ("packs", "sources", "wheels", "datasets")


class User:
    """Someone who has sudo, and a clone of this project in an otherwise empty home."""

    def __init__(self, home):
        self.home = home
        self.clone = home / "hvlab"
        self.environment = {name: value for name, value in os.environ.items() if INHERITED.fullmatch(name)}
        self.environment |= {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "USER": NAME}
        self.environment |= {"LANG": "C.UTF-8"}

    def run(self, script, expect=0):
        """Run lines of bash in the clone, the first failure ending them."""
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        argv = [
            "runuser",
            "-u",
            NAME,
            "--",
            "env",
            "-i",
            *variables,
            "bash",
            "-euo",
            "pipefail",
            "-c",
            script,
        ]
        done = subprocess.run(
            argv,
            cwd=self.clone,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=3000,
        )
        assert done.returncode == expect, (
            f"{script}\nended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        )
        return done.stdout

    def roots(self):
        """Return what belongs to root in the home."""
        argv = ["find", str(self.home), "-user", "root"]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()


def remove():
    # ssh keeps its connections open for a while.
    subprocess.run(["pkill", "-KILL", "--uid", NAME], check=False, capture_output=True)
    subprocess.run(["userdel", "--force", "--remove", NAME], check=False, capture_output=True)
    SUDOERS.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def user():
    assert shutil.which("sudo"), "sudo is missing; `make test-all` installs it"
    remove()
    subprocess.run(["useradd", "--create-home", "--user-group", "--shell", "/bin/bash", NAME], check=True)
    try:
        SUDOERS.write_text(f"{NAME} ALL=(ALL) NOPASSWD: ALL\n")
        SUDOERS.chmod(0o440)
        home = Path(f"~{NAME}").expanduser()
        user = User(home)
        for path in tree.files():
            target = user.clone / path.relative_to(tree.ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target, follow_symlinks=False)
        # A lab of its own, on a network of its own.
        for path in (user.clone / "inventory/lab").rglob("*.yml"):
            text = path.read_text().replace("198.18.0.", "198.18.247.")
            path.write_text(re.sub(r"^lab_name: lab$", "lab_name: vuser", text, flags=re.MULTILINE))
        subprocess.run(["chown", "-R", f"{NAME}:", home], check=True)
        yield user
        lab = [sys.executable, "-m", "hvlab", "lab", "down", "-i", str(user.clone / "inventory/lab")]
        subprocess.run(lab, cwd=tree.ROOT, check=True, capture_output=True)
    finally:
        remove()


@pytest.fixture(params=["warm", pytest.param("cold", marks=pytest.mark.cold)])
def cache(request, user, tmp_path):
    """What the user built before, or nothing."""
    cache = user.home / ".cache/hvlab"
    shutil.rmtree(cache, ignore_errors=True)
    if request.param == "cold":
        user.environment["HVLAB_IMAGES"] = str(tmp_path)
        return
    cache.mkdir(parents=True)
    for part in BUILT:
        if (cache_dir() / part).is_dir():
            shutil.copytree(cache_dir() / part, cache / part)
    subprocess.run(["chown", "-R", f"{NAME}:", user.home / ".cache"], check=True)


def test_a_lab_of_sudo_leaves_nothing_to_root(user):
    # This Python, which has what hvlab needs, on the user's clone.
    python = f"{AS_ROOT} PYTHONPATH=$PWD {{}} {sys.executable} -m hvlab lab"
    for seconds in (0.7, 2, 4):
        user.run(f"{python.format(f'timeout --signal=KILL {seconds}')} up || true")
        assert user.roots() == []
    user.run(f"{python.format('')} up")
    user.run(f"{python.format('')} down")
    assert user.roots() == []


@pytest.mark.usefixtures("cache")
def test_the_door_of_a_student_and_every_step_on_a_laptop(user):
    clone, demo, *rest = tree.block("README.md", "I have a lab sheet").splitlines()
    assert (clone[:9], demo.split("#")[0].strip()) == ("git clone", "make demo")
    assert user.run("make demo").splitlines()[-1].startswith("next: ")
    assert user.roots() == []
    user.run(f"cat > my-sheet.md <<'END'\n{TWO_TABLES}END")
    # One repeat in place of five; another lab may be up on this machine.
    shorter = {"--suite lab7": "--suite lab7 --repeats 1", "make down": "make down LABS=inventory/lab"}
    for written, typed in shorter.items():
        assert written in "\n".join(rest)
        rest = [line.replace(written, typed) for line in rest]
    user.run("\n".join(rest))
    assert "| MPI | 1 | 1 |" in (user.clone / "my-sheet.filled.md").read_text()
    steps = tree.block("docs/this-laptop.md")
    assert steps.count("hvlab lab ") == 3
    user.run(". .venv/bin/activate\n" + steps.replace("hvlab lab ", f"{AS_ROOT} hvlab lab "))
    user.run("make clean")
    assert user.roots() == []
