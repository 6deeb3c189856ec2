"""The short tables of a run."""

from dataclasses import replace

import pytest

from hvlab.results.store import Record
from hvlab.results.summary import failures, sections
from hvlab.workloads.metrics import METRICS

RECORD = Record(
    run_id="r1", case_id="", started_at="2026", workload="allreduce", launcher="mpirun", backend="mpi",
    proved_backend="mpi", hosts=("n1", "n2"), slots_per_host=1, world_size=2, params={}, repeat=1,
    metric=None, value=None, unit=None, status="ok", error=None, stack={}, raw_path="",
)  # fmt: skip
TIMES = {"time": 1234.5, "time_median": 1200, "time_low": 1100.4, "time_high": 1300, "busbw": 0.12345}
STEPS = {
    **{"step_time": 0.0314, "step_time_median": 0.031, "step_time_low": 0.03, "step_time_high": 0.0333},
    **{"throughput": 2038.2, "accuracy": 97.5, "real": 12.34},
}
TRAINS = {"compression": "none", "batch": 64}


def case(name: str, figures: dict[str, float], *, params: dict | None = None, **more: object) -> list[Record]:
    """The records of a case."""
    first = replace(RECORD, case_id=name, params=params or {}, **more)
    rows = [replace(first, metric=m, value=float(v), unit=METRICS[m].unit) for m, v in figures.items()]
    return rows or [first]


def collective(name: str, size: int, **more: object) -> list[Record]:
    params = {"size_bytes": size, "dtype": "float32", **more.pop("params", {})}
    return case(name, TIMES, params=params, **more)


def test_a_row_for_each_size():
    (table,) = sections([*collective("a", 4096), *collective("a", 1024)])
    assert table.title == "collectives"
    assert table.columns == (
        *("workload", "backend", "hosts", "slots", "size"),
        *("mean us", "median us (95 %)", "busbw GB/s", "proved", "status"),
    )
    assert [row["size"] for row in table.rows] == ["1K", "4K"]
    assert table.rows[0] == {
        **{"workload": "allreduce", "backend": "mpi", "hosts": 2, "slots": 1, "size": "1K"},
        **{"mean us": "1234", "median us (95 %)": "1200 (1100..1300)", "busbw GB/s": "0.123"},
        **{"proved": "mpi", "status": "ok"},
    }


@pytest.mark.parametrize(("busbw", "shown"), [(0.00041, "0.00041"), (0.00008, "0.000080"), (0.0, None)])
def test_a_small_bandwidth_keeps_its_digits_and_one_rank_has_none(busbw, shown):
    (table,) = sections(case("a", TIMES | {"busbw": busbw}, params={"size_bytes": 4}))
    assert table.rows[0].get("busbw GB/s") == shown


def test_a_commands_throughput_is_in_its_own_unit():
    rows = case("c", {"throughput": 12.5, "real": 3.5}, params={"command": "x"}, workload="command")
    rows[0] = replace(rows[0], unit="tokens/s")
    (table,) = sections(rows)
    assert table.title == "trainings"
    assert table.columns[4:6] == ("tokens/s", "real s")
    assert (table.rows[0]["tokens/s"], "samples/s" in table.rows[0]) == ("12.5", False)


def test_trainings_have_a_table_of_their_own():
    hosts = case("b", {"host_compute_time": 0.5}, params={**TRAINS, "host": "n1"}, workload="mnist")
    first, second = sections(
        [*case("b", STEPS, params=TRAINS, workload="mnist"), *hosts, *collective("a", 1024)]
    )
    assert (first.title, second.title) == ("collectives", "trainings")
    assert second.rows == (
        {
            **{"workload": "mnist", "backend": "mpi", "hosts": 2, "slots": 1, "mean step ms": "31.4"},
            **{
                "median step ms (95 %)": "31 (30..33.3)",
                "samples/s": "2038",
                "accuracy %": "97.50",
                "real s": "12.3",
            },
            **{"proved": "mpi", "status": "ok"},
        },
    )


def test_rows_stand_by_place_however_they_were_measured():
    records = [
        *case("d", STEPS, params=TRAINS, workload="rnn"),
        *case("c", STEPS, params=TRAINS, workload="mnist", hosts=("n1", "n2", "n3")),
        *case("b", STEPS, params=TRAINS, workload="mnist", backend="gloo", hosts=("n1",)),
        *case("a", STEPS, params=TRAINS, workload="mnist", hosts=("n1",)),
    ]
    (table,) = sections(records)
    assert [(row["workload"], row["backend"], row["hosts"]) for row in table.rows] == [
        ("mnist", "gloo", 1),
        ("mnist", "mpi", 1),
        ("mnist", "mpi", 3),
        ("rnn", "mpi", 2),
    ]


def test_only_parameters_that_differ_are_told():
    records = [
        *case("a", STEPS, params={**TRAINS, "epochs": 2}, workload="mnist"),
        *case("b", STEPS, params={**TRAINS, "epochs": 2, "compression": "fp16"}, workload="mnist"),
        *case("c", STEPS, params={**TRAINS, "hidden": 2}, workload="rnn"),
    ]
    (table,) = sections(records)
    assert [row.get("compression") for row in table.rows] == ["none", "fp16", "none"]
    assert table.columns[4] == "compression"
    assert "batch" not in table.columns
    assert "epochs" not in table.columns


def test_a_case_without_figures_is_a_row_too():
    failed = {"status": "failed", "error": "boom", "proved_backend": None}
    records = [*case("a", {}, params=TRAINS, workload="mnist", **failed), *case("b", {}, **failed)]
    first, second = sections(records)
    assert first.rows[0]["status"] == second.rows[0]["status"] == "failed"
    assert "step ms" not in second.columns
    assert failures(records) == {"a": "boom", "b": "boom"}


def test_repeats_share_a_row():
    records = []
    for repeat, scale in ((1, 1.0), (2, 1.5), (3, 1.1)):
        figures = {name: value * scale for name, value in TIMES.items()}
        records += case(f"a-r{repeat}", figures, params={"size_bytes": 1024}, repeat=repeat)
    failed = {"status": "failed", "error": "boom", "proved_backend": None}
    records += case("a-r4", {}, params={"size_bytes": 1024}, repeat=4, **failed)
    (table,) = sections(records)
    assert table.rows == (
        {
            **{"workload": "allreduce", "backend": "mpi", "hosts": 2, "slots": 1, "size": "1K", "repeats": 4},
            **{"mean us": "1358", "median us (lowest..highest)": "1320 (1200..1800)", "busbw GB/s": "0.136"},
            **{"proved": "mpi", "status": "3 ok, 1 failed"},
        },
    )
    assert set(table.columns) == set(table.rows[0])


def test_a_run_without_records_has_no_table():
    assert sections([]) == ()
