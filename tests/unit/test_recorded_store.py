"""A store, a baseline and outputs that an earlier hvlab wrote: they are read, and say the same, today."""

import json
import shutil

import pytest

from hvlab.cli import run
from hvlab.report import data
from hvlab.results.store import Store
from tests.contract import tree

RECORDED = tree.ROOT / "tests/data/recorded-store"
FIRST, SECOND = "20261120T155301Z-ab12", "20261121T155301Z-cd34"
# Sentences and verdicts may be others: an earlier hvlab took the difference of two hours for one. All else
# in the JSON is what other programs read.
FREE = ("reason", "note", "differences", "chance", "kind", "needed", "status", "counts", "passed")


@pytest.fixture
def store(tmp_path, monkeypatch):
    folder = tmp_path / "results"
    shutil.copytree(RECORDED, folder)
    monkeypatch.setenv("HVLAB_RESULTS", str(folder))
    return folder


def figures(value):
    """JSON without its sentences and verdicts, numbers to nine digits."""
    if isinstance(value, dict):
        return {name: figures(inner) for name, inner in value.items() if name not in FREE}
    if isinstance(value, list):
        return [figures(inner) for inner in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


@pytest.mark.parametrize(
    ("arguments", "code", "file"),
    [
        (["compare", FIRST, SECOND, "--format", "json"], 0, "compare.json"),
        (["baseline", "check", "--format", "json"], 0, "check.json"),
    ],
)
def test_a_recorded_run_is_compared_as_it_was(store, capsys, arguments, code, file):
    assert run(arguments) == code
    now = json.loads(capsys.readouterr().out)
    before = json.loads((RECORDED / file).read_text("utf-8"))
    assert {name: value for name, value in figures(now).items() if name in before} == figures(before)
    assert now.keys() >= before.keys()


def test_a_recorded_run_has_its_report(store):
    found = data.read(Store(store), FIRST)
    assert (found.head.ok, found.head.failed, found.head.skipped) == (15, 1, 1)
    assert set(found.facts) == {"n1", "n2", "n3"}
    assert run(["report", FIRST, "--output", str(store / "x.md")]) == 0
    text = (store / "x.md").read_text("utf-8").replace("\N{NO-BREAK SPACE}", " ")
    assert "| MPI | 2 | 1 | 32.0 ms |" in text
    assert "4 hosts asked for, the lab has 3" in text
