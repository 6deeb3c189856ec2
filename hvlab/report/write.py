"""A report as a file: one page of HTML, Markdown with pictures beside it, or PDF."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hvlab.base import process
from hvlab.base.errors import HvlabError, UsageError
from hvlab.base.files import writing
from hvlab.base.temporary import temporary_folder
from hvlab.report import data as reading
from hvlab.report import page
from hvlab.report.data import ReportData
from hvlab.report.page import Document
from hvlab.report.report import analyse
from hvlab.report.sections import document
from hvlab.results.store import Store

FORMATS = ("html", "md", "pdf")
# Suffix of the folder with a Markdown file's pictures.
FILES = "_files"
BROWSERS = (
    *("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome", "microsoft-edge"),
)
_PATIENCE_S = 120


@dataclass(frozen=True)
class Written:
    """A written file. ``spoken`` is False if the pictures are in English for lack of a Chinese font."""

    path: Path
    spoken: bool = True


def write(
    data: ReportData,
    output: Path,
    *,
    output_format: str,
    lang: str,
    signature: Mapping[str, str] | None = None,
) -> Written:
    """Write the report of a run into ``output``; HTML has both languages, ``lang`` first.

    Raises UsageError if the file cannot be written, or no browser can print it.
    """
    report = document(analyse(data, attached=output_format != "md", signature=signature))
    records = [vars(record) for record in data.records]
    return save(report, output, records, name=data.head.run_id, output_format=output_format, lang=lang)


def save(
    report: Document,
    output: Path,
    records: Sequence[Mapping[str, Any]] = (),
    *,
    name: str,
    output_format: str,
    lang: str,
) -> Written:
    """Write a document into ``output``; HTML holds the ``records``, to be saved under ``name``."""
    if output_format == "md":
        return _markdown(report, output, lang)
    text = page.html(report, records, run_id=name, lang=lang)
    _replace(output, print_pdf(text) if output_format == "pdf" else text.encode())
    return Written(output)


def write_page(store: Store, run_id: str) -> Path:
    """Write ``summary.md``, the report without pictures, into the run's folder and return its path."""
    output = store.run_folder(run_id) / "summary.md"
    report = document(analyse(reading.read(store, run_id), attached=False))
    _replace(output, page.markdown(report, "en").encode())
    return output


def _markdown(report: Document, output: Path, lang: str) -> Written:
    # HTML has no use for these. Where matplotlib is missing, nothing is written.
    import matplotlib as mpl  # noqa: F401, PLC0415

    from hvlab.report import images  # noqa: PLC0415

    folder = output.parent / f"{output.stem}{FILES}"
    _replace(output, page.markdown(report, lang, pictures=folder.name).encode())
    font = images.chinese_font() if lang == "zh" else None
    spoken = lang != "zh" or font is not None
    with writing(folder):
        images.write(page.edition(report, lang if spoken else "en").plots, folder, font)
    return Written(output, spoken)


def _replace(path: Path, content: bytes) -> None:
    with writing(path):
        path.write_bytes(content)


def browser() -> str:
    """Return the path of a browser that prints. Raises UsageError if there is none."""
    program = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if program is None:
        raise UsageError(
            f"a PDF is printed by Chromium or Chrome, and neither is in PATH ({', '.join(BROWSERS)})",
            remedy="install one (Debian: chromium), or write --format html and print that from a browser",
        )
    return program


def arguments(program: str, profile: Path, source: Path, output: Path, *, root: bool) -> list[str]:
    """Return the command that prints ``source``; a browser that runs as root has no sandbox."""
    return [
        program,
        *("--headless", *(["--no-sandbox"] if root else []), "--disable-gpu", "--disable-quic"),
        *(
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ),
        f"--user-data-dir={profile}",
        "--window-size=1280,1000",
        "--no-pdf-header-footer",
        "--virtual-time-budget=60000",
        f"--print-to-pdf={output}",
        source.as_uri(),
    ]


def print_pdf(html: str) -> bytes:
    """Return a page as PDF. Raises UsageError without a browser, HvlabError if printing fails."""
    program = browser()
    with temporary_folder() as folder:
        source, output = folder / "report.html", folder / "report.pdf"
        source.write_text(html, "utf-8")
        argv = arguments(program, folder / "profile", source, output, root=os.geteuid() == 0)
        try:
            ended = process.run(argv, seconds=_PATIENCE_S)
        except HvlabError as error:
            raise _explain_failure(program, str(error)) from error
        if ended.returncode or not output.is_file():
            words = ended.stderr.strip().splitlines() or [f"exit status {ended.returncode}"]
            raise _explain_failure(program, words[-1])
        return output.read_bytes()


def _explain_failure(program: str, problem: str) -> HvlabError:
    remedy = "write --format html, and print that from a browser"
    return HvlabError(f"{program} could not print the report: {problem}", remedy=remedy)
