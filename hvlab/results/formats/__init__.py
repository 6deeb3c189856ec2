"""Runs as the files of other tools, and files of other tools as runs.

Out: `export` writes a `MeasuredRun` (a run with its records) in one of FORMATS.
In: `importing.import_files` reads a benchmark's log with one of READERS and puts it into the store.

    launch         the shapes: MeasuredRun, and Launch with its Rows for benchmark logs. Read it first.
    nccl_json      nccl-tests' JSON -> launches; nccl_document: launches -> its JSON and its text
    nccl_text      its text -> its JSON; nccl_rows: a row of it
    osu            the OSU benchmarks' text -> launches, and launches -> their text
    training       output of Horovod's synthetic benchmarks and tf_cnn_benchmarks -> launches
    records        launches -> records; importing: files -> launches -> the store
    pods           the logs of hvlab's own jobs on Kubernetes -> cases with their files
    plain          records -> CSV, JSON lines, JUnit, Prometheus' gauges
    names          the tools' words and columns, with hvlab's
    lines          a file's bytes -> lines, without the additions of launchers and collectors
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hvlab.base.errors import UsageError, explain_unknown
from hvlab.results.formats import nccl_document, nccl_json, nccl_text, osu, training
from hvlab.results.formats.launch import Launch, MeasuredRun, launches
from hvlab.results.formats.plain import as_csv, as_jsonl, as_junit, as_prometheus
from hvlab.workloads.operations import COLLECTIVES

__all__ = ["FORMATS", "READERS", "Format", "MeasuredRun", "Reader", "detect", "export", "left_out"]


@dataclass(frozen=True)
class Format:
    """A format for runs; ``workloads`` are those it can hold, None: all."""

    name: str
    write: Callable[[MeasuredRun], str]
    workloads: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Reader:
    """A tool whose output can be read: how to recognise it, and how to parse it."""

    name: str
    knows: Callable[[str], bool]
    read: Callable[[str], list[Launch]]


FORMATS: Mapping[str, Format] = {
    each.name: each
    for each in (
        Format("nccl-tests", lambda run: nccl_document.write(launches(run.records)), COLLECTIVES),
        Format("nccl-tests-json", lambda run: nccl_json.write(launches(run.records)), COLLECTIVES),
        Format("osu", lambda run: osu.write(launches(run.records, pair=False)), COLLECTIVES),
        Format("csv", as_csv),
        Format("jsonl", as_jsonl),
        Format("junit", as_junit),
        Format("prometheus", as_prometheus),
    )
}
READERS: Mapping[str, Reader] = {
    each.name: each
    for each in (
        Reader(
            "nccl-tests",
            lambda text: nccl_json.knows(text) or nccl_text.knows(text),
            lambda text: nccl_json.read(text) if nccl_json.knows(text) else nccl_text.read(text),
        ),
        Reader("osu", osu.knows, osu.read),
        Reader("training", training.knows, training.read),
    )
}


def export(name: str, measured: MeasuredRun) -> str:
    """Return a run in a format. Raises UsageError if the format can hold none of its cases."""
    if name not in FORMATS:
        raise explain_unknown("format", name, FORMATS)
    workloads = FORMATS[name].workloads
    if len(list_left_out(name, measured)) == len(measured.cases()):
        needed = f"holds only {', '.join(workloads)}" if workloads else "needs at least one case"
        whole = [name for name, other in FORMATS.items() if other.workloads is None]
        raise UsageError(
            f"run {measured.run.run_id} has nothing to write: {name} {needed}",
            remedy=f"these hold every case: {', '.join(whole)}",
        )
    return FORMATS[name].write(measured)


def list_left_out(name: str, measured: MeasuredRun) -> list[str]:
    """Return the cases that a format cannot hold: other workloads, and those never started."""
    workloads = FORMATS[name].workloads
    if workloads is None:
        return []
    return [
        case
        for case, records in measured.cases().items()
        if records[0].workload not in workloads or records[0].status == "skipped"
    ]


def detect(text: str, name: str) -> Reader:
    """Return the reader for a file's text. Raises UsageError if no tool wrote it, or several did."""
    readers = [reader for reader in READERS.values() if reader.knows(text)]
    if len(readers) == 1:
        return readers[0]
    if readers:
        raise UsageError(
            f"{name} holds the output of {' and '.join(reader.name for reader in readers)}",
            remedy="choose which one to read with --from",
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    content = f"its first line is {lines[0][:80]!r}" if lines else "it is empty"
    raise UsageError(
        f"{name} holds no output that hvlab can read: {content}",
        remedy="give the complete output of nccl-tests (or its JSON), the OSU benchmarks or Horovod's"
        " synthetic ones, including the table's header",
    )
