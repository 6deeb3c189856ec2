"""Parsers, on files as the programs write them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hvlab.stack import BACKENDS
from hvlab.workloads import WORKLOADS, outcome
from hvlab.workloads.allreduce import busbw_factor
from hvlab.workloads.outcome import last_words
from tests.unit.labs import case

ENDED = {"started_at": 100.0, "ended_at": 103.5, "rc": 0, "timed_out": False, "error": None, "reaped": {}}
RESULT = {
    "checks": [],
    "world": {"size": 2, "placement": [[0, 0, "n1", 2], [1, 0, "n2", 2]]},
    "sizes": [
        {"size_bytes": 1024, "count": 256, "wrong": 0, "mean_s": [0.001, 0.003], "max_s": [0.002, 0.003]},
        {"size_bytes": 4096, "count": 1024, "wrong": 0, "mean_s": [0.004, 0.004], "max_s": [0.004, 0.004]},
    ],
    "proof": {"timeline": "timeline.json", "activities": ["MPI_ALLREDUCE", "NEGOTIATE_ALLREDUCE"]},
    "state": {"horovod": {}, "versions": {"torch": "2.9.0"}, "environment": {}},
}


def files(folder: Path, ended: dict | None = None, result: dict | None = None, **texts: str) -> Path:
    (folder / "case.json").write_text(json.dumps(ENDED | (ended or {})))
    if result is not None:
        (folder / "result.json").write_text(json.dumps(RESULT | result))
    for name, text in texts.items():
        (folder / name).write_text(text)
    return folder


def test_figures_follow_the_conventions_of_nccl_tests(tmp_path):
    found = outcome(case(), files(tmp_path, result={}))
    assert (found.error, found.proved_backend, found.world_size) == (None, "mpi", 2)
    assert (found.started_at, found.seconds) == (100.0, 3.5)
    assert found.versions == {"torch": "2.9.0"}
    small = {figure.metric: (figure.value, figure.unit) for figure in found.figures[:6]}
    assert small == {
        "time": (pytest.approx(2000), "us"),
        "time_min": (pytest.approx(1000), "us"),
        "time_median": (pytest.approx(2000), "us"),
        "time_max": (pytest.approx(3000), "us"),
        "algbw": (pytest.approx(1024 / 0.002 / 1e9), "GB/s"),
        "busbw": (pytest.approx(1024 / 0.002 / 1e9), "GB/s"),
    }
    assert found.figures[0].params == {
        **{"size_bytes": 1024, "dtype": "float32", "op": "sum"},
        **{"device": "cpu", "iterations": 2},
    }


@pytest.mark.parametrize(("ranks", "factor"), [(1, 0), (2, 1), (4, 1.5), (8, 1.75)])
def test_bus_bandwidth(ranks, factor):
    assert busbw_factor(ranks) == factor


@pytest.mark.parametrize("backend", list(BACKENDS))
def test_each_backend_is_proved_by_its_activity(tmp_path, backend):
    shown = {"proof": {"activities": [BACKENDS[backend].proof]}}
    assert outcome(case(backend), files(tmp_path, result=shown)).proved_backend == backend


@pytest.mark.parametrize(
    ("activities", "told"),
    [
        (["GLOO_ALLREDUCE"], "asked for mpi, but gloo carried it (Horovod's timeline shows GLOO_ALLREDUCE)"),
        (["MPI_ALLREDUCE", "GLOO_ALLREDUCE"], "asked for mpi, but mpi+gloo carried it"),
        ([], "asked for mpi, but no known backend carried it (Horovod's timeline shows nothing)"),
    ],
)
def test_a_case_without_its_proof_fails(tmp_path, activities, told):
    found = outcome(case(), files(tmp_path, result={"proof": {"activities": activities}}))
    assert told in str(found.error)
    assert found.figures == ()


@pytest.mark.parametrize(
    ("ended", "result", "texts", "told"),
    [
        (
            {},
            {"checks": ["sums: 3 wrong elements at 1024 bytes"]},
            {},
            "sums: 3 wrong elements at 1024 bytes",
        ),
        ({"rc": 1}, None, {}, "mpirun ended with exit status 1"),
        (
            {"rc": 255, "reaped": {"n1": [], "n2": "ssh: No route to host"}},
            None,
            {"stderr": "lost\n"},
            "mpirun ended with exit status 255: lost: n2 does not answer any more",
        ),
        ({}, None, {}, "the program wrote no result"),
        ({"error": "mpirun: No such file"}, None, {}, "mpirun: No such file"),
        ({"rc": 1, "timed_out": True}, None, {}, "ran over its 900 s and was ended"),
        (
            {"rc": 1, "timed_out": True},
            None,
            {"stderr": "[W] One or more tensors\nMissing ranks:\n1: [allreduce.x]\n"},
            "ran over its 900 s and was ended: Horovod waited for ranks 1: [allreduce.x]",
        ),
        ({}, {"sizes": []}, {}, "asked for the sizes (1024, 4096), measured ()"),
    ],
)
def test_why_a_case_failed(tmp_path, ended, result, texts, told):
    assert outcome(case(), files(tmp_path, ended, result, **texts)).error == told


def test_no_files(tmp_path):
    assert "no case.json" in str(outcome(case(), tmp_path).error)


def test_a_case_left_out_is_no_failure(tmp_path):
    (tmp_path / "case.json").write_text(json.dumps({"skipped": "not built", "started_at": 1.0}))
    found = outcome(case(), tmp_path)
    assert (found.skipped, found.error) == (True, "not built")


@pytest.mark.parametrize(
    ("stderr", "stdout", "told"),
    [
        (
            "WARNING: x\n-----\nPrimary job  terminated normally, but\n"
            "mpirun noticed that process rank 1 with PID 9 on node n2 exited on signal 9 (Killed).\n-----\n",
            "",
            "mpirun noticed that process rank 1 with PID 9 on node n2 exited on signal 9 (Killed).",
        ),
        (
            '[0]<stderr>:Traceback (most recent call last):\n[0]<stderr>:  File "x", line 1\n'
            "[0]<stderr>:horovod.common.exceptions.HorovodInternalError: shut down\n"
            "RuntimeError: Horovod detected that one or more processes exited with non-zero status\n",
            "Process 1 exit with status code 255.\n",
            "HorovodInternalError: shut down",
        ),
        (
            "RuntimeError: Horovod detected that one or more processes exited with\nProcess name: 1\n",
            "Process 1 exit with status code 255.\n",
            "Process 1 exit with status code 255.",
        ),
        (
            "terminate called after throwing an instance of 'ccl::v1::exception'\n"
            "  what():  oneCCL: could not initialize any transport library\n"
            "mpirun noticed that process rank 0 with PID 0 on node n1 exited on signal 6 (Aborted).\n",
            "",
            "oneCCL: could not initialize any transport library",
        ),
        ("one\ntwo\n\n", "", "one | two"),
        ("", "", ""),
    ],
)
def test_last_words(tmp_path, stderr, stdout, told):
    (tmp_path / "stderr").write_text(stderr)
    (tmp_path / "stdout").write_text(stdout)
    assert last_words(tmp_path) == told


@pytest.mark.parametrize("workload", list(WORKLOADS))
def test_every_workload_has_its_program(workload):
    made = WORKLOADS[workload].command(replace(case(), workload=workload))
    programs = Path(__file__).parents[2] / "hvlab/workloads/programs"
    assert (programs / made[0]).is_file()
    assert all(isinstance(word, str) for word in made)


def test_the_allreduce_program_gets_what_it_must_check():
    assert " ".join(WORKLOADS["allreduce"].command(case(slots=(2,)))) == (
        "allreduce.py --world-size 4 --hosts 2 --sizes 1024,4096 --iterations 20 --warmup 5 --dtype float32"
    )
