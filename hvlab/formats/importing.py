"""Files of other tools into the store: read, kept beside it, and put in as a run."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

from hvlab.errors import CheckError, HvlabError, UsageError
from hvlab.formats import READERS, detect
from hvlab.formats.records import LaunchOverrides, LogSource, records
from hvlab.results.store import Record, Store, new_run_id, utc


def import_files(
    store: Store, files: Sequence[Path], overrides: LaunchOverrides, *, reader: str | None = None, lab: str
) -> tuple[str, list[Record]]:
    """Put what the files hold into the store as a finished run; return its id and records.

    The files themselves are kept in the run's folder. Raises UsageError for a file that is not of the tool,
    and CheckError for one that holds no figure and no failure.
    """
    run_id = new_run_id()
    contents = [_content(path) for path in files]
    names = _names(files)
    sources = []
    for path, name, content in zip(files, names, contents, strict=True):
        text = content.decode("utf-8", errors="replace")
        tool = READERS[reader] if reader else detect(text, str(path))
        launches = tool.read(text)
        if not any(launch.rows or launch.error for launch in launches):
            raise CheckError(f"{path}: there is no figure of {tool.name} in it")
        sources.append(LogSource(path.name, f"runs/{run_id}/{name}", launches))
    imported = records(sources, overrides, run_id=run_id, started_at=utc())
    folder = store.run_folder(run_id)
    try:
        folder.mkdir(parents=True)
        for name, content in zip(names, contents, strict=True):
            (folder / name).write_bytes(content)
    except OSError as error:
        raise HvlabError(f"the files cannot be kept in {folder}: {error}") from error
    try:
        store.put(
            run_id,
            imported,
            lab=lab,
            spec_key=hashlib.sha256(b"\0".join(contents)).hexdigest()[:16],
            spec={"imported": [str(path) for path in files]},
            cases=list(dict.fromkeys(record.case_id for record in imported)),
        )
    except HvlabError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return run_id, imported


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error


def _names(files: Sequence[Path]) -> list[str]:
    """Return a name for each file in the run's folder; of several alike each gets a number."""
    names: list[str] = []
    for number, path in enumerate(files, 1):
        names.append(path.name if path.name not in names else f"{number}-{path.name}")
    return names
