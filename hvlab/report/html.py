"""A document as one HTML file in both languages, which asks nothing of the network."""

from __future__ import annotations

import base64
import gzip
import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from hvlab.base.paths import project_dir
from hvlab.report.blocks import Block, Code, Document, Number, Plot, Several, Table, Value
from hvlab.report.figures import figure
from hvlab.report.words import LANGUAGES, Words, load

# From how many times the usual on a cell of a heat map is shaded more.
_HEAT = (1.2, 1.5, 2.5, 5.0)
_NAMES = {"en": "English", "zh": "中文"}


@dataclass(frozen=True)
class Edition:
    """The document in one language."""

    words: Words
    title: str
    html: Markup

    @property
    def name(self) -> str:
        """Return the language's own name."""
        return _NAMES[self.words.lang]


@dataclass(frozen=True)
class Cell:
    """A cell of a table; ``span`` is how many rows it covers, 0 where the one above it covers this one."""

    value: Value
    tag: str
    span: int
    kind: str


def page(document: Document, records: Sequence[dict[str, Any]], *, run_id: str, lang: str) -> str:
    """Return the file's text; ``lang`` is shown first, ``records`` are attached."""
    editions = [_edition(document, load(name)) for name in LANGUAGES]
    script = _text("page.js")
    plotly = _text("plotly-basic.min.js")
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            editions=editions,
            first=next(edition for edition in editions if edition.words.lang == lang),
            run_id=run_id,
            css=Markup(_text("page.css")),  # noqa: S704 - ours
            script=Markup(script),  # noqa: S704 - ours
            plotly=Markup(plotly),  # noqa: S704 - plotly's
            digests=[_digest(text) for text in (plotly, script)],
            figures=_figures(document),
            records=_packed(records),
        )
    )


def spans(table: Table) -> Iterator[list[Cell]]:
    """Return each row's cells; in the merged columns, one that repeats the cell above is part of it."""
    for number, row in enumerate(table.rows):
        cells = []
        for place, value in enumerate(row):
            span = _span(table, number, place) if place < table.merged else 1
            column = table.columns[place]
            kind = "number" if column.numeric else "text" if column.text else ""
            kind += heat(value) if table.heat else ""
            cells.append(Cell(value, "th" if place == 0 else "td", span, kind))
        yield cells


def heat(value: Value) -> str:
    """Return the class of a cell of a heat map; of a number below the first limit, none."""
    above = sum(limit <= value.value for limit in _HEAT) if isinstance(value, Number) else 0
    return f" heat-{above}" if above else ""


def runs(blocks: Iterable[Block]) -> list[list[Block]]:
    """Return the blocks, plots that follow one another together: a wide screen has them side by side."""
    together = itertools.groupby(enumerate(blocks), lambda item: -1 if _pairs(item[1]) else item[0])
    return [[block for _, block in group] for _, group in together]


def _pairs(block: Block) -> bool:
    return isinstance(block, Plot) and bool(block.series)


def _span(table: Table, number: int, place: int) -> int:
    """Return how many rows from this one on repeat it; 0 where it repeats the row above."""

    def same(other: int) -> bool:
        return table.rows[other][: place + 1] == table.rows[number][: place + 1]

    if number and same(number - 1):
        return 0
    end = number + 1
    while end < len(table.rows) and same(end):
        end += 1
    return end - number


def _edition(document: Document, words: Words) -> Edition:
    environment = _environment()
    environment.filters |= {
        "say": words.say,
        "show": _shower(words),
        "phrase": lambda key: words.phrases[key],
        "spans": spans,
        "runs": runs,
    }
    html = environment.get_template("edition.html.j2").render(document=document, lang=words.lang)
    return Edition(words, words.say(document.title), Markup(html))  # noqa: S704 - rendered with autoescape


def _shower(words: Words) -> Callable[[Value], Markup]:
    def show(value: Value) -> Markup:
        if isinstance(value, Code):
            return Markup("<code>{}</code>").format(value.text)
        if isinstance(value, Several) and value.between == "list.line":
            return Markup("").join(
                Markup('<span class="line">{}</span>').format(show(v)) for v in value.values
            )
        if isinstance(value, Several):
            return escape(words.phrases[value.between]).join(map(show, value.values))
        return escape(words.say(value))

    return show


def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(project_dir() / "templates/report"),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _figures(document: Document) -> Markup:
    drawn = {f"{lang}-{plot.key}": figure(plot, load(lang)) for lang in LANGUAGES for plot in plots(document)}
    return _script_json(drawn)


def plots(document: Document) -> Iterable[Plot]:
    """Return every plot of a document."""
    return (block for section in document.sections for block in section.blocks if isinstance(block, Plot))


def _script_json(content: object) -> Markup:
    """Return JSON that no text in it can end the script element of."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))  # noqa: S704


def _packed(records: Iterable[dict[str, Any]]) -> str:
    lines = "\n".join(json.dumps(record, ensure_ascii=False) for record in records)
    return base64.b64encode(gzip.compress(lines.encode(), compresslevel=6, mtime=0)).decode()


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _text(name: str) -> str:
    return Path(project_dir() / "templates/report" / name).read_text("utf-8")
