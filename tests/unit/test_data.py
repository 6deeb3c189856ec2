"""How a data set gets to a host: whole or not at all, only where it lacks; and what is told of full disks."""

import errno
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from hvlab.ansible.action import hvlab_data as action
from hvlab.workloads import datasets
from hvlab.workloads.datasets import own_files, shelf
from tests.unit.test_datasets import contents, written
from tests.unit.test_pack import ROOT, names, node_module

data = node_module("hvlab_data")


@pytest.fixture
def ready(tmp_path):
    """A data set on the controller."""
    return datasets.prepare(str(written(tmp_path / "own", contents())), cache=tmp_path / "cache")


@pytest.fixture
def root(tmp_path):
    """Where a host has its data sets."""
    return tmp_path / "home/.hvlab/data"


def put(ready, root, key=None):
    return data.install(str(datasets.archive(ready.folder)), str(root), key or ready.key)


# On the host.


def test_both_sides_tell_the_same_key(ready):
    assert data.key_in(str(ready.folder)) == shelf.key_in(ready.folder) == ready.key


def test_a_set_is_put_there_once(ready, root):
    assert put(ready, root)
    assert not put(ready, root)
    assert {path.name: path.read_bytes() for path in (root / ready.key).iterdir()} == contents()
    assert names(root) == [".lock", ready.key]


def test_a_home_without_locks_takes_it_all_the_same(ready, root, monkeypatch):
    """As Lustre without the mount option flock."""

    def without(*_):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(data.fcntl, "flock", without)
    assert put(ready, root)
    assert {path.name: path.read_bytes() for path in (root / ready.key).iterdir()} == contents()


def test_an_archive_that_is_brought_counts_as_used(ready):
    packed = datasets.archive(ready.folder)
    os.utime(packed, (0, 0))
    assert datasets.archive(ready.folder).stat().st_mtime > 0


def test_what_a_killed_run_left_goes(ready, root):
    for left in ("new", "old"):
        (root / f".{ready.key}.{left}").mkdir(parents=True)
        (root / f".{ready.key}.{left}/half").write_text("x")
    put(ready, root)
    assert names(root) == [".lock", ready.key]


@pytest.mark.parametrize(
    "damage",
    [
        lambda place: (place / "t10k-labels-idx1-ubyte").write_bytes(b""),
        lambda place: (place / "t10k-labels-idx1-ubyte").unlink(),
        lambda place: (place / "more").write_text("x"),
        lambda place: shutil.rmtree(place) or place.write_text("a file"),
        lambda place: shutil.rmtree(place) or place.symlink_to("/nowhere"),
        lambda place: shutil.rmtree(place) or (place / "folder").mkdir(parents=True),
    ],
)
def test_a_damaged_set_is_replaced(ready, root, damage):
    put(ready, root)
    damage(root / ready.key)
    assert data.key_in(str(root / ready.key)) != ready.key
    assert put(ready, root)
    assert data.key_in(str(root / ready.key)) == ready.key
    assert names(root) == [".lock", ready.key]


def test_a_full_disk_leaves_what_was_there(ready, root, monkeypatch):
    put(ready, root)
    (root / ready.key / "more").write_text("x")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(data.shutil, "copyfileobj", full)
    with pytest.raises(OSError, match="No space left"):
        put(ready, root)
    assert names(root) == [".lock", ready.key]
    assert names(root / ready.key) == sorted([*contents(), "more"])


def test_of_own_trainings_the_files_used_last_are_kept(ready, root):
    assert (data.ARCHIVE, data.KEPT) == (own_files.ARCHIVE, own_files.KEPT)
    every = [root / f"key{number}" for number in range(data.KEPT + 2)]
    for age, place in enumerate(every):
        place.mkdir(parents=True)
        (place / data.ARCHIVE).write_text("x")
        os.utime(place, (age, age))
    put(ready, root)
    kept = [place.name for place in every[-data.KEPT + 1 :]]
    assert names(root) == sorted([".lock", ready.key, *kept])
    os.utime(root / ready.key, (1, 1))
    Host(root, sets(ready)).run(task_vars={})
    assert (root / ready.key).stat().st_mtime > 1


def test_an_archive_of_something_else_is_refused(ready, root):
    with pytest.raises(ValueError, match="does not match its key 0123456789abcdef"):
        put(ready, root, key="0123456789abcdef")
    assert names(root) == [".lock"]


@pytest.mark.parametrize("name", ["../outside", "link"])
def test_an_archive_reaches_nowhere_else(tmp_path, root, name):
    archive = tmp_path / "bad.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        member = tarfile.TarInfo(name)
        if name == "link":
            member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(member)
    with pytest.raises(ValueError, match="no plain file"):
        data.install(str(archive), str(root), "0123456789abcdef")
    assert names(root) == [".lock"]
    assert not (root.parent / "outside").exists()


# On the controller.


class Host(action.ActionModule):
    """The action plugin on a host that is a folder, without Ansible's connection."""

    def __init__(self, root, sets, free=1 << 30):
        self.root, self.free, self.steps = root, free, []
        self._task = SimpleNamespace(check_mode=False, async_val=0, args={"sets": sets})
        self._connection = SimpleNamespace(
            _shell=SimpleNamespace(tmpdir="", join_path=lambda *parts: str(Path(*parts)))
        )

    def validate_argument_spec(self, argument_spec):
        return None, {"path": str(self.root), **self._task.args}

    def _execute_module(self, module_name, module_args, task_vars):
        assert module_name == "hvlab_data"
        self.steps.append(module_args["step"])
        told = {}
        exits = SimpleNamespace(
            check_mode=False,
            params={"archive": None, **module_args},
            fail_json=lambda **why: told.update(why, failed=True),
            exit_json=told.update,
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(data, "AnsibleModule", lambda **_: exits)
            patch.setattr(data, "free_bytes", lambda _: self.free)
            data.main()
        return told

    def _make_tmp_path(self):
        self.remote = self.root.parent / "tmp"
        self.remote.mkdir(parents=True)
        return str(self.remote)

    def _transfer_file(self, source, target):
        self.steps.append("copy")
        shutil.copy(source, target)

    def _fixup_perms2(self, paths):
        pass

    def _remove_tmp_path(self, path):
        shutil.rmtree(path)


def sets(*made):
    return [{"key": each.key, "folder": str(each.folder)} for each in made]


def test_only_what_lacks_is_brought(tmp_path, ready, root):
    other = datasets.prepare(str(written(tmp_path / "two", contents(seed=2))), cache=tmp_path / "cache")
    first = Host(root, sets(ready))
    assert first.run(task_vars={}) == {"changed": True, "brought": [ready.key]}
    assert first.steps == ["look", "copy", "put"]
    second = Host(root, sets(ready, other))
    assert second.run(task_vars={}) == {"changed": True, "brought": [other.key]}
    third = Host(root, sets(ready, other))
    assert third.run(task_vars={}) == {"changed": False, "brought": []}
    assert third.steps == ["look"]
    assert not first.remote.exists()


def test_a_host_without_room_is_told_before_anything_is_copied(ready, root):
    host = Host(root, sets(ready), free=100)
    told = host.run(task_vars={})
    assert told["failed"]
    assert f"{root}/{ready.key} needs 0.0 MiB, its file system has 0.0 MiB free" in told["msg"]
    assert host.steps == ["look"]


def test_a_disk_that_fills_up_meanwhile_is_told(ready, root, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(root / "x"))

    monkeypatch.setattr(data.shutil, "copyfileobj", full)
    host = Host(root, sets(ready))
    told = host.run(task_vars={})
    assert told["failed"]
    assert "could not be written" in told["msg"]
    assert "No space left on device" in told["msg"]
    assert "free space there" in told["msg"]
    assert not host.remote.exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda c: c[: len(c) // 2],
        lambda c: b"no gzip",
        lambda c: c[: len(c) // 2] + b"x" * 30 + c[len(c) // 2 + 30 :],
    ],
)
def test_a_damaged_archive_on_the_controller_is_named(ready, root, damage):
    archive = datasets.archive(ready.folder)
    archive.write_bytes(damage(archive.read_bytes()))
    told = Host(root, sets(ready)).run(task_vars={})
    assert told["failed"]
    assert f"rm {archive} on the controller" in told["msg"]
    assert names(root) == [".lock"]


def test_a_set_that_changed_on_the_controller_is_named(ready, root):
    host = Host(root, sets(ready))
    (ready.folder / "more").write_text("x")
    told = host.run(task_vars={})
    assert told["failed"]
    assert f"the files in {ready.folder} have changed" in told["msg"]
    assert "What to do: remove this folder, and run again" in told["msg"]
    assert host.steps == ["look"]


def test_a_home_that_cannot_be_written_is_named(ready, root):
    root.parent.mkdir(parents=True)
    root.write_text("a file")
    told = Host(root, sets(ready)).run(task_vars={})
    assert told["failed"]
    assert str(root) in told["msg"]


@pytest.mark.slow
def test_the_playbook_brings_the_data_to_the_users_home(tmp_path, ready):
    inventory = tmp_path / "hosts.yml"
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    inventory.write_text(json.dumps({"all": {"hosts": {"n1": here, "n2": here}}}))
    variables = json.dumps({"hvlab_hosts": "n1,n2", "hvlab_data": sets(ready)})
    program = Path(sys.executable).parent / "ansible-playbook"
    done = subprocess.run(
        [program, "-i", inventory, "-e", variables, ROOT / "playbooks/run-cases.yml"],
        cwd=ROOT,
        env={**os.environ, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert data.key_in(str(tmp_path / ".hvlab/data" / ready.key)) == ready.key
