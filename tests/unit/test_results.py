"""The store: only ever added to, and read back as it was."""

import json
import re
import sqlite3
from dataclasses import astuple, replace

import pytest

from hvlab.base.errors import HvlabError, UsageError
from hvlab.results.store import FIELDS, MIGRATIONS, SCHEMA, Record, Store, new_run_id, utc

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
    assert store.done("r1") == {"c1"}


@pytest.mark.parametrize("table", ["runs", "states", "records"])
@pytest.mark.parametrize("change", ["DELETE FROM {}", "UPDATE {} SET run_id = 'x'"])
def test_rows_cannot_be_changed_or_deleted(store, table, change):
    store.add([RECORD])
    database = sqlite3.connect(store.folder / "hvlab.db")
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        database.execute(change.format(table))
    database.close()


def test_records_are_added_all_or_none(store):
    with pytest.raises(HvlabError, match="cannot be written"):
        store.add([RECORD, replace(RECORD, params=None, run_id=None)])  # type: ignore[arg-type]
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
    database = sqlite3.connect(store.folder / "hvlab.db")
    database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(UsageError, match="schema version 99"):
        store.runs()


@pytest.fixture
def old_store(tmp_path):
    """A store as the first version wrote it, with one run of one record."""
    database = sqlite3.connect(tmp_path / "hvlab.db")
    for statement in MIGRATIONS[0]:
        database.execute(statement)
    database.execute("INSERT INTO runs VALUES ('r0', '2026', 't', 'k', '{}', '[\"c1\"]')")
    database.execute("INSERT INTO states VALUES ('r0', '2026', 'finished')")
    values = [json.dumps(value) if isinstance(value, tuple | dict) else value for value in astuple(RECORD)]
    database.execute(f"INSERT INTO records VALUES ({', '.join('?' * len(values))})", ["r0", *values[1:]])  # noqa: S608 - marks
    database.execute("PRAGMA user_version = 1")
    database.commit()
    database.close()
    return Store(tmp_path)


def version(store):
    database = sqlite3.connect(store.folder / "hvlab.db")
    found = database.execute("PRAGMA user_version").fetchone()[0]
    database.close()
    return found


def test_an_old_store_is_read_as_it_is(old_store):
    assert old_store.records("r0") == [replace(RECORD, run_id="r0")]
    assert old_store.overview()[0]["ok"] == 1
    assert version(old_store) == 1


def test_an_old_store_becomes_a_new_one_when_it_is_written(old_store):
    old_store.create("r1", lab="t", spec_key="k", spec={}, cases=["c1"])
    old_store.add([RECORD])
    assert version(old_store) == SCHEMA == 2
    assert old_store.records("r0") == [replace(RECORD, run_id="r0")]
    assert [row["ok"] for row in old_store.overview()] == [1, 1]
    database = sqlite3.connect(old_store.folder / "hvlab.db")
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        database.execute("DELETE FROM records")
    database.close()


def test_stores_of_every_age_have_one_schema(tmp_path, old_store, store):
    def tables(of):
        database = sqlite3.connect(of.folder / "hvlab.db")
        rows = database.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
        database.close()
        return rows

    old_store.enter("r0", "finished")
    assert tables(old_store) == tables(store)


def test_counting_the_cases_reads_no_record(store):
    database = sqlite3.connect(store.folder / "hvlab.db")
    query = "EXPLAIN QUERY PLAN SELECT run_id, case_id, max(status) FROM records GROUP BY run_id, case_id"
    plan = " ".join(row[3] for row in database.execute(query))
    database.close()
    assert "COVERING INDEX records_status" in plan


def test_a_run_from_elsewhere_is_put_in_whole_or_not_at_all(store):
    added = {"lab": "imported", "spec_key": "x", "spec": {}, "cases": ["c1"]}
    with pytest.raises(HvlabError, match="cannot be written"):
        store.put("r2", [replace(RECORD, run_id="r2"), replace(RECORD, case_id=None)], **added)
    assert [run.run_id for run in store.runs()] == ["r1"]
    store.put("r2", [replace(RECORD, run_id="r2")], **added)
    assert (store.run("r2").state, store.run("r2").lab) == ("finished", "imported")
    assert store.records("r2") == [replace(RECORD, run_id="r2")]


def test_a_damaged_store_is_an_error_for_the_reader(tmp_path):
    (tmp_path / "hvlab.db").write_text("not a database, whatever its name says" * 50)
    with pytest.raises(HvlabError, match="are damaged: file is not a database"):
        Store(tmp_path).runs()


def test_run_ids_sort_by_time():
    assert re.fullmatch(r"\d{8}T\d{6}Z-[0-9a-f]{8}", new_run_id())
    assert utc(0) == "1970-01-01T00:00:00.000Z"
