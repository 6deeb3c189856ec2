"""Where a step's time goes: recorded events -> parts; parts of hosts -> the explanation."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvlab.analysis.step_parts import explain
from hvlab.results.configurations import Configuration, Repeats
from hvlab.workloads import command
from hvlab.workloads.programs import step_parts
from tests.unit.labs import case

STEP = {"compute": 0.04, "exposed": 0.01, "data": 0.0, "host": 0.01}
KINDS = ("aten::mm", "gloo:all_reduce", "enumerate(DataLoader)#_Iter.__next__", "hvlab::wait", "backward")


def event(name, start, end, device="DeviceType.CPU"):
    return SimpleNamespace(name=name, time_range=SimpleNamespace(start=start, end=end), device_type=device)


def explained(**hosts):
    repeats = Repeats(values={"recorded_step": {1: 1.02}})
    for host, parts in hosts.items():
        repeats.hosts[host] = {f"step_{part}": {1: value} for part, value in parts.items()}
    (one,) = explain({Configuration("command", "gloo", "horovodrun", tuple(hosts), 1): repeats})
    return one


def test_each_moment_is_in_one_part():
    events = [
        event("backward", 0, 50),
        event("aten::mm", 0, 30),
        event("aten::addmm", 10, 40),
        event("gloo:all_reduce", 20, 60),
        event("enumerate(DataLoader)#_Iter.__next__", 70, 90),
        event("aten::stack", 75, 80),
    ]
    assert step_parts.divide(events, (0, 100)) == {
        "wall": 100,
        "compute": 40,
        "exposed": 20,
        "data": 20,
        "host": 20,
    }


def test_where_a_gpu_works_its_kernels_are_the_compute():
    events = [
        event("aten::mm", 0, 90),
        event("sgemm", 10, 50, "DeviceType.CUDA"),
        event("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 40, 70, "DeviceType.CUDA"),
        event("enumerate(DataLoader)#_Iter.__next__", 45, 80),
    ]
    parts = step_parts.divide(events, (0, 100))
    assert [parts[name] for name in ("compute", "exposed", "data", "host")] == [40, 20, 10, 30]


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.integers(-5, 120), st.integers(0, 40))))
def test_the_parts_are_the_whole(drawn):
    parts = step_parts.divide([event(name, start, start + long) for name, start, long in drawn], (0, 100))
    assert sum(parts.values()) - parts["wall"] == pytest.approx(100)
    assert min(parts.values()) >= 0


def test_the_host_that_comes_last_is_waited_for():
    slow = {**STEP, "compute": 0.16}
    one = explained(n1={**STEP, "exposed": 0.13}, n2=slow)
    assert (one.host, one.slowest, one.reason, one.largest) == ("n1", "n2", "compute", "waiting")
    assert one.parts["communication"] == pytest.approx(0.01)
    assert "waiting for n2 67%" in one.sentence
    assert "n2 takes longer in compute" in one.sentence


def test_a_slow_link_is_communication_of_all_hosts():
    one = explained(n1={**STEP, "exposed": 0.21}, n2={**STEP, "exposed": 0.2})
    assert (one.slowest, one.largest) == ("", "communication")


def test_a_slow_loader_is_data():
    late = {**STEP, "data": 0.3}
    assert explained(n1=late, n2=late).largest == "data"


def ended(folder, *lines):
    folder.joinpath("stderr").write_text("\n".join(["a warning", *lines, ""]))
    own = case(workload="command", command="true")
    return list(command._steps(replace(own, slots=2, params={**own.params, "explain": True}), folder))


def line(rank, **parts):
    return f"[{rank}]<stderr>:hvlab: step: {json.dumps({'rank': rank, **STEP, 'overhead': 1.1, **parts})}"


def test_ranks_print_their_parts_and_hosts_have_the_means(tmp_path):
    figures = ended(tmp_path, line(0), line(1, data=0.2), line(2), line(3, overhead=1.3), "hvlab: step: {x}")
    values = {(one.metric, one.params.get("host")): one.value for one in figures}
    assert values["step_data", "n1"] == pytest.approx(0.1)
    assert values["step_data", "n2"] == 0
    assert values["recorded_step", None] == 1.3


def test_a_training_without_steps_is_told(tmp_path):
    with pytest.raises(ValueError, match="no rank recorded a step"):
        ended(tmp_path, "hvlab: cores: {}")
