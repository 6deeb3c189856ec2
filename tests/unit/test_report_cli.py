"""``hvlab report``: what it writes where, and what it says when it cannot."""

import itertools
import os
import re
import stat
from contextlib import nullcontext
from dataclasses import replace
from urllib.parse import unquote

import pytest
from rich.console import Console

from hvlab.cli import run
from hvlab.report import write
from hvlab.results.store import Store
from tests.unit import runs


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setenv("HVLAB_RESULTS", str(tmp_path / "results"))
    return tmp_path / "results"


@pytest.fixture
def small(results):
    """A store with one run of two small cases."""
    maker = runs.Maker("20261120T155301Z-ab12")
    for hosts in (runs.HOSTS[:1], runs.HOSTS[:2]):
        maker.train("mnist", runs.Place("mpi", hosts))
    return runs.store(results, maker)


def report(*arguments):
    return run(["report", *map(str, arguments)])


def test_a_terminal_shows_which_file_is_being_written(small, monkeypatch, tmp_path):
    shown = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Console, "status", lambda _, text: shown.append(text) or nullcontext())
    assert report("--output", "page.md") == 0
    assert shown == ["writing page.md"]


def test_the_page_goes_into_the_run_s_folder_and_its_path_is_printed(small, capsys):
    assert report() == 0
    path = small.run_folder("20261120T155301Z-ab12") / "report.html"
    assert capsys.readouterr().out == f"{path}\n"
    assert path.read_text("utf-8").startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(("lang", "tag"), [("en", "en"), ("zh", "zh-CN")])
def test_the_language_asked_for_comes_first(small, tmp_path, lang, tag):
    assert report("--lang", lang, "--output", tmp_path / "x.html") == 0
    assert f'<html lang="{tag}"' in (tmp_path / "x.html").read_text("utf-8")


def test_the_name_of_the_file_tells_the_format(small, tmp_path, capsys):
    assert report("--output", tmp_path / "lab.md", "--lang", "zh") == 0
    text = (tmp_path / "lab.md").read_text("utf-8")
    assert text.startswith("# 分布式训练实验报告")
    assert (tmp_path / "lab_files").is_dir()
    assert capsys.readouterr().out == f"{tmp_path}/lab.md\n"
    assert report("--output", tmp_path / "lab.txt", "--format", "md") == 0
    assert (tmp_path / "lab.txt").read_text("utf-8").startswith("# Distributed training: lab report")


def test_a_run_can_be_named_and_another_folder_of_results(small, tmp_path):
    maker = runs.Maker("20261121T000000Z-ffff")
    maker.train("mnist", runs.Place("mpi", runs.HOSTS[:1]))
    runs.store(tmp_path / "other", maker)
    assert report("20261121T000000Z-ffff", "--results", tmp_path / "other") == 0
    assert (tmp_path / "other/runs/20261121T000000Z-ffff/report.html").exists()


def test_an_unknown_run_is_told_with_near_names(small, capsys):
    assert report("20261120T155301Z-ab13") == 2
    told = capsys.readouterr().err
    assert "there is no run '20261120T155301Z-ab13'" in told
    assert "20261120T155301Z-ab12" in told


def test_without_any_run_it_says_how_to_make_one(results, capsys):
    assert report() == 2
    assert "hvlab bench" in capsys.readouterr().err
    assert not results.exists()


@pytest.mark.parametrize("name", ["x.html", "x.md"])
def test_a_folder_that_is_not_there_is_told(small, tmp_path, capsys, name):
    assert report("--output", tmp_path / "none" / name) == 2
    told = capsys.readouterr().err
    assert f"{tmp_path}/none/{name} cannot be written: No such file or directory" in told
    assert "--output" in told
    assert not (tmp_path / "none").exists()


def test_wrong_options_are_usage(small, capsys):
    assert report("--lang", "de") == 2
    assert report("--format", "docx") == 2
    assert report("--output", "x.pdf", "--format", "md") == 2
    assert "a name of pdf, and --format says md" in capsys.readouterr().err
    for more in (["--format", "pdf"], ["--output", "x.pdf"], ["--output", "x.docx"]):
        assert report("--fill", "x.md", *more) == 2
        assert "leave out --format" in capsys.readouterr().err
    assert report("--output", "x.docx") == 2
    assert "let the name end in .html, .md or .pdf" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--sign", "auhtor=Li"], "did you mean author?"),
        (["--sign", "author="], "--sign author has no value"),
        (["--sign", "author=Li", "--history", "step_time"], "leave out --history"),
    ],
)
def test_a_wrong_signature_is_usage(small, capsys, given, told):
    assert report(*given) == 2
    assert told in capsys.readouterr().err


def test_a_signature_is_on_the_report_and_the_sheet(small, tmp_path):
    sheet = tmp_path / "sheet.md"
    sheet.write_text("# Lab\n\nName: ____\n\n| Backend | Servers | Step time |\n|-|-|-|\n| MPI | 1 | |\n")
    assert report("--fill", sheet, "--sign", "author=Li *Hua*") == 0
    assert "Name: Li \\*Hua\\*\n" in (tmp_path / "sheet.filled.md").read_text("utf-8")
    assert report("--output", tmp_path / "x.md", "--sign", "姓名=Li", "--sign", "Class=3") == 0
    assert "- Author: Li\n- Class: 3\n" in (tmp_path / "x.md").read_text("utf-8")


def page(path):
    """The English edition as text, tags and what plots are made of left out."""
    html = path.read_text("utf-8")
    edition = html.partition('lang="en" data-lang="en" data-title')[2].partition('<div class="edition"')[0]
    text = re.sub(r"<[^>]+>", " ", edition.partition('<script type="application/json"')[0])
    return " ".join(text.replace("\N{NO-BREAK SPACE}", " ").split())


def test_an_empty_run_has_a_report_that_says_so(results):
    store = Store(results)
    store.create("r1", lab="lab", spec_key="k", spec={}, cases=["c1", "c2"])
    store.enter("r1", "interrupted")
    assert report("--output", results / "x.html") == 0
    text = page(results / "x.html")
    assert "The run has no figures." in text
    assert "2 of 2 cases are pending" in text
    assert "interrupted" in text
    assert "No case was started." in text
    assert report("--output", results / "x.md") == 0


def test_a_run_with_failures_only_has_no_figures_and_every_reason(results):
    maker = runs.Maker("r1")
    for repeat in (1, 2):
        maker.failed("mnist", runs.Place("mpi", runs.HOSTS, 1, repeat), "the sums were wrong")
        maker.failed("allreduce", runs.Place("gloo", runs.HOSTS, 1, repeat), "rank 2 is lost")
    runs.store(results, maker)
    assert report("--output", results / "x.html") == 0
    text = page(results / "x.html")
    assert "0 of 4 cases succeeded, 4 failed." in text
    assert "the sums were wrong" in text
    assert "rank 2 is lost" in text
    assert "MPI 3 1 – – – – – – 0 / 2" in text
    assert report("--output", results / "x.md") == 0


def test_an_interrupted_run_tells_what_it_lacks(results):
    maker = runs.Maker("r1")
    maker.train("mnist", runs.Place("mpi", runs.HOSTS[:1]))
    runs.store(results, maker, state="interrupted", pending=["mnist-mpi-2x1-r1"])
    assert report("--output", results / "x.html") == 0
    assert "The run did not finish: 1 of 2 cases are pending." in page(results / "x.html")


def test_one_repeat_makes_a_report(results):
    runs.store(results, runs.lab7(repeats=1))
    assert report("--output", results / "x.html") == 0
    text = page(results / "x.html")
    assert "1 / 1" in text
    assert "too few repeats: 5 each needed" in text


def test_without_a_browser_a_pdf_is_refused_and_nothing_is_written(small, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert report("--format", "pdf", "--output", tmp_path / "x.pdf") == 2
    told = capsys.readouterr().err
    assert "neither is in PATH" in told
    assert "chromium" in told
    assert not (tmp_path / "x.pdf").exists()


def fake_browser(folder, script):
    program = folder / "bin" / "google-chrome"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return f"{program.parent}:{os.environ['PATH']}"


def test_any_chromium_in_path_prints_from_an_empty_profile(small, tmp_path, monkeypatch):
    script = f"""printf '%s\\n' "$@" > {tmp_path}/argv
for word; do case "$word" in --print-to-pdf=*) echo %PDF > "${{word#*=}}";; esac; done"""
    monkeypatch.setenv("PATH", fake_browser(tmp_path, script))
    monkeypatch.setattr(write, "BROWSERS", ("google-chrome",))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert report("--output", tmp_path / "x.pdf") == 0
    assert (tmp_path / "x.pdf").read_text() == "%PDF\n"
    argv = (tmp_path / "argv").read_text().splitlines()
    assert "--headless" in argv
    assert "--no-sandbox" not in argv
    assert any(word.startswith("--user-data-dir=") for word in argv)
    assert argv[-1].startswith("file:///")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert report("--output", tmp_path / "x.pdf") == 0
    assert "--no-sandbox" in (tmp_path / "argv").read_text().splitlines()


def test_a_browser_that_fails_is_told(small, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", fake_browser(tmp_path, "echo no display >&2; exit 3"))
    monkeypatch.setattr(write, "BROWSERS", ("google-chrome",))
    assert report("--output", tmp_path / "x.pdf") == 1
    assert "could not print the report: no display" in capsys.readouterr().err


SHEET = """||||
|--------|--------------|---|
|硬件环境|服务器数目| |
||网卡型号、数目||
||GPU型号、数目||
|软件环境|OS版本||
"""


def test_a_lab_sheet_is_filled_beside_it_in_its_language(small, tmp_path, capsys):
    sheet = tmp_path / "sheet.md"
    sheet.write_text(SHEET, "utf-8")
    assert report("--fill", sheet) == 0
    assert sheet.read_text("utf-8") == SHEET
    filled = tmp_path / "sheet.filled.md"
    assert "3（n1、n2、n3）" in filled.read_text("utf-8")
    assert capsys.readouterr().out == f"{filled}\n"
    assert report("--fill", sheet, "--lang", "en", "--output", tmp_path / "en.md") == 0
    assert "3 (n1, n2, n3)" in (tmp_path / "en.md").read_text("utf-8")


def test_what_is_overwritten_is_kept(small, tmp_path, capsys):
    sheet, filled = tmp_path / "sheet.md", tmp_path / "sheet.filled.md"
    sheet.write_text(SHEET, "utf-8")
    assert report("--fill", sheet) == report("--fill", sheet) == 0
    assert {path.name for path in tmp_path.glob("sheet*")} == {"sheet.md", "sheet.filled.md"}
    for number in (1, 2):
        filled.write_text(f"my words {number}", "utf-8")
        assert report("--fill", sheet) == 0
        assert filled.with_name(f"sheet.filled.md.~{number}~").read_text("utf-8") == f"my words {number}"
    assert "sheet.filled.md was kept as sheet.filled.md.~2~" in capsys.readouterr().err


def test_a_sheet_filled_in_place_keeps_its_mode_link_and_copy(small, tmp_path, capsys):
    sheet, link = tmp_path / "sheet.md", tmp_path / "link.md"
    before = SHEET.replace("|服务器数目| |", "|服务器数目|7|")
    sheet.write_text(before, "utf-8")
    sheet.chmod(0o640)
    link.symlink_to(sheet)
    old = sheet.stat().st_ino
    assert report("--fill", link, "--in-place") == 0
    assert link.is_symlink()
    assert stat.S_IMODE(sheet.stat().st_mode) == 0o640
    # A new file took its place: what was there is never cut off half-way.
    assert sheet.stat().st_ino != old
    assert (tmp_path / "sheet.md.~1~").read_text("utf-8") == before
    assert f"{link}, line 3: 服务器数目: 7 -> 3（n1、n2、n3）" in capsys.readouterr().err


@pytest.mark.parametrize("more", [["--fill", "x.md", "--in-place", "--output", "y.md"], ["--in-place"]])
def test_in_place_is_of_a_sheet_alone(small, more):
    assert report(*more) == 2


def test_where_no_figure_fits_nothing_is_written(small, tmp_path, capsys):
    sheet = tmp_path / "sheet.md"
    sheet.write_text("# no table\n", "utf-8")
    for more in ((), ("--in-place",)):
        assert report("--fill", sheet, *more) == 1
    assert [path.name for path in tmp_path.glob("sheet*")] == ["sheet.md"]
    assert "no table that can be filled" in capsys.readouterr().err


def test_a_lab_sheet_that_is_not_there_is_told(small, tmp_path, capsys):
    assert report("--fill", tmp_path / "none.md") == 2
    assert "none.md: No such file or directory" in capsys.readouterr().err
    (tmp_path / "gbk.md").write_text(SHEET, "gbk")
    assert report("--fill", tmp_path / "gbk.md") == 2
    assert "iconv -f GB18030" in capsys.readouterr().err


def test_pictures_show_where_the_name_of_the_file_has_blanks(results, tmp_path):
    maker = runs.Maker("20261120T155301Z-ab12")
    for repeat, backend, hosts in itertools.product((1, 2, 3), ("mpi", "gloo"), (1, 2)):
        maker.train("mnist", runs.Place(backend, runs.HOSTS[:hosts], repeat=repeat))
    runs.store(results, maker)
    page, sheet = tmp_path / "my lab (1).md", tmp_path / "my sheet.md"
    head = "| Backend | Servers | Slots | Step time | Speed-up |\n|-|-|-|-|-|\n| MPI | 2 | 1 | | |\n"
    sheet.write_text(f"Across servers\n\n{head}\n1. Compare the backends\n", "utf-8")
    assert report("--output", page) == 0
    assert report("--fill", sheet) == 0
    for path in (page, tmp_path / "my sheet.filled.md"):
        links = re.findall(r"!\[.*?\]\((\S+?)\)\n", path.read_text("utf-8"))
        assert links
        assert all((tmp_path / unquote(link)).is_file() for link in links)
        assert not any(set(link) & set(" ()") for link in links)


def test_a_lab_may_have_any_name(results, tmp_path, capsys):
    store = Store(results)
    maker = runs.Maker("r1")
    maker.train("mnist", runs.Place("mpi", runs.HOSTS[:2]))
    for name in ("r1", "r2"):
        records = [replace(record, run_id=name) for record in maker.records]
        store.put(name, records, lab="dc1/rack 7", spec_key="k", spec={}, cases=[*maker.cases])
    assert report("--history", "step_time", "--format", "md") == 0
    assert capsys.readouterr().out == f"{results}/history-dc1_rack 7-step_time.md\n"
