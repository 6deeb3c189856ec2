"""``hvlab doctor --explain`` and ``--list``: prints the known causes, without a log or a host."""

from __future__ import annotations

import difflib
import json
from textwrap import indent

import click

from hvlab.base.errors import UsageError
from hvlab.doctor import knowledge
from hvlab.doctor.cause import Cause

_FAMILY = {cause.id: family for family, causes in knowledge.FAMILIES.items() for cause in causes}


def explain(cause_id: str, *, output_format: str) -> None:
    """Print one entry. Raises UsageError for an unknown id."""
    cause = next((cause for cause in knowledge.CAUSES if cause.id == cause_id), None)
    if cause is None:
        near = ", ".join(difflib.get_close_matches(cause_id, _FAMILY))
        hint = f"did you mean {near}? " if near else ""
        raise UsageError(
            f"unknown cause {cause_id!r}", remedy=f"{hint}`hvlab doctor --list WORD` finds causes by a word"
        )
    if output_format == "json":
        document = {**cause.as_json(), "family": _FAMILY[cause.id], "examples": list(cause.examples)}
        click.echo(json.dumps(document, indent=1))
    else:
        click.echo(_page(cause))


def list_causes(word: str, *, output_format: str) -> None:
    """Print the id and title of each entry whose text contains a word; all for an empty word."""
    causes = [cause for cause in knowledge.CAUSES if word.lower() in _text(cause)]
    if output_format == "json":
        rows = [{"id": cause.id, "title": cause.title, "family": _FAMILY[cause.id]} for cause in causes]
        click.echo(json.dumps({"causes": rows}, indent=1))
        return
    width = max((len(cause.id) for cause in causes), default=0)
    lines = [f"{cause.id:{width}}  {cause.title}" for cause in causes]
    click.echo("\n".join(lines) or f"no known cause contains {word!r}")


def _page(cause: Cause) -> str:
    lines = [f"{cause.id}: {cause.title}", f"  why: {cause.why}", f"  what to do: {cause.remedy}"]
    lines += ["  a log that shows it:", indent(cause.examples[0].strip(), "    ")] if cause.examples else []
    return "\n".join([*lines, f"  source: {cause.source}"])


def _text(cause: Cause) -> str:
    parts = (cause.id, _FAMILY[cause.id], cause.title, cause.why, cause.remedy, *cause.examples)
    return "\n".join(parts).lower()
