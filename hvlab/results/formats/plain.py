"""Records as CSV, JSON lines, JUnit and Prometheus' gauges. Pure."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterator, Mapping

from junitparser import TestCase
from prometheus_client import Metric, generate_latest
from prometheus_client.registry import Collector

from hvlab.results.formats import junit
from hvlab.results.formats.launch import MeasuredRun, status
from hvlab.results.store import FIELDS, Record
from hvlab.results.tables import no_formula

_SPREAD = ("params", "stack")


def as_csv(measured: MeasuredRun) -> str:
    """Return a row for each record; parameters and versions are columns such as params.size_bytes."""
    rows = [_flat(record) for record in measured.records]
    names = [name for name in FIELDS if name not in _SPREAD]
    names += sorted({name for row in rows for name in row} - set(names))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writerow({name: no_formula(name) for name in names})
    writer.writerows({name: no_formula(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def as_jsonl(measured: MeasuredRun) -> str:
    """Return all fields of each record as a JSON object on its line."""
    rows = [dict(vars(record)) for record in measured.records]
    for row in rows:
        # JSON has no infinity and no NaN.
        row["value"] = row["value"] if math.isfinite(row["value"] or 0) else None
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def as_junit(measured: MeasuredRun) -> str:
    """Return the run as a JUnit suite with a test for each case; its output has the figures."""
    run = measured.run
    tests = [_test(case, records, measured) for case, records in measured.cases().items()]
    properties = {"lab": run.lab, "state": run.state}
    return junit.document(
        "hvlab", [junit.suite(run.run_id, tests, timestamp=run.started_at, properties=properties)]
    )


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


# Our unit: the suffix of Prometheus' base unit, and the factor to it.
_UNITS: Mapping[str, tuple[str, float]] = {
    "us": ("_seconds", 1e-6),
    "s": ("_seconds", 1.0),
    "GB/s": ("_bytes_per_second", 1e9),
    "samples/s": ("_samples_per_second", 1.0),
    "%": ("_ratio", 0.01),
    "B": ("_bytes", 1.0),
    "FLOP/sample": ("_per_sample", 1.0),
    "1": ("", 1.0),
}
_Labels = tuple[tuple[str, str], ...]
# The gauges by name: what each means, and its values by labels.
Families = Mapping[str, tuple[str, Mapping[_Labels, float]]]


def as_prometheus(measured: MeasuredRun) -> str:
    """Return the gauges of a run in Prometheus' text format."""
    return render_gauges(run_gauges(measured))


def render_gauges(families: Families) -> str:
    """Return gauges in Prometheus' text format."""
    return generate_latest(_Gauges(families)).decode()


def run_gauges(measured: MeasuredRun) -> Families:
    """Return a gauge for each metric, and hvlab_case_failed and hvlab_case_skipped for each case."""
    families: dict[str, tuple[str, dict[_Labels, float]]] = {}

    def add(name: str, text: str, labels: _Labels, value: float) -> None:
        families.setdefault(name, (text, {}))[1][labels] = value

    run = measured.run
    about = (("run", run.run_id), ("lab", run.lab), ("state", run.state))
    add("hvlab_run_info", "One run of hvlab; its labels say which.", about, 1)
    for case, records in measured.cases().items():
        ended, labels = status(records), _case_labels(records[0], case)
        add("hvlab_case_failed", "1 where the case failed.", labels, float(ended == "failed"))
        add("hvlab_case_skipped", "1 where the case could not be run.", labels, float(ended == "skipped"))
        for record in records:
            if record.metric is not None and record.value is not None:
                name, text, factor = _family(record)
                add(name, text, labels + _param_labels(record, labels), record.value * factor)
    return families


class _Gauges(Collector):
    """The families as the library collects them: each with its text, and a value by labels."""

    def __init__(self, families: Families) -> None:
        self.families = families

    def collect(self) -> Iterator[Metric]:
        """Yield each family."""
        for name, (text, values) in self.families.items():
            family = Metric(name, text, "gauge")
            for labels, value in values.items():
                family.add_sample(name, dict(labels), value)
            yield family


def _family(record: Record) -> tuple[str, str, float]:
    unit = record.unit or "1"
    suffix, factor = _UNITS.get(unit, (f"_{unit}", 1.0))
    metric = str(record.metric)
    base = metric.removesuffix("_bytes") if suffix == "_bytes" else metric
    return _name(f"hvlab_{base}{suffix}"), f"The metric {metric} of hvlab, there in {unit}.", factor


def _case_labels(record: Record, case: str) -> _Labels:
    return (
        ("run", record.run_id),
        ("case", case),
        ("workload", record.workload),
        ("backend", record.backend),
        ("launcher", record.launcher),
        ("hosts", ",".join(record.hosts)),
        ("slots", str(record.slots_per_host)),
        ("repeat", str(record.repeat)),
    )


def _param_labels(record: Record, taken: _Labels) -> _Labels:
    names = {label for label, _ in taken}
    params: dict[str, str] = {}
    for param, value in record.params.items():
        label = _name(param)
        params[f"param_{label}" if label in names or label.startswith("__") else label] = _word(value)
    return tuple(params.items())


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)


def _name(text: str) -> str:
    name = re.sub(r"[^a-zA-Z0-9_]", "_", text)
    return f"_{name}" if not name or name[0].isdigit() else name
