"""Build once, install everywhere: the shared tasks, played on three hosts that are folders here."""

import getpass
import json
import re
import shutil
import stat
import sys
from pathlib import Path

import pytest

from tests.unit.plays import ansible_playbook

pytestmark = pytest.mark.slow

CHANGED = re.compile(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)", re.MULTILINE)
PLAYBOOK = """
- name: Install the tool
  hosts: all
  gather_facts: false
  serial: "{{ batch | default('100%') }}"
  tasks:
    - name: Build the tool once and install it everywhere
      ansible.builtin.import_role:
        name: pack
      vars:
        pack_label: the tool
        pack_name: tool
        pack_path: "{{ folder }}/{{ inventory_hostname }}/tool"
        pack_inputs: {system: "{{ 'other' if inventory_hostname == 'n3' else 'one' }}"}
        pack_version: "1"
        pack_build_dir: "{{ folder }}/{{ inventory_hostname }}/build"
        pack_tasks: {name: tool, tasks_from: build}
"""
BUILD = """
- name: Break the build
  ansible.builtin.assert:
    that: inventory_hostname != broken | default('')

- name: Write who built it
  hvlab_files:
    files:
      - {path: "{{ pack_path }}/builder", content: "{{ inventory_hostname }}"}
      - {path: "{{ folder }}/{{ inventory_hostname }}/has-built", content: ""}
"""


class Hosts:
    """Three hosts, each a folder: n1 and n2 of one system, n3 of another."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cache = folder, folder / "cache"
        folder.mkdir(exist_ok=True)
        (folder / "site.yml").write_text(PLAYBOOK)
        self.tasks = folder / "roles/tool/tasks/build.yml"
        self.tasks.parent.mkdir(parents=True, exist_ok=True)
        self.tasks.write_text(BUILD)

    def play(self, *words: str, expect: int = 0, **variables: str) -> str:
        """Run the playbook and return what it printed."""
        own = {
            "ansible_connection": "local", "ansible_python_interpreter": sys.executable,
            "ansible_user": getpass.getuser(), "folder": str(self.folder),
        }  # fmt: skip
        done = ansible_playbook(
            *("site.yml", "-i", "n1,n2,n3,", "-e", json.dumps(own | variables), *words),
            cwd=self.folder,
            env={"HVLAB_CACHE": str(self.cache)},
        )
        assert done.returncode == expect, done.stdout + done.stderr
        return done.stdout + done.stderr

    def builders(self) -> dict[str, str]:
        """Return, for each host that has the tool, which host built it."""
        return {path.parts[-3]: path.read_text() for path in sorted(self.folder.glob("n?/tool/builder"))}

    def built(self) -> list[str]:
        """Return the hosts that have built since the last call."""
        marks = sorted(self.folder.glob("n?/has-built"))
        for mark in marks:
            mark.unlink()
        return [mark.parent.name for mark in marks]


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    return Hosts(tmp_path)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Hosts:
    """Hosts of which n1 has built; its folder, kept beside it, is put back for each test."""
    hosts = Hosts(tmp_path_factory.mktemp("pack") / "hosts")
    hosts.play("--limit", "n1")
    hosts.built()
    shutil.copytree(hosts.folder, hosts.folder.with_name("kept"))
    return hosts


@pytest.fixture
def built(kept: Hosts) -> Hosts:
    shutil.rmtree(kept.folder)
    shutil.copytree(kept.folder.with_name("kept"), kept.folder)
    return kept


def test_one_host_of_each_system_builds(hosts: Hosts) -> None:
    assert CHANGED.findall(hosts.play("--check"))[0][1] != "0"
    assert (hosts.builders(), hosts.built()) == ({}, [])
    hosts.play()
    assert hosts.builders() == {"n1": "n1", "n2": "n1", "n3": "n3"}
    assert hosts.built() == ["n1", "n3"]
    assert not list(hosts.folder.glob("n?/build/*"))
    assert CHANGED.findall(hosts.play()) == [("n1", "0"), ("n2", "0"), ("n3", "0")]


def test_the_build_folder_is_closed_to_others_and_one_that_is_there_stays_as_it_is(hosts: Hosts) -> None:
    build = hosts.folder / "n3/build"
    build.mkdir(parents=True)
    build.chmod(0o1777)
    printed = " ".join(hosts.play(expect=2).split())
    assert f"everybody may make files in {build}" in printed
    assert hosts.builders() == {"n1": "n1", "n2": "n1"}
    assert stat.S_IMODE((hosts.folder / "n1/build").stat().st_mode) == 0o700
    build.chmod(0o750)
    hosts.play("--limit", "n3")
    assert hosts.builders()["n3"] == "n3"
    assert stat.S_IMODE(build.stat().st_mode) == 0o750


def test_a_build_that_was_only_begun_goes_on_beside_other_tasks(hosts: Hosts) -> None:
    """As that of Open MPI does, while the Python environments are made."""
    begun, tasks = "pack_begin: true", PLAYBOOK.partition("  tasks:\n")[2]
    first = tasks.replace("pack_label: the tool", f"pack_label: the tool\n        {begun}")
    beside = """
    - name: Look whether it is there before it can be
      hvlab_files:
        files: [{path: "{{ folder }}/{{ inventory_hostname }}/before",
                 content: "{{ (folder ~ '/' ~ inventory_hostname ~ '/tool/builder') is exists }}"}]

"""
    (hosts.folder / "site.yml").write_text(
        PLAYBOOK.partition("    - name: Build")[0] + first + beside + tasks
    )
    hosts.tasks.write_text("""
- name: Build slowly
  hvlab_build:
    path: "{{ pack_work }}"
    result: "{{ pack_path }}"
    stages:
      - name: wait
        argv: [sh, -c, "until test -e {{ folder }}/{{ inventory_hostname }}/before; do sleep 0.1; done"]
      - {name: folder, argv: [mkdir, "{{ pack_path }}"]}
      - {name: write, argv: [cp, /proc/self/comm, "{{ pack_path }}/builder"]}
  async: "{{ 60 if pack_begin | default(false) else 0 }}"
  poll: 0
""")
    hosts.play("--limit", "n1,n2")
    assert [path.read_text() for path in sorted(hosts.folder.glob("n?/before"))] == ["False"] * 2
    assert len(hosts.builders()) == 2
    assert not list(hosts.folder.glob("n?/build/*"))


def test_a_host_that_has_it_saves_it_for_the_others(hosts: Hosts) -> None:
    hosts.play("--limit", "n2")
    assert hosts.built() == ["n2"]
    shutil.rmtree(hosts.cache)
    hosts.play("--limit", "n1,n2")
    assert hosts.builders() == {"n1": "n2", "n2": "n2"}
    assert hosts.built() == []


def test_hosts_one_after_the_other_build_once(hosts: Hosts) -> None:
    hosts.play("--limit", "n1,n2", batch="1")
    assert hosts.builders() == {"n1": "n1", "n2": "n1"}
    assert hosts.built() == ["n1"]


def test_a_failed_build_is_named_by_those_who_wait_for_it(hosts: Hosts) -> None:
    printed = " ".join(hosts.play(expect=2, broken="n1").split())
    assert "n2: there is no pack of tool, because n1 failed to build it" in printed
    assert hosts.builders() == {"n3": "n3"}


def test_a_damaged_pack_is_built_again(built: Hosts) -> None:
    archive = next((built.cache / "packs").glob("tool-*.tar.gz"))
    archive.write_bytes(archive.read_bytes()[:-1])
    printed = built.play("--limit", "n2")
    assert f"{archive.name} in the controller's cache is damaged" in " ".join(printed.split())
    assert built.builders() == {"n1": "n1", "n2": "n2"}
    assert CHANGED.findall(built.play("--limit", "n1,n2")) == [("n1", "0"), ("n2", "0")]


def test_a_file_overwritten_with_the_same_size_is_mended_and_named(built: Hosts) -> None:
    built.play("--limit", "n2")
    (built.folder / "n2/tool/builder").write_text("xx")
    printed = " ".join(built.play("--limit", "n1,n2", "-v").split())
    assert "n2/tool/builder - has another content than was installed" in printed
    assert built.builders() == {"n1": "n1", "n2": "n1"}
    assert CHANGED.findall(built.play("--limit", "n1,n2")) == [("n1", "0"), ("n2", "0")]


def test_what_a_killed_run_left_beside_an_installed_pack_goes(built: Hosts) -> None:
    archive = built.folder / "n1/.tool.pack-killed"
    archive.mkdir()
    (archive / "pack.tar.gz").touch()
    assert CHANGED.findall(built.play("--limit", "n1", "--check")) == [("n1", "1")]
    assert archive.exists()
    assert CHANGED.findall(built.play("--limit", "n1")) == [("n1", "1")]
    assert not archive.exists()
    assert CHANGED.findall(built.play("--limit", "n1")) == [("n1", "0")]


def test_a_mirror_is_asked_first_and_its_sum_checked(built: Hosts) -> None:
    mirror = built.folder / "mirror"
    shutil.copytree(built.cache / "packs", mirror)
    assert "source: mirror" in built.play("--limit", "n2", "-v", pack_mirror=str(mirror))
    shutil.rmtree(built.folder / "n2/tool")
    copy = next(mirror.glob("tool-*.tar.gz"))
    copy.write_bytes(b"x" * copy.stat().st_size)
    printed = " ".join(built.play("--limit", "n2", "-v", pack_mirror=str(mirror)).split())
    assert "source: controller" in printed
    assert f"n2: {copy} cannot be used: its sha256 is" in printed
    assert built.builders() == {"n1": "n1", "n2": "n1"}
    assert sorted(path.name for path in (built.folder / "n2").iterdir()) == [".tool.manifest", "tool"]


def test_a_shared_folder_has_each_pack_once(built: Hosts) -> None:
    shared = built.folder / "shared"
    printed = built.play("--limit", "n1,n2,n4", "-i", "n4,", "-v", pack_shared_dir=str(shared))
    assert printed.count("source: controller") == printed.count("source: shared folder") == 1
    (pack,) = (path for path in shared.iterdir() if path.is_dir())
    places = [built.folder / name / "tool" for name in ("n2", "n4")]
    assert [place.resolve() for place in places] == [pack, pack]
    assert sorted(path.name for path in (built.folder / "n2").iterdir()) == ["tool"]
    again = CHANGED.findall(built.play("--limit", "n1,n2,n4", "-i", "n4,", pack_shared_dir=str(shared)))
    assert again == [("n1", "0"), ("n2", "0"), ("n4", "0")]
    # Who wants a folder of its own again gets it.
    shutil.rmtree(shared)
    built.play("--limit", "n2")
    assert not places[0].is_symlink()
    assert built.builders()["n2"] == "n1"


def test_a_damaged_pack_in_a_shared_folder_is_put_right_once(built: Hosts) -> None:
    shared = {"pack_shared_dir": str(built.folder / "shared")}
    built.play("--limit", "n2", **shared)
    (built.folder / "n2/tool/builder").write_text("xx")
    printed = " ".join(built.play("--limit", "n2", "-v", **shared).split())
    assert "/builder - has another content than was installed" in printed
    assert built.builders() == {"n1": "n1", "n2": "n1"}


def test_a_host_builds_in_a_folder_of_its_own_not_in_the_shared_one(built: Hosts) -> None:
    shared = {"pack_shared_dir": str(built.folder / "shared")}
    built.play("--limit", "n2", **shared)
    shutil.rmtree(built.cache)
    shutil.rmtree(built.folder / "n1")
    pack = (built.folder / "n2/tool").resolve()
    (pack / "builder").unlink()
    built.play("--limit", "n2", **shared)
    assert built.built() == ["n2"]
    assert not (built.folder / "n2/tool").is_symlink()
    assert not (pack / "builder").exists()


def test_a_shared_folder_that_differs_between_hosts_is_named(built: Hosts) -> None:
    different = {"pack_shared_dir": "{{ folder }}/{{ inventory_hostname }}/shared"}
    printed = " ".join(built.play("--limit", "n2,n4", "-i", "n4,", expect=2, **different).split())
    assert "which another host unpacked, does not exist" in printed
    assert "is the same folder on all hosts (lab_shared_packs)" in printed


def test_a_shared_folder_that_others_may_write_to_is_refused(built: Hosts) -> None:
    shared = built.folder / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    printed = " ".join(built.play("--limit", "n2", expect=2, pack_shared_dir=str(shared)).split())
    assert f"everybody may write to {shared}" in printed
    assert not (built.folder / "n2/tool").exists()


def test_what_is_built_on_a_shared_pack_is_no_pack_for_labs_without_one(hosts: Hosts) -> None:
    text = (hosts.folder / "site.yml").read_text()
    (hosts.folder / "site.yml").write_text(text + "        pack_needs: ['{{ folder }}/base']\n")
    (hosts.folder / "base").mkdir()
    hosts.play("--limit", "n1", pack_shared_dir=str(hosts.folder / "shared"))
    hosts.play("--limit", "n2")
    assert hosts.builders() == {"n1": "n1", "n2": "n2"}
