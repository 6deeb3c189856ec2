"""What a run is written as: each format as its own readers take it."""

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
import xmlschema
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from hvlab.base.errors import UsageError
from hvlab.results import formats
from hvlab.results.formats import MeasuredRun, junit
from tests.unit import formats_run
from tests.unit.formats_run import RUN, TIMES, measured

SCHEMA = xmlschema.XMLSchema(Path(__file__).parent.parent / "data/junit.xsd")


def rows_of_nccl(text):
    return [line.split() for line in text.splitlines() if line and not line.startswith("#")]


def check_nccl(text):
    rows = rows_of_nccl(text)
    assert [row[:5] for row in rows] == [[str(s), str(s // 4), "float", "sum", "-1"] for s in TIMES]
    assert rows[1][5:] == ["4366.46", "0.24", "0.36", "0"] * 2
    assert '# error: rank 1 said "no" and a \x00 byte: back\\slash' in text.splitlines()
    assert text.count("# Collective test starting: all_reduce_perf") == 2
    assert text.count("Out of bounds values : 0 OK") == 1


def check_nccl_json(text):
    found = [json.loads(line) for line in text.splitlines()]
    first = found[0]["results"][1]
    assert (first["size"], first["count"], first["type"], first["redop"]) == (1048576, 262144, "float", "sum")
    assert first["in_place"] == {
        "time": 4366.46,
        "alg_bw": pytest.approx(0.24014, rel=1e-4),
        "bus_bw": pytest.approx(0.36021, rel=1e-4),
        "nwrong": 0,
    }
    assert first["out_of_place_per_iter"]["p50_us"] == pytest.approx(4366.46 * 0.99)
    assert [device["hostname"] for device in found[0]["config"]["devices"]] == ["n1", "n1", "n2", "n2"]
    assert found[0]["config"]["step_bytes"] == 0
    assert found[0]["out_of_bounds"] == {"count": 0, "okay": "true"}
    assert [bool(one["errors"]) for one in found] == [False, True]
    assert found[1]["results"] == []


def check_osu(text):
    lines = text.splitlines()
    assert lines[1:3] == ["# OSU MPI Allreduce Latency Test v7.5", "# Datatype: MPI_FLOAT."]
    assert "# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations" in lines
    assert "1048576              4366.46           3929.81           6549.69          22" in lines
    assert sum(line.startswith("# OSU MPI") for line in lines) == 3
    assert sum(line.startswith("# error: ") for line in lines) == 1


def check_csv(text):
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == len(measured().records)
    assert rows[0]["params.size_bytes"] == "1024"
    assert rows[0]["params.in_place"] == "true"
    assert rows[0]["hosts"] == "n1,n2"
    assert json.loads(rows[0]["stack.cpus"]) == {"n1": 2, "n2": 4}
    assert float(rows[0]["value"]) == TIMES[1024]
    assert rows[-2]["error"] == formats_run.FAILED.error
    assert rows[-2]["params.size_bytes"] == ""


def check_jsonl(text):
    rows = [json.loads(line) for line in text.splitlines()]
    wanted = [json.loads(json.dumps(vars(record))) for record in measured().records]
    assert rows == wanted


def check_junit(text):
    SCHEMA.validate(text)
    root = ElementTree.fromstring(text)  # noqa: S314 - our own
    suite = root.find("testsuite")
    told = {name: suite.get(name) for name in ("name", "tests", "failures", "skipped", "timestamp")}
    assert told == {
        "name": RUN.run_id, "tests": "5", "failures": "1", "skipped": "1", "timestamp": "2026-11-20T15:53:01",
    }  # fmt: skip
    cases = {case.get("name"): case for case in suite.findall("testcase")}
    assert cases["c1"].get("time") == "12.5"
    assert cases["c2"].get("time") is None
    assert "time[size_bytes=1024, in_place=True] = 1103.25 us" in cases["c1"].findtext("system-out")
    assert cases["c4"].find("failure").get("message") == 'rank 1 said "no"'
    assert cases["c4"].findtext("failure").endswith("and a \ufffd byte: back\\slash")
    assert cases["c5"].find("skipped") is not None


def check_prometheus(text):
    name, label = r"[a-zA-Z_:][a-zA-Z0-9_:]*", r'[a-zA-Z_][a-zA-Z0-9_]*="([^"\\]|\\["\\n])*"'
    line = re.compile(rf"# (HELP|TYPE) {name} .+|{name}\{{({label},?)*\}} \S+")
    assert all(line.fullmatch(each) for each in text.splitlines()), text
    assert text.endswith("\n")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert {family.type for family in families.values()} == {"gauge"}
    failed = {sample.labels["case"]: sample.value for sample in families["hvlab_case_failed"].samples}
    assert failed == {"c1": 0, "c2": 0, "c3": 0, "c4": 1, "c5": 0}
    skipped = {sample.labels["case"]: sample.value for sample in families["hvlab_case_skipped"].samples}
    assert skipped == {"c1": 0, "c2": 0, "c3": 0, "c4": 0, "c5": 1}
    assert families["hvlab_run_info"].samples[0].labels["lab"] == RUN.lab
    times = families["hvlab_time_seconds"].samples
    assert len(times) == 6
    assert times[0].value == pytest.approx(TIMES[1024] * 1e-6)
    assert times[0].labels["size_bytes"] == "1024"
    assert families["hvlab_busbw_bytes_per_second"].samples[1].value == pytest.approx(0.36021e9, rel=1e-4)
    assert families["hvlab_accuracy_ratio"].samples[0].value == pytest.approx(0.983)
    assert families["hvlab_gradient_bytes"].samples[0].labels["in_place"] == "true"
    assert families["hvlab_flops_per_sample"].samples[0].value == 2.4e6
    assert families["hvlab_step_time_seconds"].samples[0].value == 0.0312
    assert families["hvlab_host_compute_time_seconds"].samples[0].labels["host"] == "n1"
    observed = [
        (sample.name, tuple(sorted(sample.labels.items()))) for f in families.values() for sample in f.samples
    ]
    assert len(observed) == len(set(observed))


CHECKS = {
    "nccl-tests": check_nccl,
    "nccl-tests-json": check_nccl_json,
    "osu": check_osu,
    "csv": check_csv,
    "jsonl": check_jsonl,
    "junit": check_junit,
    "prometheus": check_prometheus,
}


@pytest.mark.parametrize("name", formats.FORMATS)
def test_a_run_is_written_as_the_format_has_it(name):
    CHECKS[name](formats.export(name, measured()))


@pytest.mark.parametrize("name", formats.FORMATS)
def test_what_a_format_has_no_place_for_is_told(name):
    left_out = formats.list_left_out(name, measured())
    assert left_out == (["c3", "c5"] if formats.FORMATS[name].workloads else [])
    trainings = replace(measured(), records=[r for r in measured().records if r.case_id == "c3"])
    if left_out:
        with pytest.raises(UsageError, match="nothing to write") as caught:
            formats.export(name, trainings)
        assert "csv" in str(caught.value.remedy)
    else:
        assert formats.export(name, trainings)


@pytest.mark.parametrize("name", formats.FORMATS)
def test_a_run_without_records_is_an_error(name):
    with pytest.raises(UsageError, match="nothing to write"):
        formats.export(name, MeasuredRun(RUN, []))


def test_an_unknown_format_names_the_nearest():
    with pytest.raises(UsageError, match="unknown format 'nccl'"):
        formats.export("nccl", measured())


def test_a_value_that_is_no_number_is_null_in_json_lines_and_written_for_prometheus():
    run = MeasuredRun(RUN, [replace(measured().records[0], value=float("inf"))])
    assert json.loads(formats.export("jsonl", run), parse_constant=pytest.fail)["value"] is None
    assert " +Inf\n" in formats.export("prometheus", run)


@given(st.text(), st.text(), st.dictionaries(st.text(), st.text(), max_size=2))
def test_junit_is_valid_whatever_a_case_said(name, told, properties):
    tests = [
        junit.case(name, name, seconds=0.5, failure=told, output=told), junit.case(name, name, skipped=told),
    ]  # fmt: skip
    text = junit.document(
        name, [junit.suite(name, tests, timestamp="2026-11-20T15:53:01.000Z", properties=properties)]
    )
    SCHEMA.validate(text)


@given(st.text(), st.dictionaries(st.text(), st.text(), max_size=3), st.floats(allow_nan=False))
def test_prometheus_text_is_read_back_whatever_it_holds(case, params, value):
    record = replace(measured().records[0], case_id=case, params=params, value=value)
    text = formats.export("prometheus", MeasuredRun(RUN, [record]))
    families = {family.name: family for family in text_string_to_metric_families(text)}
    (sample,) = families["hvlab_time_seconds"].samples
    assert sample.labels["case"] == case
    assert sample.value == value * 1e-6
