"""A run as a page to read: its machines, its stack, its figures, every command."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from hvlab import environment
from hvlab.paths import project_dir
from hvlab.results import Record, Store
from hvlab.summary import COLUMNS, failures, summary


def write_page(store: Store, run_id: str) -> Path:
    """Write ``summary.md`` into the run's folder and return its path."""
    folder = store.run_folder(run_id)
    row = next(row for row in store.overview() if row["run_id"] == run_id)
    commands = {path.parent.name: json.loads(path.read_text("utf-8")) for path in folder.glob("*/argv.json")}
    facts = folder / "facts.json"
    machines = environment.table(json.loads(facts.read_text("utf-8"))) if facts.exists() else ()
    page = folder / "summary.md"
    text = run_page(row, store.records(run_id), dict(sorted(commands.items())), machines)
    page.write_text(text, "utf-8")
    return page


def run_page(
    run: Mapping[str, Any],
    records: Sequence[Record],
    commands: Mapping[str, Sequence[str]],
    machines: Sequence[environment.Row] = (),
) -> str:
    """Return the Markdown page of a run.

    ``run`` is its row of ``hvlab results list``; ``commands`` holds the argv of each case that was started,
    ``machines`` the rows of the environment table.
    """
    stack: dict[str, Any] = {}
    for record in records:
        stack |= record.stack
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(project_dir() / "templates"),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # noqa: S701 - Markdown; cells are escaped by the filter `cell`
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters["cell"] = _cell
    return templates.get_template("run.md.j2").render(
        run=run,
        machines=machines,
        stack=stack,
        columns=COLUMNS,
        rows=summary(records),
        failures=failures(records),
        commands={case: shlex.join(argv) for case, argv in commands.items()},
    )


def _cell(value: object) -> str:
    """Return a value that keeps to its cell of a Markdown table."""
    text = "-" if value is None else str(value)
    return " ".join(text.split()).replace("|", "\\|")
