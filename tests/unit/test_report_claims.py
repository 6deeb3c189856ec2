"""What a report claims: nothing that one repeat cannot show, and why something is missing."""

from dataclasses import replace

import pytest

from hvlab.report import data
from hvlab.report.blocks import Paragraph, Points
from hvlab.report.document import document
from hvlab.report.words import load
from tests.unit import runs
from tests.unit.reports import lab, made, said, table

ENGLISH = load("en")


def report(tmp_path, maker):
    """The document of these records."""
    return document(data.read(runs.store(tmp_path, maker)))


def sentences(found, section):
    """Every sentence of a part of the report, without its tables and plots."""
    part = next(one for one in found.sections if one.key == section)
    texts = [block.text for block in part.blocks if isinstance(block, Paragraph)]
    texts += [item for block in part.blocks if isinstance(block, Points) for item in block.items]
    return [ENGLISH.say(text) for text in texts]


@pytest.mark.parametrize(("section", "claim"), [("speedup", " slows down more "), ("comparison", " beats ")])
def test_one_repeat_makes_no_claim(tmp_path, section, claim):
    once = sentences(report(tmp_path, runs.lab7(repeats=1)), section)
    assert any(claim in text for text in sentences(made("lab7"), section))
    assert not any(claim in text for text in once)


def test_one_repeat_loses_no_accuracy(tmp_path):
    once = sentences(report(tmp_path, runs.lab4(repeats=1)), "compression")
    assert not any("loses accuracy" in text for text in once)
    assert any(text.startswith("float8 (8 bit), plain cast: too few repeats") for text in once)


def test_backends_without_figures_are_not_one_backend(tmp_path):
    maker = runs.Maker(runs.LAB7)
    maker.train("mnist", runs.Place("mpi", runs.HOSTS, 1, 1))
    alone = sentences(report(tmp_path / "alone", maker), "comparison")
    maker.failed("mnist", runs.Place("gloo", runs.HOSTS, 1, 1), "rank 1 died")
    both = sentences(report(tmp_path / "both", maker), "comparison")
    assert alone[0].startswith("Only one backend was run")
    assert both[0].startswith("Fewer than two backends have figures")


def test_a_missing_speed_up_has_its_reason(tmp_path):
    maker = runs.Maker(runs.LAB7)
    maker.failed("mnist", runs.Place("mpi", runs.HOSTS[:1], 1, 1), "rank 0 died")
    maker.train("mnist", runs.Place("mpi", runs.HOSTS, 1, 1))
    across = sentences(report(tmp_path, maker), "speedup")
    assert any("there is no speed-up" in text for text in across)


def test_a_sweep_of_unknown_layout_is_shown():
    found = lab("lab7")
    configurations = {
        replace(configuration, hosts=(), slots=0): measured
        for configuration, measured in found.collectives.items()
        if (len(configuration.hosts), configuration.slots) == (3, 1)
    }
    rows = said(table(document(replace(found, configurations=configurations)), "sweep-1"), "en")
    assert {row[0] for row in rows[1:]} == {"unknown"}
    assert "".join(rows[1][2:]).strip()
