"""Imports files of other tools into the store as a run, and keeps them beside it."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from hvlab import workloads
from hvlab.base.errors import CheckError, HvlabError, UsageError
from hvlab.base.files import write_file, write_files
from hvlab.results import journal, outcomes
from hvlab.results.formats import READERS, detect, pods
from hvlab.results.formats.launch import Launch
from hvlab.results.formats.lines import text_of
from hvlab.results.formats.pods import PodLaunch
from hvlab.results.formats.records import LaunchOverrides, LogSource, records
from hvlab.results.store import Record, Store, make_run_id, utc

# Files of hvlab itself in the folder of a run.
_OWN = (
    *(journal.NAME, "facts.json", "left-out.json", "summary.md"),
    *("report.html", "report.md", "report.pdf"),
)


def import_files(
    store: Store, files: Sequence[Path], overrides: LaunchOverrides, *, reader: str | None = None, lab: str
) -> tuple[str, list[Record]]:
    """Put the figures of files into the store as a finished run, and keep the files in its folder.

    Return its id and records. Raises UsageError for a file of another tool, CheckError for one with no figure
    and no failure.
    """
    run_id = make_run_id()
    contents = [_content(path) for path in files]
    read: dict[int, Sequence[Launch]] = {}
    launched: list[tuple[str, PodLaunch]] = []
    for number, (path, content) in enumerate(zip(files, contents, strict=True)):
        text = text_of(content, str(path))
        if reader is None and pods.knows(text):
            launched += [(_name(path), launch) for launch in pods.read(text, str(path))]
            continue
        tool = READERS[reader] if reader else detect(text, str(path))
        read[number] = tool.read(text)
        if not any(launch.rows or launch.error for launch in read[number]):
            raise CheckError(f"{path}: it has no figures of {tool.name}")
    _refuse_doubles(launched)
    names = _names(files, {*_OWN, *(launch.case.id for _, launch in launched)})
    sources = [
        LogSource(_name(files[number]), f"runs/{run_id}/{names[number]}", launches)
        for number, launches in read.items()
    ]
    folder = store.run_folder(run_id)
    try:
        _keep(dict(zip(names, contents, strict=True)), folder)
        for _, launch in launched:
            _keep(launch.files, folder / launch.case.id)
        imported = records(sources, overrides, run_id=run_id, started_at=utc())
        for name, launch in launched:
            outcome = workloads.outcome(launch.case, folder / launch.case.id)
            imported += outcomes.records(run_id, launch.case, outcome, {"file": name})
        if overrides.hardware:
            hosts = {host for record in imported for host in record.hosts}
            facts = {host: {"hvlab": overrides.hardware} for host in sorted(hosts)}
            write_file(folder / "facts.json", json.dumps(facts))
        store.put(
            run_id,
            imported,
            lab=lab,
            spec_key=hashlib.sha256(b"\0".join(contents)).hexdigest()[:16],
            spec={"imported": list(map(_text, files))},
            cases=list(dict.fromkeys(record.case_id for record in imported)),
        )
    except HvlabError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return run_id, imported


def _keep(files: Mapping[str, bytes], folder: Path) -> None:
    try:
        write_files(folder, files)
    except OSError as error:
        raise HvlabError(
            f"the files cannot be kept in {folder}: {error.strerror or error}",
            remedy="choose a folder that can be written with --results",
        ) from error


def _text(path: Path) -> str:
    """Printable form of a path: bytes that are not UTF-8 become \\\\xe9."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _name(path: Path) -> str:
    return _text(Path(path.name))


def _refuse_doubles(launched: Iterable[tuple[str, PodLaunch]]) -> None:
    names: dict[str, str] = {}
    for name, launch in launched:
        if launch.case.id in names:
            raise CheckError(
                f"{names[launch.case.id]} and {name} both have the case {launch.case.id}",
                remedy="import the logs of one run at a time",
            )
        names[launch.case.id] = name


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error


def _names(files: Sequence[Path], taken: set[str]) -> list[str]:
    """Return a name in the run's folder for each file, with a number before names already ``taken``."""
    names: list[str] = []
    for number, path in enumerate(files, 1):
        counted = (f"{count}-{_name(path)}" for count in itertools.count(number))
        free = (name for name in itertools.chain([_name(path)], counted) if name not in taken)
        names.append(next(free))
        taken = {*taken, names[-1]}
    return names
