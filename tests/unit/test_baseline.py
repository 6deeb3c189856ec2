"""Baselines: kept whole, found again, and what a run held to one is told."""

import json
import random
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from hvlab.analysis import baseline
from hvlab.analysis.baseline import output
from hvlab.base.errors import CheckError, HvlabError, UsageError
from hvlab.cli import run
from hvlab.results.store import Store
from tests.unit.test_compare import launch, measured, repeated, sizes


def failing(repeat):
    return launch(repeat, error="rank 1 died", params={"dtype": "float32"})


def many(make, *repeats):
    return [record for repeat in repeats for record in make(repeat)]


# How the runs of a baseline differ by their hour: 0.9 % of standard deviation.
HOURS = (1.0, 1.01, 0.99, 1.005, 0.99)


def runs_of(make, hours=HOURS):
    """Runs that differ by their hour; ``make`` returns the records of one, by the factor of its times."""
    return tuple(measured(make(hour), f"old{number}") for number, hour in enumerate(hours, start=1))


def checked(now, before, **options):
    """A run checked against a baseline, which is five runs of these records if not given as runs."""
    if isinstance(before, list):
        records = before
        before = runs_of(lambda hour: [hourly(record, hour) for record in records])
    return baseline.check(measured(now, "new"), before, **options)


def hourly(record, hour):
    """A record of a slower or faster hour."""
    return record if record.value is None else replace(record, value=record.value * hour)


@pytest.mark.parametrize(
    ("now", "before", "statuses"),
    [
        (repeated(5), repeated(5), ["fine"] * 2),
        (repeated(5, factor=1.2), repeated(5), ["regression"] * 2),
        (repeated(5, factor=0.8), repeated(5), ["better"] * 2),
        (repeated(3, factor=2), repeated(5), ["undecided"] * 2),
        (repeated(5, make=failing), repeated(5), ["regression"] * 2),
        (repeated(4) + failing(5), repeated(5), ["regression"] * 2),
        (repeated(4) + failing(5), repeated(4) + failing(5), ["fine"] * 2),
        (repeated(2) + many(failing, 3, 4, 5), repeated(4) + failing(5), ["undecided"] * 2),
        (repeated(5, make=failing), repeated(4) + failing(5), ["regression"] * 2),
        (repeated(5), repeated(5, make=failing), ["undecided"] * 2),
        (repeated(5, make=failing), repeated(5, make=failing), ["undecided"]),
        (repeated(5), repeated(5) + sizes(1, slots=2), ["fine"] * 2 + ["undecided"] * 2),
        (repeated(5) + sizes(1, slots=2), repeated(5), ["fine"] * 2 + ["new"] * 2),
    ],
    ids=[
        "same", "slower", "faster", "too_few", "fails", "fails_once", "failed_before", "often_failed_before",
        "fails_always", "works_again", "never_worked", "missing", "new",
    ],
)  # fmt: skip
def test_what_became_of_each_configuration(now, before, statuses):
    found = checked(now, before)
    assert [result.status for result in found.results] == statuses
    assert found.passed() == ("regression" not in statuses)
    assert found.passed(strict=True) == (not {"regression", "undecided"} & set(statuses))


@pytest.mark.parametrize("runs", [1, 2, 4])
def test_fewer_than_five_runs_decide_no_figure(runs):
    before = runs_of(lambda hour: repeated(5, factor=hour), HOURS[:runs])
    found = checked(repeated(5, factor=7), before)
    assert [result.status for result in found.results] == ["undecided"] * 2
    assert f"{runs} run{'s' * (runs > 1)} in the baseline, a verdict needs 5" in found.results[0].reason
    assert found.results[0].row.verdict.ratio.mid == pytest.approx(7, rel=0.02)
    assert (found.passed(), found.passed(strict=True)) == (True, False)
    assert not checked(repeated(5, make=failing), before).passed()


def test_one_old_failure_does_not_hide_that_most_launches_fail_now():
    whole = runs_of(lambda hour: repeated(5, factor=hour))
    once = measured(repeated(4, factor=0.995) + failing(5), "once")  # 29 of 30 launches succeeded
    few = checked(repeated(2) + many(failing, 3, 4, 5), (*whole, once))
    assert [result.status for result in few.results] == ["regression"] * 2
    assert "3 of 5 failed in the run: rank 1 died" in few.results[0].reason
    most = checked(repeated(4) + failing(5), (*whole, once))
    assert [result.status for result in most.results] == ["fine"] * 2


def test_a_configuration_that_begins_later_is_compared_with_its_own_runs():
    hours = (1.0, 1.08, 0.92, 1.06, 0.94, 1.05, 0.97)
    before = tuple(
        measured(
            [
                record
                for slots in ((1, 2, 3, 4) if number > 2 else (1, 2, 3))
                for record in repeated(5, slots=slots, factor=hour * (1 + slots * number / 2000))
            ],
            f"old{number}",
        )
        for number, hour in enumerate(hours, start=1)
    )
    now = [
        record
        for slots in (1, 2, 3, 4)
        for record in repeated(5, slots=slots, factor=1.02 * (1.5 if slots == 4 else 1))
    ]
    found = checked(now, before)
    assert [result.status for result in found.results] == ["fine"] * 6 + ["regression"] * 2
    assert "5 runs in the baseline, more than the shift common to all" in found.results[-1].reason


def test_a_bad_hour_is_no_regression():
    hours = (1.0, 1.3, 0.8, 1.1, 0.9)
    before = runs_of(lambda hour: repeated(5, factor=hour), hours)
    found = checked(repeated(5, factor=1.3), before)
    assert [result.status for result in found.results] == ["fine", "fine"]
    assert "not distinguishable from the usual difference between runs" in found.results[0].reason


def test_one_configuration_that_changed_beside_the_hour_is_told_from_it():
    def made(hour, slower=1.0):
        # Four configurations in one hour, each two of a launch with noise of their own.
        draw = random.Random(f"{hour} {slower}")  # noqa: S311 - noise, not a secret
        return [
            record
            for slots in (1, 2)
            for record in repeated(
                5, slots=slots, factor=hour * draw.gauss(1, 0.002) * (slower if slots == 2 else 1)
            )
        ]

    before = runs_of(made, (1.0, 1.05, 0.95, 1.02, 0.97))
    found = checked(made(1.04, slower=1.2), before)
    assert [result.status for result in found.results] == ["fine"] * 2 + ["regression"] * 2
    assert "more than the shift common to all" in found.results[2].reason


def test_a_configuration_in_too_few_runs_of_the_baseline_is_undecided():
    before = (*runs_of(lambda hour: repeated(5, factor=hour)), measured(repeated(5, slots=2), "old6"))
    found = checked(repeated(5) + repeated(5, slots=2, factor=2), before)
    assert [result.status for result in found.results] == ["fine"] * 2 + ["undecided"] * 2
    assert found.comparison.only_a == found.comparison.only_b == ()


def test_a_difference_that_does_not_matter_is_no_regression():
    now, before = repeated(5, factor=1.06), repeated(5)
    assert not checked(now, before).passed()
    assert checked(now, before, matters=0.1).passed()


def test_the_reason_says_what_became_of_it():
    found = checked(repeated(5, factor=1.5), repeated(5))
    assert found.results[0].reason.startswith("50.2 % higher (")
    assert "than the baseline, 5 runs in the baseline, as all have" in found.results[0].reason
    failed = checked(repeated(5, make=failing), repeated(5)).results[0]
    assert "5 of 5 failed in the run: rank 1 died" in failed.reason
    few = checked(repeated(3), repeated(5)).results[0]
    assert "3 repeats in the run, 5 in the baseline's" in few.reason


def test_runs_with_nothing_in_common_are_no_pass():
    with pytest.raises(CheckError, match="no figure in common"):
        checked(repeated(5), repeated(5, slots=2))


def test_a_summary_counts_and_says_what_would_do():
    found = checked(repeated(5), runs_of(lambda hour: repeated(5), (1, 1)))
    assert (
        output.summary(found, strict=False)
        == "undecided: 2 cannot be judged; a verdict needs 5 runs in the baseline, it has 2"
    )
    assert output.summary(found, strict=True).startswith("failed: 2 cannot be judged")


def test_json_is_complete():
    found = checked(repeated(5, factor=1.5) + sizes(1, slots=2), repeated(5) + sizes(1, slots=4))
    told = json.loads(output.render(found, "json", strict=False))
    assert (told["outcome"], told["passed"], told["strict"]) == ("failed", False, False)
    assert (told["run"]["run_id"], told["baseline"]["run_id"]) == ("new", "old5")
    assert told["baseline_runs"] == ["old1", "old2", "old3", "old4", "old5"]
    assert told["counts"] == {"regression": 2, "undecided": 2, "better": 0, "fine": 0, "new": 2}
    assert [result["status"] for result in told["results"]] == [
        *["regression"] * 2, *["undecided"] * 2, *["new"] * 2,
    ]  # fmt: skip
    first = told["results"][0]
    assert first["params"] == {"device": "cpu", "dtype": "float32", "size_bytes": 1024}
    assert first["verdict"]["kind"] == "slower"
    assert first["a"]["median"]["mid"] == pytest.approx(1.5 * first["b"]["median"]["mid"])
    assert first["b"]["ok"] == first["b"]["tried"] == 25
    assert told["results"][2]["slots"] == 4
    assert "share the conditions of their time" in told["note"]


@pytest.mark.parametrize("strict", [False, True])
def test_junit_counts_what_it_holds(strict):
    now = repeated(5, factor=1.5) + repeated(3, slots=2) + repeated(5, slots=3) + sizes(1, slots=8)
    before = repeated(5) + repeated(3, slots=2) + repeated(5, slots=3) + sizes(1, slots=4)
    found = checked(now, before)
    root = ElementTree.fromstring(output.render(found, "junit", strict=strict))  # noqa: S314 - our own
    (suite,) = root
    cases = suite.findall("testcase")
    failures, skipped = (suite.findall(f"testcase/{tag}") for tag in ("failure", "skipped"))
    assert (len(cases), len(failures), len(skipped)) == (10, 4 if strict else 2, 2 if strict else 4)
    for element in (root, suite):
        assert element.get("tests") == str(len(cases))
        assert element.get("failures") == str(len(failures))
    assert suite.get("skipped") == str(len(skipped))
    names = [(case.get("classname"), case.get("name")) for case in cases]
    assert len(set(names)) == len(names)
    assert names[0] == ("allreduce.mpi", "2x1 1K")
    assert "regression: 50.2 % higher" in failures[0].get("message")
    assert {prop.get("name"): prop.get("value") for prop in suite.iter("property")} == {
        "run": "new", "baseline": "old1 old2 old3 old4 old5", "lab": "t",
    }  # fmt: skip


def test_a_baseline_comes_back_as_it_was(tmp_path):
    one = measured(repeated(4) + failing(5) + launch(1, workload="mnist", step_time=1.0))
    kept = (one, measured(repeated(2), "second"))
    file = baseline.save(tmp_path, kept)
    assert file == tmp_path / "baselines/t/default.json"
    found = baseline.load(tmp_path, "t")
    assert found == kept
    assert baseline.check(replace(one, run_id="x"), found).passed()


def test_baselines_of_labs_and_names_are_apart(tmp_path):
    for lab, name in (("t", "a"), ("t", "b"), ("u", "a")):
        baseline.save(tmp_path, [measured(sizes(1), f"{lab}{name}", lab)], name=name)
    assert baseline.load(tmp_path, "t", name="b")[0].run_id == "tb"
    assert baseline.load(tmp_path, "u", name="a")[0].run_id == "ua"
    with pytest.raises(UsageError, match="no baseline 'c'") as caught:
        baseline.load(tmp_path, "t", name="c")
    assert "t has a, b" in caught.value.remedy


def test_a_baseline_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    file = baseline.save(tmp_path, [measured(sizes(1), "first")])
    before = file.read_text()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hvlab.base.files.os.fsync", full)
    with pytest.raises(HvlabError, match="No space left"):
        baseline.save(tmp_path, [measured(sizes(1), "second")])
    assert file.read_text() == before
    assert [path.name for path in file.parent.iterdir()] == ["default.json"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        *((text, "cannot be read") for text in ("{", "[]", '{"schema": 1, "cells": [{}]}', '{"schema": 2}')),
        ('{"schema": 9}', "schema version 9"),
        ('{"schema": 2, "runs": []}', "holds no run"),
    ],
)
def test_a_damaged_baseline_or_one_of_another_version(tmp_path, text, told):
    baseline.save(tmp_path, [measured(sizes(1))]).write_text(text)
    with pytest.raises(UsageError, match=told) as caught:
        baseline.load(tmp_path, "t")
    assert "hvlab baseline set" in caught.value.remedy


@pytest.mark.parametrize("name", ["", "../x", ".hidden"])
def test_a_name_that_is_no_file(tmp_path, name):
    with pytest.raises(UsageError, match="cannot be the name of a baseline"):
        baseline.save(tmp_path, [measured(sizes(1))], name=name)
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_figures_is_no_baseline(tmp_path):
    with pytest.raises(UsageError, match="has no figure"):
        baseline.save(tmp_path, [measured(repeated(2, make=failing))])


def test_a_baseline_is_of_one_lab_and_holds_a_run_once(tmp_path):
    here, there = measured(sizes(1), "a"), measured(sizes(1), "b", "u")
    with pytest.raises(UsageError, match="run b is of lab u, run a of lab t"):
        baseline.save(tmp_path, [here, there])
    with pytest.raises(UsageError, match="run a would be in the baseline default twice"):
        baseline.save(tmp_path, [here, here])
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("HVLAB_RESULTS", str(tmp_path))
    made = Store(tmp_path)
    runs = {
        **{f"r{number}": repeated(5, factor=hour) for number, hour in enumerate(HOURS, start=1)},
        "few": repeated(3),
        "slow": repeated(5, factor=1.3),
        "broken": repeated(5, make=failing),
        "good": repeated(5, factor=1.001),
    }
    for run_id, records in runs.items():
        made.create(run_id, lab="t", spec_key="k", spec={}, cases=[])
        made.add([replace(record, run_id=run_id) for record in records])
    return made


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ([], 0, "passed: 2 fine"),
        (["good"], 0, "run good against r1, r2, r3, r4, r5: passed"),
        (["slow"], 1, "failed: 2 regressions"),
        (["slow", "--matters", "50"], 0, "passed: 2 fine"),
        (["broken"], 1, "failed: 2 regressions"),
        (["few"], 0, "undecided: 2 cannot be judged"),
        (["few", "--strict"], 1, "failed: 2 cannot be judged"),
        (["r1"], 2, "is in the baseline default itself"),
        (["good", "--name", "other"], 2, "no baseline 'other'"),
        (["good", "--metric", "algbw"], 1, "no figure in common"),
        (["none"], 2, "there is no run 'none'"),
    ],
)
def test_the_check_and_its_exit_code(store, capsys, arguments, code, told):
    assert run(["baseline", "set", "r1", "r2", "r3", "r4", "r5"]) == 0
    printed = capsys.readouterr()
    assert "baseline default of lab t now consists of runs r1, r2, r3, r4, r5: " in printed.out
    assert printed.err == ""
    assert run(["baseline", "check", *arguments]) == code
    assert told in capsys.readouterr().err


def test_without_a_baseline_the_remedy_is_said(store, capsys):
    assert run(["baseline", "check"]) == 2
    told = capsys.readouterr().err
    assert "lab t has no baseline 'default'" in told
    assert "hvlab baseline set RUN" in told


def test_a_baseline_grows_run_by_run(store, capsys):
    assert run(["baseline", "set", "r1"]) == 0
    assert (
        "needs 5 runs in the baseline, preferably at different times of day, it has 1"
        in capsys.readouterr().err
    )
    for number in range(2, 6):
        assert run(["baseline", "check", "slow"]) == 0
        assert run(["baseline", "check", "slow", "--strict"]) == 1
        assert f"a verdict needs 5 runs in the baseline, it has {number - 1}" in capsys.readouterr().err
        assert run(["baseline", "add", f"r{number}"]) == 0
    assert run(["baseline", "check", "slow"]) == 1
    assert run(["baseline", "add", "r5"]) == 2
    assert "run r5 would be in the baseline default twice" in capsys.readouterr().err


def test_the_first_runs_that_are_added_begin_a_baseline(store):
    assert run(["baseline", "add", "r1", "r2", "--name", "spring"]) == 0
    assert run(["baseline", "add", "r3", "--name", "spring"]) == 0
    assert [kept.run_id for kept in baseline.load(store.folder, "t", name="spring")] == ["r1", "r2", "r3"]


def test_a_baseline_of_one_run_by_an_earlier_version_is_read_and_grows(store):
    file = baseline.save(store.folder, [measured(repeated(5), "old")])
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content["runs"][0], "schema": 1, "name": "default", "set_at": "x"}))
    assert run(["baseline", "add", "r1", "r2"]) == 0
    assert [kept.run_id for kept in baseline.load(store.folder, "t")] == ["old", "r1", "r2"]


def test_the_baseline_outlives_its_run(store, capsys, tmp_path, monkeypatch):
    assert run(["baseline", "set", "r1", "r2", "r3", "r4", "r5"]) == 0
    fresh = Store(tmp_path / "fresh")
    fresh.create("next", lab="t", spec_key="k", spec={}, cases=[])
    fresh.add([replace(record, run_id="next") for record in repeated(5, factor=1.3)])
    (tmp_path / "baselines").rename(fresh.folder / "baselines")
    assert run(["baseline", "check", "--results", str(fresh.folder)]) == 1
    assert "run next against r1, r2, r3, r4, r5: failed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("output_format", "begins"),
    [("json", "{"), ("junit", "<?xml"), ("table", "in every row: status regression, workload allreduce")],
)
def test_the_outcome_goes_into_a_file(store, tmp_path, capsys, output_format, begins):
    assert run(["baseline", "set", "r1", "r2", "r3", "r4", "r5"]) == 0
    capsys.readouterr()
    file = tmp_path / "outcome"
    options = ["--format", output_format, "--output", str(file)]
    assert run(["baseline", "check", "slow", *options]) == 1
    assert file.read_text().strip().startswith(begins)
    assert capsys.readouterr().out == ""


def test_a_file_that_cannot_be_written(store, capsys):
    assert run(["baseline", "set", "r1"]) == 0
    assert run(["baseline", "check", "--output", str(Path("/nowhere/at/all"))]) == 2
    assert "choose another --output" in capsys.readouterr().err
