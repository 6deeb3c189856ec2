"""What the driver does with the facts of hosts before it starts a case on them."""

import json
import os
import shutil
import socket
from pathlib import Path

import pytest

from hvlab.ansible.action.hvlab_case import ActionModule, _explain_lost, _find_unreachable, _keep, _silent
from hvlab.results import journal
from tests.unit.plays import program
from tests.unit.test_capability import gpus
from tests.unit.test_variants import facts

CASE = {
    "backend": "nccl",
    "variant": "cpu",
    "stack": "",
    "device": "cuda",
    "slots": 2,
    "hosts": ["n1", "n2"],
    "asked": True,
}
BUILT = facts("mpi", "nccl")
KEPT = {"cases": ["one"], "heads": {"one": "n1"}}


def check(folder, case, *, head="", hostvars=None, **hosts):
    plan = {"lab": "lab", "hosts": list(hosts), "head": head, "cases": {"one": case}}
    hostvars = {name: {"ansible_facts": found} for name, found in hosts.items()} | (hostvars or {})
    action = object.__new__(ActionModule)
    return action._check(plan, folder, {"hostvars": hostvars})


def test_a_case_whose_hosts_have_the_gpus_is_kept(tmp_path):
    assert check(tmp_path, CASE, n1={**BUILT, **gpus(2)}, n2={**BUILT, **gpus(4)}) == KEPT


@pytest.mark.parametrize(
    ("observed", "told"),
    [
        (gpus(0), "n2 is in the group gpu, but shows no NVIDIA GPU"),
        (gpus(1), "n2 has 1 usable GPUs for 2 ranks"),
        (gpus(2, usable=False), "n2 has 2 NVIDIA GPUs, but no driver for them"),
    ],
)
def test_a_backend_that_was_asked_for_is_refused_with_its_remedy(tmp_path, observed, told):
    result = check(tmp_path, CASE, n1={**BUILT, **gpus(2)}, n2={**BUILT, **observed})
    assert result == {"failed": True, "msg": told}
    refused = json.loads((tmp_path / "refused.json").read_text())["nccl"]
    assert refused["observed"] == told
    assert refused["remedy"]


def test_results_that_cannot_be_written_are_this_machines(tmp_path):
    plan = {"lab": "lab", "hosts": ["n1"], "head": "", "cases": {"one": {**CASE, "hosts": ["n1"]}}}
    variables = {"hostvars": {"n1": {"ansible_facts": {**BUILT, **gpus(2)}}}}
    action = object.__new__(ActionModule)
    result = action._reach_state({"state": "checked"}, plan, tmp_path / "gone", variables)
    assert result["stop"]
    assert result["msg"].startswith(f"this machine: {tmp_path}/gone/")
    assert "No such file or directory; what to do: check that the folder exists" in result["msg"]


def test_a_backend_that_was_not_asked_for_is_skipped(tmp_path):
    case = {**CASE, "asked": False}
    assert check(tmp_path, case, n1={**BUILT, **gpus(2)}, n2={**BUILT, **gpus(0)}) == {
        "cases": [],
        "heads": {},
    }
    assert "no NVIDIA GPU" in json.loads((tmp_path / "one/case.json").read_text())["skipped"]


def test_the_folder_of_a_skipped_case_is_whole_or_not_there(tmp_path, monkeypatch):
    """`hvlab bench` takes a case in as soon as its folder is there."""
    begun, synced = [], os.fsync

    def watched(descriptor):
        begun.append((tmp_path / "one").exists())
        return synced(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    check(tmp_path, {**CASE, "asked": False}, n1={**BUILT, **gpus(2)}, n2={**BUILT, **gpus(0)})
    assert len(begun) > 1
    assert begun[-1]
    assert not any(begun[:-1])


def synced_paths(monkeypatch):
    """Return a list to which each path is added that is brought to disk."""
    paths = []
    monkeypatch.setattr(os, "fsync", lambda handle: paths.append(Path(f"/proc/self/fd/{handle}").readlink()))
    return paths


def test_the_files_of_a_case_are_on_disk_before_they_are_taken_in(tmp_path, monkeypatch):
    """After a power cut there was a record, and no files."""
    synced = synced_paths(monkeypatch)
    _keep({"case.json": b"{}", "out": b"text"}, tmp_path / "one")
    part = tmp_path / ".one.part"
    assert synced == [tmp_path, part / "case.json", part / "out", part, tmp_path]


def test_a_new_journal_and_its_folder_are_on_disk(tmp_path, monkeypatch):
    synced = synced_paths(monkeypatch)
    folder = tmp_path / "runs/r1"
    for _ in range(2):
        journal.write(folder, [("state", ["r1"])])
    file = folder / journal.NAME
    assert synced == [tmp_path / "runs", tmp_path, file, folder, file]


def test_without_gpu_memory_no_gpu_is_needed(tmp_path):
    case = {**CASE, "backend": "mpi", "device": "cpu"}
    assert check(tmp_path, case, n1=BUILT, n2={**BUILT, **gpus(0)}) == KEPT


def test_what_no_role_recorded_is_the_inventorys(tmp_path):
    hosts = {
        name: {"ansible_facts": gpus(2), "hvlab_recorded": BUILT["ansible_local"]} for name in ("n1", "n2")
    }
    assert check(tmp_path, CASE, hostvars=hosts, n1={}, n2={}) == KEPT
    assert json.loads((tmp_path / "facts.json").read_text())["n2"]["ansible_local"] == BUILT["ansible_local"]


def test_one_host_starts_all_cases_of_a_slurm_job(tmp_path):
    here = check(tmp_path, CASE, head="n9", n1={**BUILT, **gpus(2)}, n2={**BUILT, **gpus(4)})
    assert here["heads"] == {"one": "n9"}


def test_a_host_is_lost_where_neither_the_head_nor_this_machine_reaches_it():
    ended = {"reaped": {"n1": [], "n2": "no answer within 30 s", "n3": "ssh: no route to host"}}
    assert _silent(ended) == ["n2", "n3"]
    assert _silent({"reaped": {}}) == _silent({}) == []
    with socket.create_server(("127.0.0.1", 0)) as there, socket.create_server(("127.0.0.1", 0)) as closed:
        ports = [each.getsockname()[1] for each in (there, closed)]
        closed.close()
        hostvars = {
            name: {"ansible_host": "127.0.0.1", "ansible_port": port}
            for name, port in zip(("n2", "n3"), ports, strict=True)
        }
        gone = _find_unreachable(["n2", "n3"], 0, hostvars)
    assert gone == {"n3": f"127.0.0.1:{ports[1]}: Connection refused"}


@pytest.mark.parametrize("options", ["-J gate", "-o ProxyJump=gate", "-o ProxyCommand='nc gate %h'"])
@pytest.mark.parametrize("there", [True, False])
def test_a_host_behind_a_jump_host_is_asked_by_ssh_itself(tmp_path, monkeypatch, options, there):
    """The real ssh reads the options; the login is answered by a program in its place."""
    real, status = shutil.which("ssh"), 0 if there else 255
    asked = f'case "$*" in *-G*) exec {real} "$@";; esac'
    program(tmp_path, "ssh", f'#!/bin/sh\n{asked}\necho "$*" > {tmp_path}/called\nexit {status}\n')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    own = {"ansible_host": "127.0.0.1", "ansible_port": port, "ansible_ssh_common_args": options}
    own["ansible_ssh_args"] = "-o UserKnownHostsFile=/trust/known_hosts"
    lost = {} if there else {"n2": "`ssh 127.0.0.1` gets no answer"}
    assert _find_unreachable(["n2"], 0, {"n2": own}) == lost
    assert "UserKnownHostsFile=/trust/known_hosts" in (tmp_path / "called").read_text()


def test_a_program_that_a_signal_ended_is_no_lost_host():
    error = "Data could not be sent to remote host"
    assert _explain_lost("n1", "/opt/case.py", error, lost=True).startswith("the connection to n1 broke")
    ended = _explain_lost("n1", "/opt/case.py", error, lost=False)
    assert ended.startswith("/opt/case.py was ended there")
    assert "n1 itself answers" in ended


def test_the_limits_of_virtual_links_stand_among_the_facts(tmp_path, monkeypatch):
    limits = {"up": "1gbit", "down": "100mbit", "rack": "a", "uplink": None, "memory": 1}
    monkeypatch.setattr("hvlab.vlab.boot.read_settings", lambda runtime: {"n1": limits})
    check(tmp_path, CASE, n1={**BUILT, **gpus(2)}, n2={**BUILT, **gpus(2)})
    stored = json.loads((tmp_path / "facts.json").read_text())
    assert stored["n1"]["virtual_link"] == {"up": "1gbit", "down": "100mbit", "rack": "a", "uplink": None}
    assert "virtual_link" not in stored["n2"]
