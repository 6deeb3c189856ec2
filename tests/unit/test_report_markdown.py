"""The Markdown report: tables that keep their columns, data that stay data, and pictures beside it."""

import re
import struct
from dataclasses import replace
from types import SimpleNamespace

import pytest
from matplotlib import font_manager

from hvlab.report import images, page
from hvlab.report.labels import Code, Lines
from hvlab.report.page import markdown
from hvlab.report.words import load
from hvlab.report.write import write, write_page
from hvlab.results.configurations import gather
from tests.unit import runs
from tests.unit.reports import lab, made, report

ENGLISH = load("en")


def tables(text):
    """Every table of a Markdown text: its lines, split where cells end."""
    found, rows = [], []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            rows.append(re.split(r"(?<!\\)\|", line)[1:-1])
        elif rows:
            found.append(rows)
            rows = []
    return found


@pytest.mark.parametrize("name", ["lab7", "lab4"])
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_row_has_as_many_cells_as_its_head(name, lang):
    found = tables(markdown(made(name).document, lang))
    assert len(found) > 5
    for rows in found:
        assert len({len(row) for row in rows}) == 1
        assert all(re.fullmatch(r"-+:?", cell) for cell in rows[1])


def test_no_part_of_the_document_is_left_out():
    text = markdown(made("lab7").document, "en")
    for number, section in enumerate(made("lab7").edition("en").sections, 1):
        assert f"## {number}. {section.title}\n" in text
    assert "prediction" not in text.partition("## 5.")[0].lower()
    assert text.count("![") == 0


def test_what_repeats_is_left_out_below():
    (found,) = (rows for rows in tables(markdown(made("lab7").document, "en")) if "Requested" in rows[0][0])
    assert [[cell.strip() for cell in row[:2]] for row in found[3:5]] == [["Gloo", "nothing"], ["", "Gloo"]]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a|b\nc", "a\\|b c"),
        ("<b>*x*_[y](z)`", "&lt;b&gt;\\*x\\*\\_\\[y\\](z)\\`"),
        (Code("a|b"), "`a\\|b`"),
        (Code("a`b"), "`` a`b ``"),
        (("a", Code("b")), "a, `b`"),
        (Lines(("a", "b")), "a<br>b"),
        (ENGLISH.say("environment.of", value="<x>", hosts="n1"), "&lt;x&gt; (n1)"),
        (None, "–"),
    ],
)
def test_data_keep_to_their_cell_and_stay_data(value, text):
    assert page._show(page._Markdown(ENGLISH), value) == text


def test_an_error_of_several_lines_keeps_to_its_cell():
    data = lab("lab4")
    records = [replace(data.records[0], status="failed", error="a\n| b |\n```", metric=None, value=None)]
    text = markdown(report(replace(data, records=records, configurations=gather(records))).document, "en")
    assert "a \\| b \\| \\`\\`\\`" in text


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    return write(lab("lab7"), folder / "report.md", output_format="md", lang="en").path


def test_every_picture_is_beside_the_page(written):
    links = re.findall(r"!\[[^]]*\]\(([^)]+)\)", written.read_text("utf-8"))
    assert len(links) > 6
    assert all(link.startswith("report_files/") for link in links)
    assert {f"report_files/{path.name}" for path in (written.parent / "report_files").iterdir()} == set(links)
    for link in links:
        content = (written.parent / link).read_bytes()
        assert content.startswith(b"\x89PNG")
        width, height = struct.unpack(">II", content[16:24])
        assert width > 900
        assert height > 200


def test_a_prediction_s_picture_is_marked_in_the_text(tmp_path):
    text = write(lab("wide"), tmp_path / "report.md", output_format="md", lang="en").path.read_text("utf-8")
    assert re.search(r"\(report_files/prediction-1\.png\)\n\n\*Prediction: ", text)
    assert not re.search(r"\(report_files/speedup-1\.png\)\n\n\*Prediction", text)


@pytest.mark.parametrize(
    ("font", "lang", "said"), [(None, "zh", "en"), (None, "en", "en"), ("Some Sans", "zh", "zh")]
)
def test_without_a_chinese_font_the_pictures_speak_english(tmp_path, monkeypatch, font, lang, said):
    drawn = []
    monkeypatch.setattr(images, "chinese_font", lambda: font)
    monkeypatch.setattr(images, "_draw", lambda plot, file: drawn.append(plot.title))
    written = write(lab("lab7"), tmp_path / "report.md", output_format="md", lang=lang)
    assert written.spoken is (lang == said)
    assert drawn == [plot.title for plot in made("lab7").edition(said).plots]


def test_a_font_that_was_installed_since_is_found(tmp_path, monkeypatch):
    added = []
    manager = SimpleNamespace(ttflist=[], addfont=added.append)
    monkeypatch.setattr(font_manager, "fontManager", manager)
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: ["/fonts/new.ttf"])
    assert images.chinese_font() is None
    assert added == ["/fonts/new.ttf"]


def test_a_run_s_page_is_the_same_report_without_pictures(tmp_path):
    store = runs.store(tmp_path, runs.lab4())
    page = write_page(store, runs.LAB4)
    assert page == store.run_folder(runs.LAB4) / "summary.md"
    text = page.read_text("utf-8")
    assert "## 1. Gradient compression" in text
    assert "| Serial training |" in text
    assert "![" not in text
