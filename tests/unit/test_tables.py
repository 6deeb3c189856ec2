"""Rows as text for people and for machines."""

import json

import pytest

from hvlab.results.tables import render

ROWS = [{"a": 1, "b": "x"}, {"a": 2.5, "b": None}, {"a": None, "b": {"k": [1, 2]}}]


def test_json_is_an_array_with_every_column():
    assert json.loads(render(ROWS, ("a", "b"), "json")) == ROWS
    assert json.loads(render([], ("a",), "json")) == []


def test_csv_has_a_header_and_json_in_its_cells():
    assert render(ROWS, ("b", "a"), "csv").splitlines() == ["b,a", "x,1", ",2.5", '"{""k"": [1, 2]}",']


def test_a_row_of_the_table_is_one_line_however_wide(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    lines = render([{"a": 1, "b": "x" * 300}], ("a", "b"), "table").splitlines()
    assert len(lines) == 3
    assert lines[0].split() == ["a", "b"]
    assert lines[2].split() == ["1", "x" * 300]


def test_dicts_and_lists_are_shown_plainly():
    assert render(ROWS, ("b",), "table").splitlines()[-1].strip() == "k=1,2"


def test_words_in_brackets_stay():
    rows = [{"error": "[Errno 2] no [/usr/bin/x] for [cu13] :x:"}]
    assert "[Errno 2] no [/usr/bin/x] for [cu13] :x:" in render(rows, ["error"], "table")


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@a", "\ta"])
def test_a_text_is_no_formula_of_a_spreadsheet(text):
    assert render([{"a": text, "b": -1}], ("a", "b"), "csv") == f"a,b\n'{text},-1"


def test_empty_columns_go_and_what_every_row_has_is_said_once():
    rows = [{"a": 1, "b": "x", "c": None, "d": n} for n in (5, 6)]
    said, head, _, *rest = render(rows, ("a", "b", "c", "d"), "table").splitlines()
    assert (said, head.split(), [row.split() for row in rest]) == (
        "in every row: a 1, b x",
        ["d"],
        [["5"], ["6"]],
    )
    assert render(rows[:1], ("a", "c"), "table").split() == ["a", "─", "1"]


def test_a_table_fits_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    rows = [
        {"case": f"c{n}", "metric": "time", "why": "much slower than before " * (3 + n), "n": n}
        for n in (1, 2)
    ]
    lines = render(rows, ("case", "why", "metric", "n"), "table").splitlines()
    assert max(map(len, lines)) <= 60
    assert lines[1].split() == ["case", "n"]
    assert lines[3].split() == ["c1", "1"]
    assert lines[4].startswith("    why: much slower than before")
    # None is cut.
    rows = [{f"column{n}": f"value{n}{row}" for n in range(12)} for row in "ab"]
    narrow = render(rows, tuple(rows[0]), "table")
    assert max(map(len, narrow.splitlines())) <= 60
    assert "…" not in narrow


@pytest.mark.parametrize("width", [20, 35, 36, 37, 38, 60])
def test_no_word_is_cut(monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    rows = [{"workload": f"allreduce{n}", "iterations": n, "stolen": n, "proved": "mpi"} for n in (1, 2)]
    text = render([{**row, "proved": f"mpi{row['stolen']}"} for row in rows], list(rows[0]), "table")
    assert all(len(line) <= width for line in text.splitlines())
    assert all(word in text for word in (*rows[0], "allreduce1", "allreduce2", "mpi1"))
