"""What a rolling change does with a node of Slurm."""

import json
from dataclasses import dataclass

import pytest

from tests.contract.tree import ROOT, load
from tests.unit.plays import play, program

pytestmark = pytest.mark.slow

CHANGE = """
- hosts: all:!localhost
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: slurm, tasks_from: drain}
    - ansible.builtin.include_role: {name: slurm, tasks_from: resume}
"""
OURS = "hvlab: the GPU stack is changed"
# Runs what the folder of the host that is asked about has under the program's name.
DISPATCH = """#!/bin/sh
for word; do case $word in --nodes=* | --nodelist=* | NodeName=*) host=${word#*=} ;; esac; done
cd "$(dirname "$0")/../$host" && exec sh "./$(basename "$0")" "$@"
"""
SILENT = "echo 'slurm_load_node: Unable to contact slurm controller' >&2; exit 1"
REFUSED = (
    "should be drained before its GPU stack is changed; sinfo says {}. Nothing was changed. What to do: run "
)
REFUSED += "`scontrol ping` and `sinfo --Node` there"


@dataclass
class Case:
    """What Slurm says of a host before and after it is drained; what is said and done."""

    before: str
    after: str = f"drained|{OURS}"
    squeue: str = ""
    health: str = ""
    sinfo: str = "test -e asked && {after} || {before}; touch asked"
    said: str = ""
    called: tuple[str, ...] = ()

    def write(self, folder):
        said = {name: f"echo '{getattr(self, name)}'" for name in ("before", "after")}
        sinfo = self.sinfo.format(**said)
        for name, text in {"sinfo": sinfo, "squeue": self.squeue, "health": self.health}.items():
            program(folder, name, f"#!/bin/sh\n{text}\n")
        program(folder, "scontrol", '#!/bin/sh\necho "$3" >> called\n')


def left(state):
    """A node that somebody else took out of work."""
    return Case(state, after=state)


BOTH = ("State=DRAIN", "State=RESUME")
RESUMED = ("State=RESUME",)
CASES = {
    "in-work": Case("idle|none", called=BOTH),
    "not-responding": Case("down*|Not responding", after=f"drained*|{OURS}", called=BOTH),
    "drained-by-somebody": left("drained|a fan"),
    "down": left("down|a fan\ndown|a fan"),
    "fail": left("fail|a fan"),
    "failing": left("failing*|a fan"),
    "jobs-that-do-not-end": Case(
        f"draining|{OURS}",
        squeue="echo '7 of ann'",
        said="jobs still run there after 5 s: 7 of ann. The node was resumed",
        called=RESUMED,
    ),
    # A job runs with a flag, STOPPED or CONFIGURING: squeue's RUNNING is no flag at all (src/squeue/print.c).
    "a-job-that-is-stopped": Case(
        f"draining|{OURS}",
        squeue="case $* in *--states*) ;; *) echo '8 of eve';; esac",
        said="jobs still run there after 5 s: 8 of eve. The node was resumed",
        called=RESUMED,
    ),
    "slurmctld-away-for-a-moment": Case(
        f"drained|{OURS}", squeue=f"test -e away || {{ touch away; {SILENT}; }}", called=RESUMED
    ),
    "slurmctld-that-stays-away": Case(
        f"draining|{OURS}",
        squeue=SILENT,
        said="squeue does not say which jobs run there after 5 s: slurm_load_node: Unable to contact slurm "
        "controller. The node was resumed",
        called=RESUMED,
    ),
    "no-slurmctld": Case(
        "", sinfo=SILENT, said=REFUSED.format("slurm_load_node: Unable to contact slurm controller")
    ),
    "a-silent-sinfo": Case("", sinfo="", said=REFUSED.format("nothing")),
    "silent-afterwards": Case(
        "idle|none",
        sinfo=f"if test -e asked; then {SILENT}; fi; touch asked; {{before}}",
        said="was changed, and may still be drained: sinfo says slurm_load_node: Unable to contact slurm "
        "controller (asked 1 times, every 5 s). What to do: look at slurmctld with `scontrol ping`, then run "
        "it again: it resumes the node",
        called=("State=DRAIN",),
    ),
    "sick": Case(
        f"drained|{OURS}",
        health="echo 'gpu count: 7 of 8'; exit 1",
        said="has hard faults, and stays drained: gpu count: 7 of 8",
    ),
}


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
    """Every host drained and resumed in one play; what was printed, and the hosts' folders."""
    folder = tmp_path_factory.mktemp("hosts")
    for name in ("sinfo", "squeue", "scontrol"):
        program(folder / "programs", name, DISPATCH)
    for host, case in CASES.items():
        case.write(folder / host)
    (folder / "change.yml").write_text(CHANGE, "utf-8")
    variables = {
        "slurm_enabled": True,
        "slurm_drain_seconds": "5",
        "__slurm_tries": 1,
        "slurm_health_check": f"{folder}/{{{{ inventory_hostname }}}}/health",
    }
    hosts = f"{','.join(CASES)},"
    return play(folder / "change.yml", folder / "programs", variables, "-i", hosts, expect=2), folder


@pytest.mark.parametrize("host", CASES)
def test_a_node_is_drained_and_resumed_or_left_as_it_is(changed, host):
    printed, folder = changed
    calls = folder / host / "called"
    assert tuple(calls.read_text().split() if calls.exists() else ()) == CASES[host].called
    assert (f"{host}: {CASES[host].said}" if CASES[host].said else f"ok: [{host}]") in printed
    assert (f" {host}: " in printed) is bool(CASES[host].said)


def stack(tmp_path, recorded, *words, slurm=True, slurmd=False, state="idle|none", sinfo=""):
    """Play the play of the GPU stack without its roles; return what scontrol was asked."""
    tmp_path.mkdir(exist_ok=True)
    programs = tmp_path / "programs"
    program(programs, "sinfo", sinfo or f"#!/bin/sh\ncat {tmp_path}/state\n")
    program(programs, "squeue", "#!/bin/sh\n")
    after = f"case $3 in *DRAIN) echo 'drained|{OURS}' ;; *) echo 'idle|none' ;; esac > {tmp_path}/state"
    program(
        programs,
        "scontrol",
        f'#!/bin/sh\necho "$2" > {tmp_path}/name\necho "$3" >> {tmp_path}/called\n{after}\n',
    )
    (tmp_path / "state").write_text(f"{state}\n")
    plays = load(ROOT / "playbooks/accelerators.yml")
    [change] = [each for each in plays if each["name"] == "Install the GPU stack"]
    del change["roles"]
    facts = {"ansible_local": recorded | ({"hvlab_slurm": {}} if slurm else {}), "cacheable": True}
    facts |= {"hostname": "node7", "hvlab": {"slurmd": slurmd}}
    known = {"ansible.builtin.set_fact": facts, "tags": ["always"]}
    first = {"hosts": "localhost", "gather_facts": False, "tasks": [known]}
    (tmp_path / "stack.yml").write_text(json.dumps([first, change | {"hosts": "localhost", "become": False}]))
    wiring = load(ROOT / "group_vars/all.yml")
    names = ("__slurm_there", "__slurm_ours", "__stack_changes", "__libraries")
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


def test_a_node_of_somebody_elses_slurm_is_drained_by_its_own_name(tmp_path):
    assert stack(tmp_path, OLDER, slurm=False, slurmd=True) == ["State=DRAIN", "State=RESUME"]
    assert (tmp_path / "name").read_text() == "NodeName=node7\n"
