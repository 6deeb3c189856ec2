"""What the tests of the report share: labs as data, read once, and reports as a reader has them."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

from hvlab.report import data, page, sections
from hvlab.report.data import ReportData
from hvlab.report.page import Document, Edition
from hvlab.report.plots import Plot
from hvlab.report.report import analyse
from tests.unit import runs

# What stands between lines here.
_BETWEEN = {"en": "; ", "zh": "；"}
VOID = {"meta", "link", "br", "img"}


class Parsed(HTMLParser):
    """The elements of a page in their order, with their attributes and all text inside.

    ``inside`` of an element are the ids of what it stands in.
    """

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[dict[str, str]] = []
        self.path: list[dict[str, str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        inside = " ".join(element["id"] for element in self.path if "id" in element)
        element = {"tag": tag, "text": "", "inside": inside, **{name: value or "" for name, value in attrs}}
        self.elements.append(element)
        if tag not in VOID:
            self.path.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.path, f"</{tag}> ends nothing"
        assert self.path[-1]["tag"] == tag, f"</{tag}> ends <{self.path[-1]['tag']}>"
        if self.path.pop().get("class") == "line":
            self.handle_data("\n")

    def handle_data(self, data: str) -> None:
        for element in self.path:
            element["text"] += data

    def all(self, *tags: str, inside: str = "", **wanted: str) -> list[dict[str, str]]:
        """The elements with these tags and attributes, in what has this id."""
        return [
            element
            for element in self.elements
            if element["tag"] in tags
            and (not inside or inside in element["inside"].split())
            and all(element.get(name) == value for name, value in wanted.items())
        ]


class Shown:
    """A document as a reader sees it."""

    def __init__(self, document: Document) -> None:
        self.document = document

    @functools.cache  # noqa: B019 - it lives as long as a test
    def edition(self, lang: str) -> Edition:
        """The document in a language."""
        return page.edition(self.document, lang)

    @functools.cache  # noqa: B019 - as above
    def parsed(self, lang: str) -> Parsed:
        """The page in a language."""
        edition = self.edition(lang)
        return Parsed(page._render(edition, page._Html(edition.words)))

    def texts(self, section: str, lang: str = "en", style: str = "") -> list[str]:
        """Every paragraph and point of a section; ``style``: note, warning or plain."""
        elements = self.parsed(lang).all("p", "li", inside=f"{lang}-part-{section}")
        return [one["text"] for one in elements if not style or one.get("class") == style]

    def findings(self, lang: str = "en") -> list[str]:
        """The summary, a sentence each."""
        return [*self.edition(lang).opening.findings]


@dataclass(frozen=True)
class Table:
    """A table of a document."""

    shown: Shown
    key: str

    def rows(self, lang: str) -> list[list[str]]:
        """The table as texts, its heads first; a value that covers several rows stands in each of them."""
        rows: list[list[str]] = []
        above: dict[int, tuple[int, str]] = {}
        for element in self._all(lang, "tr", "th", "td"):
            if element["tag"] == "tr":
                rows.append([])
                continue
            self._cover(rows[-1], above)
            above[len(rows[-1])] = (
                int(element.get("rowspan", 1)) - 1,
                element["text"].strip().replace("\n", _BETWEEN[lang]),
            )
            rows[-1].append(above[len(rows[-1])][1])
        return [[cell.replace("\N{NO-BREAK SPACE}", " ") for cell in row] for row in rows]

    @staticmethod
    def _cover(row: list[str], above: dict[int, tuple[int, str]]) -> None:
        while (left := above.get(len(row), (0, "")))[0]:
            above[len(row)] = left[0] - 1, left[1]
            row.append(left[1])

    def caption(self, lang: str = "en") -> str:
        """The caption."""
        return self._all(lang, "caption")[0]["text"]

    def note(self, lang: str = "en") -> str:
        """What stands below."""
        return self._all(lang, "p")[0]["text"]

    def kinds(self) -> list[str]:
        """The class of every cell and row that has one."""
        return [one["class"] for one in self._all("en", "tr", "td", "th") if "class" in one]

    def _all(self, lang: str, *tags: str) -> list[dict[str, str]]:
        return self.shown.parsed(lang).all(*tags, inside=f"{lang}-{self.key}")


@functools.cache
def lab(name: str) -> ReportData:
    """lab7 or lab4 as the report reads it."""
    with tempfile.TemporaryDirectory() as folder:
        return data.read(runs.store(Path(folder), getattr(runs, name)()))


@functools.cache
def made(name: str) -> Shown:
    """The report on lab7 or lab4."""
    return report(lab(name))


def report(run: ReportData) -> Shown:
    """The report on a run."""
    return Shown(sections.document(analyse(run)))


def tables(found: Shown) -> Iterator[Table]:
    """Every table of a document."""
    for element in found.parsed("en").all("figure"):
        if element["class"].startswith("table"):
            yield Table(found, element["id"].removeprefix("en-"))


def table(found: Shown, key: str) -> Table:
    """The table of that key."""
    return next(one for one in tables(found) if one.key == key)


def plot(found: Shown, key: str, lang: str = "en") -> Plot:
    """The plot of that key."""
    return next(one for one in found.edition(lang).plots if one.key == key)


def said(found: Table, lang: str = "zh") -> list[list[str]]:
    """A table as texts, its heads first."""
    return found.rows(lang)
