"""The plots of a report: what is drawn, in which colours, and that predictions are marked as such."""

import html
import itertools
import json
import re

import pytest

from hvlab.report import data, images, plots
from hvlab.report.plots import Axis, Plot, Series
from tests.unit import runs
from tests.unit.reports import made, plot, report, said, table, tables


def every():
    return [one for name in ("lab7", "lab4", "wide") for one in made(name).edition("en").plots]


def lines(found):
    return {series.name: series for series in found.series}


def test_the_curve_is_that_of_the_table_with_its_spread_and_the_ideal():
    found = lines(plot(made("lab7"), "speedup-1"))
    assert list(found) == [
        "ideal",
        "MPI, across",
        "MPI, inside",
        "MPI, across, 2 ranks each",
        "Gloo, across",
        "Gloo, inside",
        "Gloo, across, 2 ranks each",
    ]
    assert found["ideal"].x == found["ideal"].y == (1.0, 6.0)
    # One server with as many ranks comes before several.
    assert found["MPI, across, 2 ranks each"].x == (1.0, 2.0, 4.0, 6.0)
    mpi = found["MPI, across"]
    rows = [row for row in said(table(made("lab7"), "speedup-table-1")) if row[0] == "MPI" and row[2] == "1"]
    assert [f"{value:.2f}" for value in mpi.y] == [row[5] for row in rows]
    assert mpi.low[0] < 1 < mpi.high[0]
    assert mpi.x == (1.0, 2.0, 3.0)
    assert all(low <= mid <= high for low, mid, high in zip(mpi.low, mpi.y, mpi.high, strict=True))
    assert mpi.low[-1] < mpi.y[-1] < mpi.high[-1]


def test_a_curve_without_its_own_single_rank_begins_at_one():
    inside = lines(plot(made("lab4"), "speedup-1"))["MPI, fp16, inside"]
    assert inside.x == (1.0, 2.0)
    assert inside.y[0] == 1.0
    assert inside.y[1] > 1.5


def test_a_sweep_shows_every_layout_and_unfolds_the_telling_ones():
    found = plot(made("lab7"), "sweep-time-1")
    assert len(found.series) == 10
    names = [series.name for series in found.series if not series.folded]
    shown = [name.replace("\N{NO-BREAK SPACE}", " ") for name in names]
    assert shown == ["MPI 1 × 2", "MPI 3 × 1", "Gloo 1 × 2", "Gloo 3 × 1"]
    assert found.x.log
    assert found.y.log
    assert {label for _, label in found.x.ticks} <= {
        f"{number}\N{NO-BREAK SPACE}{unit}B" for number in (1, 4, 16, 64, 256) for unit in ("Ki", "Mi")
    }


def test_the_parts_of_a_step_make_a_whole():
    found = plot(made("lab7"), "steps")
    for place, name in enumerate(found.categories):
        whole = sum(bars.lengths[place] for bars in found.bars)
        assert whole == pytest.approx(100), name


def test_predictions_have_plots_of_their_own_and_are_dashed():
    predicted = [found for found in every() if found.predicted]
    assert predicted
    for found in predicted:
        lines = [series for series in found.series if series.predicted]
        assert all(series.line == "dash" and not series.marks for series in lines)
        assert all("(predicted)" in series.name for series in lines)
        assert max(series.x[-1] for series in lines) >= 64
    measured = [found for found in every() if not found.predicted]
    assert not any("(predicted)" in series.name for found in measured for series in found.series)


def test_predictions_begin_beyond_what_was_measured():
    lines = [series for series in plot(made("wide"), "prediction-1").series if series.predicted]
    assert [series.x[0] for series in lines] == [16, 16]


def test_three_hosts_are_too_few_for_a_prediction_and_the_report_says_what_to_measure():
    assert not [one for one in made("lab7").edition("en").plots if one.predicted]
    reasons = {row[0] for row in said(table(made("lab7"), "unpredicted"), "en")[1:]}
    assert (
        "numbers of ranks above one: 2 measured for the training, 3 needed for a prediction; measure"
        " 2, 4 and 8, for instance (--hosts or --slots)" in reasons
    )


def test_measured_efficiencies_stand_beside_the_predicted_ones():
    found = plot(made("wide"), "prediction-1")
    marks = next(series for series in found.series if series.name == "MPI, across servers (measured)")
    rows = [row for row in said(table(made("wide"), "speedup-table-1")) if row[0] == "MPI" and row[2] == "1"]
    shown = [f"{value:.3g}%" for ranks, value in zip(marks.x, marks.y, strict=True) if ranks > 1]
    assert shown == [row[6] for row in rows if row[1] != "1"]
    assert (marks.line, marks.predicted) == ("none", False)


def test_the_forest_has_every_verdict_once_with_its_interval():
    found = plot(made("lab7"), "ratios")
    places = sorted(place for series in found.series for place in series.y)
    assert places == list(range(len(found.categories)))
    rows = said(table(made("lab7"), "verdicts"), "en")[1:]
    assert len(rows) == len(places)
    for series in found.series:
        for place, low, mid, high in zip(series.y, series.low, series.x, series.high, strict=True):
            ratio, verdict = rows[int(place)][3:]
            assert ratio.startswith(f"{mid:.3g}"[:4])
            assert low <= mid <= high
            assert (series.tone == "mpi") == (verdict == "MPI is faster")
            assert (series.tone == "unclear") == (verdict == "not distinguishable")


def test_a_forest_is_drawn_along_x_with_a_line_at_one():
    found = plot(made("lab7"), "ratios")
    drawn = plots.figure(found)
    assert [shape["x0"] for shape in drawn["layout"]["shapes"]] == [1.0]
    assert drawn["layout"]["yaxis"]["ticktext"][0] == found.categories[0]
    assert all("error_x" in trace and "error_y" not in trace for trace in drawn["data"])
    assert {trace["marker"]["symbol"] for trace in drawn["data"] if "distinguishable" in trace["name"]} == {
        "circle-open"
    }


@pytest.mark.parametrize("log", [False, True])
def test_intervals_at_the_same_place_stand_apart(log):
    lines = tuple(Series(name, name, (1.0, 2.0), (1.0, 1.9), (0.9, 1.8), (1.1, 2.1)) for name in ("a", "b"))
    ideal = Series("ideal", "ideal", (1.0, 2.0), (1.0, 2.0))
    drawn = Plot("key", "title", Axis("ranks", log=log), Axis("y"), (ideal, *lines))
    first, one, other = plots.dodge(drawn)
    assert first == ideal.x
    assert all(a < real < b for a, real, b in zip(one, (1.0, 2.0), other, strict=True))
    assert other[0] - one[0] < 0.05
    (trace,) = [trace for trace in plots.figure(drawn)["data"] if trace["name"] == "a"]
    assert trace["customdata"] == [1.0, 2.0]
    alone = Plot("key", "title", Axis("ranks"), Axis("y"), (ideal, lines[0]))
    assert plots.dodge(alone)[1] == lines[0].x


def test_every_trace_is_of_a_kind_that_the_basic_bundle_has():
    kinds = {trace["type"] for found in every() for trace in plots.figure(found)["data"]}
    assert kinds <= {"scatter", "bar", "pie"}


@pytest.mark.parametrize(("backend", "name"), [("mpi", "MPI"), ("gloo", "Gloo")])
def test_a_backend_has_one_colour_and_mark_in_all_plots(backend, name):
    traces = [trace for found in every() for trace in plots.figure(found)["data"]]
    own = re.compile(rf"{name}(, (inside|across)| \d)")
    drawn = [
        (trace["line"]["color"], trace["marker"]["symbol"])
        for trace in traces
        if own.match(trace.get("name", ""))
    ]
    assert set(drawn) == {plots.TONES[backend]}
    assert len(drawn) > 8


def test_no_two_tones_look_alike():
    known = [tone for name, tone in plots.TONES.items() if name in ("mpi", "gloo", "nccl", "ccl", "serial")]
    assert len({colour for colour, _ in known}) == len({mark for _, mark in known}) == len(known)


def test_an_unknown_tone_is_always_the_same():
    assert plots.tone("ucc") == plots.tone("ucc")
    assert plots.tone("ucc")[0].startswith("#")


def test_a_figure_is_what_plotly_takes():
    axis = Axis("ranks", ticks=((1.0, "1"), (2.0, "2 s")), zero=True)
    line = Series("MPI", "mpi", (1.0, 2.0), (1.0, 1.9), (0.9, 1.8), (1.1, 2.1), line="dot")
    made_of = plots.figure(Plot("key", "title", axis, Axis("y", log=True), (line,)))
    (trace,) = made_of["data"]
    assert trace["line"]["dash"] == "dot"
    assert trace["error_y"]["array"] == pytest.approx([0.1, 0.2])
    assert trace["error_y"]["arrayminus"] == pytest.approx([0.1, 0.1])
    assert made_of["layout"]["xaxis"]["tickvals"] == [1.0, 2.0]
    assert made_of["layout"]["xaxis"]["rangemode"] == "tozero"
    assert made_of["layout"]["yaxis"]["type"] == "log"
    assert not made_of["layout"]["showlegend"]


def test_every_figure_is_json_without_nan():
    for found in every():
        json.dumps(plots.figure(found), allow_nan=False)


@pytest.mark.parametrize("name", ["lab7", "lab4"])
def test_every_plot_and_table_has_a_key_of_its_own(name):
    found = made(name)
    keys = [one.key for one in (*found.edition("en").plots, *tables(found))]
    assert len(keys) == len(set(keys))


def test_predictions_and_their_marks_are_of_the_same_ranks_on_each_server(tmp_path):
    maker = runs.Maker("r1", noise=0.002)
    hosts = tuple(f"n{number}" for number in range(1, 7))
    for repeat, slots, count in itertools.product((1, 2, 3), (2, 4), (1, 2, 3, 4, 6)):
        maker.train("mnist", runs.Place("mpi", hosts[:count], slots, repeat))
        maker.train("mnist", runs.Place("mpi", hosts[:1], 1, repeat))
        maker.sweep(runs.Place("mpi", hosts[:count], slots, repeat))
    page = report(data.read(runs.store(tmp_path, maker)))
    marks = {
        series.name: series.x
        for one in page.edition("en").plots
        if one.key.startswith("prediction")
        for series in one.series
        if series.line == "none"
    }
    assert {name: x for name, x in marks.items() if "across" in name} == {
        f"MPI, across servers, {slots} ranks each (measured)": tuple(float(slots * n) for n in (2, 3, 4, 6))
        for slots in (2, 4)
    }


ODD = r"python t.py $\frac{ --out $DIR <b> && x < y"


def odd():
    """A plot whose names have what plotly takes for tags, and matplotlib for mathematics."""
    series = Series(ODD, "mpi", (1.0,), (0.0,), (0.9,), (1.1,), line="none")
    return Plot("odd", "Odd", Axis(ODD), Axis(""), series=(series,), categories=(ODD,))


def test_names_are_shown_in_pictures_as_they_are(tmp_path):
    images.write([odd()], tmp_path)
    assert (tmp_path / "odd.png").stat().st_size > 1000


def test_names_are_shown_by_plotly_as_they_are():
    text = json.dumps(plots.figure(odd()))
    assert "<b>" not in text
    assert html.unescape(plots.figure(odd())["data"][0]["name"]) == ODD
