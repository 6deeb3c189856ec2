"""Baselines: kept whole, found again, and what a run held to one is told."""

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from hvlab import baseline
from hvlab.baseline import output
from hvlab.cli import run
from hvlab.compare import measurements
from hvlab.errors import CheckError, HvlabError, UsageError
from hvlab.results.store import Store
from tests.unit.test_compare import launch, measured, repeated, sizes


def failing(repeat):
    return launch(repeat, error="rank 1 died", params={"dtype": "float32"})


def checked(now, before, **options):
    return baseline.check(measured(now, "new"), measured(before, "old"), **options)


@pytest.mark.parametrize(
    ("now", "before", "statuses"),
    [
        (repeated(5), repeated(5), ["fine"] * 2),
        (repeated(5, factor=1.2), repeated(5), ["regression"] * 2),
        (repeated(5, factor=0.8), repeated(5), ["better"] * 2),
        (repeated(3, factor=2), repeated(5), ["undecided"] * 2),
        (repeated(5, make=failing), repeated(5), ["regression"] * 2),
        (repeated(4) + failing(5), repeated(5), ["regression"] * 2),
        (repeated(4) + failing(5), repeated(4) + failing(5), ["undecided"] * 2),
        (repeated(5, make=failing), repeated(4) + failing(5), ["regression"] * 2),
        (repeated(5), repeated(5, make=failing), ["undecided"] * 2),
        (repeated(5, make=failing), repeated(5, make=failing), ["undecided"]),
        (repeated(5), repeated(5) + sizes(1, slots=2), ["fine"] * 2 + ["undecided"] * 2),
        (repeated(5) + sizes(1, slots=2), repeated(5), ["fine"] * 2 + ["new"] * 2),
    ],
    ids=[
        "same", "slower", "faster", "too_few", "fails", "fails_once", "failed_before", "fails_always",
        "works_again", "never_worked", "missing", "new",
    ],
)  # fmt: skip
def test_what_became_of_each_configuration(now, before, statuses):
    found = checked(now, before)
    assert [result.status for result in found.results] == statuses
    assert found.passed() == ("regression" not in statuses)
    assert found.passed(strict=True) == (not {"regression", "undecided"} & set(statuses))


def test_a_difference_that_does_not_matter_is_no_regression():
    now, before = repeated(5, factor=1.04), repeated(5)
    assert not checked(now, before).passed()
    assert checked(now, before, matters=0.1).passed()


def test_the_reason_says_what_became_of_it():
    found = checked(repeated(5, factor=1.5), repeated(5))
    assert found.results[0].reason.startswith("50.0 % higher (")
    assert found.results[0].reason.endswith("than the baseline, 5 repeats each")
    failed = checked(repeated(5, make=failing), repeated(5)).results[0]
    assert "5 of 5 failed in the run: rank 1 died" in failed.reason


def test_runs_with_nothing_in_common_are_no_pass():
    with pytest.raises(CheckError, match="no figure in common"):
        checked(repeated(5), repeated(5, slots=2))


def test_a_summary_counts_and_says_what_would_do():
    found = checked(repeated(3), repeated(5))
    assert (
        output.summary(found, strict=False)
        == "passed: 2 undecided; 2 configurations need 5 repeats for a verdict"
    )
    assert output.summary(found, strict=True).startswith("failed: 2 undecided")


def test_json_is_complete():
    found = checked(repeated(5, factor=1.5) + sizes(1, slots=2), repeated(5) + sizes(1, slots=4))
    told = json.loads(output.render(found, "json", strict=False))
    assert (told["passed"], told["strict"]) == (False, False)
    assert (told["run"]["run_id"], told["baseline"]["run_id"]) == ("new", "old")
    assert told["counts"] == {"regression": 2, "undecided": 2, "better": 0, "fine": 0, "new": 2}
    assert [result["status"] for result in told["results"]] == [
        *["regression"] * 2, *["undecided"] * 2, *["new"] * 2,
    ]  # fmt: skip
    first = told["results"][0]
    assert first["params"] == {"device": "cpu", "dtype": "float32", "size_bytes": 1024}
    assert first["verdict"]["kind"] == "slower"
    assert first["a"]["median"]["mid"] == pytest.approx(1.5 * first["b"]["median"]["mid"])
    assert told["results"][2]["slots"] == 4
    assert "share the conditions of their hour" in told["note"]


@pytest.mark.parametrize("strict", [False, True])
def test_junit_counts_what_it_holds(strict):
    now = repeated(5, factor=1.5) + repeated(3, slots=2) + repeated(5, slots=3) + sizes(1, slots=8)
    before = repeated(5) + repeated(3, slots=2) + repeated(5, slots=3) + sizes(1, slots=4)
    found = checked(now, before)
    root = ElementTree.fromstring(output.render(found, "junit", strict=strict))  # noqa: S314 - our own
    (suite,) = root
    cases = suite.findall("testcase")
    failures, skipped = (suite.findall(f"testcase/{tag}") for tag in ("failure", "skipped"))
    assert (len(cases), len(failures), len(skipped)) == (10, 6 if strict else 2, 2 if strict else 6)
    for element in (root, suite):
        assert element.get("tests") == str(len(cases))
        assert element.get("failures") == str(len(failures))
    assert suite.get("skipped") == str(len(skipped))
    names = [(case.get("classname"), case.get("name")) for case in cases]
    assert len(set(names)) == len(names)
    assert names[0] == ("allreduce.mpi", "2x1 1K")
    assert "regression: 50.0 % higher" in failures[0].get("message")
    assert {prop.get("name"): prop.get("value") for prop in suite.iter("property")} == {
        "run": "new", "baseline": "old", "lab": "t",
    }  # fmt: skip


def test_a_baseline_comes_back_as_it_was(tmp_path):
    kept = measured(repeated(4) + failing(5) + launch(1, workload="mnist", step_time=1.0))
    file = baseline.save(tmp_path, kept)
    assert file == tmp_path / "baselines/t/default.json"
    found = baseline.load(tmp_path, "t")
    assert found == kept
    assert baseline.check(replace(kept, run_id="x"), found).passed()


def test_baselines_of_labs_and_names_are_apart(tmp_path):
    for lab, name in (("t", "a"), ("t", "b"), ("u", "a")):
        baseline.save(tmp_path, measured(sizes(1), f"{lab}{name}", lab), name=name)
    assert baseline.load(tmp_path, "t", name="b").run_id == "tb"
    assert baseline.load(tmp_path, "u", name="a").run_id == "ua"
    with pytest.raises(UsageError, match="no baseline 'c'") as caught:
        baseline.load(tmp_path, "t", name="c")
    assert "t has a, b" in caught.value.remedy


def test_a_baseline_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    file = baseline.save(tmp_path, measured(sizes(1), "first"))
    before = file.read_text()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hvlab.files.os.fsync", full)
    with pytest.raises(HvlabError, match="No space left"):
        baseline.save(tmp_path, measured(sizes(1), "second"))
    assert file.read_text() == before
    assert [path.name for path in file.parent.iterdir()] == ["default.json"]


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 1, "cells": [{}]}'])
def test_a_damaged_baseline(tmp_path, text):
    file = baseline.save(tmp_path, measured(sizes(1)))
    file.write_text(text)
    with pytest.raises(UsageError, match="cannot be read") as caught:
        baseline.load(tmp_path, "t")
    assert "hvlab baseline set" in caught.value.remedy


def test_a_baseline_of_another_version(tmp_path):
    file = baseline.save(tmp_path, measured(sizes(1)))
    file.write_text(json.dumps({**json.loads(file.read_text()), "schema": 9}))
    with pytest.raises(UsageError, match="schema version 9"):
        baseline.load(tmp_path, "t")


@pytest.mark.parametrize("name", ["", "../x", ".hidden"])
def test_a_name_that_is_no_file(tmp_path, name):
    with pytest.raises(UsageError, match="cannot be the name of a baseline"):
        baseline.save(tmp_path, measured(sizes(1)), name=name)
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_figures_is_no_baseline(tmp_path):
    with pytest.raises(UsageError, match="has no figure"):
        baseline.save(tmp_path, measured(repeated(2, make=failing)))


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("HVLAB_RESULTS", str(tmp_path))
    made = Store(tmp_path)
    runs = {
        "r1": repeated(5),
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
        (["good"], 0, "run good against r1: passed"),
        (["slow"], 1, "failed: 2 regressions"),
        (["slow", "--matters", "50"], 0, "passed: 2 fine"),
        (["broken"], 1, "failed: 2 regressions"),
        (["few"], 0, "passed: 2 undecided; 2 configurations need 5 repeats for a verdict"),
        (["few", "--strict"], 1, "failed: 2 undecided"),
        (["r1"], 2, "is the baseline default itself"),
        (["good", "--name", "other"], 2, "no baseline 'other'"),
        (["good", "--metric", "algbw"], 1, "no figure in common"),
        (["none"], 2, "there is no run 'none'"),
    ],
)
def test_the_check_and_its_exit_code(store, capsys, arguments, code, told):
    assert run(["baseline", "set", "r1"]) == 0
    assert "run r1 is now baseline default of lab t" in capsys.readouterr().out
    assert run(["baseline", "check", *arguments]) == code
    assert told in capsys.readouterr().err


def test_without_a_baseline_the_remedy_is_said(store, capsys):
    assert run(["baseline", "check"]) == 2
    told = capsys.readouterr().err
    assert "lab t has no baseline 'default'" in told
    assert "hvlab baseline set RUN" in told


def test_a_baseline_of_few_repeats_is_kept_and_said(store, capsys):
    assert run(["baseline", "set", "few", "--name", "quick"]) == 0
    assert "2 of its 2 configurations have too few repeats for a verdict: measure with --repeats 5" in (
        capsys.readouterr().err
    )
    assert baseline.load(store.folder, "t", name="quick").run_id == "few"


def test_the_baseline_outlives_its_run(store, capsys, tmp_path, monkeypatch):
    assert run(["baseline", "set", "r1"]) == 0
    fresh = Store(tmp_path / "fresh")
    fresh.create("next", lab="t", spec_key="k", spec={}, cases=[])
    fresh.add([replace(record, run_id="next") for record in repeated(5, factor=1.3)])
    (tmp_path / "baselines").rename(fresh.folder / "baselines")
    assert run(["baseline", "check", "--results", str(fresh.folder)]) == 1
    assert "run next against r1: failed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("output_format", "begins"), [("json", "{"), ("junit", "<?xml"), ("table", "status")]
)
def test_the_outcome_goes_into_a_file(store, tmp_path, capsys, output_format, begins):
    assert run(["baseline", "set", "r1"]) == 0
    capsys.readouterr()
    file = tmp_path / "outcome"
    options = ["--format", output_format, "--output", str(file)]
    assert run(["baseline", "check", "slow", *options]) == 1
    assert file.read_text().strip().startswith(begins)
    assert capsys.readouterr().out == ""


def test_a_file_that_cannot_be_written(store, capsys):
    assert run(["baseline", "set", "r1"]) == 0
    assert run(["baseline", "check", "--output", str(Path("/nowhere/at/all"))]) == 2
    assert "choose another file" in capsys.readouterr().err


def test_measurements_of_the_store_are_those_of_the_records(store):
    found = measurements(store.run("r1"), store.records("r1"))
    assert (
        found.configurations
        == measured([replace(record, run_id="r1") for record in repeated(5)]).configurations
    )
