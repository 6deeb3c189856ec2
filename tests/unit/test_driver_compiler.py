"""Kernels that were built with another gcc than the host's own: as Ubuntu 22.04's of the later hardware."""

from dataclasses import replace

import pytest
from ansible.module_utils import hvlab_kernel

from hvlab.stack.provision.driver.plan import plan
from hvlab.stack.resolver import facts
from hvlab.stack.resolver import plan as resolved
from tests.unit.test_driver import KERNEL, REQUEST, make
from tests.unit.test_driver_role import filled
from tests.unit.test_resolver import lab

# As recorded in public logs. The last is of an image that Debian built.
PROC_VERSION = {
    "Linux version 6.8.0-60-generic (buildd@lcy02-amd64-098) (x86_64-linux-gnu-gcc-12 "
    "(Ubuntu 12.3.0-1ubuntu1~22.04) 12.3.0, GNU ld (GNU Binutils for Ubuntu) 2.38) "
    "#63~22.04.1-Ubuntu SMP PREEMPT_DYNAMIC Tue Apr 22 19:00:15 UTC 2": "12",
    "Linux version 6.5.0-1014-aws (buildd@lcy02-amd64-032) (x86_64-linux-gnu-gcc-11 "
    "(Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0, GNU ld (GNU Binutils for Ubuntu) 2.38) "
    "#14~22.04.1-Ubuntu SMP Thu Feb 15 15:27:06 UTC 2024": "11",
    "Linux version 5.15.0-101-generic (buildd@lcy02-amd64-032) (gcc (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0, "
    "GNU ld (GNU Binutils for Ubuntu) 2.38) #111-Ubuntu SMP Tue Mar 5 20:16:58 UTC 2024": "11",
    "Linux version 4.4.0-34-lowlatency (buildd@lgw01-20) (gcc version 5.3.1 20160413 "
    "(Ubuntu 5.3.1-14ubuntu2.1) ) #53-Ubuntu SMP PREEMPT Wed Jul 27 19:23:26 UTC 2016": "5",
    "Linux version 6.6.1 (build@host) (Debian clang version 16.0.6 (15), LLD 16.0.6) #1 SMP": None,
    "": None,
}
ORACLES = {"distribution": "OracleLinux", "distribution_version": "9.6", "python": "3.9", "kernel_gcc": "14"}
DEBIANS = {
    "distribution": "Debian",
    "distribution_version": "12.12",
    "python": "3.11",
    "gcc": "12.2.0",
    "kernel_gcc": "11",
}
UBUNTUS = replace(REQUEST, compiler_package="gcc-{}")
VERSIONS = {"cuda-drivers-550": ["550.90.07-1"], "gcc-12": ["12.3.0-1ubuntu1~22.04"]}


def planned(request=UBUNTUS, own=(), **state):
    return plan(
        make(own={"gcc": "11.4.0", **dict(own)}, versions=VERSIONS, **state), request, repository_ready=True
    )


@pytest.mark.parametrize(("text", "gcc"), PROC_VERSION.items())
def test_the_gcc_of_the_running_kernel(tmp_path, text, gcc):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/version").write_text(text)
    assert hvlab_kernel.kernel_gcc(str(tmp_path)) == gcc


@pytest.mark.parametrize("known", [{"compiler": "12"}, {"own": {"kernel_gcc": "12"}}])
@pytest.mark.parametrize("gcc", ["11.4.0", None])
def test_the_kernels_gcc_is_installed_before_the_modules_are_built(known, gcc):
    result = planned(**{**known, "own": {**known.get("own", {}), "gcc": gcc}})
    assert result.prepare == [{"name": "gcc-12", "version": None}]
    assert result.compiler == "gcc-12"
    [note] = result.notes
    assert f"kernel {KERNEL} was built with gcc 12, and gcc here is {gcc or 'missing'}" in note
    assert note.endswith("the modules are built with gcc-12")
    assert not result.problems


def test_a_gcc_that_no_repository_has_is_a_problem():
    result = plan(make(own={"gcc": "11.4.0"}, compiler="12"), UBUNTUS, repository_ready=True)
    assert "package gcc-12 is not available" in result.problems[0].observed
    assert result.problems[0].remedy.startswith("boot one of the system's own kernels")


@pytest.mark.parametrize(
    ("request_", "changes"),
    [
        (UBUNTUS, {"own": {"gcc": "12.3.0"}, "compiler": "12"}),
        (UBUNTUS, {"own": {}}),
        # A kernel other than the running one.
        (replace(UBUNTUS, kernel="5.5.5"), {"own": {"kernel_gcc": "12"}, "headers": ["5.5.5"]}),
        # Nothing is built.
        (replace(UBUNTUS, method="none"), {"compiler": "12", "loaded": "550.54.14"}),
    ],
)
def test_otherwise_none_is(request_, changes):
    result = planned(request_, **changes)
    assert not result.prepare
    assert not result.compiler
    assert not result.notes


def test_where_a_system_has_no_second_gcc_it_is_only_said():
    result = planned(REQUEST, compiler="12")
    assert not result.prepare
    assert not result.compiler
    assert result.notes[0].endswith("if they do not build, install gcc 12")


@pytest.mark.parametrize(("compiler", "environment"), [("gcc-12", {"CC": "gcc-12"}), ("", {})])
def test_dkms_is_given_the_compiler(compiler, environment):
    known = {"__nvidia_driver_plan": {"compiler": compiler}}
    assert filled("__nvidia_driver_environment", **known) == environment


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kernel_gcc": "12"}, "gcc 12, and gcc here is 11: gcc-12 is installed first"),
        ({"kernel_gcc": 12, "gcc": None}, "gcc 12, and gcc here is missing: gcc-12 is installed first"),
        ({"kernel_gcc": "15"}, "has no gcc 15; boot one of its own kernels, or add a repository with it"),
        (ORACLES, "gcc here is 11: if the driver's modules do not build, install gcc-toolset-14-gcc"),
        (DEBIANS, "gcc here is 12: if the driver's modules do not build, install gcc-11"),
        ({"kernel_gcc": "12", "driver": "570.172.08"}, None),
        ({"kernel_gcc": "11"}, None),
        ({}, None),
    ],
)
def test_the_plan_says_so(changes, said):
    notes = [note for note in resolved(lab("n1", **changes)).hosts["n1"]["notes"] if "kernel was" in note]
    assert [said in note for note in notes] == ([True] if said else [])


def test_a_facts_file_keeps_it():
    [host] = facts.from_file(
        {"n1": {"distribution": "Ubuntu", "distribution_version": "22.04", "kernel_gcc": "12"}}
    ).values()
    assert host.as_json()["kernel_gcc"] == "12"
    assert facts.from_ansible("n1", {"hvlab": {"kernel_gcc": "12"}}).kernel_gcc == "12"
