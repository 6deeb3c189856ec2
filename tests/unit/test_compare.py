"""Two runs compared: which configurations are the same, what is said of them, and the command."""

import csv
import io
import json
import math
import random
from dataclasses import replace

import pytest

from hvlab.analysis.compare import compare, measurements, rows
from hvlab.analysis.compare.rows import case_names
from hvlab.base.errors import UsageError
from hvlab.cli import run
from hvlab.results.store import Record, Run, Store
from hvlab.workloads.metrics import METRICS

STACK = {"openmpi": "4.1.8", "horovod": "0.28.1"}


def launch(
    repeat=1,
    *,
    workload="allreduce",
    backend="mpi",
    hosts=("n1", "n2"),
    slots=1,
    error=None,
    stack=STACK,
    by_host=None,
    params=None,
    **metrics,
):
    """The records of one launch: a figure of each metric, a case of its own that failed, or both."""
    place = f"{'+'.join(hosts)}x{slots}"
    first = Record(
        run_id="r", case_id=f"{workload}-{backend}-{place}-r{repeat}", started_at="2026-11-20T15:53:01.000Z",
        workload=workload, launcher={"serial": "local"}.get(backend, "mpirun"), backend=backend,
        proved_backend=backend, hosts=tuple(hosts), slots_per_host=slots, world_size=len(hosts) * slots,
        params={"device": "cpu", **(params or {})}, repeat=repeat, metric=None, value=None, unit=None,
        status="ok", error=None, stack=stack, raw_path="",
    )  # fmt: skip
    if error:
        return [replace(first, status="failed", error=error, proved_backend=None)]
    made = [
        replace(first, metric=name, value=value, unit=METRICS[name].unit) for name, value in metrics.items()
    ]
    return made + [
        replace(first, metric=name, value=value, unit="s", params={**first.params, "host": host})
        for name, values in (by_host or {}).items()
        for host, value in values.items()
    ]


def sizes(repeat, factor=1.0, **changes):
    """The records of one allreduce launch over two sizes."""
    given = changes.pop("params", {})
    return [
        record
        for size, micros in ((1024, 100.0), (2**20, 900.0))
        for record in launch(
            repeat,
            time=micros * factor * (1 + repeat / 1000),
            params={"dtype": "float32", **given, "size_bytes": size},
            **changes,
        )
    ]


def measured(records, run_id="r", lab="t"):
    """A run of these records."""
    return measurements(Run(run_id, "2026-11-20T15:53:01.000Z", lab, "finished", ()), records)


def repeated(count, make=sizes, **changes):
    """A launch repeated."""
    return [record for repeat in range(1, count + 1) for record in make(repeat, **changes)]


def kinds(found):
    return [row.verdict.kind for row in found.rows]


def test_configurations_are_matched_and_judged():
    found = compare(measured(repeated(5)), measured(repeated(5, factor=1.2)))
    assert kinds(found) == ["differs", "differs"]
    assert [row.configuration.get("size_bytes") for row in found.rows] == [1024, 2**20]
    assert (found.rows[0].metric, found.rows[0].unit) == ("time", "us")
    assert found.rows[0].verdict.ratio.mid == pytest.approx(1 / 1.2)
    assert found.rows[0].a.median.mid == pytest.approx(100.3)
    assert (found.only_a, found.only_b, found.without, found.differences) == ((), (), (), ())


def test_what_is_the_same_may_be_so_by_the_time_of_measurement():
    found = compare(measured(repeated(5)), measured(repeated(5, factor=1.0001)))
    assert kinds(found) == ["same", "same"]
    assert rows.why(found.rows[0]).endswith("within 2 %; perhaps only because of the time of measurement")
    assert rows.notes(found)[0] == (
        "2 configurations: the same, perhaps only because of the time of measurement, in 2."
    )


def test_sizes_of_one_case_share_their_noise():
    def swept(repeat, factor):
        return [
            record
            for power in range(10, 19)
            for record in launch(repeat, time=100.0 * factor, params={"size_bytes": 2**power})
        ]

    def noisy(draw, spread):
        return measured(repeated(5, make=lambda repeat: swept(repeat, math.exp(draw.gauss(0, spread)))))

    draw = random.Random(1)  # noqa: S311 - noise, not a secret
    told = [kinds(compare(noisy(draw, 0.03), noisy(draw, 0.3))) for _ in range(100)]
    assert sum("differs" in one for one in told) <= 1


def test_too_few_repeats_are_said():
    found = compare(measured(repeated(3)), measured(repeated(3, factor=2)))
    assert kinds(found) == ["too_few", "too_few"]
    assert rows.why(found.rows[0]) == "3 repeats each, a verdict needs 5"


def test_configurations_of_one_run_are_listed():
    more = sizes(1, params={"dtype": "float16"})
    found = compare(measured(sizes(1) + more), measured(sizes(1) + sizes(1, hosts=("n1", "n2", "n3"))))
    assert {configuration.get("dtype") for configuration in found.only_a} == {"float16"}
    assert {configuration.hosts for configuration in found.only_b} == {("n1", "n2", "n3")}
    table = rows.table(found)
    assert [row["verdict"] for row in table] == ["too few"] * 2 + ["only in A"] * 2 + ["only in B"] * 2
    assert [row["case"] for row in table[:4]] == [
        "1K dtype=float32", "1M dtype=float32", "1K dtype=float16", "1M dtype=float16",
    ]  # fmt: skip
    assert {"Only in A: 2 configurations.", "Only in B: 2 configurations."} <= set(rows.notes(found))


@pytest.mark.parametrize("failing", ["a", "b"])
def test_a_case_that_failed_whole_is_matched_with_every_size(failing):
    good = repeated(5)
    bad = repeated(5, make=launch, error="rank 1 died", params={"dtype": "float32"})
    a, b = (bad, good) if failing == "a" else (good, bad)
    found = compare(measured(a), measured(b))
    assert [row.configuration.get("size_bytes") for row in found.rows] == [1024, 2**20]
    side = found.rows[0].a if failing == "a" else found.rows[0].b
    assert (side.ok, side.tried, side.failed, side.median) == (0, 5, ("rank 1 died",), None)
    assert kinds(found) == ["too_few"] * 2
    assert f"5 of 5 failed in {failing.upper()}: rank 1 died" in rows.why(found.rows[0])
    assert not found.only_a
    assert not found.only_b


def test_a_repeat_that_failed_counts_at_every_size():
    records = repeated(4) + launch(5, error="killed", params={"dtype": "float32"})
    found = compare(measured(records), measured(repeated(5)))
    assert [(row.a.ok, row.a.tried, row.b.ok, row.b.tried) for row in found.rows] == [(4, 5, 5, 5)] * 2
    assert rows.table(found)[0]["ok A"] == "4 of 5"


def test_trainings_are_compared_by_their_step():
    def make(repeat, factor=1.0):
        return launch(
            repeat, workload="mnist", step_time=factor * (1 + repeat / 1000), throughput=100 / factor
        )

    a, b = measured(repeated(5, make=make)), measured(repeated(5, make=make, factor=0.5))
    assert kinds(compare(a, b)) == ["differs"]
    assert compare(a, b).rows[0].metric == "step_time"
    found = compare(a, b, metric="throughput")
    assert kinds(found) == ["differs"]
    assert rows.word(found.rows[0]) == "differs"


def test_a_metric_that_only_some_configurations_have():
    records = [*sizes(1), *launch(1, workload="mnist", step_time=1.0, accuracy=98.0)]
    found = compare(measured(records), measured(records), metric="accuracy")
    assert [row.configuration.workload for row in found.rows] == ["mnist"]
    assert [configuration.workload for configuration in found.without] == ["allreduce", "allreduce"]
    assert "Without that metric in both: 2 configurations." in rows.notes(found)


@pytest.mark.parametrize(
    ("metric", "told"), [("speed", "unknown metric"), ("warmup", "neither more nor less")]
)
def test_a_metric_that_cannot_be_compared(metric, told):
    with pytest.raises(UsageError, match=told) as caught:
        compare(measured(sizes(1)), measured(sizes(1)), metric=metric)
    assert "step_time" in caught.value.remedy


def test_what_differs_is_said():
    newer = {"openmpi": {"n1": "4.1.8", "n2": "5.0.7"}, "horovod": "0.28.1", "nccl": "2.27"}
    a = measured(sizes(1, params={"iterations": 25}))
    b = measured(sizes(1, stack=newer, params={"iterations": 50}), lab="u")
    assert list(compare(a, b).differences) == [
        "lab: t in A, u in B",
        "nccl: none in A, 2.27 in B",
        "openmpi: 4.1.8 in A, 4.1.8 and 5.0.7 in B",
        "allreduce: iterations is 25 in A, 50 in B",
    ]


def test_labs_that_share_no_host_are_matched_by_count():
    a = sizes(1) + sizes(1, hosts=("n1",))
    b = sizes(1, hosts=("m1", "m2")) + sizes(1, hosts=("m2",)) + sizes(1, hosts=("m3",))
    found = compare(measured(a), measured(b, lab="u"))
    assert [row.configuration.hosts for row in found.rows] == [("n1", "n2")] * 2 + [("n1",)] * 2
    assert {configuration.hosts for configuration in found.only_b} == {("m3",)}
    assert "matched by the number of hosts" in found.differences[1]


def test_hosts_have_to_be_the_same_within_a_lab():
    found = compare(measured(sizes(1)), measured(sizes(1, hosts=("n1", "n3"))))
    assert not found.rows
    assert len(found.only_a) == len(found.only_b) == 2
    assert rows.notes(found)[0] == "No configuration is in both."


def test_an_imported_run_is_matched_by_what_both_tell():
    own = repeated(5, params={"cycle_time": 1, "iterations": 20})
    foreign = [
        replace(record, launcher="unknown", params={k: record.params[k] for k in ("size_bytes", "dtype")})
        for record in repeated(5, factor=1.2)
    ]
    found = compare(measured(own), measured(foreign))
    assert kinds(found) == ["differs", "differs"]
    assert (found.only_a, found.only_b) == ((), ())
    assert found.rows[0].configuration.get("cycle_time") == 1
    assert [told for told in found.differences if told.startswith("imported: B;")]
    other = [replace(record, params={**record.params, "dtype": "float16"}) for record in foreign]
    assert compare(measured(own), measured(other)).rows == ()


def test_names_hold_only_what_tells_configurations_apart():
    configurations = list(
        measured(sizes(1) + sizes(1, hosts=("n1", "n3")) + sizes(1, slots=2)).configurations
    )
    assert list(case_names(configurations).values()) == [
        "1K n1+n2",
        "1M n1+n2",
        "1K n1+n3",
        "1M n1+n3",
        "1K",
        "1M",
    ]


def test_a_case_that_failed_in_both_runs_is_a_row():
    bad = measured(repeated(2, make=launch, workload="mnist", error="rank 1 died"))
    (row,) = compare(bad, bad).rows
    assert (row.metric, row.verdict.kind) == ("step_time", "too_few")
    assert rows.why(row) == ("0 repeats each, a verdict needs 5; 2 of 2 failed in both: rank 1 died")


def test_the_words_say_that_repeats_share_their_hour():
    found = compare(measured(repeated(5)), measured(repeated(5, factor=2)))
    told = rows.notes(found)
    assert told[0] == "2 configurations: different, perhaps only because of the time of measurement, in 2."
    assert told[-1].startswith("The repeats of one run share the conditions of their time")


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("HVLAB_RESULTS", str(tmp_path))
    made = Store(tmp_path)
    for run_id, records in (("r1", repeated(5)), ("r2", repeated(5, factor=1.3)), ("r3", repeated(3))):
        made.create(run_id, lab="t", spec_key="k", spec={}, cases=[])
        made.add([replace(record, run_id=run_id) for record in records])
    return made


def test_the_command_prints_a_table_and_what_to_know(store, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert run(["compare", "r1", "r2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    shared, rows, told = lines[0], lines[3:5], lines[5]
    assert shared.startswith(
        "in every row: workload allreduce, backend mpi, hosts 2, slots 1, metric time us"
    )
    assert "ok A 5 of 5, ok B 5 of 5, A/B 0.769" in shared
    assert "verdict differs" in shared
    assert lines[1].split() == ["case", "A", "B"]
    assert [line.split()[0] for line in rows] == ["1K", "1M"]
    assert told == "2 configurations: different, perhaps only because of the time of measurement, in 2."


def test_the_command_prints_json(store, capsys):
    assert run(["compare", "r2", "r1", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["a"]["run_id"], told["b"]["run_id"]) == ("r2", "r1")
    assert told["a"]["stack"] == {"horovod": ["0.28.1"], "openmpi": ["4.1.8"]}
    row = told["rows"][0]
    assert row["params"] == {"device": "cpu", "dtype": "float32", "size_bytes": 1024}
    assert (row["metric"], row["unit"], row["verdict"]["kind"]) == ("time", "us", "differs")
    assert row["verdict"]["reason"] == "5 repeats each; perhaps only because of the time of measurement"
    assert row["verdict"]["ratio"]["mid"] == pytest.approx(1.3)
    assert row["a"]["ok"] == row["a"]["tried"] == 5


def test_the_command_prints_csv(store, capsys):
    assert run(["compare", "r1", "r3", "--format", "csv"]) == 0
    printed = capsys.readouterr()
    found = list(csv.DictReader(io.StringIO(printed.out)))
    assert [row["verdict"] for row in found] == ["too few", "too few"]
    assert "5 and 3 repeats, a verdict needs 5" in found[0]["why"]
    assert "share the conditions of their time" in printed.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["r1", "r9"], "there is no run 'r9'"),
        (["r1", "r2", "--metric", "tine"], "did you mean time?"),
        (["r1", "r2", "--matters", "-1"], "--matters"),
    ],
)
def test_wrong_usage(store, capsys, arguments, told):
    assert run(["compare", *arguments]) == 2
    assert told in capsys.readouterr().err


def test_without_a_run_it_is_the_last_one(store, capsys):
    last, named = run(["compare"]), run(["compare", "r3"])
    printed = capsys.readouterr()
    assert last == named
    half = len(printed.out) // 2
    assert printed.out[:half] == printed.out[half:]


def test_what_matters_can_be_said(store, capsys):
    assert run(["compare", "r1", "r2", "--matters", "50", "--format", "csv"]) == 0
    assert [row["verdict"] for row in csv.DictReader(io.StringIO(capsys.readouterr().out))] == [
        "same",
        "same",
    ]
