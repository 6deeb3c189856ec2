"""The doors of the README, typed into a shell whose programs only note what was asked of them.

Then hvlab runs what was noted, dry where it takes hosts. Where there is no dry run, its options are parsed.
"""

import json
import os
import re
import subprocess
from contextlib import contextmanager

import pytest

from hvlab.cli import cli, run
from hvlab.remote import here
from hvlab_horovod import launch
from tests.contract import tree
from tests.unit import runs
from tests.unit.labs import VARIANTS, lab
from tests.unit.test_fill import TWO_TABLES
from tests.unit.test_installed import FACTS

DOORS = re.findall(r"^## (I .+)$", (tree.ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
TARGETS = re.findall(r"^([a-z-]+):.*##", (tree.ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
NOTE = """#!/bin/sh
for word in "${0##*/}" "$@"; do printf '%s\\0' "$word"; done >> "$NOTES"; echo >> "$NOTES"
"""
# What makes folders, or runs a script, does so.
MORE = {
    "git": 'for last; do :; done; mkdir -p "$last/.venv/bin"; : > "$last/.venv/bin/activate"',
    "python3": 'mkdir -p "$3/bin"; : > "$3/bin/activate"; cp "$BIN/hvlab" "$BIN/pip" "$3/bin"',
    "sbatch": 'sh "$1"',
}
VERBS_ON_HOSTS = {"find-slow", "init", "provision", "verify", "health"}


def typed(door, home):
    """Type a door in an empty home, and return what was asked of each program."""
    programs, notes = home / "bin", home / "notes"
    programs.mkdir()
    notes.touch()
    for name in ("git", "python3", "sbatch", "make", "hvlab", "hvlab-run", "pip"):
        (programs / name).write_text(NOTE + MORE.get(name, ""))
        (programs / name).chmod(0o755)
    script = tree.block("README.md", door).replace("<this repository>", "/srv/hvlab.git")
    places = {"HOME": home, "NOTES": notes, "BIN": programs, "PATH": f"{programs}:/usr/bin:/bin"}
    argv = ["bash", "-euo", "pipefail", "-c", script]
    subprocess.run(argv, cwd=home, env=places, check=True, timeout=60)
    return [line.split("\0")[:-1] for line in notes.read_text("utf-8").splitlines()]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home with what the commands before would have left there: an inventory, a run, a sheet."""
    for place in ("inventory/lab", "mylab"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).symlink_to(tree.ROOT / "inventory/lab")
    runs.store(tmp_path / "results", runs.lab7(repeats=2))
    (tmp_path / "my-sheet.md").write_text(TWO_TABLES)
    (tmp_path / "facts.json").write_text(json.dumps({"n1": FACTS}))
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("HVLAB_", "ANSIBLE_"))]:
        monkeypatch.delenv(name)

    @contextmanager
    def hosts(python, **_):
        assert python
        gpu = tuple(f"n{number}" for number in range(1, 5))
        yield lab(4, slots=8, gpu=gpu, horovod_variants=VARIANTS, hvlab_step=["srun"], lab_slurm=True)

    monkeypatch.setattr(here, "lab", hosts)
    return tmp_path


def works(words, home):
    """Run a command line of hvlab as far as it goes without hosts."""
    verb, *rest = words
    if verb in VERBS_ON_HOSTS:
        cli.get_command(None, verb).make_context(verb, list(rest))
        return True
    if verb == "bench":
        job = ["--hosts", "4", "--slots", "8"] if "--here" in words else []
        return run([*words, *job, "--dry-run"]) == 0
    if verb == "plan":
        at = rest.index("-i")
        return run([verb, "--facts", str(home / "facts.json"), *rest[:at], *rest[at + 2 :]]) == 0
    return run(words) == 0


@pytest.mark.parametrize("door", DOORS)
def test_every_command_of_a_door_works(door, home, capsys):
    calls = typed(door, home)
    asked = {program: [words for name, *words in calls if name == program] for program, *_ in calls}
    assert asked.get("hvlab") or asked.get("hvlab-run")
    assert all(launch.ranks(launch.parse(words), "192.0.2.1", 7) for words in asked.get("hvlab-run", []))
    for words in asked.get("hvlab", []):
        where = [word.replace("~", str(home)) for word in words]
        assert works(where, home), (words, capsys.readouterr())
    assert {target for targets in asked.get("make", []) for target in targets} <= {*TARGETS}
    packages = {words[-1] for words in asked.get("pip", [])}
    assert packages <= {".", ".[hosts]", "./hvlab_horovod"}
    fills = [words[words.index("--fill") + 1] for words in asked.get("hvlab", []) if "--fill" in words]
    for sheet in fills:
        filled = (home / sheet).with_suffix(".filled.md").read_text("utf-8")
        assert "| MPI | 1 | 2 |" in filled
