"""The fabric of NVSwitch machines."""

from __future__ import annotations

import pytest

from hvlab.checks.node import fabric
from tests.unit.gpu_reports import HEALTHY, devices, faults, judged, report
from tests.unit.health_answers import DATA, answers

SWITCHES = devices((DATA / "pci/nd96amsr-a100-lspci-nn.txt").read_text("utf-8"))
NO_SWITCH = devices("06:00.0 3D controller [0302]: NVIDIA Corporation GA102GL [A10] [10de:2236] (rev a1)")
A100 = "a100-driver-570"


@pytest.mark.parametrize(
    ("name", "service", "process", "bus", "expected"),
    [
        (A100, "active\n", None, SWITCHES, {}),
        (A100, "inactive\n", None, SWITCHES, {"fabric manager": "hard"}),
        (A100, "failed\n", None, SWITCHES, {"fabric manager": "hard"}),
        (A100, "activating\n", None, SWITCHES, {"fabric manager": "hard"}),
        (A100, "inactive\n", "4177\n", SWITCHES, {}),
        (A100, "inactive\n", None, NO_SWITCH, {}),
        (A100, None, None, SWITCHES, {}),
        (HEALTHY, "active\n", None, SWITCHES, {}),
        (HEALTHY, "inactive\n", None, NO_SWITCH, {}),
        ("b200-8-driver-580", "active\n", None, NO_SWITCH, {}),
        ("gb200-4-driver-580", "inactive\n", None, NO_SWITCH, {}),
        ("gb200-2-fabric-unhealthy", "inactive\n", None, NO_SWITCH, {"fabric state": "hard"}),
        ("l40s-driver-595", "unknown\n", None, NO_SWITCH, {}),
    ],
)
def test_machines_with_a_fabric_and_without(name, service, process, bus, expected):
    recorded = {"fabric manager": service, "fabric manager process": process}
    outputs = {question: text for question, text in recorded.items() if text}
    assert faults(judged(fabric, report(name), files=bus, outputs=outputs)) == expected


# States: NVIDIA/NVSentinel issue 883 and NVIDIA/gpu-operator issue 2511 (In Progress, status N/A);
# Azure/azhpc-images pull request 506 (Insufficient Resources); aws/eks-node-monitoring-agent issue 141.
@pytest.mark.parametrize(
    ("changes", "severity"),
    [
        ([("<state>Completed", "<state>In Progress"), ("<status>Success", "<status>N/A")], "hard"),
        ([("<state>Completed", "<state>Not Started"), ("<status>Success", "<status>N/A")], "hard"),
        ([("<status>Success", "<status>Insufficient Resources")], "hard"),
        ([("<status>Success", "<status>Unknown Error")], "hard"),
        ([("<summary>N/A", "<summary>Unhealthy")], "hard"),
        ([("<state>Completed", "<state>N/A"), ("<status>Success", "<status>N/A")], "hard"),
        ([("<route_unhealthy>N/A", "<route_unhealthy>True")], "hard"),
        ([("incorrect_configuration>N/A", "incorrect_configuration>Insufficient Nvlinks")], "hard"),
        ([("<bandwidth>N/A", "<bandwidth>Degraded")], "soft"),
        ([("<bandwidth>N/A", "<bandwidth>Full")], None),
        ([("<summary>N/A", "<summary>Healthy")], None),
        ([("incorrect_configuration>N/A", "incorrect_configuration>None")], None),
    ],
    ids=lambda value: value[-1][-1].strip("<") if isinstance(value, list) else "",
)
def test_states_of_one_gpu(changes, severity):
    findings = judged(fabric, report(HEALTHY, *changes, gpu=5))
    assert faults(findings) == ({"fabric state": severity} if severity else {})
    for finding in findings:
        if finding.outcome == "failed":
            assert finding.observed.startswith("GPU 5 (0000:a8:00.0, ")


def test_a_card_of_another_model_belongs_to_no_fabric():
    other = ("<product_name>NVIDIA H100 80GB HBM3", "<product_name>NVIDIA RTX PRO 2000 Blackwell")
    outside = [("<state>Completed", "<state>N/A"), ("<status>Success", "<status>N/A")]
    assert faults(judged(fabric, report(HEALTHY, other, *outside, gpu=5))) == {}


def test_gpus_that_should_belong_to_a_fabric_and_do_not():
    """Not Supported, a GB200 says that its rack has lost: leptonai/gpud, pull request 1108."""
    outside = [("<state>Completed", "<state>Not Supported"), ("<status>Success", "<status>N/A")]
    text = report("gb200-4-driver-580", *outside, gpu=None)
    assert faults(judged(fabric, text)) == {}
    assert faults(judged(fabric, text, {"gpu_fabric_state": "Completed"})) == {"fabric state": "hard"}
    whole = report("gb200-4-driver-580")
    assert faults(judged(fabric, whole, {"gpu_fabric_state": "Completed"})) == {}
    outputs = {"gpu nvidia-smi": whole}
    values = fabric.readings(answers(fabric.QUESTIONS, outputs=outputs))
    assert values["gpu_fabric_state"] == "Completed"


def test_the_manager_is_named_beside_a_fabric_that_is_not_there():
    text = report("b200-8-driver-580", ("<state>Completed", "<state>In Progress"), gpu=None)
    (fault,) = [
        each
        for each in judged(fabric, text, outputs={"fabric manager": "failed\n"})
        if each.outcome == "failed"
    ]
    assert "In Progress" in fault.observed
    assert "nvidia-fabricmanager is failed" in fault.observed
    assert "ib_umad" in fault.remedy


def test_switches_are_counted():
    assert fabric.readings(answers(fabric.QUESTIONS, files=SWITCHES))["nvswitch_count"] == 6
