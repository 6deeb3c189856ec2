"""Bandwidths: what nccl-tests and nvbandwidth printed -> readings -> findings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hvlab.checks.links import capacity
from hvlab.checks.node import bandwidth, on_all_gpus
from hvlab.checks.node.finding import Finding
from tests.contract.tree import ROOT
from tests.unit.health_answers import DATA

ALLREDUCE = "nccl_allreduce_busbw_gbyte_s"
COPIES = tuple(
    f"nvbandwidth_{copy}_gbyte_s" for copy in ("host_to_device", "device_to_host", "device_to_device")
)
NAMES = (ALLREDUCE, *COPIES)
PROGRAM = Path(on_all_gpus.__file__).read_text("utf-8")


def recorded(name: str) -> str:
    folder = DATA / "bandwidth" if name.startswith("nvbandwidth") else ROOT / "tests/data/nccl-tests"
    return (folder / name).read_text("utf-8")


def answers(nccl: str | None = None, nvbandwidth: str | None = None, rc: int = 0) -> dict[str, object]:
    replies = {"bandwidth nccl": nccl, "bandwidth nvbandwidth": nvbandwidth}
    return {
        name: {"rc": 127 if text is None else rc, "out": text or "", "err": ""}
        for name, text in replies.items()
    }


def judge(expected: dict[str, float] | None = None, **printed: object) -> dict[str, Finding]:
    values = bandwidth.readings(answers(**printed))
    assert json.loads(json.dumps(values)) == values
    return {finding.check: finding for finding in bandwidth.findings(values, expected or {})}


def test_the_average_of_nccl_tests_is_read():
    assert bandwidth.readings(answers(nccl=recorded("allreduce-8x-a100.txt"))) == {
        "nccl_wrong": 0,
        ALLREDUCE: 68.4048,
    }


def test_wrong_values_are_hard_whatever_the_speed_and_exit_code():
    finding = judge({ALLREDUCE: 1.0}, nccl=recorded("allreduce-2x-gh200-wrong.txt"), rc=1)[
        "bandwidth nccl allreduce"
    ]
    assert (finding.severity, finding.observed) == ("hard", "4 values are wrong")


def test_a_crash_is_hard_with_its_last_words():
    finding = judge(nccl=recorded("allreduce-8x-gh200-crashed.txt"), rc=3)["bandwidth nccl allreduce"]
    assert finding.severity == "hard"
    assert finding.observed


def test_the_slowest_gpu_and_pair_count_and_are_named():
    values = bandwidth.readings(answers(nvbandwidth=recorded("nvbandwidth-8x-h800.txt")))
    assert [values[name] for name in COPIES] == [55.28, 55.09, 171.88]
    assert values["bandwidth_where"] == {
        COPIES[0]: "GPU 0",
        COPIES[1]: "GPU 4",
        COPIES[2]: "GPU 0 and GPU 4",
    }


def test_a_gpus_copy_to_itself_is_none():
    values = bandwidth.readings(answers(nvbandwidth=recorded("nvbandwidth-8x-v0.1.txt")))
    assert values[COPIES[2]] == 263.05


@pytest.mark.parametrize(("threshold", "outcome"), [(55.28, "passed"), (55.29, "failed")])
def test_a_threshold_is_met_or_not(threshold, outcome):
    printed = recorded("nvbandwidth-8x-h800.txt")
    finding = judge({COPIES[0]: threshold}, nvbandwidth=printed)["bandwidth host to device"]
    assert finding.outcome == outcome
    assert finding.observed.startswith("55.28 GB/s (GPU 0)")
    assert finding.severity == ("soft" if outcome == "failed" else "")


def test_a_known_machine_type_judges_all_of_them():
    text = (ROOT / "hvlab/checks/machines/azure-nd96isr-h100-v5.yml").read_text("utf-8")
    expected = {
        name: given["value"] for name, given in yaml.safe_load(text)["expect"].items() if name in NAMES
    }
    printed = recorded("nvbandwidth-8x-h800.txt")
    outcomes = {check: finding.outcome for check, finding in judge(expected, nvbandwidth=printed).items()}
    assert outcomes == {
        "bandwidth nccl allreduce": "skipped",
        "bandwidth host to device": "passed",
        "bandwidth device to host": "passed",
        # An H800 has fewer NVLinks than an H100.
        "bandwidth device to device": "failed",
    }


def test_without_a_threshold_the_speed_is_told_and_not_judged():
    finding = judge(nccl=recorded("allreduce-8x-a100.txt"))["bandwidth nccl allreduce"]
    assert finding.outcome == "skipped"
    assert "68.4048 GB/s" in finding.observed
    assert ALLREDUCE in finding.observed


@pytest.mark.parametrize(
    ("model", "links", "busbw", "outcome", "words"),
    [
        (
            "NVIDIA A100-SXM4-80GB",
            12,
            228.0,
            "passed",
            "76% of the 300 GB/s that a ring can do over 12 x 25 GB/s",
        ),
        ("NVIDIA A100-SXM4-80GB", 12, 68.4, "failed", "and 180 GB/s are expected"),
        ("NVIDIA A100-SXM4-80GB", 12, 640.0, "failed", "more than the links can carry"),
        ("NVIDIA A100-SXM4-80GB", 6, 228.0, "passed", "over 6 x 25 GB/s"),
        ("NVIDIA L40S", 0, 20.0, "passed", "63% of the 31.5 GB/s that a ring can do over 16.0 GT/s x16"),
        ("NVIDIA Graphics Device", 0, 20.0, "skipped", "gives no nccl"),
    ],
)
def test_the_links_are_the_ceiling(model, links, busbw, outcome, words):
    gpu = {"model": model, "pcie_generation_max": 4.0, "pcie_width": 16.0}
    values = {"gpus": [gpu] * 8, "nvlink_count": links, ALLREDUCE: busbw}
    finding = bandwidth.findings(values, capacity(values))[0]
    assert finding.outcome == outcome
    assert words in finding.observed


def test_without_the_programs_all_is_skipped_with_the_role_to_run():
    findings = judge()
    assert {finding.outcome for finding in findings.values()} == {"skipped"}
    assert "role nccl_tests" in findings["bandwidth nccl allreduce"].observed


def test_a_program_without_its_libraries_is_broken():
    words = "perf: error while loading shared libraries: libnccl.so.2: cannot open shared object file"
    values = bandwidth.readings({"bandwidth nccl": {"rc": 127, "out": "", "err": words}})
    assert values["bandwidth_failed"] == {"nccl": words}


def test_gpus_that_do_not_reach_one_another_are_no_fault():
    printed = "Running device_to_device_memcpy_read_ce.\nWaived: \n"
    assert judge(nvbandwidth=printed)["bandwidth device to device"].outcome == "skipped"


def test_it_runs_alone_and_only_when_asked_for():
    assert all(question["alone"] for question in bandwidth.QUESTIONS.values())
    assert all(question["run"][2] == PROGRAM for question in bandwidth.QUESTIONS.values())


@given(st.text())
def test_odd_output_is_never_an_error(text):
    for body in (text, f"Running host_to_device_memcpy_ce.\n{text}", f"# Avg bus bandwidth    : {text}"):
        judge(nccl=body, nvbandwidth=body, rc=1)


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        (["143771", "143771"], 8 << 30),
        (["15360"], 1 << 30),
        (["81920", "40960"], 4 << 30),
        (["[N/A]"], 1 << 30),
    ],
)
def test_the_size_fits_into_every_gpu(memory, expected):
    assert on_all_gpus.size(memory) == expected


def test_the_program_runs_what_is_there_on_every_gpu(tmp_path):
    def install(name: str, text: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n", "utf-8")
        path.chmod(0o755)

    def start(places: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-c", PROGRAM, places, "-b", "SIZE", "-g", "GPUS"]
        env = {**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin"}
        return subprocess.run(argv, capture_output=True, text=True, check=False, env=env)

    assert start("not_there_perf").returncode == 127
    install("cuda13/measure", 'echo "$0 $@"')
    places = f"not_there_perf:{tmp_path}/cuda*/measure"
    for smi, code in (
        ("echo 'No devices were found'; exit 6", 127),
        ("exit 0", 127),
        ("echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18", 1),
    ):
        install("nvidia-smi", smi)
        assert start(places).returncode == code
    assert "cannot be listed" in start(places).stderr
    install("nvidia-smi", "printf '81559\\n81559\\n'")
    assert start(places).stdout.split()[1:] == ["-b", str(8 << 30), "-g", "2"]
