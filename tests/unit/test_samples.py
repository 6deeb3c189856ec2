"""Iterations: from the raw files to a distribution, and what is shown of it."""

import json
import statistics
from dataclasses import replace

import pytest

from benchmarks.records import COLLECTIVE, SIZES, STEPS, filled
from hvlab.cli import run
from hvlab.results.samples import bars, pool, samples_of
from hvlab.results.store import Store
from hvlab.statistics.distribution import distribution
from hvlab.workloads import outcome
from tests.unit.labs import case
from tests.unit.test_results import RECORD
from tests.unit.test_workloads import RESULT, files, values

SERIES = [0.001 + 1e-6 * (number % 50) for number in range(100)]


def row(series):
    return {"size_bytes": 1024, "count": 256, "wrong": 0, "mean_s": series, "max_s": series}


@pytest.fixture
def store(tmp_path):
    """Return a store with two repeats of 100 iterations, and a failed one."""
    store = Store(tmp_path / "results")
    store.create("r1", lab="t", spec_key="k", spec={}, cases=["c1", "c2", "c3"])
    for repeat in (1, 2):
        name = f"c{repeat}"
        first = replace(RECORD, case_id=name, repeat=repeat, raw_path=f"runs/r1/{name}")
        store.add([first, replace(first, metric="algbw", unit="GB/s")])
        folder = store.run_folder("r1") / name
        folder.mkdir(parents=True)
        (folder / "result.json").write_text(json.dumps({**RESULT, "sizes": [row(SERIES)]}))
    failed = replace(RECORD, case_id="c3", repeat=3, metric=None, value=None, unit=None, status="failed")
    store.add([failed])
    return store


def test_percentiles_lie_between_the_values_around_them():
    of = distribution(list(range(1, 101)))
    assert (of.mean, of.median, of.p95, of.p99) == (50.5, 50.5, pytest.approx(95.05), pytest.approx(99.01))
    assert (of.lowest, of.highest, of.count) == (1, 100, 100)


@pytest.mark.parametrize(("count", "p95", "p99"), [(19, False, False), (20, True, False), (100, True, True)])
def test_a_percentile_takes_values_beyond_it(count, p95, p99):
    of = distribution([float(number) for number in range(count)])
    assert (of.p95 is not None, of.p99 is not None) == (p95, p99)


def test_one_long_pause_does_not_hide_the_rest_of_a_histogram():
    of = distribution([*SERIES, 1.0])
    assert sum(of.counts) == 101
    assert len(of.edges) == len(of.counts) + 1
    assert of.edges[-1] < 0.01
    assert sum(count > 0 for count in of.counts) > 3


def test_equal_values_are_one_bin():
    assert distribution([2.0, 2.0]).counts == (2,)


def test_a_case_has_percentiles_where_it_has_iterations_enough(tmp_path):
    sizes = [row(SERIES), {**row(SERIES[:25]), "size_bytes": 4096}]
    ended = outcome(case(), files(tmp_path, result={"sizes": sizes}))
    assert {"time_p95", "time_p99"} <= values(ended, 1024).keys()
    assert values(ended, 1024)["time_p95"] == pytest.approx(1047, abs=1)
    assert "time_p95" in values(ended, 4096)
    assert "time_p99" not in values(ended, 4096)


def test_the_iterations_of_all_repeats_belong_to_a_configuration(store):
    sampled = samples_of(store, store.records("r1"))
    ((configuration, repeats),) = sampled.items()
    assert configuration.get("size_bytes") == 1024
    assert {number: len(each.times) for number, each in repeats.items()} == {1: 100, 2: 100}
    assert pool(repeats).median == pytest.approx(1e6 * statistics.median(SERIES))


def test_without_raw_files_there_are_no_samples(store):
    (store.run_folder("r1") / "c1" / "result.json").unlink()
    (store.run_folder("r1") / "c2" / "result.json").write_text("{}")
    assert samples_of(store, store.records("r1")) == {}


def test_samples_are_shown_with_a_histogram(store, capsys):
    assert run(["results", "samples", "--results", str(store.folder)]) == 0
    shown = capsys.readouterr().out
    assert "p99" in shown
    assert "█" in shown
    assert run(["results", "samples", "--results", str(store.folder), "--format", "json"]) == 0
    (only,) = json.loads(capsys.readouterr().out)
    assert (only["iterations"], only["repeats"], only["unit"]) == (200, 2, "us")
    assert sum(only["histogram"]["counts"]) == 200


def test_bars_are_as_high_as_their_counts():
    assert bars([0, 1, 8]) == " ▂█"


def test_the_benchmarks_store_has_iterations_where_asked(tmp_path):
    filled(Store(tmp_path / "bare"), 120, run_records=120)
    assert not list(tmp_path.rglob("result.json"))
    store = filled(Store(tmp_path / "whole"), 120, run_records=120, files=True)
    sampled = samples_of(store, store.records(store.runs()[0].run_id))
    counts = {
        (configuration.workload, configuration.get("size_bytes")): len(each.times) + each.warmup
        for configuration, repeats in sampled.items()
        for each in repeats.values()
    }
    assert counts == {("allreduce", size): COLLECTIVE["iterations"] for size in SIZES} | {
        ("mnist", None): STEPS
    }
