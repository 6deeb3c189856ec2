"""Xids in kernel logs: recorded lines, old and new; what counts, for which GPU, and how hard."""

from __future__ import annotations

import csv

import pytest

from hvlab.checks.node import xid
from tests.unit.gpu_reports import devices, faults, judged, report
from tests.unit.health_answers import DATA, answers

BUS = devices("91:00.0 3D controller [0302]: NVIDIA Corporation GA100 [A100 SXM4 80GB] [10de:20b2] (rev a1)")
RING, JOURNAL = "xid dmesg", "xid journal"


def log(name: str) -> str:
    return (DATA / f"xid/{name}.log").read_text("utf-8")


def judge(text: str, smi: str = ""):
    """Judge a kernel log, on a node whose GPU nvidia-smi may not know."""
    return judged(xid, smi, outputs={RING: text}, files=BUS)


LINES = list(csv.DictReader((DATA / "xid/lines.tsv").read_text("utf-8").splitlines(), delimiter="\t"))
LOST = next(one["line"] for one in LINES if one["code"] == "79")


@pytest.mark.parametrize("recorded", LINES, ids=lambda one: f"{one['code']}-{len(one['line'])}")
def test_recorded_lines(recorded):
    line, severity = recorded["line"], recorded["severity"]
    (event,) = xid.parse(line).values()
    observed = (event["address"], event["kind"], str(event["code"]), event["count"])
    assert observed == (recorded["address"], "Xid", recorded["code"], 1)
    findings = judge(line)
    assert faults(findings) == ({} if severity == "none" else {"xid": severity})
    assert all(finding.remedy for finding in findings if finding.outcome == "failed")


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid error: xyz, invalid data",
        "NVRM: Xid (invalid): some error",
        "NVRM: GPU Board Serial Number: 1653723052734",
        "NVRM: Rate limiting GSP RPC error prints for GPU at PCI:0000:9b:00 (printing 1 of every 30).",
        "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context",
        "audit: argv grep 79, GPU has fallen off the bus",
    ],
)
def test_lines_that_are_none(line):
    assert xid.parse(line) == {}


def test_every_code_has_a_meaning_and_a_remedy():
    for code, entry in xid.XIDS.items():
        assert entry.severity in ("none", "soft", "hard", "line"), code
        assert entry.meaning
        assert xid.ACTIONS[entry.action]
        counts = "counts until the driver is loaded again, or the node rebooted" in xid.ACTIONS[entry.action]
        assert counts == (entry.action in ("reset", "nvlink"))


# Azure's node health check fails on these (azurehpc-health-checks, azure_gpu_xid.nhc), and on some
# that are unused or an application's today (56, 65, 68, 69, 73, 80, 81), pending (63) or harmless (92).
@pytest.mark.parametrize("code", [48, 57, 58, 62, 64, 74, 79, 119, 120])
def test_codes_on_which_azure_fails_are_hard(code):
    assert xid.XIDS[code].severity == "hard"


@pytest.mark.parametrize("code", [13, 31, 43, 45])
def test_codes_of_applications_are_no_faults(code):
    assert xid.XIDS[code].severity == "none"


def test_an_application_that_reads_out_of_range():
    (finding,) = judge(log("13-application"), report())
    assert finding.outcome == "passed"
    assert finding.observed == "application errors only: Xid 13 (15), Xid 43 (1)"


def test_a_contained_memory_error():
    findings = judge(log("48-contained"))
    assert [finding.severity for finding in findings] == ["hard", "soft"]
    assert "0000:19:00.0: Xid 48 (double bit ECC error)" in findings[0].observed
    assert "Xid 94" in findings[1].observed
    assert "9 times" in findings[1].observed


def test_a_gpu_that_nvidia_smi_does_not_know_is_named_by_the_log():
    (finding,) = judge(log("119-gsp"))
    assert finding.observed.startswith("GPU 0000:9b:00.0 (GPU-509665ad-b600-ac93-3616-d754b23d636d): Xid 119")
    assert "5 times" in finding.observed


def test_a_gpu_is_named_as_nvidia_smi_names_it():
    line = "NVRM: Xid (PCI:0000:a8:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    (finding,) = judge(line, report())
    assert finding.observed.startswith(
        "GPU 5 (0000:a8:00.0, serial 1650000000006): Xid 79 (GPU has fallen off the bus)"
    )


def test_nvlink_5_and_the_action_that_the_driver_asks_for():
    findings = judge(log("gb200-nvlink"))
    assert {finding.severity for finding in findings} == {"hard"}
    remedies = {finding.observed.split(" (")[0]: finding.remedy for finding in findings}
    assert remedies["GPU 0009:01:00.0: Xid 154"].startswith("let the jobs on the GPU end")
    assert "reset the GPU" in remedies["GPU 0008:01:00.0: Xid 154"]
    assert "all GPUs" in remedies["GPU 0008:01:00.0: Xid 149"]


def test_the_worst_line_of_one_code_stands_for_it():
    fatal, nonfatal = LINES[-2]["line"], LINES[-2]["line"].replace("Fatal", "Nonfatal")
    (event,) = xid.parse(f"{fatal}\n{nonfatal}").values()
    assert event["fatal"]
    assert event["count"] == 2
    assert " Fatal " in event["text"]


# The driver's own line: public notes on ZimaOS, driver 580.
LOADED = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.105.08"


def test_what_was_before_the_driver_was_loaded_is_over():
    assert faults(judge(f"{LOST}\n{LOADED}\n", report())) == {}
    assert faults(judge(f"{LOADED}\n{LOST}\n", report())) == {"xid": "hard"}


def test_what_the_driver_calls_recovered_is_over_for_that_gpu_only():
    back = LINES[-1]["line"].split(" from ")[0] + " from 0x1 (GPU Reset Required) to 0x0 (None)\n"
    findings = judge(log("gb200-nvlink") + back)
    assert faults(findings) == {"xid": "hard"}
    assert not any("0008:01:00.0" in finding.observed for finding in findings)


# leptonai/gpud, components/accelerator/nvidia/sxid
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 63 LTSSM Fault Up", {"xid": "hard"}),
        (
            "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress PRIV error",
            {},
        ),
        ("nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 11111, Data {0x50610002, 0x10100030}", {}),
    ],
    ids=["fatal", "not fatal", "data of another"],
)
def test_errors_of_nvswitches(line, expected):
    findings = judge(line, report())
    assert faults(findings) == expected


# --- which log


def test_the_log_that_holds_more_is_read():
    line = LOST
    assert faults(judged(xid, report(), outputs={JOURNAL: "", RING: line})) == {"xid": "hard"}
    assert faults(judged(xid, report(), outputs={JOURNAL: line, RING: "[ 0.1] Linux version\n" * 9})) == {
        "xid": "hard"
    }


@pytest.mark.parametrize(
    ("journal", "ring", "outcome"),
    [
        (
            {"rc": 1, "out": "", "err": ""},
            {"rc": 1, "out": "", "err": "dmesg: read kernel buffer failed"},
            "passed",
        ),
        (
            {"rc": 1, "out": "", "err": "Compiled without pattern matching support"},
            {"rc": 1, "out": "", "err": "dmesg: read kernel buffer failed: Operation not permitted"},
            "skipped",
        ),
        ({"rc": 127, "out": "", "err": ""}, {"rc": 0, "out": "", "err": ""}, "passed"),
        ({"rc": 127, "out": "", "err": ""}, None, "skipped"),
    ],
    ids=["nothing in the journal", "neither", "no journal", "no log at all"],
)
def test_logs_that_cannot_be_read(journal, ring, outcome):
    recorded = answers(xid.QUESTIONS, outputs={"gpu nvidia-smi": report()})
    recorded.update({JOURNAL: journal, RING: ring})
    (finding,) = xid.findings(xid.readings(recorded), {})
    assert finding.outcome == outcome


@pytest.mark.parametrize(("owner", "outcome"), [("root", "passed"), ("ann", "skipped")])
def test_a_plain_users_journal_is_no_log_without_xids(owner, outcome):
    """It ends with 1 and says nothing, whether nothing matches or nothing of the kernel may be read."""
    recorded = answers(xid.QUESTIONS, outputs={"gpu nvidia-smi": report()})
    denied = {"rc": 1, "out": "", "err": "dmesg: read kernel buffer failed: Operation not permitted"}
    recorded.update({JOURNAL: {"rc": 1, "out": "", "err": ""}, RING: denied})
    recorded["xid reader"] = {"/proc/self/fd": {"mode": "0500", "owner": owner, "group": owner}}
    (finding,) = xid.findings(xid.readings(recorded), {})
    assert finding.outcome == outcome
    assert finding.observed.startswith("needs root") == (outcome == "skipped")


def test_without_gpus_there_is_nothing_to_say():
    assert judged(xid, "", outputs={RING: LOST}) == []


def test_a_container_sees_the_log_and_the_devices_of_its_host():
    files = {**BUS, "/run/systemd/container": "systemd-nspawn\n"}
    assert judged(xid, "", outputs={RING: LOST}, files=files) == []
