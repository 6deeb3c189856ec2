"""A bench that repeats where it still matters, with hosts and Ansible replaced by a stand-in."""

import json
import random
from dataclasses import replace

import pytest

from hvlab.analysis.compare import measurements
from hvlab.analysis.compare.decisions import decide
from hvlab.base.errors import InterruptedRunError
from hvlab.bench import looks, measure
from hvlab.bench.schedule import Schedule
from tests.unit.labs import lab, spec
from tests.unit.test_bench import FakePlay, store, world  # noqa: F401 - fixtures
from tests.unit.test_workloads import ENDED, RESULT

# How much each setting differs, and how much noise it has; by a part of the case's id.
SPEEDS: dict[str, tuple[float, float]] = {}


class Play(FakePlay):
    """Writes times that depend on the case; ``interrupt`` is which of all waits is interrupted."""

    waited, interrupt = 0, 0

    def wait(self, seconds):
        if not self.left:
            return True
        Play.waited += 1
        if Play.waited == Play.interrupt:
            raise KeyboardInterrupt
        name = self.left.pop(0)
        speed, noise = next(value for part, value in SPEEDS.items() if part in name)
        time = 1e-3 * speed * random.Random(name).lognormvariate(0, noise)  # noqa: S311
        _, backend, place, *_ = name.split("-")
        sizes = [{**row, "mean_s": [time, time]} for row in RESULT["sizes"]]
        proof = {"timeline": "t", "activities": [f"{backend.upper()}_ALLREDUCE"]}
        hosts = int(place.partition("x")[0])
        ranks = {"size": hosts, "placement": RESULT["world"]["placement"][:hosts]}
        result = {**RESULT, "sizes": sizes, "proof": proof, "world": ranks}
        (self.folder / name).mkdir()
        (self.folder / name / "case.json").write_text(json.dumps(ENDED))
        (self.folder / name / "result.json").write_text(json.dumps(result))
        return False


@pytest.fixture
def auto(world, monkeypatch):  # noqa: F811
    monkeypatch.setattr(measure, "Play", Play)
    SPEEDS.clear()

    def schedule(*backends, **changes):
        return Schedule.of(spec(*backends, auto=True, repeats=16, **changes), lab())

    return schedule


def repeats_of(store, run_id):  # noqa: F811
    counts: dict[str, int] = {}
    for record in store.records(run_id):
        name = record.case_id.rpartition("-r")[0]
        counts[name] = max(counts.get(name, 0), record.repeat)
    return counts


def test_a_large_difference_takes_six_repeats_and_a_small_one_more(auto, store):  # noqa: F811
    SPEEDS.update(
        {"gloo-1x": (3.0, 0.03), "mpi-1x": (1.0, 0.03), "gloo-2x": (1.06, 0.09), "mpi-2x": (1.0, 0.09)}
    )
    run_id = measure.measure(auto("mpi", "gloo", hosts=(1, 2)), store)
    counts = repeats_of(store, run_id)
    assert counts["allreduce-mpi-1x1"] == counts["allreduce-gloo-1x1"] == 6
    assert counts["allreduce-mpi-2x1"] == counts["allreduce-gloo-2x1"] == 16
    assert len(FakePlay.plans) == 3
    assert store.run().state == "finished"
    assert store.overview()[0]["cases"] == store.overview()[0]["ok"] == 2 * 6 + 2 * 16


def test_without_another_setting_the_interval_of_the_median_counts(auto, store):  # noqa: F811
    SPEEDS.update({"mpi-1x": (1.0, 0.005), "mpi-2x": (1.0, 0.5)})
    counts = repeats_of(store, measure.measure(auto("mpi", hosts=(1, 2)), store))
    assert counts == {"allreduce-mpi-1x1": 6, "allreduce-mpi-2x1": 16}


@pytest.mark.parametrize("after", [3, 15])
def test_an_interrupted_run_goes_on_as_it_would_have(auto, store, after):  # noqa: F811
    SPEEDS.update({"gloo": (1.06, 0.09), "mpi": (1.0, 0.09)})
    whole = repeats_of(store, measure.measure(auto("mpi", "gloo"), store))
    Play.interrupt = Play.waited + after
    with pytest.raises(InterruptedRunError):
        measure.measure(auto("mpi", "gloo"), store)
    run_id = store.run().run_id
    assert measure.measure(auto("mpi", "gloo"), store) == run_id
    assert repeats_of(store, run_id) == whole
    assert store.run().state == "finished"


def test_a_time_limit_ends_a_run_between_repeats_and_it_can_go_on(auto, store, monkeypatch, capsys):  # noqa: F811
    SPEEDS.update({"gloo": (1.06, 0.09), "mpi": (1.0, 0.09)})
    clock = iter(range(0, 10**6, 1))
    monkeypatch.setattr(measure.time, "monotonic", lambda: float(next(clock)))
    plan = auto("mpi", "gloo", time_limit=40)
    run_id = measure.measure(plan, store)
    assert store.run().state == "interrupted"
    counts = repeats_of(store, run_id)
    assert set(counts.values()) < set(range(1, 16))
    assert len(set(counts.values())) == 1
    assert f"--resume {run_id}" in capsys.readouterr().err
    assert measure.measure(replace(plan, spec=replace(plan.spec, time_limit=0)), store) == run_id
    assert store.run().state == "finished"


def test_a_case_that_always_fails_is_not_repeated(auto, store, monkeypatch):  # noqa: F811
    SPEEDS.update({"mpi": (1.0, 0.5), "gloo": (1.0, 0.5)})
    monkeypatch.setitem(ENDED, "rc", 1)
    assert set(repeats_of(store, measure.measure(auto("mpi", "gloo"), store)).values()) == {6}


def test_the_report_of_a_run_gives_the_verdicts_it_ended_on(auto, store):  # noqa: F811
    SPEEDS.update({"gloo": (3.0, 0.03), "mpi": (1.0, 0.03)})
    run_id = measure.measure(auto("mpi", "gloo"), store)
    decisions = decide(measurements(store.run(run_id), store.records(run_id)), store.spec(run_id)[1])
    assert {each.row.verdict.kind for each in decisions.rows} == {"faster"}
    assert {each.names for each in decisions.rows} == {("mpi", "gloo")}


def test_a_median_of_few_repeats_is_not_known():
    assert looks._is_known([1.0] * 6)
    assert not looks._is_known([1.0] * 5)


def test_a_fixed_number_of_repeats_has_no_looks():
    plan = Schedule.of(spec("mpi", repeats=2), lab())
    assert looks.list_due(plan.cases, plan.spec, []) == list(plan.cases)
