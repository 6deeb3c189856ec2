"""Limits of nodes in control groups of both versions, in a tree of their own."""

import errno
import os
from pathlib import Path

import pytest

from hvlab.base.errors import HvlabError
from hvlab.vlab import enter_cgroup, limits
from hvlab.vlab.limits import Controller, NodeLimits

GROUP = "hvlab/lab/n1"
LIMITS = NodeLimits(cpus=(0, 1, 4), memory=2**30, weight=50)
V1 = """\
32 31 0:29 / {0}/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
34 31 0:31 / {0}/cpuset rw,relatime - cgroup cgroup rw,cpuset
35 31 0:32 / {0}/memory rw,relatime - cgroup cgroup rw,memory
40 31 0:37 / {0}/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / {0}/unified rw,relatime - cgroup2 cgroup2 rw
"""
V2 = "30 23 0:26 / {0} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"


@pytest.fixture
def version_1(tmp_path):
    for name in ("cpu,cpuacct", "cpuset", "memory", "unified"):
        (tmp_path / name / GROUP).mkdir(parents=True)
    (tmp_path / "unified/cgroup.controllers").write_text("\n")
    return limits.controllers(V1.format(tmp_path))


@pytest.fixture
def version_2(tmp_path):
    (tmp_path / GROUP).mkdir(parents=True)
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    for folder in (tmp_path, tmp_path / "hvlab", tmp_path / "hvlab/lab"):
        (folder / "cgroup.subtree_control").write_text("pids\n")
    return limits.controllers(V2.format(tmp_path))


def test_version_1_has_a_tree_for_each_controller(version_1, tmp_path):
    assert {name: controller.version for name, controller in version_1.items()} == dict.fromkeys(
        limits.CONTROLLERS, 1
    )
    assert limits.write(GROUP, LIMITS, version_1) == []
    assert (tmp_path / "cpuset" / GROUP / "cpuset.cpus").read_text() == "0-1,4"
    assert (tmp_path / "memory" / GROUP / "memory.limit_in_bytes").read_text() == str(2**30)
    assert (tmp_path / "cpu,cpuacct" / GROUP / "cpu.shares").read_text() == "512"


def test_version_2_has_one_tree_and_passes_controllers_on(version_2, tmp_path):
    assert version_2["memory"] == Controller(tmp_path, 2)
    assert limits.write(GROUP, LIMITS, version_2) == []
    assert (tmp_path / GROUP / "cpuset.cpus").read_text() == "0-1,4"
    assert (tmp_path / GROUP / "memory.max").read_text() == str(2**30)
    assert (tmp_path / GROUP / "cpu.weight").read_text() == "50"
    for folder in (tmp_path, tmp_path / "hvlab", tmp_path / "hvlab/lab"):
        assert (folder / "cgroup.subtree_control").read_text().startswith("+")
    assert not (tmp_path / GROUP / "cgroup.subtree_control").exists()


@pytest.mark.parametrize(("version", "unlimited"), [(1, "-1"), (2, "max")])
def test_without_a_limit_memory_is_free_again(version, unlimited):
    assert limits.settings(NodeLimits((0,)))["memory", version][1] == unlimited


def test_a_controller_that_is_not_there_is_told(version_1):
    del version_1["cpuset"]
    assert limits.write(GROUP, LIMITS, version_1) == ["cpuset"]


def test_systemd_gets_properties_of_the_nodes_unit():
    assert limits.properties(LIMITS) == ["AllowedCPUs=0-1,4", "MemoryMax=1073741824", "CPUWeight=50"]
    assert limits.unit_of("0::/machine.slice/lab-n1.scope/payload/init.scope\n") == "lab-n1.scope"
    assert limits.unit_of("4:memory:/hvlab/lab/n1\n0::/init.scope\n") is None


def test_a_nodes_unit_is_the_innermost():
    nested = "/system.slice/docker-1a2b.scope/machine.slice/lab-n1.scope/payload/init.scope"
    assert limits.unit_of(f"1:name=systemd:{nested}\n0::{nested}\n") == "lab-n1.scope"


def test_memory_that_cannot_be_limited_is_an_error_and_cores_are_a_remark(monkeypatch):
    own = NodeLimits(cpus=tuple(os.sched_getaffinity(0)), memory=2**30)
    monkeypatch.setattr(limits, "write", lambda *_: ["memory"])
    with pytest.raises(HvlabError, match="n1: its memory cannot be limited"):
        limits.apply("n1", GROUP, os.getpid(), own, unit=False)
    other = NodeLimits(cpus=(10**5,))
    monkeypatch.setattr(limits, "write", lambda *_: [])
    failed = limits.apply("n1", GROUP, os.getpid(), other, unit=False)
    assert limits.remarks(failed, other) == "could not be kept on the cores 100000"


def test_a_group_of_version_2_that_holds_processes_is_named(version_2, tmp_path, monkeypatch):
    def busy(*_):
        raise OSError(errno.EBUSY, "Device or resource busy")

    monkeypatch.setattr(limits, "controllers", lambda _: version_2)
    monkeypatch.setattr(limits, "_pass_on", busy)
    own = NodeLimits(cpus=tuple(os.sched_getaffinity(0)), memory=2**30)
    with pytest.raises(HvlabError, match="n1: its memory cannot be limited") as caught:
        limits.apply("n1", GROUP, os.getpid(), own, unit=False)
    assert f"move those in {tmp_path}/cgroup.procs to a new group below it" in str(caught.value.remedy)


def test_a_new_group_of_cpuset_has_the_cpus_of_the_groups_above(tmp_path):
    (tmp_path / GROUP).mkdir(parents=True)
    for folder in (tmp_path / GROUP, *(tmp_path / GROUP).parents):
        if tmp_path in (folder, *folder.parents):
            for name in ("cpuset.cpus", "cpuset.mems"):
                (folder / name).write_text("\n")
    (tmp_path / "cpuset.cpus").write_text("0-3\n")
    (tmp_path / "cpuset.mems").write_text("0\n")
    (tmp_path / "hvlab/lab/cpuset.cpus").write_text("2\n")
    enter_cgroup.inherit(tmp_path, GROUP)
    assert (tmp_path / GROUP / "cpuset.cpus").read_text() == "2\n"
    assert (tmp_path / GROUP / "cpuset.mems").read_text() == "0\n"


def test_other_hierarchies_are_left_alone(tmp_path):
    (tmp_path / GROUP).mkdir(parents=True)
    enter_cgroup.inherit(tmp_path, GROUP)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_this_machines_controllers_can_be_read():
    text = Path("/proc/self/mountinfo").read_text()
    assert {controller.version for controller in limits.controllers(text).values()} <= {1, 2}
