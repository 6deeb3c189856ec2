"""Records as CSV, JSON lines and JUnit. Pure."""

from __future__ import annotations

import csv
import io
import json
import math

from junitparser import TestCase

from hvlab.results.formats import junit
from hvlab.results.formats.launch import MeasuredRun, status
from hvlab.results.store import FIELDS, Record
from hvlab.results.tables import no_formula

_SPREAD = ("params", "stack")


def as_csv(measured: MeasuredRun) -> str:
    """Return a row a record; each parameter and each version is a column, such as params.size_bytes."""
    rows = [_flat(record) for record in measured.records]
    names = [name for name in FIELDS if name not in _SPREAD]
    names += sorted({name for row in rows for name in row} - set(names))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writerow({name: no_formula(name) for name in names})
    writer.writerows({name: no_formula(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def as_jsonl(measured: MeasuredRun) -> str:
    """Return a JSON object a record, each on its line, with all fields."""
    rows = ({**vars(record), "value": _finite(record.value)} for record in measured.records)
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def as_junit(measured: MeasuredRun) -> str:
    """Return a JUnit suite a run and a test a case; what a case measured is in its output."""
    run = measured.run
    tests = [_test(case, records, measured) for case, records in measured.cases().items()]
    properties = {"lab": run.lab, "state": run.state}
    return junit.document(
        "hvlab", [junit.suite(run.run_id, tests, timestamp=run.started_at, properties=properties)]
    )


def _finite(value: float | None) -> float | None:
    """Return a number that JSON can write."""
    return value if value is None or math.isfinite(value) else None


def _flat(record: Record) -> dict[str, object]:
    row = {name: value for name, value in vars(record).items() if name not in _SPREAD}
    row["hosts"] = ",".join(record.hosts)
    for part in _SPREAD:
        row |= {f"{part}.{name}": _cell(value) for name, value in getattr(record, part).items()}
    return row


def _cell(value: object) -> object:
    return json.dumps(value) if isinstance(value, bool | list | tuple | dict) else value


def _test(case: str, records: list[Record], measured: MeasuredRun) -> TestCase:
    first, ended = records[0], status(records)
    reason = "; ".join(dict.fromkeys(record.error for record in records if record.error)) or ended
    lines = [
        f"{record.metric}{_where(record)} = {record.value:g} {record.unit}"
        for record in records
        if record.metric is not None and record.value is not None
    ]
    return junit.case(
        name=case,
        classname=f"hvlab.{first.workload}.{first.backend}",
        seconds=measured.seconds.get(case),
        failure=reason if ended == "failed" else None,
        skipped=reason if ended == "skipped" else None,
        output="\n".join(lines) or None,
    )


def _where(record: Record) -> str:
    params = [
        f"{name}={record.params[name]}"
        for name in ("size_bytes", "in_place", "host")
        if name in record.params
    ]
    return f"[{', '.join(params)}]" if params else ""
