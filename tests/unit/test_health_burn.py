"""Burn-in: the program's results -> readings -> findings, and devices that stand out among equal ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hvlab.checks.ask import Answered
from hvlab.checks.judge import HealthCheck, find_measured, find_unmeasured, judge, speeds_as_gauges
from hvlab.checks.node import burn, on_all_devices
from hvlab.checks.outliers import outliers
from tests.unit import labs
from tests.unit.health_answers import DATA

KINDS = ("fp32", "bf16", "memory")


def device(draw: np.random.Generator, *, speed: float = 1.0, noise: float = 0.03) -> dict[str, Any]:
    rates = {kind: list(speed * (1 + noise * draw.standard_normal(on_all_devices.ROUNDS))) for kind in KINDS}
    return {
        "model": "NVIDIA H100",
        "group": "NVIDIA H100",
        "rates": rates,
        "wrong": dict.fromkeys(KINDS, 0),
        "bits": {"fp32": 7, "bf16": 8},
        "left_out": {},
    }


def printed(*devices: dict[str, Any], **other: Any) -> dict[str, Any]:
    names = {f"GPU {index}": own for index, own in enumerate(devices)}
    cpu = {"steal": 0.0, "quota": 0.0, "thermal": 0.0}
    return {"torch": "2.13.0", "cuda": "13.0", "cpu": cpu, "smi": [], "devices": names, **other}


def read(result: object, rc: int = 0, err: str = "") -> dict[str, Any]:
    out = result if isinstance(result, str) else json.dumps(result)
    values = burn.readings({"burn": {"rc": rc, "out": out, "err": err}})
    assert json.loads(json.dumps(values)) == values
    return values


def burned(
    hosts: int, per_host: int = 1, *, seed: int = 0, spread: float = 0.02
) -> dict[str, dict[str, Any]]:
    draw = np.random.default_rng(seed)
    return {
        f"n{host + 1}": read(
            printed(*(device(draw, speed=1 + spread * draw.standard_normal()) for _ in range(per_host)))
        )
        for host in range(hosts)
    }


def judged(readings: dict[str, dict[str, Any]]) -> dict[tuple[str, str], HealthCheck]:
    answered = Answered(readings, {}, {}, (0.0, 1.0))
    lab = labs.lab(8)
    hosts = tuple(host for host in lab.hosts if host.name in readings)
    checks = judge(replace(lab, hosts=hosts), answered, (burn,), None)
    return {(check.host, check.check): check for check in checks}


@pytest.mark.parametrize(("hosts", "per_host"), [(2, 1), (3, 1), (4, 8)])
def test_of_200_healthy_labs_at_most_one_percent_have_a_slow_device(hosts, per_host):
    healthy = [outliers(burned(hosts, per_host, seed=seed)) for seed in range(200)]
    assert sum(any(own["burn_slow"] for own in each.values()) for each in healthy) <= 2


@pytest.mark.parametrize("hosts", [2, 3, 8])
def test_a_device_with_half_the_speed_is_named_on_its_host_alone(hosts):
    readings = burned(hosts)
    slow = readings["n1"]["burn"]["devices"]["GPU 0"]
    slow["rates"]["bf16"] = [rate / 2 for rate in slow["rates"]["bf16"]]
    checks = judged(readings)
    assert checks["n1", "burn speed"].severity == "soft"
    assert checks["n1", "burn speed"].observed.startswith("GPU 0: bf16 takes ")
    assert [host for host, check in checks if checks[host, check].wrong] == ["n1"]


def test_a_wrong_bit_is_hard():
    result = printed(device(np.random.default_rng(0)))
    result["devices"]["GPU 0"]["wrong"]["bf16"] = 1
    (finding,) = (one for one in burn.findings(read(result), {}) if one.check == "burn results")
    assert (finding.severity, finding.observed) == ("hard", "GPU 0: 1 wrong values in bf16")


def test_a_device_that_is_always_wrong_differs_from_the_majority():
    readings = burned(3)
    readings["n2"]["burn"]["devices"]["GPU 0"]["bits"]["fp32"] += 1
    checks = judged(readings)
    assert checks["n2", "burn results"].severity == "hard"
    assert not checks["n1", "burn results"].wrong
    pair = {host: readings[host] for host in ("n1", "n2")}
    assert not any(check.wrong for check in judged(pair).values()), "of two nobody knows which is wrong"


def test_devices_of_another_kind_are_not_compared():
    readings = burned(3)
    own = readings["n2"]["burn"]["devices"]["GPU 0"]
    own.update(group="Tesla T4", rates={kind: [0.1] * 12 for kind in KINDS})
    checks = judged(readings)
    assert checks["n2", "burn speed"].outcome == "skipped"
    assert not any(check.wrong for check in checks.values())


def test_a_thermal_slowdown_under_load_is_told_of_its_gpu():
    cool = (DATA / "gpu/h100-1-driver-580.xml").read_text("utf-8")
    reason = "<clocks_event_reason_hw_thermal_slowdown>{}</clocks_event_reason_hw_thermal_slowdown>"
    text = cool.replace(reason.format("Not Active"), reason.format("Active"))
    assert text != cool
    findings = burn.findings(read(printed(device(np.random.default_rng(0)), smi=[text])), {})
    clocks = [one for one in findings if one.check == "burn clocks"]
    assert [one.severity for one in clocks] == ["soft"]
    assert "temperature" in clocks[0].observed


def test_a_quota_and_a_busy_hypervisor_are_told():
    result = printed(device(np.random.default_rng(0)), cpu={"steal": 0.31, "quota": 0.98, "thermal": 0.0})
    (clocks,) = (one for one in burn.findings(read(result), {}) if one.check == "burn clocks")
    assert "98% of the periods" in clocks.observed
    assert "31%" in clocks.observed


def test_what_a_machine_type_asks_for_is_compared():
    result = printed(device(np.random.default_rng(0)))
    (speed,) = (
        one for one in burn.findings(read(result), {"burn_bf16_tflops": 700}) if one.check == "burn speed"
    )
    assert "this machine type should reach 700" in speed.observed


@pytest.mark.parametrize(
    ("result", "rc", "err", "observed"),
    [
        (
            "",
            1,
            "Warning\nGPU 3: CUDA error: an illegal memory access\n",
            "GPU 3: CUDA error: an illegal memory access",
        ),
        ("", -9, "", "it ended with -9"),
        ('{"devices": {"x": 3}}', 0, "", "it ended with 0"),
        ("", 124, "", "it did not end within 300 s"),
    ],
)
def test_a_program_that_fails_is_hard_with_its_last_words(result, rc, err, observed):
    (finding,) = burn.findings(read(result, rc, err), {})
    assert (finding.check, finding.severity, finding.observed) == ("burn ends", "hard", observed)


def test_without_torch_everything_is_skipped():
    assert {one.outcome for one in burn.findings(read("", on_all_devices.NOTHING_TO_RUN), {})} == {"skipped"}


def test_the_speed_of_each_device_is_a_gauge_in_base_units():
    own = [device(np.random.default_rng(1), noise=0), device(np.random.default_rng(1), noise=0, speed=2)]
    for each in own:
        each["rates"]["new"] = [1.0]
    families = speeds_as_gauges({"n1": read(printed(*own)), "n2": {}})
    labels = (("host", "n1"), ("device", "GPU 1"), ("kind", "bf16"))
    assert families["hvlab_burn_flop_per_second"][1][labels] == 2e12
    labels = (("host", "n1"), ("device", "GPU 0"), ("kind", "memory"))
    assert families["hvlab_burn_bytes_per_second"][1][labels] == 1e9
    assert speeds_as_gauges({"n2": {}}) == {}


def test_a_requested_burn_that_cannot_run_is_told():
    readings = burned(2) | {"n3": read("", on_all_devices.NOTHING_TO_RUN)}
    checks = list(judged(readings).values())
    ((name, host, reason),) = find_unmeasured(checks, ["burn"])
    assert (name, host) == ("burn", "n3")
    assert "role python_env" in reason


def test_what_a_host_reached_is_shown_if_nothing_compares_it():
    readings = burned(1) | {"n2": read("", on_all_devices.NOTHING_TO_RUN)}
    checks = list(judged(readings).values())
    ((host, check, reached),) = find_measured(checks, ["burn"])
    assert (host, check) == ("n1", "burn speed")
    assert "fp32 1" in reached
    assert "no equal device" in reached
    assert not list(find_measured(checks, []))


# As much of torch as products need, on two GPUs: a product depends on the precision that torch is set to.
TORCH = """
import os
from types import SimpleNamespace
import __main__

class Number:
    def __init__(self, value=0): self.value = value
    def __sub__(self, other): return self
    def __matmul__(self, other): return Number(19 if backends.cuda.matmul.allow_tf32 else 32)
    def __ne__(self, other): return Number(self.value != other.value)
    def __int__(self): return int(self.value)
    to = view = long = sum = lambda self, *_: self
    def element_size(self): return 4

def broken(index):
    if str(index) == os.environ.get("BROKEN"):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

backends = SimpleNamespace(cuda=SimpleNamespace(matmul=SimpleNamespace(allow_tf32=False)))
cuda = SimpleNamespace(
    device_count=lambda: 2,
    get_device_name=lambda index: "H100",
    get_device_capability=lambda index: (8, 0),
    set_device=lambda device: broken(device.index),
    synchronize=lambda device: None,
)
version = SimpleNamespace(cuda="13.0")
__version__ = "2.13.0"
float16 = bfloat16 = float32 = int32 = int16 = None
def device(text): return SimpleNamespace(type="cuda", index=text[-1])
def Generator(): return SimpleNamespace(manual_seed=lambda seed: None)
def rand(*_, generator): return Number()
def ones(*_, device): return Number()
__main__.Device.memory = lambda self: lambda: (1.0, 0)
__main__.Device.copies = lambda self: (lambda: (1.0, 0), lambda: (1.0, 0))
"""


def run_on_two_gpus(folder: Path, broken: str = "") -> subprocess.CompletedProcess[str]:
    (folder / "torch.py").write_text(TORCH)
    program = Path(on_all_devices.__file__).read_text("utf-8")
    return subprocess.run(
        [sys.executable, "-c", program, "0.05", ""],
        env={"PYTHONPATH": str(folder), "PATH": os.defpath, "BROKEN": broken},
        capture_output=True,
        text=True,
        check=False,
    )


def test_healthy_gpus_are_right_in_every_precision(tmp_path):
    burned = json.loads(run_on_two_gpus(tmp_path).stdout)
    assert list(burned["devices"]) == ["GPU 0", "GPU 1"]
    for own in burned["devices"].values():
        kinds = {"fp32", "tf32", "fp16", "bf16", "memory", "host_to_device", "device_to_host"}
        assert own["wrong"] == dict.fromkeys(kinds, 0)
        assert own["bits"]["tf32"] != own["bits"]["fp32"]
        assert {len(rates) for rates in own["rates"].values()} == {on_all_devices.ROUNDS}


def test_a_gpu_that_fails_is_named(tmp_path):
    done = run_on_two_gpus(tmp_path, broken="1")
    (finding,) = burn.findings(read(done.stdout, done.returncode, done.stderr), {})
    assert finding.severity == "hard"
    assert finding.observed.startswith("GPU 1: RuntimeError: CUDA error: an illegal memory access")
