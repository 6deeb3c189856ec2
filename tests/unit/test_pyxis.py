"""Ranks that srun starts inside containers: the options that pyxis reads. No pyxis is run here."""

import json
import shlex
from dataclasses import replace

import pytest

from hvlab.bench import containers
from hvlab.bench.matrix import expand
from hvlab.bench.schedule import Schedule
from hvlab.cli import run
from hvlab.workloads.launchers import command, srun
from tests.unit.labs import lab, spec
from tests.unit.test_launchers import PROGRAM, STEP

IMAGE = "nvcr.io#nvidia/pytorch:25.01-py3"
# In a job of somebody else's cluster: hvlab is in the home, which all hosts share.
HERE = {
    "hvlab_step": STEP,
    "hvlab_step_options": ["--gres=gpu:8"],
    "hvlab_rank_python": "python3",
    "ansible_python_interpreter": "/home/u/hvlab/bin/python",
    "workloads_dir": "/home/u/hvlab/programs",
    "lab_user_home": "/home/u",
}
INSIDE = [
    f"--container-image={IMAGE}",
    "--container-mounts=/home/u/.hvlab:/home/u/.hvlab,/home/u/hvlab/programs:/home/u/hvlab/programs:ro",
    "--container-workdir=/tmp",
]


def started(backend, there, *options, **changes):
    (case,) = expand(spec(backend, container=IMAGE, launcher="srun", **changes), there)[0]
    outside = command(replace(case, container=""), there, "R", PROGRAM)
    return outside, command(case, there, "R", PROGRAM, container_options=options)


def without(words, part):
    at = next(i for i in range(len(words)) if words[i : i + len(part)] == part)
    return words[:at] + words[at + len(part) :]


@pytest.mark.parametrize(("backend", "changes"), [("mpi", {}), ("ddp-gloo", {}), ("serial", {"hosts": (1,)})])
def test_ranks_start_inside_with_the_environment_of_the_host(backend, changes):
    alone = {"workload": "mnist"} if backend == "serial" else {}
    outside, inside = started(backend, lab(**HERE), **changes, **alone)
    words = list(inside.argv)
    start = words.index(INSIDE[0])
    assert words[start - 1] == "--gres=gpu:8"
    assert words[start : start + 4] == [*INSIDE, "env"]
    # What the image sets would go before the variables of srun.
    given = ["env", "HOME=/home/u", *(f"{name}={value}" for name, value in inside.env.items())]
    assert without(without(words, INSIDE), given) == list(outside.argv)
    assert inside.env == outside.env
    assert inside.step == outside.step


@pytest.mark.parametrize("backend", ["mpi", "gloo"])
def test_secrets_of_ranks_come_with_the_environment_of_srun(backend):
    _, inside = started(backend, lab(**HERE), env="HF_TOKEN=hf-aaaa NCCL_ALGO=Ring")
    assert "hf-aaaa" in inside.env.values()
    assert "NCCL_ALGO=Ring" in inside.argv
    assert "hf-aaaa" not in " ".join(inside.argv)


def test_what_ranks_over_gloo_meet_at_is_inside_too():
    _, inside = started("gloo", lab(**HERE), hosts=(2,))
    meeting = "/home/u/hvlab/programs/meeting.py"
    host_python, program, start, serve, *rest = inside.argv
    assert (host_python, program, start) == ("/home/u/hvlab/bin/python", meeting, "start")
    assert shlex.split(serve) == [
        *("srun", f"--job-name={inside.step}", "--overlap", "--nodes=1", "--ntasks=1", "--nodelist=n1"),
        *("--mpi=none", "--cpu-bind=none", "--gres=gpu:8", *INSIDE, "python3"),
    ]
    rank = rest.index(meeting)
    assert rest[rank - 4 : rank + 4] == [*INSIDE, "python3", meeting, "rank", "env", "HOME=/home/u"]


def test_the_users_options_are_added_and_outrank_these():
    more = ("--container-mounts=/data:/data", "--container-workdir=/data", "--no-container-remap-root")
    assert srun.container_options("i", home="/h", read=["/p"], more=more) == (
        *("--container-image=i", "--container-mounts=/h/.hvlab:/h/.hvlab,/p:/p:ro,/data:/data"),
        *("--container-workdir=/data", "--no-container-remap-root"),
    )


def test_in_a_lab_of_ones_own_the_stack_is_the_hosts():
    _, inside = started("mpi", lab(lab_slurm=True))
    assert "--container-mounts=/home/hvlab/.hvlab:/home/hvlab/.hvlab,/opt/hvlab:/opt/hvlab:ro" in inside.argv
    assert "/opt/hvlab/horovod/cpu/bin/python3" in inside.argv


def test_docker_starts_nothing_and_the_hosts_python_runs_hvlabs_programs():
    there = lab(**HERE)
    schedule = Schedule.of(spec("mpi", container=IMAGE, launcher="srun"), there)
    assert schedule.containers("R") == {}
    content = schedule.content(schedule.cases, "R")
    assert content["python"] == "/home/u/hvlab/bin/python"
    assert {row["ssh_port"] for row in content["cases"].values()} == {0}
    by_docker = Schedule.of(spec("mpi", container="lab:1"), lab(**HERE | {"hvlab_step": []}))
    assert by_docker.content(by_docker.cases, "R")["python"] == "python3"


def test_records_name_the_image_and_not_what_is_outside(tmp_path):
    facts = {"kernel": "6.1", "distribution": "Rocky", "hvlab": {"cuda": "12.4", "driver": "570.1"}}
    (tmp_path / "facts.json").write_text(json.dumps({"n1": facts, "n2": facts}))
    (case,) = expand(spec("mpi", container=IMAGE, launcher="srun"), lab(**HERE))[0]
    assert containers.stack(tmp_path, case) == {"kernel": "6.1", "driver": "570.1", "image": IMAGE}
    bare = containers.stack(tmp_path, replace(case, container=""))
    assert (bare["cuda"], bare["os"].split()[0]) == ("12.4", "Rocky")


def test_one_run_has_containers_of_one_kind(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HVLAB_RESULTS", str(tmp_path / "results"))
    monkeypatch.setattr("hvlab.cli.bench.load", lambda *_, **__: lab())
    sides = ("--ab", "launcher=mpirun", "launcher=srun")
    assert run(["bench", "--backend", "mpi", "--container", "i", *sides, "--dry-run"]) == 2
    assert "the containers of srun are pyxis's, those of mpirun docker's" in capsys.readouterr().err
