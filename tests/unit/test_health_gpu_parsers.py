"""Whatever nvidia-smi, its nvlink command or the kernel print, reading it never fails."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hvlab.checks.node import fabric, gpu, nvlink, pcie, smi, xid
from tests.unit.gpu_reports import HEALTHY, report

SUBJECTS = (gpu, pcie, nvlink, fabric, xid)
REPORT = report("t4-driver-595")
BLOCKS = REPORT.split("<")
REPLIES = st.one_of(
    st.none(),
    st.text(),
    st.dictionaries(st.text(), st.text(), max_size=3),
    st.fixed_dictionaries({"rc": st.integers(0, 255), "out": st.text(), "err": st.text()}),
)
# Reports with pieces left out, doubled, or replaced by anything.
REPORTS = st.lists(st.one_of(st.sampled_from(BLOCKS), st.text(max_size=8)), max_size=60).map("<".join)
VALUES = st.sampled_from(
    ["N/A", "", "GPU is lost", "Unknown Error", "-3 C", "1e999", "99999999999999999999", "Yes"]
)
LINES = st.lists(
    st.one_of(
        st.text(max_size=40),
        st.builds(
            "NVRM: Xid (PCI:{}): {}, {}".format, st.text(max_size=12), st.integers(), st.text(max_size=20)
        ),
        st.builds("GPU {}: {}".format, st.integers(), st.text(max_size=9)),
        st.builds("         Link {}: {} GB/s".format, st.integers(), st.floats()),
    )
).map("\n".join)


def all_of(replies):
    """Read and judge by every subject, with and without expected values; readings are plain JSON."""
    for subject in SUBJECTS:
        values = subject.readings(replies)
        json.dumps(values)
        assert json.loads(json.dumps(values)) == values
        for expected in ({}, {"gpu_count": 8, "pcie_width": 16, "nvlink_count": 18, "gpu_memory_mib": 81559}):
            for finding in subject.findings(values, expected):
                assert finding.outcome in ("passed", "failed", "skipped")
                assert finding.observed or finding.outcome == "passed"
                assert bool(finding.remedy) == (finding.outcome == "failed")


@given(st.fixed_dictionaries({name: REPLIES for subject in SUBJECTS for name in subject.QUESTIONS}))
def test_arbitrary_answers(replies):
    all_of(replies)


@given(REPORTS, LINES)
@settings(max_examples=60)
def test_pieces_of_reports(text, lines):
    reply = {"rc": 0, "out": f"<nvidia_smi_log>{text}</nvidia_smi_log>", "err": ""}
    others = {"rc": 0, "out": lines, "err": ""}
    all_of({smi.NAME: reply, "nvlink status": others, "xid dmesg": others, "fabric manager": others})


@example("total>15360 MiB", "-3 C")
@given(st.sampled_from([block for block in BLOCKS if ">" in block and block.split(">")[1].strip()]), VALUES)
@settings(max_examples=60)
def test_one_value_replaced(block, value):
    text = REPORT.replace(f"<{block}", f"<{block.split('>')[0]}>{value}")
    all_of({smi.NAME: {"rc": 0, "out": text, "err": ""}})


@pytest.mark.parametrize(
    "process",
    ["", "a & b < c", "\x07bell", "]]>", "</nvidia_smi_log>"],
    ids=["none", "unescaped", "control", "cdata", "end"],
)
def test_names_of_processes_and_text_around_the_report_do_not_matter(process):
    info = f"<processes><process_info><process_name>{process}</process_name></process_info></processes>"
    text = report(HEALTHY, ("<minor_number>", f"{info}<minor_number>"), gpu=None)
    assert '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">' in text
    around = f"a warning\n{text}\nWARNING: infoROM is corrupted at gpu 0000:53:00.0\n"
    assert [len(smi.parse(each) or []) for each in (text, around)] == [8, 8]


@pytest.mark.parametrize(
    "head",
    [
        '<!DOCTYPE nvidia_smi_log [<!ENTITY a "lol"><!ENTITY b "&a;&a;&a;">]>',
        '<!DOCTYPE nvidia_smi_log [<!ENTITY a SYSTEM "file:///etc/passwd">]>',
    ],
    ids=["bomb", "file"],
)
def test_entities_are_refused(head):
    body = "<nvidia_smi_log><gpu id='0'><serial>&a;</serial></gpu></nvidia_smi_log>"
    assert smi.parse(f"<?xml version='1.0'?>{head}{body}") is None
    assert smi.parse(body) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("0000000F:01:00.0", "000f:01:00.0"),
        ("00010000:3B:00.0", "00010000:3b:00.0"),
        ("0000:3B:00.0", "0000:3b:00.0"),
    ],
)
def test_addresses_are_those_of_the_kernel(text, expected):
    assert smi.address(text) == expected
