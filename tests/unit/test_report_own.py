"""The report on a training of the user's own, and on DDP beside Horovod."""

import itertools
from dataclasses import replace

import pytest

from hvlab.report import data, fill, history, verdicts
from hvlab.report.report import analyse
from hvlab.report.trainings import studies
from hvlab.statistics.verdict import compare_all
from tests.unit import reports, runs
from tests.unit.runs import Maker, Place

LINE = {"command": "python train.py --epochs 1", "unit": "images/s"}
# How many times as fast as over MPI the command is over DDP.
FASTER = 1.5


@pytest.fixture
def report(tmp_path, monkeypatch):
    """A run of a command and of mnist over MPI and DDP Gloo, eight repeats each, on one host and on two."""
    monkeypatch.setitem(runs.ALPHA, "ddp-gloo", 2e-4)
    monkeypatch.setitem(runs.BETA, "ddp-gloo", 4e-8)
    maker = Maker("r1", noise=0.005)
    for repeat in range(1, 9):
        for backend, hosts in ((b, h) for b in ("mpi", "ddp-gloo") for h in (1, 2)):
            place = Place(backend, runs.HOSTS[:hosts], repeat=repeat)
            rate = maker.near(100 * hosts * (FASTER if backend == "ddp-gloo" else 1))
            maker.case("command", place, LINE, [({}, "real", 9.0), ({}, "throughput", rate)])
            maker.train("mnist", place)
    return data.read(runs.store(tmp_path, maker))


def test_ddp_and_a_command_are_compared_like_any_backend(report):
    pairs = {one.pair.launches[0].workload: one for one in verdicts._trainings(studies(report))}
    assert {name: (one.one, one.other) for name, one in pairs.items()} == {
        "command": ("mpi", "ddp-gloo/mpirun"),
        "mnist": ("mpi", "ddp-gloo/mpirun"),
    }
    found = dict(zip(pairs, compare_all([one.pair for one in pairs.values()]), strict=True))
    assert (found["command"].kind, found["mnist"].kind) == ("slower", "faster")
    assert found["command"].ratio.mid == pytest.approx(FASTER, rel=0.02)


def test_the_report_names_the_command_and_ddp(report):
    tables = list(reports.tables(reports.report(report)))
    text = str([reports.said(table, "en") for table in tables])
    assert "python train.py --epochs 1 (images/s)" in text
    assert "DDP Gloo" in text


def test_the_throughput_of_a_command_has_its_own_unit(report):
    tables = list(reports.tables(reports.report(report)))
    speedup = [table for table in tables if table.key.startswith("speedup-table")]
    units = {row[4].split()[1] for table in speedup for row in reports.said(table, "en")[1:]}
    assert units == {"images/s", "samples/s"}
    sheet = "| Backend | Servers | Slots | Step time | Throughput{} |\n|-|-|-|-|-|\n| MPI | 1 | 1 | | |\n"
    only = replace(
        report, configurations={
            one: repeats for one, repeats in report.configurations.items() if one.workload == "command"
        },
    )  # fmt: skip
    for head, text in (("", ["images/s"]), (" (images/s)", [])):
        filled = fill.fill(sheet.format(head), analyse(only), "en").text
        throughput = filled.splitlines()[2].split("|")[5].split()
        assert float(throughput[0]) == pytest.approx(100, rel=0.05)
        assert throughput[1:] == text


def test_a_history_of_throughput_has_the_unit_of_the_command(tmp_path):
    makers = []
    for name in ("r1", "r2"):
        maker = Maker(name)
        maker.case("command", Place("mpi", runs.HOSTS[:2]), LINE, [({}, "throughput", 200.0)])
        makers.append(maker)
    store = runs.store(tmp_path, *makers)
    page = reports.Shown(history.document(history.read(store, "throughput"), "throughput"))
    (plot,) = page.edition("en").plots
    assert "images/s" in plot.y.title


def timed(tmp_path, **rates):
    """A run of a command on one host and on two; ``rates``: each backend's throughput, if it prints any."""
    maker = Maker("r1", noise=0.005)
    for repeat in range(1, 9):
        for (backend, rate), hosts in itertools.product(rates.items(), (1, 2)):
            seconds = 9.0 * (1.5 if backend == "gloo" else 1.0)
            figures = [({}, "real", maker.near(seconds)), ({}, "throughput", rate)]
            figures = figures if rate is not None else figures[:1]
            maker.case("command", Place(backend, runs.HOSTS[:hosts], repeat=repeat), LINE, figures)
    return data.read(runs.store(tmp_path, maker))


@pytest.mark.parametrize("rate", [None, 80.0])
def test_a_command_without_throughput_is_judged_by_the_time_of_its_launches(tmp_path, rate):
    page = reports.report(timed(tmp_path, mpi=rate, gloo=None))
    (verdict,) = [row for row in reports.said(reports.table(page, "verdicts"), "en") if row[1] == "2 × 1"]
    assert verdict[4] == "MPI is faster"
    assert verdict[3].startswith("0.66")


def test_the_table_of_a_command_has_the_time_of_its_launches(tmp_path):
    page = reports.report(timed(tmp_path, mpi=None, gloo=None))
    head, *rows = reports.said(reports.table(page, "speedup-table-1"), "en")
    assert (head[3], head[7]) == ("Time of a launch", "Time of a launch, 95% interval")
    assert {row[0]: row[3][:1] + row[3][-2:] for row in rows} == {"MPI": "9 s", "Gloo": "1 s"}


def test_what_a_command_does_on_more_ranks_is_not_called_weak(tmp_path):
    page = reports.report(timed(tmp_path, mpi=80.0, gloo=80.0))
    table = reports.table(page, "speedup-table-1")
    assert table.caption() == "command · python train.py --epochs 1 (images/s)"


def test_a_single_rank_has_its_figures_in_the_report(tmp_path):
    maker = Maker("r1")
    for repeat in (1, 2, 3):
        maker.train("mnist", Place("serial", runs.HOSTS[:1], repeat=repeat))
    rows = reports.said(
        reports.table(reports.report(data.read(runs.store(tmp_path, maker))), "speedup-table-1"), "en"
    )
    assert [row[:3] for row in rows[1:]] == [["serial", "1", "1"]]
    assert rows[1][3].endswith("ms")


def test_a_throughput_of_zero_is_no_time(tmp_path):
    page = reports.report(timed(tmp_path, mpi=0.0, gloo=0.0))
    assert reports.said(reports.table(page, "speedup-table-1"), "en")[1][4] == "0 images/s"
    assert "verdicts" not in [table.key for table in reports.tables(page)]


def why_nothing_is_compared(found):
    return reports.report(found).texts("comparison")[0]


def test_why_nothing_is_compared(tmp_path):
    maker = Maker("r1")
    maker.train("mnist", Place("mpi", runs.HOSTS[:2]))
    maker.train("mnist", Place("gloo", runs.HOSTS[:3]))
    found = data.read(runs.store(tmp_path, maker))
    assert why_nothing_is_compared(found).startswith("No two backends have figures of the same measurement")
    one = {key: repeats for key, repeats in found.configurations.items() if key.backend == "mpi"}
    assert why_nothing_is_compared(replace(found, configurations=one)).startswith("Only one backend was run")
    sides = {"A": {"cycle_time": 1.0}, "B": {"cycle_time": 5.0}}
    found = replace(found, configurations=one, sides=sides)
    assert why_nothing_is_compared(found).startswith("A and B have no figures")


def test_two_settings_on_one_rank_are_compared(tmp_path):
    maker = Maker("r1", noise=0.005)
    for repeat, (side, threads) in itertools.product(range(1, 9), (("A", 1), ("B", 2))):
        single = Maker("r1", seed=repeat * threads, noise=0.005)
        single.train("mnist", Place("mpi", runs.HOSTS[:1], repeat=repeat), threads=threads)
        ((name, made),) = single.cases.items()
        records = [
            replace(
                record, case_id=f"{name}-{side}", params={**record.params, "side": side},
                value=record.value / threads if record.metric == "step_time" else record.value,
            )
            for record in made.records
        ]  # fmt: skip
        maker.cases[f"{name}-{side}"] = replace(made, records=tuple(records))
    found = replace(data.read(runs.store(tmp_path, maker)), sides={"A": {"threads": 1}, "B": {"threads": 2}})
    page = reports.report(found)
    assert reports.said(reports.table(page, "verdicts"), "en")[1][4] == "B is faster"
    assert page.findings()[0].startswith("The fastest setting inside one server is B: ")


def test_the_parts_of_a_step_are_a_bar(tmp_path):
    maker, (fast, slow) = Maker("r1"), runs.HOSTS[:2]
    parts = {fast: (0.04, 0.05, 0.0, 0.01), slow: (0.08, 0.01, 0.0, 0.01)}
    own = [
        ({"host": host}, f"step_{name}", value)
        for host, values in parts.items()
        for name, value in zip(("compute", "exposed", "data", "host"), values, strict=True)
    ]
    place = Place("gloo", (fast, slow))
    maker.case("command", place, LINE, [({}, "real", 9.0), ({}, "recorded_step", 1.02), *own])
    read = data.read(runs.store(tmp_path, maker))
    (table,) = [one for one in reports.tables(reports.report(read)) if one.key == "explained-table"]
    heads, row = reports.said(table, "en")
    assert dict(zip(heads, row, strict=True)) | {"Training": ""} == {
        "Training": "", "Mean step time": "100 ms", "compute": "40%", "communication": "10%",
        "slower rank": "40%", "data loading": "0%", "host code": "10%",
        "Slowest rank": f"{slow}: compute", "Step while recorded": "1.02×",
    }  # fmt: skip
