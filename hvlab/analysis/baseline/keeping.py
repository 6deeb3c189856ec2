"""Baselines as files beside the store; they outlive the run they come from."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hvlab.analysis.compare import Measurements
from hvlab.base.errors import UsageError
from hvlab.base.files import write_file, writing
from hvlab.results.configurations import Configuration, Repeats
from hvlab.results.store import utc

DEFAULT = "default"
SCHEMA = 2
_ONE_RUN = 1
_FOLDER = "baselines"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def save(results: Path, runs: Sequence[Measurements], *, name: str = DEFAULT) -> Path:
    """Write the figures of runs as the baseline ``name`` of their lab, atomically, and return the file.

    Raises UsageError if a run has no figures, is given twice or is of another lab.
    """
    for run in runs:
        if not any(repeats.ok for repeats in run.configurations.values()):
            problem = f"run {run.run_id} has no figures: none of its cases succeeded"
            raise UsageError(problem, remedy="`hvlab results list` shows runs that have some")
        if run.lab != runs[0].lab:
            problem = f"run {run.run_id} is of lab {run.lab}, run {runs[0].run_id} of lab {runs[0].lab}"
            raise UsageError(problem, remedy="a baseline holds runs of one lab: name only those")
    twice = [run_id for run_id, count in Counter(run.run_id for run in runs).items() if count > 1]
    if twice:
        problem = f"run {', '.join(twice)} would be in the baseline {name} twice"
        raise UsageError(problem, remedy="measure again with `hvlab bench`, or name another run")
    file = _file(results, runs[0].lab, name)
    content = {"schema": SCHEMA, "name": name, "set_at": utc(), "runs": [_plain(run) for run in runs]}
    text = json.dumps(content, indent=1)
    with writing(file, remedy="free some space, or correct the permissions"):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, text + "\n")
    return file


def load(results: Path, lab: str, *, name: str = DEFAULT) -> tuple[Measurements, ...]:
    """Return the runs of the baseline ``name`` of a lab. Raises UsageError if none can be read."""
    file = _file(results, lab, name)
    if not file.is_file():
        others = names(results, lab)
        hint = f"; {lab} has {', '.join(others)} (--name)" if others else ""
        raise UsageError(
            f"lab {lab} has no baseline {name!r} in {results}",
            remedy=f"make a good run the baseline: `hvlab baseline set RUN`{hint}",
        )
    try:
        content = json.loads(file.read_text("utf-8"))
        version = content["schema"]
        each = [content] if version == _ONE_RUN else content["runs"] if version == SCHEMA else []
        runs = tuple(map(_measurements, each))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        observed = str(error) if isinstance(error, OSError | ValueError) else "it is not a baseline of hvlab"
        raise UsageError(
            f"the baseline {file} cannot be read: {observed}", remedy="set it again: `hvlab baseline set RUN`"
        ) from error
    if not runs:
        known = version in (_ONE_RUN, SCHEMA)
        problem = "holds no run" if known else f"has schema version {version}, this hvlab knows {SCHEMA}"
        raise UsageError(f"{file} {problem}", remedy="set it again: `hvlab baseline set RUN`")
    return runs


def names(results: Path, lab: str = "*") -> list[str]:
    """Return the names of the baselines of a lab, or of all labs."""
    return sorted({path.stem for path in (results / _FOLDER).glob(f"{lab}/*.json")})


def _file(results: Path, lab: str, name: str) -> Path:
    for kind, text in (("lab", lab), ("baseline", name)):
        if not _NAME.fullmatch(text):
            raise UsageError(
                f"{text!r} cannot be the name of a {kind} with a baseline",
                remedy="use letters, digits, dots, dashes and underscores",
            )
    return results / _FOLDER / lab / f"{name}.json"


def _plain(run: Measurements) -> dict[str, Any]:
    cells = [
        {
            **vars(configuration),
            "params": dict(configuration.params),
            **vars(repeats),
            "hosts": configuration.hosts,
            "by_host": repeats.hosts,
            "proved": sorted(repeats.proved, key=str),
            "ok": sorted(repeats.ok),
        }
        for configuration, repeats in run.configurations.items()
    ]
    return {**{name: value for name, value in vars(run).items() if name != "configurations"}, "cells": cells}


def _measurements(content: Mapping[str, Any]) -> Measurements:
    configurations = {
        Configuration(
            item["workload"],
            item["backend"],
            item["launcher"],
            tuple(item["hosts"]),
            item["slots"],
            tuple(sorted(item["params"].items())),
        ): Repeats(
            values=_parse_metrics(item["values"]),
            hosts={host: _parse_metrics(values) for host, values in item["by_host"].items()},
            proved=set(item["proved"]),
            ok=set(item["ok"]),
            errors=_parse_repeats(item["errors"]),
            skipped=_parse_repeats(item["skipped"]),
        )
        for item in content["cells"]
    }
    stack = {part: tuple(values) for part, values in content["stack"].items()}
    return Measurements(content["run_id"], content["lab"], content["started_at"], stack, configurations)


def _parse_metrics(values: Mapping[str, Mapping[str, float]]) -> dict[str, dict[int, float]]:
    return {metric: _parse_repeats(by_repeat) for metric, by_repeat in values.items()}


def _parse_repeats(values: Mapping[str, Any]) -> dict[int, Any]:
    return {int(repeat): value for repeat, value in values.items()}
