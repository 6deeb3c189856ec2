"""A report as a file: one page of HTML, Markdown with pictures beside it, or PDF."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hvlab.base.errors import UsageError
from hvlab.report import data as reading
from hvlab.report.blocks import Document, Plot
from hvlab.report.data import ReportData
from hvlab.report.document import document
from hvlab.report.words import load
from hvlab.results.store import Store

FORMATS = ("html", "md", "pdf")
# What follows the name of a Markdown file in that of the folder with its pictures.
FILES = "_files"
_FIX = "write it elsewhere with --output"


@dataclass(frozen=True)
class Written:
    """What was written. ``spoken`` is False where the pictures speak English for want of a Chinese font."""

    path: Path
    spoken: bool = True


def write(data: ReportData, output: Path, *, output_format: str, lang: str) -> Written:
    """Write the report of a run into ``output``; ``lang`` comes first in HTML and is the only one elsewhere.

    Raises UsageError where the file cannot be written, or no browser is there to print it.
    """
    report = document(data, attached=output_format != "md")
    records = [vars(record) for record in data.records]
    return save(report, output, records, name=data.head.run_id, output_format=output_format, lang=lang)


def save(
    report: Document,
    output: Path,
    records: Sequence[dict[str, Any]] = (),
    *,
    name: str,
    output_format: str,
    lang: str,
) -> Written:
    """Write a document into ``output``; HTML holds the ``records``, to be saved under ``name``."""
    if output_format == "md":
        return _markdown(report, output, lang)
    from hvlab.report import html, pdf  # noqa: PLC0415 - Markdown has no use for them

    text = html.page(report, records, run_id=name, lang=lang)
    _put(output, pdf.printed(text) if output_format == "pdf" else text.encode())
    return Written(output)


def write_page(store: Store, run_id: str) -> Path:
    """Write ``summary.md``, the report without pictures, into the run's folder and return its path."""
    from hvlab.report import markdown  # noqa: PLC0415 - as above

    output = store.run_folder(run_id) / "summary.md"
    report = document(reading.read(store, run_id), attached=False)
    _put(output, markdown.page(report, load("en")).encode())
    return output


def _markdown(report: Document, output: Path, lang: str) -> Written:
    from hvlab.report import images, markdown  # noqa: PLC0415 - as above

    words = load(lang)
    folder = output.parent / f"{output.stem}{FILES}"
    plots = [block for section in report.sections for block in section.blocks if isinstance(block, Plot)]
    pictures = {plot.key: markdown.picture(folder.name, plot.key) for plot in plots}
    _put(output, markdown.page(report, words, pictures=pictures).encode())
    try:
        return Written(output, images.write(plots, words, folder))
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}", remedy=_FIX) from error


def _put(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", remedy=_FIX) from error
