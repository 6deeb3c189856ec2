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


def test_a_row_of_the_table_is_one_line_however_wide():
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
