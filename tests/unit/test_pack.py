"""Packs: the key, the way from one folder to another, and what damage looks like."""

import hashlib
import importlib.util
import io
import json
import os
import re
import resource
import subprocess
import sys
import tarfile
import tempfile
import tracemalloc
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from hvlab.ansible.action import hvlab_pack
from hvlab.stack.provision import packs

ROOT = Path(__file__).parents[2]


def node_module(name: str) -> ModuleType:
    """Import one of the modules that run on the nodes."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "hvlab/ansible/modules" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


pack = node_module("hvlab_pack")


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small tree with what real ones have: links, byte code, an empty file."""
    root = tmp_path / "built"
    (root / "bin").mkdir(parents=True)
    (root / "bin/tool").write_text("#!/bin/sh\n")
    (root / "bin/tool").chmod(0o755)
    (root / "bin/python").symlink_to("/usr/bin/python3")
    (root / "current").symlink_to("bin")
    (root / "lib/__pycache__").mkdir(parents=True)
    (root / "lib/__pycache__/x.pyc").write_bytes(b"code")
    (root / "lib/x.py").touch()
    return root


def saved(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    archive = str(tmp_path / ".tool.pack-1/pack.tar.gz")
    monkeypatch.setattr(pack.shutil, "chown", lambda *_: None)
    digest = pack.save(str(folder), {"name": "tool", "key": "k"}, "root", archive)
    monkeypatch.undo()
    assert hashlib.sha256(Path(archive).read_bytes()).hexdigest() == digest
    return archive


def test_key_stands_for_everything_that_goes_in() -> None:
    inputs = {"version": "4.1.8", "flags": ["-a", "-b"]}
    key = packs.pack_key("openmpi", inputs)
    assert len(key) == 16
    assert key == packs.pack_key("openmpi", dict(reversed(inputs.items())))
    others = [
        ("openmpi", {**inputs, "flags": ["-b", "-a"]}),
        ("openmpi", {**inputs, "os": ""}),
        ("other", inputs),
    ]
    assert len({key, *(packs.pack_key(name, given) for name, given in others)}) == 4


def test_a_saved_pack_has_no_settings_of_its_host(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "lib/tool.conf").write_text("# Written by hvlab: settings.\nsize = 4096\n")
    (folder / "lib/own.conf").write_text("size = 1\n")
    archive = saved(folder, tmp_path, monkeypatch)
    target = tmp_path / "there"
    pack.unpack(archive, str(target), "k")
    assert (target / "lib/tool.conf").read_text() == "# Written by hvlab: settings.\n"
    assert (target / "lib/own.conf").read_text() == "size = 1\n"
    assert pack.state(str(folder))["whole"]


def test_round_trip(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = saved(folder, tmp_path, monkeypatch)
    target = tmp_path / "there" / "tool"
    (target / "old").mkdir(parents=True)
    (tmp_path / "there" / ".tool.new-killed").mkdir()
    pack.unpack(archive, str(target), "k")
    assert not (target / "old").exists()
    assert names(tmp_path / "there") == [".tool.manifest", "tool"]
    assert pack.state(str(target))["whole"]
    assert (target / "bin/python").readlink() == Path("/usr/bin/python3")
    assert (target / "bin/tool").stat().st_mode & 0o111
    assert (target / "lib/__pycache__/x.pyc").exists()
    marker = json.loads((target / pack.MARKER).read_text())
    assert (marker["files"], marker["bytes"]) == pack.measure(str(target)) == (4, 10)


@pytest.mark.parametrize("work", ["unpack", "receive"])
def test_what_another_process_works_on_is_no_leftover(tmp_path: Path, work: str) -> None:
    """A second controller, or a second run, removed it."""
    root = tmp_path / "tool"
    steps = {
        "unpack": "with pack.beside(sys.argv[1]): wait()",
        "receive": "with pack.folder_of(sys.argv[1].replace('tool', '.tool.pack-1/pack.tar.gz')): wait()",
    }
    program = (
        "import sys\nimport tests.unit.conftest\nfrom tests.unit.test_pack import pack\n"
        f"def wait(): print('begun', flush=True); sys.stdin.read()\n{steps[work]}"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(root)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"begun\n"
        (place,) = tmp_path.iterdir()
        assert pack.leftovers(str(root)) == []
        with pack.beside(str(root)):
            assert place.exists()
        pack.clear(str(root))
        assert names(tmp_path) == [place.name]
        other.kill()
    assert pack.leftovers(str(root)) == [str(place)]
    pack.clear(str(root))
    assert names(tmp_path) == []


def test_a_folder_that_was_taken_for_a_leftover_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there for a moment before it is held."""
    make = tempfile.mkdtemp
    made = []

    def watched(**where: str) -> str:
        made.append(make(**where))
        if len(made) == 1:
            pack.clear(str(tmp_path / "tool"))
        return made[-1]

    monkeypatch.setattr(pack.tempfile, "mkdtemp", watched)
    with pack.beside(str(tmp_path / "tool")) as folder:
        assert made[1:] == [folder]
        assert Path(folder).is_dir()
    assert names(tmp_path) == []


def test_byte_code_does_not_count_but_files_do(folder: Path) -> None:
    before = pack.measure(str(folder))
    (folder / "lib/__pycache__/y.pyc").write_bytes(b"more")
    assert pack.measure(str(folder)) == before
    (folder / "bin/tool").unlink()
    assert pack.measure(str(folder)) != before


@pytest.mark.parametrize(
    ("harm", "observed"), [("cut", "Unexpected EOF|unexpected end"), ("other key", "marker")]
)
def test_a_bad_pack_leaves_the_old_folder(
    harm: str, observed: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = Path(saved(folder, tmp_path, monkeypatch))
    if harm == "cut":
        archive.write_bytes(archive.read_bytes()[:200])
    target = tmp_path / "there" / "tool"
    (target / "old").mkdir(parents=True)
    with pytest.raises(ValueError, match=observed):
        pack.unpack(str(archive), str(target), "other" if harm == "other key" else "k")
    assert (target / "old").is_dir()
    assert names(tmp_path / "there") == ["tool"]


def test_needs_are_named_by_their_keys(folder: Path, tmp_path: Path) -> None:
    (folder / pack.MARKER).write_text('{"key": "k1"}')
    bare, absent = str(tmp_path), str(tmp_path / "absent")
    found = pack.describe(absent, [str(folder), bare, absent])
    assert found["needs"] == {str(folder): "k1", bare: "unpacked", absent: None}
    assert (found["key"], found["whole"], found["wrong"]) == ("unpacked", False, [])
    assert found["free"] > 0


@pytest.fixture
def archive(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> packs.Archive:
    """A pack in the cache."""
    made = Path(saved(folder, tmp_path, monkeypatch))
    monkeypatch.setenv("HVLAB_CACHE", str(tmp_path / "cache"))
    pack_of = packs.Archive("tool", "k")
    assert not pack_of.cached()
    with packs.incoming(pack_of.path.parent) as file:
        made.replace(file)
        pack_of.take(file, packs.file_sha256(file))
    assert pack_of.cached()
    assert pack_of.marker()["name"] == "tool"
    assert names(pack_of.path.parent) == ["tool-k.tar.gz", "tool-k.tar.gz.sha256"]
    return pack_of


def _truncate(pack_of: packs.Archive) -> None:
    os.truncate(pack_of.path, pack_of.path.stat().st_size // 2)


def _no_archive(pack_of: packs.Archive) -> None:
    pack_of.path.write_bytes(b"no archive")
    packs.save_sum(pack_of.sum_path, packs.file_sha256(pack_of.path))


DAMAGE = {
    "truncated": _truncate,
    "longer": lambda pack_of: pack_of.path.write_bytes(pack_of.path.read_bytes() + b"x"),
    "no archive": _no_archive,
    "empty sum": lambda pack_of: pack_of.sum_path.write_text(""),
    "no sum": lambda pack_of: pack_of.sum_path.write_bytes(b"\xff\x00 tool"),
    "sum gone": lambda pack_of: pack_of.sum_path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_pack_is_thrown_away_and_missing(
    tmp_path: Path, archive: packs.Archive, damage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hvlab_pack, "_run_folder", tmp_path.joinpath)
    damage(archive)
    action = object.__new__(hvlab_pack.ActionModule)
    action.archive, action.key, action.args, action.work = (
        archive,
        "k",
        {"builder": "", "shared": ""},
        "/nowhere",
    )
    warned: list[str] = []
    action._task = SimpleNamespace(check_mode=True)
    action._display = SimpleNamespace(warning=warned.append)
    state = {
        "key": "unpacked",
        "whole": False,
        "wrong": [],
        "free": 1 << 40,
        "linked": False,
        "trusted": False,
        "building": [],
    }
    assert action._present(state) == {"changed": False, "status": "missing"}
    assert archive.path.exists()
    action._task.check_mode = False
    assert action._present(state) == {"changed": False, "status": "missing"}
    assert not archive.cached()
    assert names(archive.path.parent) == []
    assert "is made again" in warned[0]


def test_the_build_folder_of_a_killed_run_goes_once_the_pack_is_cached(
    folder: Path, tmp_path: Path, archive: packs.Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds = tmp_path / "builds"
    (builds / "tool-k/source").mkdir(parents=True)
    (builds / "tool-other").mkdir()
    action = object.__new__(hvlab_pack.ActionModule)
    action.archive, action.key, action.work = archive, "k", str(builds / "tool-k")
    action._task = SimpleNamespace(check_mode=False)

    def step(name: str, **more: str) -> None:
        assert name == "clear"
        pack.clear(str(folder), **more)

    monkeypatch.setattr(action, "_step", step)
    state = {"leftovers": [], "building": pack.describe(str(folder), [], builds=str(builds))["building"]}
    assert action._keep(state) == {"changed": True, "status": "installed"}
    assert names(builds) == ["tool-other"]
    archive.discard()
    (builds / "tool-k").mkdir()
    assert not action._keep(state)["changed"], "the host that saves it goes on with it"
    assert names(builds) == ["tool-k", "tool-other"]


@pytest.mark.parametrize(
    ("changes", "builder"),
    [
        ({}, "n1"),
        ({"n2": {"cores": 2}, "n3": {"cores": 2}}, "n2"),
        ({"n3": {"status": "installed"}, "n2": {"cores": 8}}, "n3"),
        ({"n2": {"cores": 8, "key": "other"}}, "n1"),
    ],
)
def test_the_host_with_the_most_cores_builds_unless_one_has_it(changes: dict, builder: str) -> None:
    first = {"key": "k", "cached": False, "status": "missing", "cores": 1}
    states = [{**first, "host": host, **changes.get(host, {})} for host in ("n1", "n2", "n3")]
    assert packs.elect(states, "k") == builder


def test_a_host_does_not_choose_where_its_archive_is_fetched_from(
    tmp_path: Path, archive: packs.Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ansible writes the path into a batch of sftp, whose quotes differ from a shell's: `!id` is run here."""
    archive.discard()
    action, fetched = object.__new__(hvlab_pack.ActionModule), []
    action.archive, action.key, action.work, action.host = archive, "k", "/work", "n1"
    action.args = {"name": "tool", "version": "1", "path": "/opt/hvlab/tool"}
    action.inputs, action.vars = {}, {}
    action._task = SimpleNamespace(check_mode=False)
    action._display = SimpleNamespace(display=print)
    action._get_remote_user = lambda: "me"
    sum_ = hashlib.sha256(b"pack").hexdigest()
    offered = {"archive": "/x\\'\" /dev/null\n!id > /tmp/PWNED\nget y", "sha256": sum_}
    monkeypatch.setattr(action, "_execute_module", lambda **_: offered)

    def fetch(source: str, target: str) -> None:
        fetched.append(source)
        Path(target).write_bytes(b"pack")

    action._connection = SimpleNamespace(fetch_file=fetch)
    assert action._save()["status"] == "saved"
    assert re.fullmatch(r"/opt/hvlab/\.tool\.pack-[0-9a-f]{16}/pack\.tar\.gz", fetched[0])


@pytest.mark.parametrize(
    "text", [b'{"bytes": "x"}', b"[" * 100_000, b" " * (300 << 20)], ids=["text", "deep", "large"]
)
def test_a_marker_that_a_builder_made_up_is_no_pack(archive: packs.Archive, text: bytes) -> None:
    with tarfile.open(archive.path, "w:gz") as tar:
        info = tarfile.TarInfo(packs.MARKER)
        info.size = len(text)
        tar.addfile(info, io.BytesIO(text))
    packs.save_sum(archive.sum_path, packs.file_sha256(archive.path))
    assert archive.marker() is None


def test_a_marker_is_not_reached_through_headers_without_end(archive: packs.Archive) -> None:
    """A tar reader reads an extended header as a whole, before it knows what follows."""
    with tarfile.open(archive.path, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo(packs.MARKER)
        info.pax_headers = {"comment": "x" * (40 << 20)}
        tar.addfile(info)
    packs.save_sum(archive.sum_path, packs.file_sha256(archive.path))
    tracemalloc.start()
    try:
        assert archive.marker() is None
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("way", ["sftp", "python"])
def test_a_host_does_not_fill_the_controller_s_disk(
    archive: packs.Archive, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """What it says of the size counts for nothing: it may send on and on."""
    monkeypatch.setattr(packs, "LARGEST", 1 << 20, raising=False)
    before, sent = resource.getrlimit(resource.RLIMIT_FSIZE), []
    action = object.__new__(hvlab_pack.ActionModule)
    action.archive, action.host = archive, "n1"
    action._display = SimpleNamespace(display=print)

    def fetch(source: str, target: str) -> None:
        sent.append(Path(target))
        if way == "python":
            sent[0].write_bytes(bytes(3 << 20))
        subprocess.run(["dd", "if=/dev/zero", f"of={target}", "bs=1M", "count=3"], check=True)

    action._connection = SimpleNamespace(fetch_file=fetch)
    try:
        with pytest.raises(hvlab_pack.AnsibleActionFail) as refused:
            action._fetch("/there", packs.file_sha256(Path("/dev/null")))
        assert str(refused.value).startswith("n1: it sent 1 MiB and did not end (")
        assert "What to do: free space in" in str(refused.value)
        assert resource.getrlimit(resource.RLIMIT_FSIZE) == before
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert names(archive.path.parent) == ["tool-k.tar.gz", "tool-k.tar.gz.sha256"]


@pytest.mark.parametrize("swaps", [True, False])
def test_there_is_always_a_pack_while_another_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swaps: bool
) -> None:
    new, root = tmp_path / "beside/new", tmp_path / "tool"
    for folder in (new, root):
        folder.mkdir(parents=True)
        (folder / folder.name).touch()
    rename, seen = os.rename, []

    def watched(source: str, target: str) -> None:
        rename(source, target)
        seen.append(root.exists())

    monkeypatch.setattr(pack.os, "rename", watched)
    if not swaps:
        # A file system, or a C library, that cannot.
        monkeypatch.setattr(pack.ctypes, "CDLL", lambda _: SimpleNamespace())
    pack.put_in_place(str(new), str(root))
    assert names(root) == ["new"]
    assert names(tmp_path) == ["beside", "tool"]
    assert names(new if swaps else new.with_name("new.old")) == ["tool"]
    assert all(seen) is swaps
