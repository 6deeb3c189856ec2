"""A driver in use is not replaced under what uses it; hosts go one after another, drained first."""

import json
import shutil
from dataclasses import replace

import pytest

from hvlab.stack.provision.driver.in_use import loading
from hvlab.stack.provision.driver.plan import plan
from tests.contract.tree import ROOT, load
from tests.unit.plays import ansible_playbook, play
from tests.unit.test_driver import BUILT, KERNEL, PYTHON, REQUEST, make

HOLDERS = [*PYTHON, {"pid": "9", "name": "ray::worker"}]
OLD = {
    "packages": {"cuda-drivers-550": "550.54.14-1"},
    "library": "550.54.14",
    "loaded": "550.54.14",
    "dkms": [BUILT],
}
NEWER = replace(REQUEST, packages=({"name": "cuda-drivers-550", "version": "550.90.07-1"},))


def planned(request=NEWER, users=(), **changes):
    return plan(make(**{**OLD, "users": users, **changes}), request, repository_ready=True)


@pytest.mark.parametrize("reboot", ["auto", "never"])
def test_an_upgrade_under_running_processes_is_refused_before_anything_changes(reboot):
    [problem] = planned(replace(NEWER, reboot=reboot), HOLDERS).problems
    assert (
        problem.observed == "driver 550.54.14 is in use by python[7], ray::worker[9], and would be replaced"
    )
    assert "end these processes" in problem.remedy
    assert "nvidia_driver_in_use: allow" in problem.remedy


@pytest.mark.parametrize(
    ("request_", "changes"),
    [
        (replace(NEWER, in_use="allow"), {}),
        # The host is drained first, and judged then.
        (replace(NEWER, in_use="drain"), {}),
        (NEWER, {"users": []}),
        # Nothing changes, or nothing that is in use.
        (REQUEST, {}),
        (replace(NEWER, load="never"), {}),
        (NEWER, {"loaded": None, "library": None}),
        (replace(NEWER, method="none"), {}),
    ],
)
def test_otherwise_it_is_not(request_, changes):
    assert not planned(request_, **{"users": HOLDERS, **changes}).problems


def test_headers_and_the_fabric_manager_come_under_running_processes():
    versions = {
        "cuda-drivers-550": ["550.54.14-1"],
        "nvidia-fabricmanager-550": ["550.54.14-1"],
        f"linux-headers-{KERNEL}": ["6.1.27-1"],
    }
    own = {"nvswitches": 6}
    result = planned(REQUEST, HOLDERS, own=own, versions=versions, headers=[])
    assert [package["name"] for package in (*result.prepare, *result.install)] == [
        f"linux-headers-{KERNEL}",
        "nvidia-fabricmanager-550",
    ]
    assert not result.interrupts
    assert not result.problems


def test_a_further_package_of_the_loaded_version_comes_too():
    request = replace(REQUEST, packages=(*REQUEST.packages, {"name": "nvidia-smi", "version": "550.54.14-1"}))
    versions = {name: ["550.54.14-1"] for name in ("cuda-drivers-550", "nvidia-smi")}
    result = planned(request, HOLDERS, versions=versions)
    assert [package["name"] for package in result.install] == ["nvidia-smi"]
    assert not result.problems


def test_what_was_installed_before_is_not_brought_into_use_under_them():
    changed = {"packages": {"cuda-drivers-550": "550.90.07-1"}, "library": "550.90.07"}
    built = [BUILT | {"version": "550.90.07"}]
    [problem] = planned(REQUEST, HOLDERS, dkms=built, **changed).problems
    assert "driver 550.54.14 is in use by python[7]" in problem.observed


@pytest.mark.parametrize("in_use", ["refuse", "allow"])
def test_a_runfile_is_never_run_under_them(in_use):
    request = replace(
        REQUEST, method="runfile", version="550.90.07", packages=(), checksum="sha256:0", in_use=in_use
    )
    result = planned(request, HOLDERS, packages={"gcc": "12.2"}, uninstaller=True)
    assert [problem.observed for problem in result.problems] == [
        "driver 550.54.14 is in use by python[7], ray::worker[9]; the runfile needs it unloaded"
    ]


@pytest.mark.parametrize(("in_use", "action"), [("refuse", "nothing"), ("allow", "reboot")])
def test_a_job_that_began_meanwhile_is_not_rebooted_away(in_use, action):
    host = make(dkms=[BUILT], library="550.54.14", loaded="535.54.03", users=HOLDERS)
    step = loading(host, replace(REQUEST, in_use=in_use))
    assert step.action == action
    assert (step.problem is not None) == (in_use == "refuse")
    if step.problem:
        assert "python[7], ray::worker[9] use it" in step.problem.observed
        assert "nvidia_driver_reboot" not in step.problem.remedy


FACTS = {
    "architecture": "x86_64",
    "distribution": "Debian",
    "distribution_major_version": "12",
    "distribution_version": "12",
    "hvlab": {"packages": {}},
    "kernel": "5.5.5",
    "os_family": "Debian",
    "pkg_mgr": "apt",
}


@pytest.fixture
def hooks(tmp_path):
    """Run the role's drain and resume with a method; return what Ansible printed and what the hooks did."""
    done = tmp_path / "done"
    task = {"name": "Resume", "ansible.builtin.lineinfile": {"path": str(done), "line": "resumed"}}
    (tmp_path / "resume.yml").write_text(json.dumps([task]))
    include = {"name": "nvidia_driver", "public": True}
    tasks = [
        {"name": "Drain", "ansible.builtin.include_role": {**include, "tasks_from": "drain.yml"}},
        {"name": "Work", "ansible.builtin.lineinfile": {"path": str(done), "line": "worked"}},
        {"name": "Resume", "ansible.builtin.include_role": {**include, "tasks_from": "resume.yml"}},
    ]
    book = tmp_path / "play.yml"
    head = {"name": "Try", "hosts": "all", "gather_facts": False}
    book.write_text(json.dumps([{**head, "tasks": tasks}]))

    def run(expect, **variables):
        given = {
            "ansible_facts": FACTS,
            "nvidia_driver_method": "none",
            "nvidia_driver_kernel": "5.5.5",
            "nvidia_driver_drain": ["sh", "-c", f"echo drained >> {done}"],
            "nvidia_driver_resume": str(tmp_path / "resume.yml"),
            "__nvidia_driver_mark": str(tmp_path / "mark"),
            **variables,
        }
        said = play(book, tmp_path / "programs", given, expect=expect)
        return said, done.read_text().split(), (tmp_path / "mark").exists()

    return run


def test_a_host_is_drained_by_a_command_and_resumed_by_tasks(hooks):
    assert hooks(0)[1:] == (["drained", "worked", "resumed"], False)


def test_a_host_is_resumed_by_tasks_of_a_role(hooks, tmp_path):
    tasks = tmp_path / "roles/own/tasks"
    tasks.mkdir(parents=True)
    shutil.copy(tmp_path / "resume.yml", tasks / "back.yml")
    assert hooks(0, nvidia_driver_resume={"name": "own", "tasks_from": "back"})[1][-1] == "resumed"


def test_a_host_that_is_still_in_use_is_resumed_and_named(hooks):
    """A method that the system does not have stands for any problem that is judged after the drain."""
    said, done, marked = hooks(2, nvidia_driver_method="elrepo")
    assert "localhost: method elrepo is not available" in said
    assert (done, marked) == (["drained", "resumed"], False)


def batches(tmp_path, *words, name="Install the NVIDIA driver", **variables):
    """Play a play with tasks in the place of its roles; return each batch, and the status."""
    [driver] = [each for each in load(ROOT / "playbooks/accelerators.yml") if each["name"] == name]
    for roles in ("pre_tasks", "roles", "post_tasks"):
        driver.pop(roles, None)
    batch = {"name": "Show", "ansible.builtin.debug": {"msg": "BATCH {{ ansible_play_batch | join(',') }}"}}
    fail = {"name": "Fail", "ansible.builtin.fail": {"msg": "no"}, "when": "inventory_hostname in broken"}
    driver |= {"become": False, "tasks": [batch | {"run_once": True}, fail]}
    first = {"name": "First", "hosts": "all", "gather_facts": False, "tasks": [batch]}
    (tmp_path / "play.yml").write_text(json.dumps([first, driver]))
    own = {"ansible_connection": "local", "broken": [], **variables}
    gpu = {"hosts": {name: {} for name in HOSTS}}
    (tmp_path / "hosts.yml").write_text(json.dumps({"all": {"vars": own, "children": {"gpu": gpu}}}))
    done = ansible_playbook("-i", tmp_path / "hosts.yml", tmp_path / "play.yml", *words)
    tail = done.stdout.partition(f"[{name}]")[2]
    return [
        line.partition("BATCH ")[2].rstrip('"').split(",") for line in tail.splitlines() if "BATCH" in line
    ], done.returncode


HOSTS = ["a", "b", "c", "d", "e", "f", "g", "h"]


@pytest.mark.parametrize(
    ("variables", "words", "sizes"),
    [
        ({}, [], [1, 2, 2, 2, 1]),
        ({"lab_driver_serial": "50%"}, [], [4, 4]),
        ({"lab_driver_serial": 1}, ["-e", '{"lab_driver_serial": ["100%"]}'], [8]),
    ],
)
def test_one_host_goes_first_and_the_others_in_parts(tmp_path, variables, words, sizes):
    shown, status = batches(tmp_path, *words, **variables)
    assert [len(hosts) for hosts in shown] == sizes
    assert status == 0


@pytest.mark.parametrize(
    ("variables", "count"),
    [
        ({"broken": ["a"]}, 1),
        ({"broken": ["a"], "lab_driver_serial": 4, "lab_driver_max_fail_percentage": 30}, 2),
    ],
)
def test_a_failure_ends_it_before_the_next_hosts(tmp_path, variables, count):
    shown, status = batches(tmp_path, **variables)
    assert len(shown) == count
    assert status == 2


@pytest.mark.parametrize(("slurm", "sizes"), [(True, [1, 2, 2, 2, 1]), (False, [8])])
def test_the_rest_of_the_stack_goes_host_by_host_where_nodes_of_slurm_are_drained(tmp_path, slurm, sizes):
    shown, status = batches(tmp_path, name="Install the GPU stack", __slurm_there=slurm)
    assert [len(hosts) for hosts in shown] == sizes
    assert status == 0


WORK = {
    "sessions": ["alice (logged in, 192.0.2.9)"],
    "containers": ["container 90d0481de3dd of Kubernetes"],
    "jobs": ["job 4242"],
    "daemons": ["kubelet", "slurmd"],
    "machines": ["virtual machine 77"],
    "processes": ["make[8] of bob", "python[7] of bob"],
}
FIRST = {"nouveau": True, "work": WORK}
REBOOT = replace(REQUEST, reboot="auto")


@pytest.mark.parametrize("work", [{kind: words} for kind, words in WORK.items()])
def test_a_reboot_that_would_end_work_is_refused_before_anything_changes(work):
    [problem] = plan(make(nouveau=True, work=work), REBOOT, repository_ready=True).problems
    assert ", ".join(words for kind in work.values() for words in kind) in problem.observed
    assert problem.remedy.endswith("nvidia_driver_reboot: always reboots all the same")


@pytest.mark.parametrize(
    ("request_", "observed"),
    [
        (replace(REBOOT, reboot="always"), FIRST),
        (replace(REBOOT, reboot="never"), FIRST),
        (replace(REBOOT, load="never"), FIRST),
        # No reboot: nouveau is not loaded, or nothing holds the driver that is replaced.
        (REBOOT, {"work": WORK}),
        (NEWER, {**OLD, "work": WORK}),
        # Slurm's jobs are judged once the host is drained.
        (replace(REBOOT, in_use="drain", drains=True), {"nouveau": True, "work": {"jobs": ["job 4242"]}}),
        (replace(REBOOT, drains=True), {"nouveau": True, "work": {"daemons": ["slurmd"]}}),
    ],
)
def test_otherwise_a_reboot_is_not_refused(request_, observed):
    assert not plan(make(**observed), request_, repository_ready=True).problems


def test_jobs_that_a_drain_waits_for_are_named_for_a_dry_run():
    drained = replace(NEWER, in_use="drain", drains=True)
    assert planned(drained, HOLDERS, work=WORK).waits == ["job 4242 of Slurm", "python[7]", "ray::worker[9]"]
    assert planned(replace(NEWER, in_use="allow"), HOLDERS, work=WORK).waits == []
    assert planned(replace(REQUEST, in_use="drain"), HOLDERS, work=WORK).waits == []


def test_who_may_lose_the_gpu_is_not_named_twice():
    allowed = replace(NEWER, in_use="allow", reboot="auto")
    result = planned(allowed, PYTHON, work=WORK)
    assert result.reboots
    [problem] = result.problems
    assert "make[8] of bob" in problem.observed
    assert "python[7]" not in problem.observed


def test_work_that_began_meanwhile_is_not_rebooted_away():
    host = make(nouveau=True, library="550.54.14", work={"sessions": WORK["sessions"]})
    step = loading(host, REBOOT)
    assert step.action == "nothing"
    assert (
        "nouveau is loaded; the driver comes into use by a reboot, which would end alice"
        in step.problem.observed
    )
    assert loading(host, replace(REBOOT, reboot="always")).action == "reboot"


def test_a_long_list_is_cut():
    work = {"processes": [f"make[{pid}] of bob" for pid in range(20)]}
    [problem] = plan(make(nouveau=True, work=work), REBOOT, repository_ready=True).problems
    assert problem.observed.endswith("make[11] of bob and 8 more")
