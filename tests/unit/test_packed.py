"""Packs on a host: whole, damaged, and what may move without harm."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible.module_utils import hvlab_packed

from hvlab.checks import packs
from hvlab.checks.provisioned import RoleHost, WrongNodeError


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """An installed pack with a library, a link to it, a folder and byte code."""
    root = tmp_path / "opt/tool/1"
    (root / "lib/__pycache__").mkdir(parents=True)
    (root / "lib/lib.so").write_text("12345")
    (root / "lib/lib.so.1").symlink_to("lib.so")
    (root / "lib/__pycache__/x.pyc").write_text("code")
    (root / hvlab_packed.MARKER).write_text(json.dumps({"key": "k", "files": 2, "bytes": 5}))
    hvlab_packed.write_manifest(str(root), hvlab_packed.contents(str(root)))
    return root


def overwrite(root: Path, text: str = "54321") -> None:
    """Write to a file in place, and give it its times back, as `touch -r` does."""
    file = root / "lib/lib.so"
    before = file.stat()
    with file.open("r+") as opened:
        opened.write(text)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_pack_is_whole_until_a_file_goes(tmp_path: Path) -> None:
    root = tmp_path / "tool/1"
    root.mkdir(parents=True)
    (root / "file").write_text("12345")
    (root / hvlab_packed.MARKER).write_text(json.dumps({"key": "k", "files": 1, "bytes": 5}))
    (tmp_path / "tool/current").symlink_to("1")
    whole = {"key": "k", "whole": True, "leftovers": []}
    assert hvlab_packed.packs(str(tmp_path)) == {str(root): whole, str(tmp_path / "tool/current"): whole}
    (root / "file").unlink()
    assert [pack["whole"] for pack in hvlab_packed.packs(str(tmp_path)).values()] == [False, False]
    shutil.rmtree(root)
    assert hvlab_packed.packs(str(tmp_path)) == {}


def test_settings_that_hvlab_wrote_into_a_pack_are_no_damage(pack: Path) -> None:
    file = pack / "etc/tool.conf"
    file.parent.mkdir()
    file.write_text("# nothing is set\n")
    marker = {"key": "k", "files": 3, "bytes": 5 + file.stat().st_size}
    (pack / hvlab_packed.MARKER).write_text(json.dumps(marker))
    hvlab_packed.write_manifest(str(pack), hvlab_packed.contents(str(pack)))
    right = {"key": "k", "whole": True, "wrong": []}
    for text in ("# Written by hvlab: settings.\nsize = 4096\n", "# Written by hvlab: settings.\n"):
        file.write_text(text)
        assert hvlab_packed.state(str(pack), record=True) == right
        assert hvlab_packed.state(str(pack), deep=True) == right
    file.write_text("size = 4096\n")
    assert [path for path, _ in hvlab_packed.state(str(pack))["wrong"]] == [str(file)]
    file.write_text("# Written by hvlab: settings.\n")
    file.chmod(0o666)
    assert "has mode 0666" in hvlab_packed.state(str(pack))["wrong"][0][1]
    file.unlink()
    assert hvlab_packed.state(str(pack))["wrong"] == [[str(file), "is gone"]]


def test_the_manifest_is_roots_alone(pack: Path) -> None:
    assert pack.with_name(".1.manifest").stat().st_mode & 0o777 == 0o644
    assert hvlab_packed.state(str(pack)) == {"key": "k", "whole": True, "wrong": []}


@pytest.mark.parametrize(
    ("damage", "path", "observed"),
    [
        (overwrite, "lib/lib.so", "has another content than was installed"),
        (lambda root: (root / "lib/lib.so").unlink(), "lib/lib.so", "is gone"),
        (lambda root: (root / "lib/lib.so").chmod(0o600), "lib/lib.so", "has mode 0600, was installed with"),
        (lambda root: (root / "lib").chmod(0o700), "lib", "has mode 0700, was installed with 0755"),
        (
            lambda root: (
                (root / "lib/lib.so.1").unlink(),
                (root / "lib/lib.so.1").symlink_to("/etc/passwd"),
            ),
            "lib/lib.so.1",
            "has another content than was installed",
        ),
        (
            lambda root: ((root / "lib/lib.so").unlink(), os.mkfifo(root / "lib/lib.so")),
            "lib/lib.so",
            "is no file",
        ),
    ],
    ids=["same size and times", "gone", "mode", "folder's mode", "link", "kind"],
)
def test_damage_is_named(pack: Path, damage: Callable[[Path], object], path: str, observed: str) -> None:
    damage(pack)
    state = hvlab_packed.state(str(pack), record=True)
    assert not state["whole"]
    assert [where for where, _ in state["wrong"]] == [str(pack / path)]
    assert state["wrong"][0][1].startswith(observed)
    assert hvlab_packed.state(str(pack))["wrong"], "a damaged pack is not recorded as the right one"


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "lib/__pycache__/y.pyc").write_text("more"),
        lambda root: os.utime(root / "lib/lib.so"),
        lambda root: (root / "lib/lib.so").write_text("12345"),
        lambda root: (
            shutil.copy2(root / "lib/lib.so", root / "new"),
            (root / "new").replace(root / "lib/lib.so"),
        ),
    ],
    ids=["byte code", "touched", "rewritten", "another inode"],
)
def test_what_is_no_damage(
    pack: Path, change: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    change(pack)
    assert hvlab_packed.state(str(pack)) == {"key": "k", "whole": True, "wrong": []}
    hvlab_packed.state(str(pack), record=True)
    monkeypatch.setattr(hvlab_packed, "_sum", lambda *_: pytest.fail("summed again what has not moved"))
    assert hvlab_packed.state(str(pack))["whole"]


def test_a_deep_look_reads_what_has_not_moved(pack: Path) -> None:
    file = pack.with_name(".1.manifest")
    held = json.loads(file.read_text())
    held["entries"]["lib/lib.so"][-1] = "0" * 64
    file.write_text(json.dumps(held))
    assert hvlab_packed.state(str(pack))["whole"]
    wrong = hvlab_packed.state(str(pack), deep=True)["wrong"]
    assert "though its times are the same" in wrong[0][1]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"key": "k", "entries": {"lib": [1]}}', '{"key": "j", "entries": {}}']
)
def test_a_manifest_of_no_use_is_written_again(pack: Path, text: str) -> None:
    file = pack.with_name(".1.manifest")
    file.write_text(text)
    assert hvlab_packed.state(str(pack))["whole"]
    assert file.read_text() == text
    assert hvlab_packed.state(str(pack), record=True)["whole"]
    overwrite(pack)
    assert not hvlab_packed.state(str(pack))["whole"]


def printed(root: Path, *words: str) -> dict[str, list[list[str]]]:
    """What it prints as a program, as `hvlab verify` runs it."""
    program = Path(hvlab_packed.__file__).read_text()
    argv = [sys.executable, "-c", program, str(root), *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=20)
    return dict(json.loads(done.stdout))


def test_verify_runs_it_as_a_program(pack: Path) -> None:
    overwrite(pack)
    changed = [[str(pack / "lib/lib.so"), "has another content than was installed"]]
    assert printed(pack.parents[1]) == {str(pack): changed}


def test_a_pack_that_lost_its_marker_is_still_one(pack: Path) -> None:
    (pack / hvlab_packed.MARKER).unlink()
    gone = [[str(pack / hvlab_packed.MARKER), "is gone, or cannot be read"]]
    assert printed(pack.parents[1]) == {str(pack): gone}
    (pack / hvlab_packed.MARKER).write_text('{"build": "/var/cache/hvlab/build/tool-k"}')
    built = [[str(pack / hvlab_packed.MARKER), "belongs to an unfinished build"]]
    assert printed(pack.parents[1]) == {str(pack): built}
    state = {"key": "unpacked", "whole": False, "leftovers": []}
    assert hvlab_packed.packs(str(pack.parents[1])) == {str(pack): state}


def test_one_host_reads_what_many_share(tmp_path: Path, pack: Path) -> None:
    shared = tmp_path / "nfs/tool-k"
    shutil.copytree(pack, shared, symlinks=True)
    hvlab_packed.write_manifest(str(shared), hvlab_packed.contents(str(shared)))
    (tmp_path / "opt/other").mkdir()
    (tmp_path / "opt/other/current").symlink_to(shared)
    overwrite(shared)
    opt, nfs = tmp_path / "opt", str(tmp_path / "nfs")
    changed = [[str(shared / "lib/lib.so"), "has another content than was installed"]]
    assert printed(opt) == {str(pack): [], str(shared): changed}
    assert printed(opt, "--others-read", nfs) == {str(pack): [], str(shared): None}
    assert printed(opt, "--only", str(shared)) == {str(shared): changed}
    (shared / hvlab_packed.MARKER).write_text("{")
    unread = [[str(shared / hvlab_packed.MARKER), "is gone, or cannot be read"]]
    assert printed(opt, "--others-read", nfs) == {str(pack): [], str(shared): unread}


def test_each_shared_pack_is_read_by_the_first_host_that_links_to_it() -> None:
    saw = {
        "n1": '{"/opt/hvlab/horovod": []}',
        "n2": "no JSON",
        "n3": '{"/nfs/python-k": null, "/opt/hvlab/horovod": []}',
        "n4": '{"/nfs/python-k": null, "/nfs/horovod-k": null}',
    }
    nodes = {name: SimpleNamespace(name=name, answers={"packs": {"out": out}}) for name, out in saw.items()}
    nodes["n0"] = SimpleNamespace(name="n0", answers={})
    read = {name: packs.reads(node, nodes) for name, node in nodes.items()}
    assert read == {"n0": [], "n1": [], "n2": [], "n3": ["/nfs/python-k"], "n4": ["/nfs/horovod-k"]}


def test_what_a_build_left_can_be_removed_where_nothing_asks_for_it_any_more() -> None:
    folder = "/opt/hvlab/horovod/mpi"
    answer = {folder: [[f"{folder}/{hvlab_packed.MARKER}", "belongs to an unfinished build"]]}
    node = RoleHost(
        "n1", SimpleNamespace(), {}, answers={"packs": {"rc": 0, "out": json.dumps(answer), "err": ""}}
    )
    with pytest.raises(WrongNodeError) as wrong:
        packs.files_are_as_installed(node, {"n1": node})
    assert f"`rm -r {folder}` there" in wrong.value.remedy
