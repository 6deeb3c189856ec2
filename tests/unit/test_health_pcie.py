"""PCIe links of GPUs."""

from __future__ import annotations

import pytest

from hvlab.checks.node import pcie, smi
from tests.unit.gpu_reports import HEALTHY, faults, judged, report
from tests.unit.health_answers import answers

NARROW = ("current_link_width>16x", "current_link_width>8x")
SLOW = ("<current_link_gen>5", "<current_link_gen>1")
BUSY = ("gpu_idle>Active", "gpu_idle>Not Active")
OLD_SLOT = ("<max_link_gen>5", "<max_link_gen>4")


@pytest.mark.parametrize(
    ("changes", "expected", "outcome"),
    [
        ([], {}, {}),
        ([], {"pcie_width": 16, "pcie_generation": 5}, {}),
        ([NARROW], {}, {"pcie width": "soft"}),
        ([NARROW], {"pcie_width": 16}, {"pcie width": "soft"}),
        ([NARROW], {"pcie_width": 8}, {}),
        ([SLOW], {"pcie_generation": 5}, {}),
        ([SLOW, BUSY], {}, {"pcie generation": "soft"}),
        ([SLOW, BUSY, ("performance_state>P0", "performance_state>P8")], {}, {}),
        ([OLD_SLOT], {}, {}),
        ([OLD_SLOT], {"pcie_generation": 5}, {"pcie generation": "soft"}),
    ],
    ids=[
        "healthy",
        "as expected",
        "half as wide",
        "half as wide as expected",
        "a slot of eight lanes",
        "slower while idle",
        "slower under load",
        "slower while it saves power",
        "an old slot",
        "a slot that should be faster",
    ],
)
def test_one_link_of_eight(changes, expected, outcome):
    assert faults(judged(pcie, report(HEALTHY, *changes, gpu=2), expected)) == outcome


# g4dn and g6e of AWS give the GPU eight lanes: a soft fault until a machine type says so.
@pytest.mark.parametrize("name", ["t4-driver-595", "l40s-driver-595"])
def test_cards_that_have_eight_lanes_for_good(name):
    (fault,) = [each for each in judged(pcie, report(name)) if each.outcome == "failed"]
    assert fault.severity == "soft"
    assert "x8, and the GPU can have x16" in fault.observed
    assert "pcie_width" in fault.remedy
    assert faults(judged(pcie, report(name), {"pcie_width": 8})) == {}


def test_old_cards_show_the_present_link_only():
    assert faults(judged(pcie, report("gtx-1660-ti-driver-418"))) == {}


def test_what_is_learned():
    values = pcie.readings(answers(pcie.QUESTIONS, outputs={smi.NAME: report("gb200-4-driver-580")}))
    assert {name: values[name] for name in pcie.LEARNED} == {"pcie_width": 16, "pcie_generation": 5}


def test_nothing_is_learned_of_links_that_differ():
    values = pcie.readings(answers(pcie.QUESTIONS, outputs={smi.NAME: report(HEALTHY, NARROW)}))
    assert "pcie_width" not in values


def test_without_gpus_there_is_nothing_to_say():
    assert judged(pcie, "") == []
