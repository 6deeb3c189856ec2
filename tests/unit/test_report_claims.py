"""What a report claims: nothing that one repeat cannot show, and why something is missing."""

from dataclasses import replace

import pytest

from hvlab.report import data
from tests.unit import runs
from tests.unit.reports import lab, made, said, table
from tests.unit.reports import report as report_on


def report(tmp_path, maker):
    """The document of these records."""
    return report_on(data.read(runs.store(tmp_path, maker)))


@pytest.mark.parametrize(("section", "claim"), [("speedup", " slows down more "), ("comparison", " beats ")])
def test_one_repeat_makes_no_claim(tmp_path, section, claim):
    once = report(tmp_path, runs.lab7(repeats=1)).texts(section)
    assert any(claim in text for text in made("lab7").texts(section))
    assert not any(claim in text for text in once)


def test_one_repeat_loses_no_accuracy(tmp_path):
    once = report(tmp_path, runs.lab4(repeats=1)).texts("compression")
    assert not any("loses accuracy" in text for text in once)
    assert any(text.startswith("float8 (8 bit), plain cast: too few repeats") for text in once)


def test_backends_without_figures_are_not_one_backend(tmp_path):
    maker = runs.Maker(runs.LAB7)
    maker.train("mnist", runs.Place("mpi", runs.HOSTS, 1, 1))
    alone = report(tmp_path / "alone", maker).texts("comparison")
    maker.failed("mnist", runs.Place("gloo", runs.HOSTS, 1, 1), "rank 1 died")
    both = report(tmp_path / "both", maker).texts("comparison")
    assert alone[0].startswith("Only one backend was run")
    assert both[0].startswith("Fewer than two backends have figures")


def test_a_missing_speed_up_has_its_reason(tmp_path):
    maker = runs.Maker(runs.LAB7)
    maker.failed("mnist", runs.Place("mpi", runs.HOSTS[:1], 1, 1), "rank 0 died")
    maker.train("mnist", runs.Place("mpi", runs.HOSTS, 1, 1))
    across = report(tmp_path, maker).texts("speedup")
    assert any("there is no speed-up" in text for text in across)


def test_a_sweep_of_unknown_layout_is_shown():
    found = lab("lab7")
    configurations = {
        replace(configuration, hosts=(), slots=0): measured
        for configuration, measured in found.collectives.items()
        if (len(configuration.hosts), configuration.slots) == (3, 1)
    }
    rows = said(table(report_on(replace(found, configurations=configurations)), "sweep-1"), "en")
    assert {row[0] for row in rows[1:]} == {"unknown"}
    assert "".join(rows[1][2:]).strip()
