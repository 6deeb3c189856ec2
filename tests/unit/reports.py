"""What the tests of the report share: the two labs as data, read once, and documents seen from outside."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hvlab.report import data
from hvlab.report.blocks import Block, Document, Plot, Table
from hvlab.report.data import ReportData
from hvlab.report.document import document
from hvlab.report.words import load
from tests.unit import runs


@functools.cache
def lab(name: str) -> ReportData:
    """lab7 or lab4 as the report reads it."""
    with tempfile.TemporaryDirectory() as folder:
        return data.read(runs.store(Path(folder), getattr(runs, name)()))


@functools.cache
def made(name: str) -> Document:
    """The document of lab7 or lab4."""
    return document(lab(name))


def blocks(found: Document) -> Iterator[Block]:
    """Every block of a document."""
    return (block for section in found.sections for block in section.blocks)


def table(found: Document, key: str) -> Table:
    """The table of that key."""
    return next(block for block in blocks(found) if isinstance(block, Table) and block.key == key)


def plot(found: Document, key: str) -> Plot:
    """The plot of that key."""
    return next(block for block in blocks(found) if isinstance(block, Plot) and block.key == key)


def said(found: Table, lang: str = "zh") -> list[list[str]]:
    """A table as texts, its heads first; breaks between lines are line ends, no space is unbreakable."""
    words = load(lang)
    rows = [[column.head for column in found.columns], *found.rows]
    return [[words.say(value).replace("\N{NO-BREAK SPACE}", " ") for value in row] for row in rows]
