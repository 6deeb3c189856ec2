"""Where a step's time goes: recorded events -> parts; parts of hosts -> the explanation."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
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


def event(name, start, end, device="DeviceType.CPU", *, user=False):
    return SimpleNamespace(
        name=name, time_range=SimpleNamespace(start=start, end=end), device_type=device,
        is_user_annotation=user, scope=step_parts.USER if user else 0,
    )  # fmt: skip


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
        event("DistributedDataParallel.forward", 5, 95, "DeviceType.CUDA", user=True),
    ]
    parts = step_parts.divide(events, (0, 100))
    assert [parts[name] for name in ("compute", "exposed", "data", "host")] == [40, 20, 10, 30]


@pytest.mark.parametrize(
    ("name", "user", "compute"),
    [
        ("## Call CompiledFxGraph f6o5uqeh ##", False, 40),
        ("torchvision::nms", False, 40),
        ("Torch-Compiled Region: 0/0", False, 0),
        ("autograd::engine::evaluate_function: AddmmBackward0", False, 0),
        ("c10d::allreduce_", False, 0),
        ("mine::loop", True, 0),
    ],
)
def test_operations_of_any_library_and_of_the_compiler_are_compute(name, user, compute):
    assert step_parts.divide([event(name, 10, 50, user=user)], (0, 100))["compute"] == compute


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.integers(-5, 120), st.integers(0, 40))))
def test_the_parts_are_the_whole(drawn):
    parts = step_parts.divide([event(name, start, start + long) for name, start, long in drawn], (0, 100))
    assert sum(parts.values()) - parts["wall"] == pytest.approx(100)
    assert min(parts.values()) >= 0


class Training:
    """Steps of a script on a clock of its own, with as much of torch's profiler as they meet."""

    def __init__(self, monkeypatch):
        self.now, self.profiles, self.reports = 0.0, [], []
        training = self

        class Profiler:
            def __init__(self):
                self.names = []

            def start(self):
                training.profiles.append(self)

            def stop(self):
                training.profiles.remove(self)

            def events(self):
                return [event(name, 1e6 * at, 1e6 * at) for name, at in self.names]

        def record(name):
            for each in self.profiles:
                each.names.append((name, self.now))
            return nullcontext()

        self.profiler = Profiler
        kinds = SimpleNamespace(CPU=0, CUDA=1)
        profiler = SimpleNamespace(
            profile=lambda **_: Profiler(), record_function=record, ProfilerActivity=kinds
        )
        autograd = SimpleNamespace(
            _profiler_enabled=lambda: bool(self.profiles), profiler=SimpleNamespace(profile=Profiler)
        )
        cuda = SimpleNamespace(is_available=lambda: False)
        made = SimpleNamespace(profiler=profiler, autograd=autograd, cuda=cuda)
        monkeypatch.setitem(sys.modules, "torch", made)
        monkeypatch.setattr(step_parts.time, "perf_counter", lambda: self.now)
        self.watch = step_parts.StepWatch(self.reports.append)

    def steps(self, number, seconds=0.1, optimizers=("one",)):
        for _ in range(number):
            self.now += seconds
            for each in optimizers:
                self.watch.before(each)
                self.watch.after(each)


@pytest.mark.parametrize("optimizers", [("one",), ("one", "two", "three")])
def test_a_step_is_recorded_once_whatever_follows(monkeypatch, optimizers):
    training = Training(monkeypatch)
    training.steps(3, 9.0)
    training.steps(11, optimizers=optimizers)
    training.now += 60
    training.watch.finish()
    training.watch.finish()
    (report,) = training.reports
    assert (report["steps"], report["wall"]) == (6, pytest.approx(0.1))
    assert report["overhead"] == pytest.approx(1)


def test_recording_costs_what_it_adds_to_a_step_of_the_mean_length(monkeypatch):
    training = Training(monkeypatch)
    training.steps(step_parts.SKIPPED)
    for number in range(60):
        recorded = step_parts.PLAIN <= number < step_parts.PLAIN + step_parts.PROFILED
        # What was loaded during a pause makes the steps after it short.
        long = number % 2 and not 25 <= number < 35
        training.steps(1, 0.01 + 0.2 * long + 0.01 * recorded)
    (report,) = training.reports
    assert report["wall"] == pytest.approx(0.12)
    assert report["overhead"] == pytest.approx(0.12 / 0.11)


@pytest.mark.parametrize(
    ("before", "during", "after", "told"),
    [
        (3, 0, 0, "its optimizer made 3 steps, and must make 11"),
        (0, 40, 0, "it uses torch's profiler itself"),
        (10, 20, 10, "it uses torch's profiler itself"),
        (12, 20, 10, ""),
        (0, 9, 30, ""),
    ],
)
def test_the_profiler_of_the_script_comes_first(monkeypatch, before, during, after, told):
    training = Training(monkeypatch)
    training.steps(before)
    own = training.profiler()
    own.start()
    assert training.profiles == [own]
    training.steps(during)
    own.stop()
    training.steps(after)
    training.watch.finish()
    (report,) = training.reports
    assert report.get("missing", "").startswith(told) if told else report["steps"] >= step_parts.LEAST


def test_a_training_outlives_a_failure_to_record_it(monkeypatch):
    training = Training(monkeypatch)
    monkeypatch.setattr(training.profiler, "start", lambda _: 1 / 0)
    training.steps(40)
    training.watch.finish()
    assert "division by zero" in training.reports[0]["missing"]


def test_the_rank_that_comes_last_is_waited_for():
    slow = {**STEP, "compute": 0.16}
    one = explained(n1={**STEP, "exposed": 0.13}, n2=slow)
    assert (one.rank, one.slowest, one.reason, one.largest) == ("n1", "n2", "compute", "waiting")
    assert one.parts["communication"] == pytest.approx(0.01)
    assert "waiting for n2 67%" in one.sentence
    assert "n2 computes longer" in one.sentence


def test_a_slow_link_is_communication_of_all_hosts():
    one = explained(n1={**STEP, "exposed": 0.21}, n2={**STEP, "exposed": 0.2})
    assert (one.slowest, one.largest) == ("", "communication")


def test_a_slow_loader_is_data():
    late = {**STEP, "data": 0.3}
    assert explained(n1=late, n2=late).largest == "data"


@pytest.mark.parametrize(("seconds", "words"), [(0.0123456, "of 12.3 ms,"), (4.0561, "of 4060 ms,")])
def test_a_long_step_is_written_without_an_exponent(seconds, words):
    step = {"compute": seconds, "exposed": 0.0, "data": 0.0, "host": 0.0}
    assert words in explained(n1=step, n2=step).sentence


def ended(folder, *lines, slots=2, hosts=("n1", "n2")):
    folder.joinpath("stderr").write_text("\n".join(["a warning", *lines, ""]))
    own = case(workload="command", command="true")
    params = {**own.params, "explain": True}
    return list(command._steps(replace(own, hosts=hosts, slots=slots, params=params), folder))


def line(rank, **parts):
    return f"[{rank}]<stderr>:hvlab: step: {json.dumps({'rank': rank, **STEP, 'overhead': 1.1, **parts})}"


@pytest.mark.parametrize(
    ("slots", "hosts", "names"),
    [(2, 2, ["rank 1 on n1", "rank 2 on n2"]), (1, 3, ["n2", "n3"]), (4, 1, ["rank 1", "rank 2"])],
)
def test_each_rank_prints_its_parts(tmp_path, slots, hosts, names):
    printed = (line(1, data=0.2), line(2, overhead=1.3), "hvlab: step: {x}", line(4))
    figures = ended(tmp_path, *printed, slots=slots, hosts=("n1", "n2", "n3")[:hosts])
    values = {(one.metric, one.params.get("host")): one.value for one in figures}
    assert [values["step_data", name] for name in names] == [0.2, 0.0]
    assert values["recorded_step", None] == 1.3


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        ("hvlab: cores: {}", "no process called step"),
        (
            'hvlab: step: {"rank": 1, "steps": 3, "missing": "it made 3 steps"}',
            "rank 1's training: it made 3 steps",
        ),
    ],
)
def test_a_training_without_steps_is_told(tmp_path, printed, told):
    with pytest.raises(ValueError, match=f"no step was recorded: {told}"):
        ended(tmp_path, printed)
