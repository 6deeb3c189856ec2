"""What a rolling change does with a node of Slurm."""

import json

import pytest

from tests.contract.tree import ROOT, load
from tests.unit.plays import play, program

CHANGE = """
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: slurm, tasks_from: drain}
    - ansible.builtin.include_role: {name: slurm, tasks_from: resume}
"""
OURS = "hvlab: the GPU stack is changed"


@pytest.mark.parametrize(
    ("before", "after", "called"),
    [
        ("idle|none", f"drained|{OURS}", ["State=DRAIN", "State=RESUME"]),
        ("down*|Not responding", f"drained*|{OURS}", ["State=DRAIN", "State=RESUME"]),
        ("drained|a fan", "drained|a fan", []),
        ("down|a fan\ndown|a fan", "down|a fan", []),
        ("fail|a fan", "fail|a fan", []),
        ("failing*|a fan", "failing*|a fan", []),
    ],
    ids=["in work", "not responding", "drained by somebody", "down", "fail", "failing"],
)
def test_a_node_that_somebody_else_took_out_of_work_stays_so(tmp_path, before, after, called):
    programs = tmp_path / "programs"
    observed = f"""#!/bin/sh
test -e {tmp_path}/asked && echo '{after}' || echo '{before}'
touch {tmp_path}/asked
"""
    program(programs, "sinfo", observed)
    program(programs, "squeue", "#!/bin/sh\n")
    program(programs, "scontrol", f'#!/bin/sh\necho "$3" >> {tmp_path}/called\n')
    (tmp_path / "change.yml").write_text(CHANGE, "utf-8")
    play(tmp_path / "change.yml", programs, {})
    calls = tmp_path / "called"
    assert (calls.read_text().split() if calls.exists() else []) == called


def test_jobs_that_do_not_end_are_named_and_the_node_is_resumed(tmp_path):
    programs = tmp_path / "programs"
    program(programs, "sinfo", f"#!/bin/sh\necho 'draining|{OURS}'\n")
    program(programs, "squeue", "#!/bin/sh\necho '7 of ann'\n")
    program(programs, "scontrol", f'#!/bin/sh\necho "$3" >> {tmp_path}/called\n')
    (tmp_path / "change.yml").write_text(CHANGE, "utf-8")
    printed = play(tmp_path / "change.yml", programs, {"slurm_drain_seconds": "5"}, expect=2)
    assert "jobs still run there after 5 s: 7 of ann. Nothing was changed" in printed
    assert (tmp_path / "called").read_text().split() == ["State=RESUME"]


def test_a_job_that_is_stopped_or_waits_for_a_booting_node_is_waited_for(tmp_path):
    """It runs, with a flag: STOPPED, CONFIGURING. squeue's RUNNING is no flag at all (src/squeue/print.c)."""
    programs = tmp_path / "programs"
    program(programs, "sinfo", f"#!/bin/sh\necho 'draining|{OURS}'\n")
    program(programs, "squeue", "#!/bin/sh\ncase $* in *--states*) ;; *) echo '8 of eve';; esac\n")
    program(programs, "scontrol", "#!/bin/sh\n")
    (tmp_path / "change.yml").write_text(CHANGE, "utf-8")
    printed = play(tmp_path / "change.yml", programs, {"slurm_drain_seconds": 5}, expect=2)
    assert "jobs still run there after 5 s: 8 of eve. Nothing was changed" in printed


def test_a_slurmctld_that_is_away_for_a_moment_ends_no_waiting(tmp_path):
    programs = tmp_path / "programs"
    away = f"test -e {tmp_path}/away || {{ touch {tmp_path}/away; echo 'Unable to contact' >&2; exit 1; }}"
    program(programs, "sinfo", f"#!/bin/sh\necho 'drained|{OURS}'\n")
    program(programs, "squeue", f"#!/bin/sh\n{away}\n")
    program(programs, "scontrol", f'#!/bin/sh\necho "$3" >> {tmp_path}/called\n')
    (tmp_path / "change.yml").write_text(CHANGE, "utf-8")
    play(tmp_path / "change.yml", programs, {"slurm_drain_seconds": 10})
    assert (tmp_path / "called").read_text().split() == ["State=RESUME"]


def test_a_slurmctld_that_stays_away_is_named(tmp_path):
    programs = tmp_path / "programs"
    program(programs, "sinfo", f"#!/bin/sh\necho 'draining|{OURS}'\n")
    program(programs, "squeue", "#!/bin/sh\necho 'Unable to contact slurm controller' >&2; exit 1\n")
    program(programs, "scontrol", "#!/bin/sh\n")
    (tmp_path / "change.yml").write_text(CHANGE, "utf-8")
    printed = play(tmp_path / "change.yml", programs, {"slurm_drain_seconds": 5}, expect=2)
    said = "squeue does not say which jobs run there after 5 s: Unable to contact slurm controller. Nothing"
    assert said in printed


@pytest.mark.parametrize(
    ("sinfo", "observed"),
    [
        ("echo 'slurm_load_node: Unable to contact slurm controller' >&2; exit 1", "Unable to contact slurm"),
        ("", "nothing"),
    ],
)
def test_a_node_that_cannot_be_drained_is_not_changed(tmp_path, sinfo, observed):
    programs = tmp_path / "programs"
    program(programs, "sinfo", f"#!/bin/sh\n{sinfo}\n")
    program(programs, "scontrol", f"#!/bin/sh\ntouch {tmp_path}/called\n")
    (tmp_path / "change.yml").write_text(CHANGE, "utf-8")
    printed = play(tmp_path / "change.yml", programs, {}, expect=2)
    assert "localhost: should be drained before its GPU stack is changed; sinfo says" in printed
    assert f"{observed}" in printed
    assert "Nothing was changed. What to do: run `scontrol ping` and `sinfo --Node` there" in printed
    assert not (tmp_path / "called").exists()


def test_a_node_that_slurm_says_nothing_of_afterwards_is_named(tmp_path):
    programs = tmp_path / "programs"
    silent = "echo 'slurm_load_node: Unable to contact slurm controller' >&2; exit 1"
    once = f"if test -e {tmp_path}/asked; then {silent}; fi; touch {tmp_path}/asked; echo 'idle|none'"
    program(programs, "sinfo", f"#!/bin/sh\n{once}\n")
    program(programs, "squeue", "#!/bin/sh\n")
    program(programs, "scontrol", f'#!/bin/sh\necho "$3" >> {tmp_path}/called\n')
    (tmp_path / "change.yml").write_text(CHANGE, "utf-8")
    printed = play(tmp_path / "change.yml", programs, {"__slurm_tries": 1}, expect=2)
    assert "localhost: was changed, and may still be drained: sinfo says slurm_load_node: Unable" in printed
    assert "then run it again: it resumes the node" in printed
    assert (tmp_path / "called").read_text().split() == ["State=DRAIN"]


def test_a_sick_node_stays_drained(tmp_path):
    programs = tmp_path / "programs"
    program(programs, "sinfo", f"#!/bin/sh\necho 'drained|{OURS}'\n")
    program(programs, "squeue", "#!/bin/sh\n")
    program(programs, "scontrol", f"#!/bin/sh\ntouch {tmp_path}/called\n")
    program(programs, "sick", "#!/bin/sh\necho 'gpu count: 7 of 8'\nexit 1\n")
    (tmp_path / "change.yml").write_text(CHANGE, "utf-8")
    variables = {"slurm_health_check": str(programs / "sick")}
    printed = play(tmp_path / "change.yml", programs, variables, expect=2)
    assert "has hard faults, and stays drained: gpu count: 7 of 8" in printed
    assert not (tmp_path / "called").exists()


def stack(tmp_path, recorded, *words, slurm=True, state="idle|none", sinfo=""):
    """Play the play of the GPU stack without its roles; return what scontrol was asked."""
    tmp_path.mkdir(exist_ok=True)
    programs = tmp_path / "programs"
    program(programs, "sinfo", sinfo or f"#!/bin/sh\ncat {tmp_path}/state\n")
    program(programs, "squeue", "#!/bin/sh\n")
    after = f"case $3 in *DRAIN) echo 'drained|{OURS}' ;; *) echo 'idle|none' ;; esac > {tmp_path}/state"
    program(programs, "scontrol", f'#!/bin/sh\necho "$3" >> {tmp_path}/called\n{after}\n')
    (tmp_path / "state").write_text(f"{state}\n")
    plays = load(ROOT / "playbooks/accelerators.yml")
    [change] = [each for each in plays if each["name"] == "Install the GPU stack"]
    del change["roles"]
    facts = {"ansible_local": recorded | ({"hvlab_slurm": {}} if slurm else {}), "cacheable": True}
    known = {"ansible.builtin.set_fact": facts, "tags": ["always"]}
    first = {"hosts": "localhost", "gather_facts": False, "tasks": [known]}
    (tmp_path / "stack.yml").write_text(json.dumps([first, change | {"hosts": "localhost", "become": False}]))
    wiring = load(ROOT / "group_vars/all.yml")
    names = ("__slurm_there", "__stack_changes")
    versions = {"cuda_version": "13.0.3", "cudnn_version": "", "nccl_version": "2.28.3"}
    play(
        tmp_path / "stack.yml",
        programs,
        {name: wiring[name] for name in names} | versions | {"slurm_enabled": slurm},
        *words,
    )
    calls = tmp_path / "called"
    return calls.read_text().split() if calls.exists() else []


SAME = {"hvlab_cuda": {"requested": "13.0.3"}, "hvlab_nccl": {"requested": "2.28.3"}}
OLDER = {**SAME, "hvlab_nccl": {"requested": "2.27.5"}}


@pytest.mark.parametrize(
    ("recorded", "words", "called"),
    [
        (OLDER, [], ["State=DRAIN", "State=RESUME"]),
        (OLDER, ["-t", "nccl"], ["State=DRAIN", "State=RESUME"]),
        (OLDER, ["--check"], []),
        (SAME, [], []),
        ({}, [], []),
        ({**SAME, "hvlab_cudnn": {"requested": "9.10"}}, [], []),
    ],
    ids=["another version", "by tag", "check", "the same", "first time", "no longer requested"],
)
def test_a_node_is_drained_while_its_gpu_stack_changes(tmp_path, recorded, words, called):
    assert stack(tmp_path, recorded, *words) == called


def test_a_node_that_a_failed_run_left_drained_is_resumed(tmp_path):
    assert stack(tmp_path, SAME, state=f"drained|{OURS}") == ["State=RESUME"]
    assert stack(tmp_path / "other", SAME, state="drained|a fan") == []


def test_the_stack_needs_no_slurmctld_where_nothing_changes(tmp_path):
    broken = "#!/bin/sh\necho 'slurm_load_node: Unable to contact slurm controller' >&2\nexit 1\n"
    assert stack(tmp_path, SAME, sinfo=broken) == []


def test_without_slurm_nothing_is_drained(tmp_path):
    assert stack(tmp_path, OLDER, slurm=False) == []
