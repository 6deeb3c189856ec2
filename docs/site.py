"""A hook of MkDocs (mkdocs.yml): adds generated pages and those outside of docs/, and keeps links right."""

from __future__ import annotations

import os
import re
from pathlib import PurePosixPath
from typing import Any

from mkdocs.structure.files import File

from docs.generate import PAGES, ROOT

OUTSIDE = ("README.md", "README.zh.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md")
# The theme keeps each row of a table on one line, and hides what has no room.
STYLE = "css/tables.css"
_TABLES = ".wy-table-responsive table td, .wy-table-responsive table th { white-space: normal; }\n"
LINK = re.compile(r"(?<!!)\[([^\[\]]*)\]\(([^)#\s:]+)(#[^)\s]*)?\)")
TARGET = re.compile(r"\]\(([^)#\s:]+)(#[^)\s]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages and those outside of docs/; README.md is the first page."""
    for name in OUTSIDE:
        files.append(File.generated(config, uri(name), abs_src_path=str(ROOT / name)))
    for name, write in PAGES.items():
        files.append(File.generated(config, name, content=write()))
    files.append(File.generated(config, STYLE, content=_TABLES))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links to where things are on the site; a link to anything else becomes plain text."""
    place = PurePosixPath(source(page.file.src_uri)).parent

    def path(target: str) -> str:
        return os.path.normpath(place / target)

    def there(target: str) -> bool:
        return path(target) in OUTSIDE or path(target).startswith("docs/")

    def pointed(match: re.Match[str]) -> str:
        target = os.path.relpath(uri(path(match[1])), PurePosixPath(page.file.src_uri).parent)
        return f"]({target}{match[2] or ''})" if there(match[1]) else match[0]

    kept = LINK.sub(lambda match: match[0] if there(match[2]) else match[1], markdown)
    return TARGET.sub(pointed, kept)


def uri(path: str) -> str:
    """The place on the site of a file in the tree."""
    return "index.md" if path == "README.md" else path.removeprefix("docs/")


def source(address: str) -> str:
    """The file in the tree behind a page of the site."""
    if address == "index.md":
        return "README.md"
    return address if address in OUTSIDE else f"docs/{address}"
