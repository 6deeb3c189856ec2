"""``--metrics``: what a verb says, as gauges in a file for node_exporter's textfile collector."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from hvlab.base import files
from hvlab.results.formats.plain import Families, render_gauges


def prepare(folder: Path | None) -> None:
    """Make the folder. Raises UsageError: what takes minutes must not fail at its end."""
    if folder is not None:
        with files.writing(folder, remedy="choose another folder for --metrics"):
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass


def write(folder: Path | None, verb: str, lab: str, families: Families) -> None:
    """Write the gauges of a verb, with the time at which it ended, unless ``folder`` is None."""
    if folder is None:
        return
    labels = (("verb", verb), ("lab", lab))
    ended: Families = {"hvlab_ended_seconds": ("When it ended, since the epoch.", {labels: time.time()})}
    files.write_file(folder / f"hvlab_{verb}.prom", render_gauges({**families, **ended}))
