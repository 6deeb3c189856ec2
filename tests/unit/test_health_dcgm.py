"""DCGM's diagnostics: what dcgmi printed -> readings -> findings."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvlab.checks.node import bandwidth, dcgm, subjects
from hvlab.checks.node.finding import Finding
from tests.unit.health_answers import DATA

NAME = next(iter(dcgm.QUESTIONS))
NO_SERVICE = (
    "Error: unable to establish a connection to the specified host: localhost\n"
    "Error: Unable to connect to host engine. Host engine connection invalid/disconnected.\n"
)


def judge(printed: str, rc: int = 0) -> dict[str, Finding]:
    values = dcgm.readings({NAME: {"rc": rc, "out": printed, "err": ""}})
    assert json.loads(json.dumps(values)) == values
    return {finding.check: finding for finding in dcgm.findings(values, {})}


def recorded(name: str) -> str:
    return (DATA / "dcgm" / name).read_text("utf-8")


def document(results: list[object], name: str = "Persistence Mode", **test: object) -> str:
    category = {"category": "Deployment", "tests": [{"name": name, "results": results, **test}]}
    return json.dumps({"DCGM GPU Diagnostic": {"test_categories": [category]}})


def test_a_setting_of_version_4_is_soft_with_dcgms_own_words():
    finding = judge(recorded("level1-4.2.3.json"), rc=226)["dcgm software"]
    assert (finding.outcome, finding.severity) == ("failed", "soft")
    assert finding.observed.startswith(
        "GPU 0: Persistence Mode: Persistence mode for GPU 0 is disabled. Enable"
    )
    assert "setting" in finding.remedy


def test_tests_of_level_2_pass():
    findings = judge(recorded("level2-4.5.2.json"))
    assert {name: finding.outcome for name, finding in findings.items()} == {
        "dcgm memory": "passed",
        "dcgm pcie": "passed",
    }


def test_version_3_is_read_past_what_stands_before_and_the_nulls_in_it():
    findings = judge(recorded("level1-3.1.0.txt"))
    assert len(findings) == 10
    assert {finding.outcome for finding in findings.values()} == {"passed"}


@pytest.mark.parametrize(
    ("name", "status", "severity"),
    [
        ("Persistence Mode", "FAIL", "soft"),
        ("Graphics Processes", "Fail", "soft"),
        ("Page Retirement/Row Remap", "Fail", "hard"),
        ("Inforom", "Warn", "soft"),
    ],
)
def test_without_dcgms_severity_only_settings_are_soft(name, status, severity):
    result = {"gpu_ids": "0,1,2,3", "status": status, "warnings": ["as DCGM 3 says it"]}
    [finding] = judge(document([result], name)).values()
    assert (finding.severity, finding.observed) == (severity, "GPU 0, 1, 2, 3: as DCGM 3 says it")


@pytest.mark.parametrize(
    ("numbers", "severity"),
    [([5], "soft"), ([1], "soft"), ([6], "hard"), ([4], "hard"), ([5, 2], "hard"), ([99], "hard")],
)
def test_the_gravest_severity_counts(numbers, severity):
    results = [
        {
            "entity_group": "GPU",
            "entity_id": gpu,
            "status": "Fail",
            "warnings": [{"warning": f"on GPU {gpu}", "error_severity": number}],
        }
        for gpu, number in enumerate(numbers)
    ]
    [finding] = judge(document(results, "memory")).values()
    assert finding.severity == severity
    assert finding.remedy


def test_only_gpus_that_failed_are_named_and_warnings_once():
    warning = {"warning": "the same", "error_severity": 2}
    results = [
        {"entity_group": "GPU", "entity_id": 0, "status": "Pass"},
        {"entity_group": "GPU", "entity_id": 3, "status": "Fail", "warnings": [warning]},
        {"entity_group": "CPU", "entity_id": 7, "status": "Fail", "warnings": [warning]},
    ]
    [finding] = judge(
        document(results, "memory", test_summary={"status": "Fail", "warnings": [warning]})
    ).values()
    assert finding.observed == "GPU 3: the same"


def test_a_warning_may_be_a_text_by_itself():
    [finding] = judge(document([{"gpu_id": "0", "status": "Fail", "warnings": "it is off"}])).values()
    assert finding.observed == "GPU 0: it is off"


def test_a_skipped_test_is_skipped():
    [finding] = judge(document([{"gpu_id": "0", "status": "Skip"}], "PCIe")).values()
    assert finding.outcome == "skipped"


def test_what_keeps_dcgm_from_running_is_said():
    [finding] = judge(NO_SERVICE, rc=234).values()
    assert finding.severity == "soft"
    assert "Host engine connection invalid" in finding.observed
    assert "nvidia-dcgm" in finding.remedy
    [finding] = judge('{"DCGM Diagnostic": {"runtime_error": "no GPU"}}', rc=1).values()
    assert finding.observed == "no GPU"
    running = '{"DCGM Diagnostic": {"runtime_error": "A DCGM diagnostic is already running"}}'
    [finding] = judge(running, rc=1).values()
    assert "let it end" in finding.remedy
    [finding] = judge("", rc=124).values()
    assert "did not end in time" in finding.observed


def test_without_dcgmi_it_is_skipped():
    [finding] = judge("", rc=127).values()
    assert finding.outcome == "skipped"
    assert "role dcgm" in finding.observed


def test_the_longer_levels_run_alone():
    for level in "23":
        [question] = subjects.ON_REQUEST[f"diagnostics {level}"].QUESTIONS.values()
        assert question["run"][3] == level
        assert question["alone"]
    assert not dcgm.QUESTIONS[NAME]["alone"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(["Fail", "Pass"]),
    lambda inner: st.lists(inner) | st.dictionaries(
        st.sampled_from(["name", "results", "status", "warnings", "error_severity", "gpu_ids"]), inner
    ),
)  # fmt: skip


@given(JSON, st.text())
def test_odd_output_is_never_an_error(value, text):
    for printed in (
        text,
        json.dumps({"DCGM Diagnostic": value}),
        json.dumps({"DCGM Diagnostic": {"test_categories": [{"tests": [value, {"results": [value]}]}]}}),
    ):
        judge(printed)


def test_a_longer_level_takes_the_place_of_the_short_one():
    assert dcgm in subjects.choose([])
    longer = subjects.choose(["diagnostics 2", "bandwidth"])
    assert dcgm not in longer
    assert subjects.ON_REQUEST["diagnostics 2"] in longer
    assert bandwidth in longer
    assert dcgm not in subjects.QUICK
