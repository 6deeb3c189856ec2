"""A metric over all runs of a lab, with what changed in its stack."""

import statistics
from dataclasses import replace

import pytest

from hvlab.base.errors import UsageError
from hvlab.cli import run
from hvlab.report import history
from hvlab.report.page import edition
from hvlab.results.store import Store
from tests.unit import runs

NAMES = ("20261101T080000Z-aaaa", "20261108T080000Z-bbbb", "20261115T080000Z-cccc")


def maker(run_id, stack, *, factor=1.0):
    one = runs.Maker(run_id)
    for repeat in (1, 2, 3):
        for backend in ("mpi", "gloo"):
            one.train("mnist", runs.Place(backend, runs.HOSTS, 1, repeat))
        one.sweep(runs.Place("mpi", runs.HOSTS, 1, repeat))
    for name, case in one.cases.items():
        records = tuple(
            replace(
                record, stack={**record.stack, **stack},
                value=record.value * factor if record.metric == "step_time" else record.value,
            )
            for record in case.records
        )  # fmt: skip
        one.cases[name] = replace(case, records=records)
    return one


@pytest.fixture
def store(tmp_path):
    makers = [maker(NAMES[0], {}), maker(NAMES[1], {"openmpi": "5.0.1", "ucx": "1.17"}, factor=1.5)]
    return runs.store(tmp_path, *makers, maker(NAMES[2], {"openmpi": "5.0.1", "ucx": "1.17"}))


def test_a_line_has_the_median_of_each_run(store):
    found = edition(history.document(history.read(store, "step_time"), "step_time"), "en")
    plot = found.plots[0]
    line = next(series for series in plot.series if series.tone == "mpi")
    assert line.x == (1.0, 2.0, 3.0)
    for value, name in zip(line.y, NAMES, strict=True):
        steps = [
            record.value for record in store.records(name)
            if (record.metric, record.backend) == ("step_time", "mpi")
        ]  # fmt: skip
        assert value == statistics.median(steps)
    assert all(low <= mid <= high for low, mid, high in zip(line.low, line.y, line.high, strict=True))


def test_a_change_of_the_stack_is_marked_once_and_named(store):
    found = edition(history.document(history.read(store, "step_time"), "step_time"), "en")
    plot = found.plots[0]
    assert plot.x.lines == (1.5,)
    (sentence,) = found.opening.findings
    assert sentence.endswith(": openmpi from 4.1.8 to 5.0.1; ucx from – to 1.17.")


def test_of_a_collective_the_smallest_and_the_largest_size_are_shown(store):
    found = edition(history.document(history.read(store, "busbw"), "busbw"), "en")
    titles = [plot.title for plot in found.plots]
    assert len(titles) == 2
    assert titles == ["allreduce, 1\N{NO-BREAK SPACE}KiB: busbw", "allreduce, 64\N{NO-BREAK SPACE}MiB: busbw"]


def test_runs_of_another_lab_are_left_out(store):
    other = maker("20261120T080000Z-dddd", {})
    store.create(other.run_id, lab="elsewhere", spec_key="k", spec={}, cases=[*other.cases])
    store.add(other.records)
    assert [one.run.run_id for one in history.read(store, "step_time", NAMES[0])] == list(NAMES)
    with pytest.raises(UsageError, match="lab elsewhere has 1 run with step_time, and a history needs two"):
        history.read(store, "step_time")


@pytest.mark.parametrize("suffix", ["html", "md"])
def test_the_page_is_written_and_its_path_printed(store, tmp_path, capsys, suffix):
    page = tmp_path / f"x.{suffix}"
    where = ["--results", str(store.folder), "--output", str(page)]
    assert run(["report", "--history", "step_time", *where]) == 0
    assert capsys.readouterr().out == f"{page}\n"
    assert "openmpi" in page.read_text("utf-8")
    assert run(["report", "--history", "step_time", "--results", str(store.folder)]) == 0
    assert (store.folder / "history-lab-step_time.html").is_file()


def test_a_metric_without_a_history_is_refused(store, capsys):
    where = ["--results", str(store.folder)]
    assert run(["report", "--history", "speed", *where]) == 2
    assert run(["report", "--history", "accuracy", "--fill", "x.md", *where]) == 2
    assert "leave out --history" in capsys.readouterr().err
    assert Store(store.folder).runs()
