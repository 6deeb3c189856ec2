"""A document as a page in a language: HTML with both languages in one file, or Markdown.

A section's template uses the macros of `html.j2` or of `md.j2`, which have the same names.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeAlias
from urllib.parse import quote

import jinja2
from markupsafe import Markup, escape

from hvlab.base.paths import project_dir
from hvlab.report.labels import Code, Lines, Value
from hvlab.report.plots import Plot, figure
from hvlab.report.words import LANGUAGES, Words, load

_TEMPLATES = project_dir() / "templates/report"
_NAMES = {"en": "English", "zh": "中文"}
# Marks in templates: before a cell, and between its kind, header and text.
_CELL, _PART = "\x1e", Markup("\x1f")


@dataclass(frozen=True)
class Opening:
    """The part before the sections.

    ``signature`` names the author, ``head`` are the lines on the run, ``cards`` its main figures: name,
    figure, origin. ``alerts`` come first: anything without figures. ``warnings`` concern all figures.
    """

    title: str
    head: Sequence[tuple[str, Value]]
    signature: Sequence[tuple[str, Value]] = ()
    cards: Sequence[tuple[str, str, str]] = ()
    alerts: Sequence[str] = ()
    findings: Sequence[str] = ()
    warnings: Sequence[str] = ()


@dataclass(frozen=True)
class Document:
    """The subject of a page, and the functions for its opening and its sections in a language."""

    subject: Any
    opening: Callable[[Any, Words], Opening]
    sections: Mapping[str, Callable[[Any, Words], Mapping[str, Any] | None]]


@dataclass(frozen=True)
class Section:
    """A section in a language: the values of its template, and its plots."""

    key: str
    title: str
    shown: Mapping[str, Any]

    @property
    def plots(self) -> Sequence[Plot]:
        """Its plots."""
        plots: Sequence[Plot] = self.shown.get("drawn", ())
        return plots


@dataclass(frozen=True)
class Edition:
    """A document in a language."""

    words: Words
    opening: Opening
    sections: Sequence[Section]

    @property
    def plots(self) -> list[Plot]:
        """All plots."""
        return [plot for section in self.sections for plot in section.plots]

    @property
    def name(self) -> str:
        """The language's own name."""
        return _NAMES[self.words.lang]


def edition(document: Document, lang: str) -> Edition:
    """Return the document in a language."""
    words = load(lang)
    shown = {key: say(document.subject, words) for key, say in document.sections.items()}
    sections = [
        Section(key, values.get("title") or words.say(f"{key}.title"), values)
        for key, values in shown.items() if values
    ]  # fmt: skip
    return Edition(words, document.opening(document.subject, words), sections)


@dataclass(frozen=True)
class Cell:
    """A cell of a table; ``span`` is the number of rows it covers, 0 if the one above covers it."""

    text: str
    kind: str
    head: str
    span: int = 1


def cells(row: Callable[[Any], str], rows: Iterable[Any], merged: int = 0) -> list[list[Cell]]:
    """Return the cells that a template writes for each row; equal ones in the first columns are merged."""
    table = [
        [
            Cell(text.strip(), kind, head)
            for kind, head, text in (each.split(_PART) for each in row(one).split(_CELL)[1:])
        ]
        for one in rows
    ]
    return [
        [_merge(table, number, place) if place < merged else cell for place, cell in enumerate(cells)]
        for number, cells in enumerate(table)
    ]


def _merge(table: Sequence[Sequence[Cell]], number: int, place: int) -> Cell:
    """Return a cell with the number of rows that repeat it from here on; 0 if it repeats the row above."""

    def same(other: int) -> bool:
        one, two = ([cell.text for cell in table[row][: place + 1]] for row in (other, number))
        return one == two

    cell = table[number][place]
    if number and same(number - 1):
        return Cell(cell.text, cell.kind, cell.head, 0)
    end = number + 1
    while end < len(table) and same(end):
        end += 1
    return Cell(cell.text, cell.kind, cell.head, end - number)


@dataclass(frozen=True)
class _Html:
    words: Words
    macros = "html.j2"

    def plain(self, text: str) -> str:
        return escape(text)

    def code(self, text: str) -> str:
        return f"<code>{escape(text)}</code>"

    def lines(self, texts: Iterable[str]) -> str:
        return "".join(f'<span class="line">{text}</span>' for text in texts)


@dataclass(frozen=True)
class _Markdown:
    """Values in Markdown: in one line, as in cells."""

    words: Words
    macros = "md.j2"

    def plain(self, text: str) -> str:
        return strip_markup(text)

    def code(self, text: str) -> str:
        flat = " ".join(text.split()).replace("|", "\\|")
        return f"`` {flat} ``" if "`" in flat else f"`{flat}`"

    def lines(self, texts: Iterable[str]) -> str:
        return "<br>".join(texts)


_Skin: TypeAlias = _Html | _Markdown


def strip_markup(content: str) -> str:
    """Return a text without the markup of Markdown or HTML."""
    flat = " ".join(content.replace("\N{NO-BREAK SPACE}", "\0").split()).replace("\0", "\N{NO-BREAK SPACE}")
    for letter in "\\`*_[]|":
        flat = flat.replace(letter, f"\\{letter}")
    return flat.replace("<", "&lt;").replace(">", "&gt;")


def _show(skin: _Skin, value: Value | None) -> Markup:
    """Return a value for a page; text from hosts stays text."""
    if isinstance(value, Markup):
        return value
    if isinstance(value, Lines):
        text = skin.lines(_show(skin, one) for one in value)
    elif isinstance(value, tuple):
        text = _join(skin, value)
    elif isinstance(value, Code):
        text = skin.code(value)
    else:
        text = skin.plain(skin.words.text(value).translate(dict.fromkeys(map(ord, (_CELL, _PART)))))
    return Markup(text)  # noqa: S704 - escaped


def in_markdown(value: Value, words: Words) -> str:
    """Return a value as a cell of a Markdown table."""
    return str(_show(_Markdown(words), value))


def _join(skin: _Skin, values: Iterable[Value], between: str = "comma") -> Markup:
    parted = Markup(skin.words.phrases[f"list.{between}"])  # noqa: S704 - ours
    return parted.join(_show(skin, value) for value in values)


def _column(skin: _Skin, head: Value, value: Value | None, kind: str = "") -> Markup:
    """Return a cell for `cells`: numbers are right-aligned, and ``text`` may run over lines."""
    return _PART.join((_CELL + kind, _show(skin, head), _show(skin, value)))


@jinja2.pass_context
def _finalize(context: jinja2.runtime.Context, value: Any) -> Markup:
    return _show(context["skin"], "" if isinstance(value, jinja2.Undefined) else value)


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _render(edition: Edition, skin: _Skin, pictures: str = "") -> str:
    words = skin.words
    said = {name: getattr(words, name) for name in vars(Words) if not name.startswith("_")}
    functions: dict[str, Any] = {
        **said, "_": words.say, "words": words, "skin": skin, "macros": skin.macros, "lang": words.lang,
        "cells": cells, "code": Code, "join": partial(_join, skin), "column": partial(_column, skin),
        "pictures": pictures, "picture": picture,
    }  # fmt: skip
    environment = _environment()
    bodies = [
        Markup(environment.get_template(f"{one.key}.j2").render({**functions, **one.shown}))  # noqa: S704
        for one in edition.sections
    ]
    parts = list(zip(edition.sections, bodies, strict=True))
    name = f"edition.{skin.macros}"
    return environment.get_template(name).render(functions, opening=edition.opening, sections=parts)


def picture(folder: str, key: str) -> str:
    """Return the link of a plot's picture in ``folder``, whose name may have blanks."""
    return f"{quote(folder)}/{key}.png"


def markdown(document: Document, lang: str, *, pictures: str = "") -> str:
    """Return the Markdown text; ``pictures`` is the folder of the plots' pictures, if any."""
    one = edition(document, lang)
    return re.sub(r"\n{3,}", "\n\n", _render(one, _Markdown(one.words), pictures)).strip() + "\n"


def html(document: Document, records: Sequence[Mapping[str, Any]], *, run_id: str, lang: str) -> str:
    """Return one self-contained HTML file in both languages, ``lang`` first, with ``records`` attached."""
    editions = [edition(document, name) for name in LANGUAGES]
    bodies = [Markup(_render(one, _Html(one.words))) for one in editions]  # noqa: S704 - rendered
    lines = "\n".join(json.dumps(record, ensure_ascii=False) for record in records)
    packed = gzip.compress(lines.encode(), compresslevel=6, mtime=0)
    script, plotly = _text("page.js"), _text("plotly-basic.min.js")
    figures = {f"{one.words.lang}-{plot.key}": figure(plot) for one in editions for plot in one.plots}
    first = next(one for one in editions if one.words.lang == lang)
    return _environment().get_template("page.html.j2").render(
        skin=_Html(first.words),
        editions=list(zip(editions, bodies, strict=True)),
        first=first,
        run_id=run_id,
        css=_text("page.css"),
        script=script,
        plotly=plotly,
        digests=[_digest(text) for text in (plotly, script)],
        figures=_script_json(figures),
        records=base64.b64encode(packed).decode(),
    )  # fmt: skip


def _script_json(content: object) -> Markup:
    """Return JSON in which no text can end the script element."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))  # noqa: S704


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _text(name: str) -> Markup:
    return Markup((_TEMPLATES / name).read_text("utf-8"))  # noqa: S704 - ours, and plotly's
