"""Learns a machine type from one good host."""

from __future__ import annotations

import glob
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from hvlab.base import files
from hvlab.base.errors import UsageError
from hvlab.checks import expected
from hvlab.checks.node import machine, subjects

_HEAD = """\
# Machines of this type, as host {host} taught `hvlab health --learn {host}` on {day}.
# Correct values that are not true of all of them; remove those that may differ. A host gets the type matching
# best; `lab_machine_type: {name}` in the inventory says it without a match.
"""
_NO_MATCH = "# No GPUs distinguish these machines from others: set lab_machine_type, or write a match.\n"


def type_name(host: str, readings: Mapping[str, Any]) -> str:
    """Return a file name for the type of a host: its product and GPUs, or else the host's own name."""
    gpus = f"{readings['gpu_count']}x {readings['gpu_model']}" if readings.get("gpu_model") else ""
    words = " ".join(filter(None, [readings.get("machine_product", ""), gpus])) or host
    plain = (re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") for text in (words, host))
    return next(filter(None, plain), "machine")


def text(host: str, readings: Mapping[str, Any], day: str) -> str:
    """Return the file that describes machines like this host."""
    name = type_name(host, readings)
    # The firmware's name alone may fit other machines, too: all virtual machines of a cloud share it.
    known = {
        criterion: readings[reading]
        for criterion, reading in machine.CRITERIA.items()
        if readings.get(reading) and readings.get("gpu_model")
    }
    match = {name: glob.escape(value) if isinstance(value, str) else value for name, value in known.items()}
    lines = [_HEAD.format(host=host, day=day, name=name)]
    lines.append("match:\n" + _mapping(match) if match else _NO_MATCH + "match: {}\n")
    lines.append("expect:\n")
    for subject in subjects.every():
        learned = {
            reading: readings[reading] for reading in subject.LEARNED if readings.get(reading) is not None
        }
        lines += _with_margin(learned, getattr(subject, "MARGIN", {}))
    return "".join(lines)


def _mapping(values: Mapping[str, Any]) -> str:
    dumped = yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True, width=1000)
    return "".join(f"  {line}\n" for line in dumped.splitlines())


def _with_margin(learned: Mapping[str, Any], margin: Mapping[str, float]) -> Sequence[str]:
    lines = []
    for name, value in learned.items():
        if name in margin:
            lines.append(f"  # {margin[name]:.0%} of the {value:g} that this host reached\n")
            lines.append(_mapping({name: round(value * margin[name], 1)}))
        else:
            lines.append(_mapping({name: value}))
    return lines


def write(inventory: Path, host: str, readings: Mapping[str, Any], *, day: str, force: bool) -> Path:
    """Write the type of a host beside the inventory and return its file.

    Raises UsageError if it exists, unless ``force``.
    """
    folder = expected.own_folder(inventory)
    path = folder / f"{type_name(host, readings)}.yml"
    if path.exists() and not force:
        raise UsageError(f"there is already a {path}", remedy="compare them, then replace it with --force")
    folder.mkdir(parents=True, exist_ok=True)
    files.write_file(path, text(host, readings, day))
    return path
