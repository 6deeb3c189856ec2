"""The store: only ever added to, and read back as it was."""

import re
import sqlite3
from dataclasses import replace

import pytest

from hvlab.base.errors import HvlabError, UsageError
from hvlab.results import journal
from hvlab.results.store import FIELDS, Record, Store, make_run_id, utc

DESIGN = (
    "run_id case_id started_at workload launcher backend proved_backend hosts slots_per_host world_size "
    "params repeat metric value unit status error stack raw_path"
)
RECORD = Record(
    run_id="r1",
    case_id="c1",
    started_at="2026-11-20T15:53:01.000Z",
    workload="allreduce",
    launcher="mpirun",
    backend="mpi",
    proved_backend="mpi",
    hosts=("n1", "n2"),
    slots_per_host=1,
    world_size=2,
    params={"size_bytes": 1024},
    repeat=1,
    metric="time",
    value=1.5,
    unit="us",
    status="ok",
    error=None,
    stack={"openmpi": "4.1.8"},
    raw_path="runs/r1/c1",
)


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "results")
    made.create("r1", lab="t", spec_key="k", spec={"a": 1}, cases=["c1", "c2", "c3"])
    return made


def test_the_fields_are_those_of_the_design():
    assert " ".join(FIELDS) == DESIGN


def test_a_record_comes_back_as_it_was(store):
    store.add([RECORD, replace(RECORD, metric=None, value=None, unit=None, status="failed", error="x")])
    assert store.records("r1")[0] == RECORD
    assert store.records("r1")[1].error == "x"
    assert store.finished_cases("r1") == {"c1"}


def test_records_are_added_all_or_none(store):
    with pytest.raises(HvlabError, match="cannot be written"):
        store.add([RECORD, replace(RECORD, case_id="c2", params=None)])  # type: ignore[arg-type]
    assert store.records("r1") == []


def test_the_overview_counts_cases(store):
    store.add([RECORD, replace(RECORD, metric="busbw")])
    store.add([replace(RECORD, case_id="c2", status="failed")])
    store.add([replace(RECORD, case_id="c3", status="skipped")])
    assert store.overview() == [
        {
            "run_id": "r1",
            "started_at": store.run().started_at,
            "cases": 2,
            "ok": 1,
            "failed": 1,
            "state": "running",
            "lab": "t",
        }
    ]


def test_only_the_last_run_of_a_specification_goes_on(store):
    assert store.unfinished("other") is None
    assert store.unfinished("k").run_id == "r1"
    store.enter("r1", "interrupted")
    assert store.unfinished("k").state == "interrupted"
    store.enter("r1", "finished")
    assert store.unfinished("k") is None


def test_an_unknown_run_names_near_ones(store):
    with pytest.raises(UsageError, match="no run 'r2'") as caught:
        store.run("r2")
    assert "r1" in str(caught.value.remedy)


def test_no_results_yet(tmp_path):
    empty = Store(tmp_path)
    assert empty.overview() == []
    assert empty.records("x") == []
    with pytest.raises(UsageError, match="no results"):
        empty.run()
    assert list(tmp_path.iterdir()) == []


def test_another_schema_is_refused(store):
    store.runs()
    database = sqlite3.connect(store.folder / "hvlab.db")
    database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(UsageError, match="schema version 99"):
        store.runs()


def test_counting_the_cases_reads_no_record(store):
    store.runs()
    database = sqlite3.connect(store.folder / "hvlab.db")
    query = "EXPLAIN QUERY PLAN SELECT run_id, case_id, max(status) FROM figures GROUP BY run_id, case_id"
    plan = " ".join(row[3] for row in database.execute(query))
    database.close()
    assert "COVERING INDEX figures_status" in plan


def test_a_run_from_elsewhere_is_put_in_whole_or_not_at_all(store):
    added = {"lab": "imported", "spec_key": "x", "spec": {}, "cases": ["c1"]}
    with pytest.raises(HvlabError, match="cannot be written"):
        store.put("r2", [replace(RECORD, run_id="r2"), replace(RECORD, case_id=None)], **added)
    assert not (store.run_folder("r2") / journal.NAME).exists()
    assert [run.run_id for run in store.runs()] == ["r1"]
    store.put("r2", [replace(RECORD, run_id="r2")], **added)
    assert (store.run("r2").state, store.run("r2").lab) == ("finished", "imported")
    assert store.records("r2") == [replace(RECORD, run_id="r2")]


def test_run_ids_sort_by_time():
    assert re.fullmatch(r"\d{8}T\d{6}Z-[0-9a-f]{8}", make_run_id())
    assert utc(0) == "1970-01-01T00:00:00.000Z"
