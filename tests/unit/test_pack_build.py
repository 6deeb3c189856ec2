"""A build goes on where it was, and says what is wrong."""

import getpass
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hvlab.ansible.module_utils.hvlab_packed import read_marker, state
from hvlab.ansible.modules.hvlab_pack import save

pytestmark = pytest.mark.slow

# Ansible packs the project's module_utils with a module.
RUN = """
import runpy, sys
import ansible.module_utils
_, utils, module = sys.argv
ansible.module_utils.__path__.append(utils)
sys.argv = [module]
runpy.run_path(module, run_name="__main__")
"""
MODULE = Path(__file__).parents[2] / "hvlab/ansible/modules/hvlab_build.py"
ARGV = [sys.executable, "-c", RUN, str(MODULE.parents[1] / "module_utils"), str(MODULE)]


def build(path: Path, *stages: tuple[str, ...], **more: Any) -> dict[str, Any]:
    """Run the module as a host would."""
    described = [{"name": name, "argv": list(argv)} for name, *argv in stages]
    arguments = {"ANSIBLE_MODULE_ARGS": {"path": str(path), "stages": described, **more}}
    done = subprocess.run(
        ARGV,
        input=json.dumps(arguments),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def test_finished_stages_are_not_repeated(tmp_path: Path) -> None:
    one, two = ("one", "tee", "-a", "out"), ("two", "test", "-e", "ready")
    assert "ended with status 1" in build(tmp_path, one, two)["msg"]
    (tmp_path / "ready").touch()
    assert build(tmp_path, one, two)["ran"] == ["two"]
    again = build(tmp_path, one, two)
    assert (again["ran"], again["changed"]) == ([], False)
    assert build(tmp_path, one, two, _ansible_check_mode=True)["changed"] is False
    assert build(tmp_path, (*one, "other"), two)["ran"] == ["one", "two"]
    assert build(tmp_path, (*one, "other"), two, env={"A": "b"})["ran"] == ["one", "two"]


def test_stages_whose_result_is_gone_are_repeated(tmp_path: Path) -> None:
    """As where somebody removed a folder whose build was killed before its pack was saved."""
    work, result = tmp_path / "work", str(tmp_path / "tool")
    stages = (
        ("compile", "true"),
        ("clear", "rm", "-rf", result),
        ("install", "mkdir", result),
        ("warm", "true"),
    )
    assert build(work, *stages, result=result)["ran"] == ["compile", "clear", "install", "warm"]
    assert build(work, *stages, result=result)["ran"] == []
    shutil.rmtree(result)
    assert build(work, *stages, result=result)["ran"] == ["clear", "install", "warm"]
    assert Path(result).is_dir()


def test_a_result_of_another_build_is_made_again(tmp_path: Path) -> None:
    """Two keys share a path: without its mark, the content of one would be saved as the pack of the other."""
    result = tmp_path / "tool"
    unpack, clear = ("unpack", "tee", "source"), ("clear", "rm", "-rf", str(result))
    make, fill = ("make", "mkdir", "-p", f"{result}/bin"), ("fill", "cp", "name", f"{result}/bin")
    stages = (unpack, clear, make, fill)
    for key in "AB":
        (tmp_path / key).mkdir()
        (tmp_path / key / "name").write_text(key)
        names = [name for name, *_ in stages]
        assert build(tmp_path / key, *stages, result=str(result))["ran"] == names
    assert build(tmp_path / "A", *stages, result=str(result))["ran"] == ["clear", "make", "fill"]
    assert (result / "bin/name").read_text() == "A"
    assert build(tmp_path / "A", *stages, result=str(result))["ran"] == []
    save(str(result), {"key": "A"}, getpass.getuser(), str(tmp_path / "saved/pack.tar.gz"))
    assert read_marker(str(result)) == {"key": "A", "files": 1, "bytes": 1}
    held = state(str(result))
    assert (held["key"], held["whole"], held["wrong"]) == ("A", True, [])


def test_what_follows_a_repeated_stage_is_repeated(tmp_path: Path) -> None:
    """The change was undone after its first stage had failed: what that left is not the first build's."""
    good, bad = ("make", "cp", "first", "out"), ("make", "cp", "second", "out", "--bad-option")
    last = ("install", "cp", "out", "installed")
    tmp_path.joinpath("first").write_text("first")
    assert build(tmp_path, good, last)["ran"] == ["make", "install"]
    assert "stage make ended with" in build(tmp_path, bad, last)["msg"]
    assert build(tmp_path, good, last)["ran"] == ["make", "install"]
    tmp_path.joinpath("done-make").unlink()
    assert build(tmp_path, good, last, _ansible_check_mode=True)["ran"] == ["make", "install"]


def test_check_mode_only_tells(tmp_path: Path) -> None:
    result = build(tmp_path / "new", ("one", "true"), _ansible_check_mode=True)
    assert result["changed"]
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("cc1: error: write error: No space left on device", "free space on the file system of"),
        ("g++: fatal error: Killed signal terminated program cc1plus", "fewer jobs"),
        ("configure: error: no acceptable C compiler found", "Correct that, then run again"),
    ],
)
def test_a_failure_shows_log_and_remedy(tmp_path: Path, line: str, remedy: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"print({line!r}); raise SystemExit(2)")
    message = build(tmp_path / "work", ("compile", sys.executable, str(script)))["msg"]
    assert "stage compile ended with status 2" in message
    assert line in message
    assert f"Log: {tmp_path}/work/log" in message
    assert remedy in message


def test_a_second_build_waits_for_the_first(tmp_path: Path) -> None:
    arguments = {"path": str(tmp_path), "stages": [{"name": "slow", "argv": ["sleep", "1"]}]}
    text = json.dumps({"ANSIBLE_MODULE_ARGS": arguments})
    runs = [
        subprocess.Popen(ARGV, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    for run in runs:
        run.stdin.write(text)
        run.stdin.close()
    ran = []
    for run in runs:
        with run:
            ran.append(json.loads(run.stdout.read())["ran"])
    assert sorted(ran) == [[], ["slow"]]


def test_an_error_far_from_the_end_is_shown(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "print('first.c:1: fatal error: zlib.h: No such file or directory')\n"
        "for line in range(50): print('CC', line)\n"
        "raise SystemExit(2)"
    )
    message = build(tmp_path / "work", ("compile", sys.executable, str(script)))["msg"]
    lines = [line.strip() for line in message.splitlines()]
    assert lines[1:3] == ["first.c:1: fatal error: zlib.h: No such file or directory", "CC 38"]
    assert "CC 37" not in message
