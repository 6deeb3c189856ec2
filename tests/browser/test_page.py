"""The report in a browser: tables, plots, languages, and nothing asked of the network."""

import csv
import gzip
import io
import json
from urllib.parse import urlsplit

import pytest
from selenium.webdriver.support.ui import WebDriverWait

from tests.browser.conftest import PAPER, PATIENCE_S, PHONE, WIDE
from tests.unit.reports import lab, made, said, table

SHOWN = "[...document.querySelectorAll('.edition:not([hidden]) {}')]"
CANVASES = SHOWN.replace("{}", ".canvas")
HEADINGS = "[...document.querySelectorAll('h1')].filter((h) => h.offsetParent).map((h) => h.textContent)"
CELLS = """[...document.getElementById(arguments[0]).querySelectorAll('tbody tr')].map(
  (row) => [...row.cells].map((cell) => cell.innerText.replaceAll('\\u00a0', ' ')))"""
# What stands out of the page at its right.
WIDEST = """[...document.querySelectorAll('.edition:not([hidden]) *')]
  .filter((each) => each instanceof HTMLElement)
  .filter((each) => each.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .map((each) => each.tagName + '.' + each.getAttribute('class') + ' ' + each.textContent.slice(0, 40))"""
# Titles and labels of axes that reach out of their plot.
CUT = f"""{CANVASES}.flatMap((canvas) => {{
  const room = canvas.getBoundingClientRect();
  return [...canvas.querySelectorAll('.xtitle, .ytitle, .xtick text, .ytick text')].filter((text) => {{
    const box = text.getBoundingClientRect();
    return box.left < room.left - 1 || box.right > room.right + 1 || box.bottom > room.bottom + 1;
  }}).map((text) => text.textContent);
}})"""
# What a plot draws: lines or bars, and marks.
DRAWN = f"""{CANVASES}.map((canvas) => ({{
  key: canvas.id,
  traces: canvas.querySelectorAll('.scatterlayer .trace, .barlayer .trace').length,
  points: canvas.querySelectorAll('.scatterlayer .point, .barlayer .point').length,
  lines: canvas.querySelectorAll('.scatterlayer .js-line').length,
  width: canvas.querySelector('svg.main-svg').getBoundingClientRect().width,
  room: canvas.getBoundingClientRect().width,
}}))"""
# The contrast of text against what is behind it (WCAG 2.2, relative luminance).
CONTRAST = """(() => {
  const style = getComputedStyle(document.documentElement);
  const rgb = (name) => {
    const probe = document.createElement('i');
    probe.style.color = style.getPropertyValue(name);
    document.body.append(probe);
    const found = getComputedStyle(probe).color.match(/[0-9.]+/g).slice(0, 3).map(Number);
    probe.remove();
    return found;
  };
  const light = (name) => {
    const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = rgb(name).map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const pairs = [['--ink', '--paper'], ['--soft', '--paper'], ['--accent', '--paper'], ['--soft', '--shade'],
    ['--ink', '--shade'], ['--warn', '--warn-shade'], ['--predicted', '--predicted-shade']];
  return Object.fromEntries(pairs.map(([a, b]) => {
    const [x, y] = [light(a), light(b)];
    return [a + ' on ' + b, (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05)];
  }));
})()"""


def test_the_tables_show_what_the_report_says(browser, pages):
    browser.open(pages["lab7"])
    browser.ask("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    for key in ("speedup-table-1", "failures-failed", "unpredicted"):
        shown = browser.ask(CELLS, f"zh-{key}")
        rows = said(table(made("lab7"), key))[1:]
        assert len(shown) == len(rows)
        # A value that covers several rows stands in the first of them.
        assert shown[0] == rows[0]
        assert all(row[-1] == expected[-1] for row, expected in zip(shown, rows, strict=True))


def test_the_environment_table_is_seen_as_the_lab_sheet_has_it(browser, pages):
    browser.open(pages["lab7"])
    rows = browser.ask(CELLS, "zh-environment")
    assert [row[-2] for row in rows] == [row[1] for row in said(table(made("lab7"), "environment"))]
    assert [row[0] for row in rows if len(row) == 3] == ["硬件环境", "软件环境"]


@pytest.mark.parametrize("name", ["lab7", "lab4"])
def test_every_plot_is_drawn(browser, pages, name):
    browser.open(pages[name])
    drawn = {each["key"].partition("-")[2]: each for each in browser.ask(DRAWN)}
    plots = made(name).edition("en").plots
    assert drawn.keys() == {plot.key for plot in plots}
    for plot in plots:
        observed = drawn[plot.key]
        assert observed["traces"] >= len(plot.bars) + sum(not series.folded for series in plot.series), (
            plot.key
        )
        marks = sum(len(series.x) for series in plot.series if series.marks and not series.folded)
        assert observed["points"] >= marks + (len(plot.categories) if plot.bars else 0), plot.key
        lines = [series for series in plot.series if series.line != "none" and not series.folded]
        assert observed["lines"] >= len(lines), plot.key
        assert 0.9 * observed["room"] <= observed["width"] <= observed["room"] + 1, plot.key


def test_the_language_changes_in_the_page_and_back(browser, pages):
    browser.open(pages["lab7"])
    browser.ask("(window.kept = 'here')")
    axis = f"{CANVASES}.find((each) => each.id.endsWith('speedup-1')).querySelector('.xtitle').textContent"
    assert browser.ask("document.documentElement.lang") == "zh-CN"
    assert browser.ask(axis) == "进程数"
    browser.switch("en")
    assert browser.ask("document.documentElement.lang") == "en"
    assert browser.ask("document.title") == "Distributed training: lab report"
    assert browser.ask(HEADINGS) == ["Distributed training: lab report"]
    assert browser.ask(axis) == "ranks"
    assert browser.ask("window.kept") == "here"
    browser.switch("zh")
    assert browser.ask(HEADINGS) == ["分布式训练实验报告"]
    assert browser.ask(axis) == "进程数"


def test_the_reader_stays_at_the_same_part_when_the_language_changes(browser, pages):
    browser.open(pages["lab7"])
    browser.ask("document.getElementById('zh-part-sweeps').scrollIntoView()")
    browser.switch("en")
    assert abs(browser.ask("document.getElementById('en-part-sweeps').getBoundingClientRect().top")) < 120


def test_the_console_is_quiet_and_the_network_is_left_alone(browser, pages):
    browser.open(pages["lab7"])
    browser.switch("en")
    browser.screen(PHONE, phone=True)
    browser.ask("window.dispatchEvent(new Event('resize'))")
    assert browser.errors() == []
    asked = [
        event["params"]["request"]["url"]
        for entry in browser.driver.get_log("performance")
        if (event := json.loads(entry["message"])["message"])["method"] == "Network.requestWillBeSent"
    ]
    assert {urlsplit(url).scheme for url in asked} <= {"file", "data", "blob"}
    assert [url for url in asked if url.startswith("file:")] == [pages["lab7"].as_uri()]


@pytest.mark.parametrize("lang", ["zh", "en"])
@pytest.mark.parametrize("name", ["lab7", "lab4"])
def test_on_a_wide_screen_every_table_fits_its_place(browser, pages, name, lang):
    browser.open(pages[name])
    browser.switch(lang)
    tables = SHOWN.replace("{}", ".scroll")
    cut = f"{tables}.filter((each) => each.scrollWidth > each.clientWidth + 1).map((each) => each.ariaLabel)"
    assert browser.ask(cut) == []


@pytest.mark.parametrize("lang", ["zh", "en"])
@pytest.mark.parametrize("name", ["lab7", "lab4"])
def test_on_a_phone_only_tables_scroll_sideways(browser, pages, name, lang):
    browser.screen(PHONE, phone=True)
    browser.open(pages[name])
    browser.switch(lang)
    assert browser.ask("document.documentElement.scrollWidth") <= PHONE[0]
    assert browser.ask("document.body.scrollWidth") <= PHONE[0]
    for each in browser.ask(DRAWN):
        assert each["width"] <= PHONE[0], each
    assert browser.ask(f"getComputedStyle({SHOWN.replace('{}', '.scroll')}[0]).overflowX") == "auto"
    assert browser.ask(f"parseFloat(getComputedStyle({SHOWN.replace('{}', 'p')}[0]).fontSize)") >= 13


@pytest.mark.parametrize("size", [(360, 780), WIDE])
@pytest.mark.parametrize("lang", ["zh", "en"])
def test_the_words_of_a_plot_stay_inside_it(browser, pages, lang, size):
    browser.screen(size, phone=size != WIDE)
    browser.open(pages["lab7"])
    browser.switch(lang)
    assert browser.ask(CUT) == []


@pytest.mark.parametrize("name", ["lab7", "lab4"])
def test_on_paper_there_are_plots_and_commands_and_no_buttons(browser, pages, name):
    browser.open(pages[name])
    browser.ask("window.dispatchEvent(new Event('beforeprint'))")
    browser.screen(PAPER)
    browser.media("print", scheme="dark")
    observed = f"{SHOWN}.filter((each) => each.getClientRects().length).length"
    for hidden in (".contents", "button", ".modebar-container"):
        assert browser.ask(observed.replace("{}", hidden)) == 0, hidden
    assert browser.ask("document.querySelector('.bar').getClientRects().length") == 0
    assert browser.ask(observed.replace("{}", "pre")) == len(lab(name).commands)
    assert browser.ask(observed.replace("{}", ".canvas svg.main-svg")) > 0
    assert browser.ask(WIDEST) == []
    assert browser.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_told_from_what_is_behind_it(browser, pages, scheme):
    browser.media(scheme=scheme)
    browser.open(pages["lab4"])
    for pair, contrast in browser.ask(CONTRAST).items():
        assert contrast >= 4.5, pair
    dark = browser.ask("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert dark == (scheme == "dark")


def saved(browser, kind, name):
    """What the button saves."""
    file = browser.saved / name
    file.unlink(missing_ok=True)
    browser.ask(f"{SHOWN.replace('{}', f'[data-save={kind}]')}[0].click()")
    waiting = WebDriverWait(browser.driver, PATIENCE_S, poll_frequency=0.1)
    waiting.until(lambda _: file.is_file() and file.stat().st_size)
    return file.read_bytes()


def test_the_records_can_be_saved(browser, pages):
    browser.open(pages["lab4"])
    run_id = lab("lab4").head.run_id
    records = [vars(record) for record in lab("lab4").records]
    lines = gzip.decompress(saved(browser, "jsonl", f"{run_id}.jsonl.gz")).decode().splitlines()
    assert [json.loads(line) for line in lines] == json.loads(json.dumps(records))
    text = saved(browser, "csv", f"{run_id}.csv").decode("utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert len(rows) == len(records)
    assert float(rows[0]["value"]) == records[0]["value"]
    assert json.loads(rows[0]["params"]) == dict(records[0]["params"])
    assert browser.errors() == []


def test_without_scripts_the_first_language_can_be_read(browser, pages):
    browser.command("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.driver.get(pages["lab7"].as_uri())
        tree = browser.driver.page_source
    finally:
        browser.command("Emulation.setScriptExecutionDisabled", value=False)
    assert 'data-lang="zh" data-title' in tree
    assert browser.ask("document.querySelector('.edition[data-lang=zh]').offsetHeight") > WIDE[1]
    assert browser.ask("document.querySelector('.edition[data-lang=en]').offsetHeight") == 0
