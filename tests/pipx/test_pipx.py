"""hvlab as pipx installs it: for a plain user whose home and working folder are empty."""

import json
import os
import pwd
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from tests.contract.tree import ROOT
from tests.unit.test_installed import FACTS

pytestmark = pytest.mark.pipx

INVENTORY = """\
all:
  hosts:
    here: {ansible_connection: local, ansible_become: false, ansible_python_interpreter: /usr/bin/python3}
  vars: {lab_name: here, lab_network: 127.0.0.0/8, lab_interface: lo, ansible_remote_tmp: HOME/tmp}
"""


class User:
    """Runs command lines as a plain user: as nobody if the tests run as root."""

    def __init__(self, home: Path) -> None:
        self.home, self.folder = home, home / "work"
        self.folder.mkdir()
        self.rights = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self.rights = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            for path in (home, self.folder):
                os.chown(path, nobody.pw_uid, nobody.pw_gid)

    def run(self, words: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
        own = {"HOME": str(self.home), "PATH": f"{self.home}/.local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
        # Where pip and uv of this machine get their packages.
        own |= {
            name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_CERT_"))
        }
        return subprocess.run(
            words, cwd=self.folder, env=own, capture_output=True, text=True, check=False, timeout=900,
            **self.rights,
        )  # fmt: skip

    def __call__(self, *words: str | Path, expect: int = 0) -> str:
        done = self.run(words)
        said = f"{done.stdout}\n{done.stderr}"
        assert done.returncode == expect, f"{words}:\n{said}"
        return said

    def python(self) -> Path:
        """Return a Python for hvlab that this user may run, which root's own need not be."""
        places = [
            Path(sys.executable).resolve(),
            *Path("/usr/local/bin").glob("python3"),
            Path("/usr/bin/python3"),
        ]
        code = "import ensurepip, sys; sys.exit(sys.version_info < (3, 11))"
        for python in places:
            with suppress(OSError):
                if not self.run([python, "-c", code]).returncode:
                    return python
        pytest.fail(
            f"none of {', '.join(map(str, places))} is a Python 3.11 with venv that a plain user may run"
        )


@pytest.fixture(scope="module")
def user():
    [*_, wheel] = sorted((ROOT / "dist").glob("hvlab-*.whl"), key=lambda path: path.stat().st_mtime)
    home = Path(tempfile.mkdtemp(prefix="hvlab-pipx-"))
    try:
        user = User(home)
        user(user.python(), "-m", "venv", home / "tools")
        user(home / "tools/bin/pip", "install", "--quiet", "pipx", "uv")
        user.wheel = home / wheel.name
        shutil.copy(wheel, user.wheel)
        # Where pipx finds uv beside itself, it makes environments with it, which have no pip.
        user(home / "tools/bin/pipx", "install", "--backend", "pip", f"{user.wheel}[hosts]")
        yield user
    finally:
        shutil.rmtree(home)


def test_uv_installs_the_base_and_what_it_is_told_brings_an_extra(user):
    uv = user.home / "tools/bin/uv"
    # Beside pipx's, not in its place.
    own = ["env", f"UV_TOOL_BIN_DIR={user.home}/uv"]
    user(*own, uv, "tool", "install", "--quiet", "--python", user.python(), user.wheel)
    tools = Path(user(uv, "tool", "dir").strip()) / "hvlab/bin"
    (user.folder / "facts.json").write_text(json.dumps({"n1": FACTS}))
    assert "openmpi" in user(tools / "hvlab", "plan", "--facts", "facts.json")
    init = [tools / "hvlab", "init", "mylab", "127.0.0.1:1", "--accept-new-keys"]
    told = user(*init, expect=2).partition("what to do: uv ")[2].partition(";")[0]
    user(uv, *shlex.split(told))
    user(*init, expect=3)


def test_every_command_is_there(user):
    said = user("hvlab", "--help")
    assert "From bare hosts" in said
    for line in said.partition("Commands:")[2].splitlines():
        if name := line.split()[:1]:
            user("hvlab", *name, "--help")


def test_bash_completes(user):
    script = """\
eval "$(hvlab completion bash)"
COMP_WORDS=(hvlab be) COMP_CWORD=1
_hvlab_completion hvlab
echo "${COMPREPLY[@]}"
"""
    assert "bench" in user("bash", "--norc", "-c", script).split()


def test_init_says_which_host_does_not_answer(user):
    said = user("hvlab", "init", "mylab", "127.0.0.1:1", "--accept-new-keys", expect=3)
    assert "127.0.0.1" in said
    assert "Traceback" not in said


def test_a_stack_is_planned_from_facts(user):
    (user.folder / "facts.json").write_text(json.dumps({"n1": FACTS}))
    assert "openmpi" in user("hvlab", "plan", "--facts", "facts.json")


def test_a_stack_is_planned_for_this_machine(user):
    (user.folder / "hosts.yml").write_text(INVENTORY.replace("HOME", str(user.home)))
    assert "openmpi" in user("hvlab", "plan", "-i", "hosts.yml")


def test_pip_is_there_by_which_packages_are_downloaded(user):
    environments = user(user.home / "tools/bin/pipx", "environment", "--value", "PIPX_LOCAL_VENVS").strip()
    assert "pip" in user(Path(environments) / "hvlab/bin/python", "-m", "pip", "--version")
