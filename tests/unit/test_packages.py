"""Packages: what facts decide, what package managers' answers mean, and the order of what is done."""

from __future__ import annotations

import json
import os
import re
import time
from types import SimpleNamespace

import pytest
from ansible.errors import AnsibleActionFail
from ansible.module_utils import hvlab_system as facts

from hvlab.ansible import plugin
from hvlab.ansible.action import hvlab_packages
from hvlab.ansible.action.hvlab_packages import HELD_OWN, INSTALLED_OWN, ActionModule
from hvlab.base.errors import UsageError
from hvlab.stack.provision import packages
from hvlab.stack.provision.packages import (
    PackageSpec,
    Transaction,
    apt_transaction,
    apt_versions,
    as_packages,
    complaint,
    matching,
    remedy,
    rpm_transaction,
    rpm_versions,
)

APT = """\
Reading package lists...
Purg olddrv-tool [470.1]
Purg olddrv [470.1]
Inst libnccl2 [2.22.3-1+cuda12.5] (2.21.5-1+cuda12.4 localhost [all])
Inst newdrv:amd64 (550.54 localhost [amd64])
Conf newdrv (550.54 localhost [all])
"""
DNF = """\
Last metadata expiration check: 0:00:25 ago on Fri Nov 20 19:00:49 2026.
================================================================================
 Package              Architecture    Version              Repository      Size
================================================================================
Installing:
 newdrv               noarch          3:550.54-1           test           5.5 k
     replacing  elderdrv.noarch 1.0-1
Installing dependencies:
 a-name-that-is-so-long-that-yum-breaks-the-line
                      noarch          1-1                  test           5.5 k
Downgrading:
 libnccl              noarch          2.21.5-1+cuda12.4    test           5.4 k
Removing:
 olddrv               noarch          470.1-1              @test            0
Removing dependent packages:
 olddrv-tool          noarch          470.1-1              @test            0

Transaction Summary
================================================================================
Install  1 Package
Error: Operation aborted.
"""
DNF_LIST = """\
Installed Packages
libnccl.noarch                      2.21.5-1+cuda12.4                      @test
Available Packages
libnccl.noarch                      2.21.5-1+cuda12.4                      test
libnccl.noarch                      2.22.3-1+cuda12.5                      test
a-name-that-is-so-long-that-yum-breaks-the-line.noarch
                                    3:550.54-1                             test
"""
MADISON = """\
  libnccl2 | 2.22.3-1+cuda12.5 | file:/srv/deb ./ Packages
  libnccl2 | 2.21.5-1+cuda12.4 | file:/srv/deb ./ Packages
  libnccl-dev | 2.22.3-1+cuda12.5 | file:/srv/deb ./ Packages
"""


@pytest.mark.parametrize(
    ("version", "there", "met"),
    [
        (None, "1.0", True),
        (None, None, False),
        ("2.21.5-1+cuda12.4", "2.21.5-1+cuda12.4", True),
        ("2.21.5-1+cuda12.4", "2.21.5-1+cuda12.5", False),
        ("2.21.5-1+cuda12.4", None, False),
        ("2.21.*", "2.21.5-1+cuda12.4", True),
        ("2.22.*", "2.21.5-1+cuda12.4", False),
        ("550.54", "550.54-1.el9", True),
        ("550.5", "550.54-1.el9", False),
        ("3:550.54-1.el9", "550.54-1.el9", True),
        ("3:550.*", "550.54-1.el9", True),
        ("4:12.2.0-3", "4:12.2.0-3", True),
    ],
)
def test_what_meets_a_requirement(version, there, met):
    assert PackageSpec("one", version).is_met({"one": there} if there else {}) is met


def test_packages_of_a_task():
    assert as_packages(["gcc", {"name": "make"}, {"name": "cuda", "version": "12.4"}]) == [
        PackageSpec("gcc"),
        PackageSpec("make"),
        PackageSpec("cuda", "12.4"),
    ]


@pytest.mark.parametrize(
    ("item", "observed"),
    [
        ({"version": "1"}, "is not a package"),
        ({"name": "a", "verison": "1"}, "is not a package"),
        ({"name": "cuda", "version": 12.4}, "12.4 of cuda is a number: write it in quotes"),
    ],
)
def test_what_is_no_package_is_refused(item, observed):
    with pytest.raises(UsageError, match=observed):
        as_packages([item])


def test_patterns_leave_out_what_is_wanted():
    assert matching(["nvidia-*"], ["nvidia-a", "nvidia-b", "libnvidia"], but=["nvidia-b"]) == ["nvidia-a"]


def test_what_apt_would_do():
    found = apt_transaction(APT)
    assert found == Transaction(frozenset({"libnccl2"}), frozenset({"olddrv", "olddrv-tool"}))
    assert found.touched == {"libnccl2", "olddrv", "olddrv-tool"}


def test_apt_takes_no_name_for_a_pattern():
    asked = [PackageSpec("g++")]
    for argv in [*packages.Apt().simulate(asked, []), *packages.Apt().perform(asked, [])]:
        assert "APT::Cmd::Pattern-Only=true" in argv


def test_what_dnf_would_do():
    found = rpm_transaction(DNF)
    assert found.changed == {"libnccl"}
    assert found.removed == {"olddrv", "olddrv-tool", "elderdrv"}


def test_packages_that_dpkg_could_not_configure(tmp_path, monkeypatch):
    states = {"a": "ok installed", "b": "ok half-configured", "c": "ok unpacked", "d": "ok config-files"}
    text = "".join(
        f"Package: {name}\nStatus: install {state}\nPriority: x\n\n" for name, state in states.items()
    )
    (tmp_path / "status").write_text(text)
    monkeypatch.setattr(facts, "DPKG", str(tmp_path / "status"))
    assert facts.list_unfinished() == ["b", "c"]
    monkeypatch.setattr(facts, "DPKG", str(tmp_path / "none"))
    assert facts.list_unfinished() == []


def test_versions_there_are():
    assert rpm_versions(DNF_LIST, "libnccl") == ["2.21.5-1+cuda12.4", "2.22.3-1+cuda12.5"]
    assert rpm_versions(DNF_LIST, "a-name-that-is-so-long-that-yum-breaks-the-line") == ["3:550.54-1"]
    assert apt_versions(MADISON, "libnccl2") == ["2.22.3-1+cuda12.5", "2.21.5-1+cuda12.4"]


@pytest.mark.parametrize(
    ("said", "told", "advice"),
    [
        ("Error: Unable to find a match: x-2", "Unable to find", "an available version"),
        ("E: Version '2' for 'x' was not found", "Version '2'", "an available version"),
        ("Error: GPG check FAILED\nNothing to do", "GPG check", "its signing key"),
        ("W: GPG error: http://a NO_PUBKEY 12", "NO_PUBKEY", "its signing key"),
        ("W: Failed to fetch http://a Could not connect", "Failed to fetch", "a repository does not"),
        ("Error: Failed to download metadata for repo 'a'", "metadata", "a repository does not"),
        ("Cannot find a valid baseurl for repo: base", "valid baseurl", "a repository does not"),
        (" Problem: a requires b\n  - nothing provides b", "nothing provides b", "fit together, or x"),
        (
            "E: Error, pkgProblemResolver::Resolve generated breaks, this may be caused by held packages.",
            "generated breaks",
            "fit together, or x",
        ),
        (
            "Error! Bad return status for module build on kernel: 6.17.0-14-generic (x86_64)\n"
            "Consult /var/lib/dkms/nvidia/550.163.01/build/make.log for more information.\n"
            "dpkg: error processing package nvidia-dkms-550 (--configure):\n"
            "E: Sub-process /usr/bin/dpkg returned an error code (1)",
            "Consult /var/lib/dkms/nvidia/550.163.01/build/make.log",
            "a newer branch of the driver",
        ),
        ("E: dpkg was interrupted, you must run it", "interrupted", "`dpkg --configure -a`"),
        ("E: Could not get lock /var/lib/dpkg/lock", "Could not get lock", "another package manager"),
    ],
)
def test_errors_are_read(said, told, advice):
    assert told in complaint(said)
    assert advice in remedy(said, "x")


def test_holds_and_module_streams(monkeypatch, tmp_path):
    lock = '# Added\nlibnccl-0:2.21.5-1+cuda12.4.*\n!bad-0:1-1.*\n0:nvidia-driver-550.54-1.*\nname = "curl"\n'
    texts = {facts.LOCKS[0]: lock, facts.HELD_OWN: '["libnccl", "gone"]'}
    monkeypatch.setattr(facts.os.path, "exists", lambda _: False)
    monkeypatch.setattr(facts, "read", texts.get)
    assert facts.list_held() == ["curl", "libnccl", "nvidia-driver"]
    assert facts.list_held_own() == ["libnccl"]
    monkeypatch.setattr(facts.glob, "glob", lambda _: ["m"])
    monkeypatch.setattr(
        facts,
        "read",
        lambda _: "[nvidia-driver]\nstream=550-dkms\nstate=enabled\n[b]\nstate=\n",
    )
    assert facts.module_streams() == {"nvidia-driver": "550-dkms"}


def test_dpkg_holds(monkeypatch):
    monkeypatch.setattr(facts.os.path, "exists", lambda _: True)
    monkeypatch.setattr(facts, "run", lambda *_: "install bash\nhold libnccl2\n")
    assert facts.list_held() == ["libnccl2"]


class Host:
    """A host that answers commands from a list: (words that are in the command, its answer)."""

    def __init__(self, manager="apt", packages=None, held=(), own=(), came=None):
        self.observed = {"packages": packages or {}, "held": list(held), "held_own": list(own)}
        self.observed["installed_own"] = dict(came or {})
        self.manager = manager
        self.commands: list[str] = []
        self.files: list[dict] = []
        self.answers: list[tuple[str, dict]] = []
        self.modules: list[str] = []

    def task(self, args, check_mode=False):
        module = ActionModule.__new__(ActionModule)
        module._task = SimpleNamespace(args=args, check_mode=check_mode, async_val=0)
        module._execute_module = self.execute
        known = {"hvlab": self.observed, "pkg_mgr": self.manager}
        base = plugin.ActionBase
        run, base.run = base.run, lambda *_: {}
        try:
            return module.run(None, {"inventory_hostname": "n1", "ansible_facts": known})
        finally:
            base.run = run

    def execute(self, *, module_name, module_args, task_vars):
        self.modules.append(module_name)
        if module_name == "hvlab_files":
            self.files += module_args["files"]
        if module_name != "ansible.builtin.command":
            return {}
        command = " ".join(module_args["argv"])
        self.commands.append(command)
        for words, answer in self.answers:
            if all(word in command for word in words.split()):
                return {"rc": 0, "stdout": "", "stderr": "", **answer}
        return {"rc": 0, "stdout": "", "stderr": ""}


def test_nothing_to_do_costs_no_round_trip():
    host = Host(packages={"gcc": "1"}, held=["gcc"])
    done = host.task({"name": ["gcc"], "hold": True, "replaces": ["old*"]})
    assert done["changed"] is False
    assert host.commands == []


def test_check_mode_says_what_would_come():
    host = Host(packages={"gcc": "1"})
    done = host.task({"name": [{"name": "gcc", "version": "2"}, "make"], "hold": True}, check_mode=True)
    assert done["changed"]
    assert done["packages"] == ["gcc", "make"]
    assert done["diff"]["after"] == "gcc 2\nmake\ngcc held\nmake held\n"
    assert (done["comes"], done["removed"]) == ({"gcc": "2", "make": ""}, [])
    assert all("--simulate" in command for command in host.commands)


def test_check_mode_names_every_package_with_its_version():
    host = Host(packages={"libnccl2": "2.22.3-1+cuda12.5", "olddrv": "470.1", "olddrv-tool": "470.1"})
    host.answers = [("--simulate", {"stdout": APT})]
    done = host.task({"name": ["newdrv"], "replaces": ["olddrv*"]}, check_mode=True)
    assert done["comes"] == {"newdrv": "550.54", "libnccl2": "2.21.5-1+cuda12.4"}
    assert done["removed"] == ["olddrv", "olddrv-tool"]


def test_a_table_of_dnf_has_the_versions():
    assert rpm_transaction(DNF).comes == {"newdrv": "3:550.54-1", "libnccl": "2.21.5-1+cuda12.4"}


@pytest.mark.parametrize("manager", ["apt", "dnf"])
def test_what_somebody_holds_is_not_touched(manager):
    host = Host(manager, packages={"gcc": "1"}, held=["gcc"])
    with pytest.raises(AnsibleActionFail, match=r"n1: gcc 1 is held there (?s:.*)`\w+[ -]"):
        host.task({"name": [{"name": "gcc", "version": "2"}]})
    assert host.commands == []


def test_our_own_hold_is_changed_and_set_again():
    host = Host(packages={"gcc": "1"}, held=["gcc"], own=["gcc"])
    host.answers = [
        ("--simulate", {"stdout": "Inst gcc [1] (2 x)"}),
        ("dpkg-query", {"stdout": "installed gcc 2"}),
    ]
    done = host.task({"name": [{"name": "gcc", "version": "2"}]})
    assert done["changed"]
    installing = next(c for c in host.commands if "install" in c and "--simulate" not in c)
    assert "--allow-change-held-packages" in installing
    assert "--allow-downgrades" in installing
    assert "gcc=2" in installing
    assert host.commands[-1].endswith("apt-mark hold -- gcc")
    assert done["ansible_facts"]["hvlab"]["packages"] == {"gcc": "2"}


def test_without_a_hold_of_ours_apt_may_not_change_held_ones():
    host = Host(held=["make"], packages={"make": "1"})
    host.answers = [
        ("--simulate", {"stdout": "Inst gcc (2 x)"}),
        ("dpkg-query", {"stdout": "installed gcc 2"}),
    ]
    host.task({"name": ["gcc"], "hold": True})
    assert not [c for c in host.commands if "--allow-change-held-packages" in c]
    written = {file["path"]: json.loads(file["content"]) for file in host.files}
    assert written == {HELD_OWN: ["gcc"]}


@pytest.mark.parametrize(
    ("asked", "came"),
    [
        ([{"name": "gcc", "version": "2"}], {"make": False, "libgcc": False}),
        (["libgcc"], {"make": False, "libgcc": True}),
        (["/root/libgcc.deb"], {"make": False, "libgcc": True}),
        (["make", "libgcc"], {"make": True, "libgcc": True}),
    ],
)
def test_what_came_is_recorded_and_what_was_there_is_not(asked, came):
    host = Host(packages={"gcc": "1", "make": "1"}, own=["gcc"], came={"make": False, "gone": True})
    host.answers = [
        ("--simulate", {"stdout": "Inst libgcc (2 x)"}),
        ("dpkg-query", {"stdout": "installed gcc 2\ninstalled libgcc 2\ninstalled make 1"}),
    ]
    done = host.task({"name": asked, "recorded": True})
    assert done["ansible_facts"]["hvlab"]["installed_own"] == came
    [file] = host.files
    assert (file["path"], json.loads(file["content"])) == (INSTALLED_OWN, came)


REMOVING_DNF = """
 Package        Architecture  Version   Repository  Size
Removing:
 cuda           x86_64        13.0-1    @cuda       0
Removing unused dependencies:
 cuda-nvcc      x86_64        13.0-1    @cuda       90 M

Transaction Summary
Operation aborted.
"""


@pytest.mark.parametrize(
    ("manager", "answers"),
    [
        (
            "apt",
            [
                ("--auto-remove -- cuda", {"stdout": "Purg cuda [1]\nPurg cuda-nvcc [1]\nPurg orphan [1]"}),
                ("-- cuda", {"stdout": "Purg cuda [1]"}),
            ],
        ),
        (
            "dnf",
            [
                ("remove=1", {"rc": 1, "stdout": REMOVING_DNF}),
                ("remove", {"rc": 1, "stdout": re.sub("(?m)^Removing unused.*\n.*\n", "", REMOVING_DNF)}),
            ],
        ),
    ],
)
def test_dependencies_go_that_nothing_else_needs(manager, answers):
    host = Host(
        manager,
        packages=dict.fromkeys(["cuda", "cuda-nvcc", "orphan"], "1"),
        own=["cuda"],
        came={"cuda": True, "cuda-nvcc": False},
    )
    host.answers = answers
    wanted = {"name": ["cuda"], "state": "absent", "unused": True, "allow_removal": []}
    done = host.task(wanted, check_mode=True)
    assert done["removed"] == ["cuda", "cuda-nvcc"]


def test_a_package_that_something_needs_is_not_removed():
    host = Host(packages={"cuda": "1", "theirs": "1"}, own=["cuda"])
    host.answers = [("--simulate", {"stdout": "Purg theirs [1]\nPurg cuda [1]"})]
    wanted = {"name": ["cuda"], "state": "absent", "unused": True, "allow_removal": [], "remedy": "x"}
    with pytest.raises(AnsibleActionFail, match="cuda cannot be removed: theirs would be removed with it"):
        host.task(wanted, check_mode=True)


def test_lists_that_another_program_reads_are_waited_for(monkeypatch):
    host = Host()
    host.answers = [
        ("--simulate", {"rc": 100, "stderr": "E: Unable to locate package gcc"}),
        ("update", {"rc": 100, "stderr": "E: Could not get lock /var/lib/apt/lists/lock. It is held by 7"}),
        ("dpkg-query", {"stdout": "installed gcc 2"}),
    ]

    def unlock(_):
        host.answers[:2] = [("--simulate", {"stdout": "Inst gcc (2 x)"})]

    monkeypatch.setattr(hvlab_packages.time, "sleep", unlock)
    assert host.task({"name": ["gcc"]})["changed"]
    assert sum("update" in command for command in host.commands) == 2


def test_a_version_that_vanished_is_told_before_anything_goes():
    host = Host("dnf", packages={"olddrv": "1-1"})
    refused = {"rc": 1, "stderr": "Error: Unable to find a match: libnccl-9"}
    host.answers = [
        ("install --assumeno", refused),
        ("install", refused),
        ("list --showduplicates", {"stdout": DNF_LIST}),
    ]
    with pytest.raises(AnsibleActionFail) as caught:
        host.task({"name": [{"name": "libnccl", "version": "9"}], "replaces": ["olddrv"]})
    text = str(caught.value)
    assert "n1: nothing was changed" in text
    assert "libnccl 9 is not available; the repositories have 2.21.5-1+cuda12.4, 2.22.3-1+cuda12.5" in text
    assert "What to do: request an available version" in text
    assert all("--assumeno" in c or "list" in c or "expire-cache" in c for c in host.commands)
    assert [c for c in host.commands if "expire-cache" in c]


def test_what_others_need_is_not_taken_away():
    host = Host(packages={"hwloc": "1"})
    host.answers = [("--simulate", {"stdout": "Purg hwloc [1]\nPurg slurmd [2]\n"})]
    with pytest.raises(
        AnsibleActionFail, match=r"n1: hwloc cannot be removed: slurmd would be removed (?s:.*) or say so\."
    ):
        host.task({"name": ["hwloc"], "state": "absent", "allow_removal": ["libhwloc*"], "remedy": "say so"})
    assert len(host.commands) == 1


@pytest.mark.parametrize(("free", "refused"), [(1024, True), (1025, False), (None, False)])
def test_packages_that_do_not_fit_are_refused_before_anything_is_changed(free, refused):
    host = Host(packages={"theirs": "1"})
    host.observed["disk_free_mb"] = {"/usr": free}
    sizes = "Package: gcc\nInstalled-Size: 1000000\n\nPackage: cpp\nInstalled-Size: 49600\nSize: 9\n"
    host.answers = [
        ("--simulate", {"stdout": "Inst gcc (2 x)\nInst cpp (2 x)\nInst theirs [1] (2 x)"}),
        ("apt-cache show -- gcc=2 cpp=2", {"stdout": sizes}),
        ("dpkg-query", {"stdout": "installed gcc 2"}),
    ]
    if refused:
        with pytest.raises(
            AnsibleActionFail, match=r"n1: 2 new packages take 1025 MiB, and /usr has 1024 MiB"
        ):
            host.task({"name": ["gcc"]})
    else:
        assert host.task({"name": ["gcc"]})["changed"]
    assert any(" -y " in one and "--simulate" not in one for one in host.commands) is not refused


def test_dnf_fetches_before_it_removes():
    host = Host("dnf", packages={"olddrv": "1-1", "python3-dnf-plugin-versionlock": "1"})
    host.answers = [
        ("--assumeno remove", {"rc": 1, "stdout": "Removing:\n olddrv noarch 1-1\nOperation aborted."}),
        ("--assumeno", {"rc": 1, "stdout": "Installing:\n newdrv noarch 2-1\nOperation aborted."}),
        ("rpm -qa", {"stdout": "installed newdrv 2-1\n"}),
    ]
    done = host.task({"name": [{"name": "newdrv", "version": "2-1"}], "replaces": ["olddrv"], "hold": True})
    doing = [c for c in host.commands if " -y " in c]
    assert ["--downloadonly" in c for c in doing] == [True, False, False]
    assert [" remove " in c for c in doing] == [False, True, False]
    assert done["removed"] == ["olddrv", "python3-dnf-plugin-versionlock"]
    assert host.commands[-1].endswith("dnf versionlock add newdrv")


def test_whether_it_is_possible_is_asked_and_nothing_is_done():
    host = Host("dnf", packages={"olddrv": "1-1"})
    args = {"name": ["newdrv"], "replaces": ["olddrv"], "state": "possible", "modules": ["nvidia-driver:550"]}
    host.answers = [
        ("--assumeno", {"rc": 1, "stdout": "Installing:\n newdrv noarch 2-1\nOperation aborted."})
    ]
    done = host.task(args)
    assert (done["changed"], done["packages"]) == (True, [])
    assert done["ansible_facts"]["hvlab"]["module_streams"] == {"nvidia-driver": "550"}
    assert "module enable nvidia-driver:550" in host.commands[2]
    assert all("--assumeno" in command for command in host.commands[3:])
    assert len(host.commands) == 5
    host.answers = [("--assumeno", {"rc": 1, "stderr": "Error: Unable to find a match: newdrv"})]
    with pytest.raises(AnsibleActionFail, match="n1: nothing was changed"):
        host.task(args)
    before = list(host.commands)
    assert host.task(args, check_mode=True) == {"changed": True, "packages": []}
    assert host.commands == before


def test_a_failure_says_what_is_gone_already():
    host = Host(packages={"olddrv": "1"})
    host.answers = [
        ("--simulate", {"stdout": "Inst newdrv (2 x)\nPurg olddrv [1]"}),
        ("--download-only", {"rc": 100, "stderr": "E: Failed to fetch http://a/b.deb 404 Not Found"}),
        ("dpkg-query", {"stdout": "installed olddrv 1"}),
    ]
    with pytest.raises(AnsibleActionFail, match=r"\(nothing was changed\)"):
        host.task({"name": ["newdrv"], "replaces": ["olddrv"]})


INSTALLED = [("--simulate", {"stdout": "Inst gcc (2 x)"}), ("dpkg-query", {"stdout": "installed gcc 2"})]


@pytest.mark.parametrize(("age", "read"), [(None, True), (90_000, True), (80_000, False), (0, False)])
def test_lists_of_a_day_are_not_read_again(age, read):
    host = Host()
    host.observed["lists_age"] = age
    host.answers = INSTALLED
    done = host.task({"name": ["gcc"]})
    assert ("ansible.builtin.apt" in host.modules) is read
    assert done["ansible_facts"]["hvlab"]["lists_age"] == (0 if read else age)


def test_a_package_that_left_the_mirror_is_fetched_after_the_lists_were_read():
    host = Host()
    host.observed["lists_age"] = 80_000
    gone = {"rc": 100, "stderr": "E: Failed to fetch http://a/gcc_1.deb  404  Not Found"}
    host.answers = [*INSTALLED, ("install", gone)]

    def refreshed(**call):
        answer = Host.execute(host, **call)
        if "update" in host.commands[-1]:
            host.answers = INSTALLED
        return answer

    host.execute = refreshed
    done = host.task({"name": ["gcc"]})
    assert done["ansible_facts"]["hvlab"]["packages"] == {"gcc": "2"}
    assert done["ansible_facts"]["hvlab"]["lists_age"] == 0
    words = [next(w for w in ("simulate", "update", "install", "query") if w in c) for c in host.commands]
    assert words == ["simulate", "install", "update", "simulate", "install", "query"]


def test_the_age_of_apts_lists(tmp_path, monkeypatch):
    lists, stamp = tmp_path / "lists", tmp_path / "stamp"
    monkeypatch.setattr(facts, "LISTS", str(lists))
    monkeypatch.setattr(facts, "LISTS_STAMP", str(stamp))
    lists.mkdir()
    assert facts.lists_age() is None
    (lists / "mirror_dists_bookworm_InRelease").touch()
    os.utime(lists, (0, time.time() - 1000))
    assert 1000 <= facts.lists_age() < 1060
    stamp.touch()
    assert facts.lists_age() < 60


def test_an_unknown_package_manager_is_named():
    with pytest.raises(AnsibleActionFail, match="n1: packages are managed by zypper"):
        Host("zypper").task({"name": ["gcc"]})


def test_yum_looks_for_the_versions_where_it_cannot_simulate():
    host = Host("yum", packages={"olddrv": "1-1"})
    host.answers = [("list --showduplicates", {"stdout": DNF_LIST})]
    with pytest.raises(AnsibleActionFail, match=r"libnccl 9 is not available; the repositories have 2\.21"):
        host.task({"name": [{"name": "libnccl", "version": "9"}], "replaces": ["olddrv"]})
    assert not [c for c in host.commands if " -y " in c and "expire-cache" not in c]


def test_what_others_provide_by_that_name_is_no_change():
    host = Host("dnf", packages={"python36": "3.6-1"})
    told = "Package python36 is already installed.\nNothing to do."
    host.answers = [("--assumeno", {"stdout": told}), ("rpm -qa", {"stdout": "installed python36 3.6-1\n"})]
    assert host.task({"name": ["python3"]})["changed"] is False


def test_a_lock_of_our_own_follows_what_changed_along():
    """dnf's locks name a version: after the change the old one would stay locked."""
    host = Host("dnf", packages={"cuda": "1-1", "cuda-libs": "1-1"}, held=["cuda", "cuda-libs"])
    host.observed["held_own"] = ["cuda", "cuda-libs"]
    host.observed["packages"]["python3-dnf-plugin-versionlock"] = "4-1"
    host.answers = [
        ("--assumeno", {"rc": 1, "stdout": "Upgrading:\n cuda x\n cuda-libs x\nOperation aborted"}),
        ("-qa", {"stdout": "installed cuda 2-1\ninstalled cuda-libs 2-1"}),
    ]
    host.task({"name": [{"name": "cuda", "version": "2-*"}]})
    assert host.commands[-1].endswith("dnf versionlock add cuda cuda-libs")
