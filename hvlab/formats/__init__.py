"""What other tools read and write: runs as their files, and their files as runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hvlab.errors import UsageError, unknown
from hvlab.formats import nccl_json, nccl_text, nccl_write, osu, sweep
from hvlab.formats.measured import Measured
from hvlab.formats.plain import as_csv, as_jsonl, as_junit
from hvlab.formats.prometheus import as_prometheus
from hvlab.formats.sweep import Sweep

__all__ = ["FORMATS", "READERS", "Format", "Measured", "Reader", "detect", "export", "left_out"]


@dataclass(frozen=True)
class Format:
    """A format a run can be written in; ``holds`` names the workloads it has a place for, None: all."""

    name: str
    write: Callable[[Measured], str]
    holds: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Reader:
    """A tool whose output can be read: whether a text is of it, and what was measured."""

    name: str
    knows: Callable[[str], bool]
    read: Callable[[str], list[Sweep]]


FORMATS: Mapping[str, Format] = {
    made.name: made
    for made in (
        Format("nccl-tests", lambda run: nccl_write.write(sweep.gather(run.records)), sweep.WORKLOADS),
        Format("nccl-tests-json", lambda run: nccl_json.write(sweep.gather(run.records)), sweep.WORKLOADS),
        Format("osu", lambda run: osu.write(sweep.gather(run.records, pair=False)), sweep.WORKLOADS),
        Format("csv", as_csv),
        Format("jsonl", as_jsonl),
        Format("junit", as_junit),
        Format("prometheus", as_prometheus),
    )
}


def _is_nccl(text: str) -> bool:
    return nccl_json.knows(text) or nccl_text.knows(text)


def _read_nccl(text: str) -> list[Sweep]:
    return nccl_json.read(text) if nccl_json.knows(text) else nccl_text.read(text)


READERS: Mapping[str, Reader] = {
    made.name: made
    for made in (Reader("nccl-tests", _is_nccl, _read_nccl), Reader("osu", osu.knows, osu.read))
}


def export(name: str, measured: Measured) -> str:
    """Return a run in a format. Raises UsageError where the format has a place for none of its cases."""
    if name not in FORMATS:
        raise unknown("format", name, FORMATS)
    made = FORMATS[name]
    if len(left_out(name, measured)) == len(measured.cases()):
        held = f"holds only {', '.join(made.holds)}" if made.holds else "needs at least one case"
        whole = [name for name, other in FORMATS.items() if other.holds is None]
        raise UsageError(
            f"run {measured.run.run_id} has nothing to write: {name} {held}",
            remedy=f"these hold every case: {', '.join(whole)}",
        )
    return made.write(measured)


def left_out(name: str, measured: Measured) -> list[str]:
    """Return the cases that a format has no place for: other workloads, and what was never started."""
    holds = FORMATS[name].holds
    if holds is None:
        return []
    return [
        case
        for case, rows in measured.cases().items()
        if rows[0].workload not in holds or rows[0].status == "skipped"
    ]


def detect(text: str, name: str) -> Reader:
    """Return the reader of a file's text. Raises UsageError where it is of no tool, or of several."""
    found = [reader for reader in READERS.values() if reader.knows(text)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(
            f"{name} holds the output of {' and '.join(reader.name for reader in found)}",
            remedy="say which one to read with --from",
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    seen = f"its first line is {lines[0][:80]!r}" if lines else "it is empty"
    raise UsageError(
        f"{name} is no output of {' or '.join(READERS)}: {seen}",
        remedy="give the file that the benchmark printed, with the table's head, or its JSON",
    )
