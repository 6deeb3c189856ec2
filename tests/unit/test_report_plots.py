"""The plots of a report: what is drawn, in which colours, and that predictions are marked as such."""

import json
import re

import pytest

from hvlab.report import figures
from hvlab.report.blocks import Axis, Number, Plot, Series, Table
from hvlab.report.words import load
from tests.unit.reports import blocks, made, plot, said, table

PLOTS = [
    block for name in ("lab7", "lab4", "wide") for block in blocks(made(name)) if isinstance(block, Plot)
]
ENGLISH = load("en")


def lines(found):
    return {ENGLISH.say(series.name): series for series in found.series}


def test_the_curve_is_that_of_the_table_with_its_spread_and_the_ideal():
    found = lines(plot(made("lab7"), "speedup-1"))
    assert list(found) == [
        "ideal",
        "MPI, across",
        "MPI, inside",
        "Gloo, across",
        "Gloo, inside",
    ]
    assert found["ideal"].x == found["ideal"].y == (1.0, 3.0)
    mpi = found["MPI, across"]
    rows = [row for row in said(table(made("lab7"), "across-1")) if row[0] == "MPI"]
    assert [f"{value:.2f}" for value in mpi.y] == [row[5] for row in rows]
    assert mpi.x == (1.0, 2.0, 3.0)
    assert all(low <= mid <= high for low, mid, high in zip(mpi.low, mpi.y, mpi.high, strict=True))
    assert mpi.low[-1] < mpi.y[-1] < mpi.high[-1]


def test_efficiency_is_speed_up_over_ranks():
    speedup, efficiency = (lines(plot(made("lab7"), key)) for key in ("speedup-1", "efficiency-1"))
    for name, line in efficiency.items():
        shares = [100 * value / ranks for value, ranks in zip(speedup[name].y, speedup[name].x, strict=True)]
        assert line.y == pytest.approx(shares)
    assert "ideal" not in efficiency


def test_a_curve_without_its_own_single_rank_begins_at_one():
    inside = lines(plot(made("lab4"), "speedup-1"))["MPI, fp16, inside"]
    assert inside.x == (1.0, 2.0)
    assert inside.y[0] == 1.0
    assert inside.y[1] > 1.5


def test_a_sweep_shows_every_layout_and_unfolds_the_telling_ones():
    found = plot(made("lab7"), "sweep-time-1")
    assert len(found.series) == 10
    names = [ENGLISH.say(series.name) for series in found.series if not series.folded]
    shown = [name.replace("\N{NO-BREAK SPACE}", " ") for name in names]
    assert shown == ["MPI 1 × 2", "MPI 3 × 1", "Gloo 1 × 2", "Gloo 3 × 1"]
    assert found.x.log
    assert found.y.log
    assert {ENGLISH.say(label) for _, label in found.x.ticks} <= {
        f"{number}\N{NO-BREAK SPACE}{unit}B" for number in (1, 4, 16, 64, 256) for unit in ("Ki", "Mi")
    }


def test_the_parts_of_a_step_make_a_whole():
    found = plot(made("lab7"), "steps")
    for place, name in enumerate(found.categories):
        whole = sum(bars.lengths[place] for bars in found.bars)
        assert whole == pytest.approx(100), ENGLISH.say(name)


def test_predictions_have_plots_of_their_own_and_are_dashed():
    predicted = [found for found in PLOTS if found.predicted]
    assert predicted
    for found in predicted:
        assert all(series.line == "dash" and not series.marks for series in found.series)
        assert all("(predicted)" in ENGLISH.say(series.name) for series in found.series)
        assert max(series.x[-1] for series in found.series) >= 64
    measured = [found for found in PLOTS if not found.predicted]
    assert not any("(predicted)" in ENGLISH.say(series.name) for found in measured for series in found.series)


def test_predictions_begin_beyond_what_was_measured():
    for series in plot(made("wide"), "prediction-1").series:
        assert series.x[0] == 16


def test_three_hosts_are_too_few_for_a_prediction_and_the_report_says_what_to_measure():
    assert not [block for block in blocks(made("lab7")) if isinstance(block, Plot) and block.predicted]
    reasons = {row[2] for row in said(table(made("lab7"), "unpredicted"), "en")[1:]}
    assert (
        "numbers of ranks above one: 2 measured for the training, 3 needed for a prediction; measure"
        " 2, 4 and 8, for instance (--hosts or --slots)" in reasons
    )


@pytest.mark.parametrize(("backend", "name"), [("mpi", "MPI"), ("gloo", "Gloo")])
def test_a_backend_has_one_colour_and_mark_in_all_plots(backend, name):
    traces = [trace for found in PLOTS for trace in figures.figure(found, ENGLISH)["data"]]
    own = re.compile(rf"{name}(, (inside|across)| \d)")
    drawn = [
        (trace["line"]["color"], trace["marker"]["symbol"])
        for trace in traces
        if own.match(trace.get("name", ""))
    ]
    assert set(drawn) == {figures.TONES[backend]}
    assert len(drawn) > 8


def test_no_two_tones_look_alike():
    known = [tone for name, tone in figures.TONES.items() if name in ("mpi", "gloo", "nccl", "ccl", "serial")]
    assert len({colour for colour, _ in known}) == len({mark for _, mark in known}) == len(known)


def test_an_unknown_tone_is_always_the_same():
    assert figures.tone("ucc") == figures.tone("ucc")
    assert figures.tone("ucc")[0].startswith("#")


def test_a_figure_is_what_plotly_takes():
    axis = Axis("ranks", ticks=((1.0, "1"), (2.0, Number(2, "s"))), zero=True)
    line = Series("MPI", "mpi", (1.0, 2.0), (1.0, 1.9), (0.9, 1.8), (1.1, 2.1), line="dot")
    made_of = figures.figure(Plot("key", "title", axis, Axis("y", log=True), (line,)), ENGLISH)
    (trace,) = made_of["data"]
    assert trace["line"]["dash"] == "dot"
    assert trace["error_y"]["array"] == pytest.approx([0.1, 0.2])
    assert trace["error_y"]["arrayminus"] == pytest.approx([0.1, 0.1])
    assert made_of["layout"]["xaxis"]["tickvals"] == [1.0, 2.0]
    assert made_of["layout"]["xaxis"]["rangemode"] == "tozero"
    assert made_of["layout"]["yaxis"]["type"] == "log"
    assert not made_of["layout"]["showlegend"]


def test_every_figure_is_json_without_nan():
    for found in PLOTS:
        json.dumps([figures.figure(found, load(lang)) for lang in ("en", "zh")], allow_nan=False)


@pytest.mark.parametrize("name", ["lab7", "lab4"])
def test_every_plot_and_table_has_a_key_of_its_own(name):
    keys = [block.key for block in blocks(made(name)) if isinstance(block, Plot | Table)]
    assert len(keys) == len(set(keys))
