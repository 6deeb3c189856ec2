"""Baselines as files beside the store: they outlive the run they come from."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hvlab.compare import Measurements
from hvlab.errors import HvlabError, UsageError
from hvlab.results.configurations import Cell, Measured
from hvlab.results.store import utc

DEFAULT = "default"
SCHEMA = 1
_FOLDER = "baselines"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def keep(results: Path, run: Measurements, *, name: str = DEFAULT) -> Path:
    """Write a run's figures as the baseline ``name`` of its lab, and return the file.

    The file is written whole or not at all. Raises UsageError where the run has no figure to hold others to.
    """
    if not any(measured.ok for measured in run.cells.values()):
        seen = f"run {run.run_id} has no figure: none of its cases went well"
        raise UsageError(seen, remedy="`hvlab results list` shows runs that have some")
    file = _file(results, run.lab, name)
    text = json.dumps({"schema": SCHEMA, "name": name, "set_at": utc(), **_plain(run)}, indent=1)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        _write(file, text + "\n")
    except OSError as error:
        seen = f"the baseline {file} cannot be written: {error.strerror}"
        raise HvlabError(seen, remedy="free the disk or correct its rights") from error
    return file


def kept(results: Path, lab: str, *, name: str = DEFAULT) -> Measurements:
    """Return the baseline ``name`` of a lab. Raises UsageError where there is none that can be read."""
    file = _file(results, lab, name)
    if not file.is_file():
        others = sorted(path.stem for path in file.parent.glob("*.json"))
        there = f"; {lab} has {', '.join(others)} (--name)" if others else ""
        raise UsageError(
            f"lab {lab} has no baseline {name!r} in {results}",
            remedy=f"keep a good run as one: `hvlab baseline set RUN`{there}",
        )
    try:
        told = json.loads(file.read_text("utf-8"))
        version = told["schema"]
        found = _measurements(told) if version == SCHEMA else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"the baseline {file} cannot be read: {error!r}", remedy="set it again: `hvlab baseline set RUN`"
        ) from error
    if found is None:
        raise UsageError(
            f"{file} has schema version {version}, this hvlab knows {SCHEMA}",
            remedy="set it again: `hvlab baseline set RUN`",
        )
    return found


def _file(results: Path, lab: str, name: str) -> Path:
    for what, given in (("lab", lab), ("baseline", name)):
        if not _NAME.fullmatch(given):
            raise UsageError(
                f"{given!r} cannot name a {what} that has a baseline",
                remedy="use letters, digits, dots, dashes and underscores",
            )
    return results / _FOLDER / lab / f"{name}.json"


def _write(file: Path, text: str) -> None:
    handle, made = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        Path(made).chmod(0o644)
        Path(made).replace(file)
    except BaseException:
        Path(made).unlink(missing_ok=True)
        raise


def _plain(run: Measurements) -> dict[str, Any]:
    cells = [
        {
            "workload": cell.workload,
            "backend": cell.backend,
            "launcher": cell.launcher,
            "hosts": list(cell.hosts),
            "slots": cell.slots,
            "params": dict(cell.params),
            "values": measured.values,
            "by_host": measured.hosts,
            "proved": sorted(measured.proved, key=str),
            "ok": sorted(measured.ok),
            "errors": measured.errors,
            "skipped": measured.skipped,
        }
        for cell, measured in run.cells.items()
    ]
    stack = {part: list(values) for part, values in run.stack.items()}
    return {
        "run_id": run.run_id,
        "lab": run.lab,
        "started_at": run.started_at,
        "stack": stack,
        "cells": cells,
    }


def _measurements(told: Mapping[str, Any]) -> Measurements:
    cells = {
        Cell(
            item["workload"],
            item["backend"],
            item["launcher"],
            tuple(item["hosts"]),
            item["slots"],
            tuple(sorted(item["params"].items())),
        ): Measured(
            values=_by_metric(item["values"]),
            hosts={host: _by_metric(values) for host, values in item["by_host"].items()},
            proved=set(item["proved"]),
            ok=set(item["ok"]),
            errors=_by_repeat(item["errors"]),
            skipped=_by_repeat(item["skipped"]),
        )
        for item in told["cells"]
    }
    stack = {part: tuple(values) for part, values in told["stack"].items()}
    return Measurements(told["run_id"], told["lab"], told["started_at"], stack, cells)


def _by_metric(values: Mapping[str, Mapping[str, float]]) -> dict[str, dict[int, float]]:
    return {metric: _by_repeat(found) for metric, found in values.items()}


def _by_repeat(values: Mapping[str, Any]) -> dict[int, Any]:
    """Return it with numbers as keys, which JSON has not."""
    return {int(repeat): value for repeat, value in values.items()}
