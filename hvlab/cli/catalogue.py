"""``hvlab catalogue``: the catalogue of releases against the package index."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import click
import yaml

from hvlab.base.files import write_file, writing
from hvlab.base.paths import own_catalogue, project_dir
from hvlab.base.yaml_files import load_shipped
from hvlab.cli import options
from hvlab.results import tables
from hvlab.stack.catalogue import update
from hvlab.stack.catalogue.differences import Difference, Pip, differences
from hvlab.stack.resolver import own
from hvlab.stack.resolver.catalogue import FOLDER, build, files


@click.group("catalogue", cls=options.SubVerbs)
def command() -> None:
    """\b
    hvlab catalogue check
    hvlab catalogue update

    Compare the catalogue of releases with the package index that pip is configured for, and update it.

    The index shows releases of CUDA, cuDNN, NCCL, torch and TensorFlow, and what the wheels of the last two
    require. It shows neither drivers nor the packages of NVIDIA's repositories.
    """


@command.command("check", short_help="Print where catalogue and package index differ.")
@options.of_verb("catalogue-check")
def check_catalogue(*, output_format: str) -> int:
    """Print where the catalogue and the package index differ; the exit code is 1 if they do."""
    changes = _differences(with_own=True)
    if output_format == "json":
        click.echo(json.dumps([change.as_json() for change in changes], indent=1))
    else:
        click.echo(_table(changes) if changes else "the catalogue matches the index")
    return 1 if changes else 0


@command.command("update", short_help="Update the catalogue's files from the index.")
@options.of_verb("catalogue-update")
def update_catalogue(*, to_own: bool) -> int:
    """Update the catalogue's files from the index, for review.

    Outside a clone of the repository, or with --own, your own file of releases is updated instead.
    """
    to_own = to_own or not (project_dir() / ".git").exists()
    changes = _differences(with_own=to_own)
    if not changes:
        click.echo("the catalogue matches the index")
        return 0
    click.echo(_table(changes))
    paths = [_write_own(changes)] if to_own else _write(changes)
    click.echo(f"written; review them: {', '.join(map(str, paths))}")
    return 0


def _differences(*, with_own: bool) -> list[Difference]:
    known = files()
    path = own_catalogue()
    if with_own and path.is_file():
        known = own.merge(known, own.read(path), path)
    return differences(known, Pip(), lambda name: click.echo(f"asking for {name}", err=True))


def _write(changes: Sequence[Difference]) -> list[Path]:
    known, texts = files(), {}
    for file, group in groupby(changes, key=lambda change: change.file):
        path = FOLDER / f"{file}.yml"
        text = path.read_text(encoding="utf-8")
        texts[path] = update.update(text, update.entries_of(text), group)
        known[file] = load_shipped(texts[path])
    build(known)
    for path, text in texts.items():
        with writing(path, remedy="run it as the owner of that file, or use --own"):
            write_file(path, text)
    return list(texts)


def _write_own(changes: Sequence[Difference]) -> Path:
    path = own_catalogue()
    text = update.apply_changes(path.read_text(encoding="utf-8") if path.is_file() else "", changes)
    build(own.merge(files(), yaml.safe_load(text), path))
    with writing(path, remedy="correct the permissions of its folder"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, text)
    return path


def _table(changes: Sequence[Difference]) -> str:
    rows = [
        {
            "component": change.file,
            "release": change.release,
            "catalogue": "-" if change.missing else update.flow(known),
            "index": update.flow(change.changes),
        }
        for change in changes
        for known in [{part: change.known.get(part) for part in change.changes}]
    ]
    return tables.render(rows, ("component", "release", "catalogue", "index"), "table")
