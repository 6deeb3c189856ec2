"""The HTML page: one file that asks nothing of the network, in both languages, and takes data for data."""

import base64
import gzip
import hashlib
import json
import re
from dataclasses import replace

import pytest

from hvlab.base.paths import project_dir
from hvlab.report.page import _script_json, cells, html
from hvlab.report.words import LANGUAGES
from hvlab.results.configurations import gather
from tests.unit.reports import Parsed, lab, made, report, tables

NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


def page(name="lab7", lang="zh"):
    found = lab(name)
    records = [vars(record) for record in found.records]
    return html(made(name).document, records, run_id=found.head.run_id, lang=lang)


@pytest.fixture(scope="module")
def text():
    return page()


@pytest.fixture(scope="module")
def parsed(text):
    return Parsed(text)


def test_every_element_is_closed(parsed):
    assert parsed.path == []


def test_nothing_is_asked_of_the_network(text, parsed):
    for element in parsed.elements:
        for name in ("src", "href", "action", "data", "poster", "srcset"):
            assert not re.match(r"(?i)(https?:)?//", element.get(name) or ""), element
    css = "".join(element["text"] for element in parsed.all("style"))
    assert "@import" not in css
    assert "url(" not in css
    policy = parsed.all("meta", **{"http-equiv": "Content-Security-Policy"})[0]["content"]
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy


def test_only_the_page_s_own_scripts_may_run(parsed):
    policy = parsed.all("meta", **{"http-equiv": "Content-Security-Policy"})[0]["content"]
    scripts = [element["text"] for element in parsed.all("script") if "type" not in element]
    assert len(scripts) == 2
    allowed = re.findall(r"'sha256-([^']+)'", policy)
    assert allowed == [base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in scripts]
    assert "unsafe-inline" not in policy.partition("script-src")[2]
    assert not any(name.startswith("on") for element in parsed.elements for name in element if name != "open")


def test_the_plot_library_is_the_published_one_and_the_page_is_small(text):
    folder = project_dir() / "templates/report"
    digest = hashlib.sha256((folder / "plotly-basic.min.js").read_bytes()).hexdigest()
    note = (folder / "plotly-basic.md").read_text("utf-8")
    version = re.search(r"version (\S+),", note)[1]
    assert f"SHA-256 `{digest}`" in note
    assert f"plotly.js (basic - minified) v{version}\n" in (folder / "plotly-basic.min.js").read_text("utf-8")
    assert len(text.encode()) < 2_000_000


@pytest.mark.parametrize("lang", LANGUAGES)
def test_both_languages_are_there_and_the_one_asked_for_is_shown(lang):
    both = Parsed(page("lab4", lang))
    editions = {each["data-lang"]: each for each in both.all("div", **{"class": "edition"})}
    assert editions.keys() == set(LANGUAGES)
    assert {name for name, each in editions.items() if "hidden" not in each} == {lang}
    assert both.all("html")[0]["data-lang"] == lang
    assert both.all("html")[0]["lang"] == editions[lang]["lang"]
    assert both.all("title")[0]["text"] == editions[lang]["data-title"]
    pressed = [each["data-choose"] for each in both.all("button", **{"aria-pressed": "true"})]
    assert pressed == [lang]


def test_every_plot_has_a_place_and_a_figure_in_both_languages(parsed):
    figures = json.loads(parsed.all("script", id="figures")[0]["text"])
    keys = [plot.key for plot in made("lab7").edition("en").plots]
    places = [each["data-figure"] for each in parsed.elements if "data-figure" in each]
    assert sorted(places) == sorted(figures) == sorted(f"{lang}-{key}" for lang in LANGUAGES for key in keys)


def test_every_table_has_a_caption_and_heads(parsed):
    count = len([*tables(made("lab7"))]) * len(LANGUAGES)
    assert len(parsed.all("table")) == len(parsed.all("caption")) == count
    assert all(each["text"].strip() for each in parsed.all("caption"))
    assert all(each.get("scope") in ("col", "row") for each in parsed.all("th"))


def test_every_part_has_an_anchor_that_the_contents_lead_to(parsed):
    ids = [each["id"] for each in parsed.elements if "id" in each]
    assert len(ids) == len(set(ids))
    for link in parsed.all("a"):
        assert link["href"].removeprefix("#") in ids


def test_all_records_are_attached(parsed):
    packed = parsed.all("script", id="records")[0]["text"]
    lines = gzip.decompress(base64.b64decode(packed)).decode().splitlines()
    rows = [json.loads(line) for line in lines]
    assert len(rows) == len(lab("lab7").records)
    assert rows[0] == json.loads(json.dumps(vars(lab("lab7").records[0])))


def test_every_command_is_there(parsed):
    shown = [each["text"] for each in parsed.all("pre")]
    assert set(shown) == {command.line for command in lab("lab7").commands}


def test_data_stay_data():
    data = lab("lab4")
    records = [
        replace(record, hosts=(NASTY,), error=NASTY, case_id=NASTY, backend=NASTY, params={NASTY: NASTY},
                stack={NASTY: NASTY}, status="failed", metric=None, value=None)
        for record in data.records[:3]
    ]  # fmt: skip
    head = replace(data.head, lab=NASTY, run_id=NASTY)
    facts = {NASTY: {"distribution": NASTY, "hvlab": {"nics": [{"model": NASTY}]}}}
    nasty = replace(data, records=records, configurations=gather(records), facts=facts, head=head)
    text = html(report(nasty).document, [vars(record) for record in records], run_id=NASTY, lang="en")
    hostile = Parsed(text)
    assert len(hostile.all("script")) == 4
    assert not hostile.all("img")
    assert "alert(1)</script>" not in text
    assert any(NASTY in each["text"] for each in hostile.all("td"))


def test_a_figure_s_text_cannot_end_its_script():
    assert "<" not in _script_json({"a": "</script><!--"})
    assert json.loads(_script_json({"a": "</script>&"})) == {"a": "</script>&"}


def test_a_value_that_repeats_covers_the_rows_below():
    rows = (("a", "x", 1), ("a", "x", 2), ("a", "y", 3), ("b", "y", 4))

    def row(values):
        return "".join(f"\x1e\x1fhead\x1f{value}" for value in values)

    spans = [[cell.span for cell in row] for row in cells(row, rows, merged=2)]
    assert spans == [[3, 2, 1], [0, 0, 1], [0, 1, 1], [1, 1, 1]]


def test_plots_that_follow_one_another_stand_side_by_side():
    parsed = made("lab7").parsed("en")
    beside = [one["text"] for one in parsed.all("div", **{"class": "side"})]
    assert len(beside) == 2
    assert all(
        plot.title in "".join(beside)
        for plot in made("lab7").edition("en").plots
        if plot.key != "ratios" and plot.series
    )
