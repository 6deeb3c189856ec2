"""A document as Markdown, with pictures beside it or without any."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

import jinja2

from hvlab.base.paths import project_dir
from hvlab.report.blocks import Code, Document, Several, Table, Value
from hvlab.report.words import Words


def picture(folder: str, key: str) -> str:
    """Return the link of a plot's picture in ``folder``, whose name may have blanks."""
    return f"{quote(folder)}/{key}.png"


def page(document: Document, words: Words, *, pictures: Mapping[str, str] | None = None) -> str:
    """Return the Markdown text; ``pictures`` holds the link of each plot's picture, by the plot's key."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(project_dir() / "templates/report"),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # noqa: S701 - Markdown; texts are escaped by the filters
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["say"] = lambda value: text(value, words)
    environment.filters["cells"] = lambda table: cells(table, words)
    environment.filters["line"] = line
    environment.filters["phrase"] = lambda key: words.phrases[key]
    return environment.get_template("page.md.j2").render(document=document, pictures=pictures or {})


def text(value: Value, words: Words) -> str:
    """Return a value as Markdown that keeps to its line; what a host says stays text."""
    if isinstance(value, Code):
        return code(value.text)
    if isinstance(value, Several):
        between = "<br>" if value.between == "list.line" else words.phrases[value.between]
        return between.join(text(inner, words) for inner in value.values)
    return escaped(words.say(value))


def cells(table: Table, words: Words) -> list[list[str]]:
    """Return the rows of a table as texts; in the merged columns, a value that repeats is left out."""
    texts = []
    for number, values in enumerate(table.rows):
        above = table.rows[number - 1] if number else None
        repeats = [
            above is not None and place < table.merged and above[: place + 1] == values[: place + 1]
            for place in range(len(values))
        ]
        texts.append(
            ["" if same else text(value, words) for value, same in zip(values, repeats, strict=True)]
        )
    return texts


def line(values: list[str]) -> str:
    """Return a line of a table."""
    return "| " + " | ".join(values) + " |"


def code(content: str) -> str:
    """Return a span of code that keeps to its cell."""
    flat = " ".join(content.split()).replace("|", "\\|")
    return f"`` {flat} ``" if "`" in flat else f"`{flat}`"


def escaped(content: str) -> str:
    """Return a text without anything that Markdown or HTML would take for its own."""
    flat = " ".join(content.replace("\N{NO-BREAK SPACE}", "\0").split()).replace("\0", "\N{NO-BREAK SPACE}")
    for letter in "\\`*_[]|":
        flat = flat.replace(letter, f"\\{letter}")
    return flat.replace("<", "&lt;").replace(">", "&gt;")
