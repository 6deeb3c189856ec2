"""NVLinks: recorded statuses, and the same with links that are down."""

from __future__ import annotations

import pytest

from hvlab.checks.node import nvlink
from tests.unit.gpu_reports import HEALTHY, faults, judged, report
from tests.unit.health_answers import DATA, answers

A100 = (DATA / "nvlink/a100-8.txt").read_text("utf-8")
# One GPU of bottlerocket-os/bottlerocket pull request 4418 (H100, MIG disabled), as often as there are GPUs.
H100 = "".join(
    f"GPU {index}: NVIDIA H100 80GB HBM3 (UUID: GPU-4039dfe4-0c97-4b1e-683e-eb7d42699053)\n"
    + "".join(f"         Link {link}: 26.562 GB/s\n" for link in range(18))
    for index in range(8)
)
# A V100 with two links down: Azure/azhpc-diagnostics issue 73.
V100 = """GPU 0: Tesla V100-SXM2-32GB (UUID: GPU-f9ba66fc-a7f5-94c5-da19-019ef2f9c665)
         Link 0: 25.781 GB/s
         Link 1: 25.781 GB/s
         Link 2: 25.781 GB/s
         Link 3: <inactive>
         Link 4: 25.781 GB/s
         Link 5: <inactive>
"""
# A B200 that lost all of them: leptonai/gpud issue 1085.
ALL_DOWN = "NVML: Unable to retrieve NVLink information as all links are inActive\n"
STATUS = "nvlink status"


def lost(index: int) -> str:
    """Return the H100s' status with one GPU that lost all links."""
    blocks = H100.split("GPU ")[1:]
    blocks[index] = blocks[index].splitlines()[0] + "\n" + ALL_DOWN
    return "".join(f"GPU {block}" for block in blocks)


def one_down_of_each() -> str:
    """Return the H100s' status where each GPU has a link down, and not all the same."""
    blocks = H100.split("GPU ")[1:]
    return "".join(
        "GPU " + block.replace(f"Link {index}: 26.562 GB/s", f"Link {index}: <inactive>")
        for index, block in enumerate(blocks)
    )


def one_down() -> str:
    return H100.replace("Link 17: 26.562 GB/s", "Link 17: <inactive>", 1)


@pytest.mark.parametrize(
    ("status", "expected", "outcome"),
    [
        (A100, {"nvlink_count": 12}, {}),
        (A100, {"nvlink_count": 18}, {"nvlink count": "hard"}),
        (H100, {}, {}),
        (H100, {"nvlink_count": 18}, {}),
        (one_down(), {}, {"nvlink count": "hard"}),
        (one_down(), {"nvlink_count": 18}, {"nvlink count": "hard"}),
        (one_down_of_each(), {}, {"nvlink count": "soft"}),
        (lost(2), {}, {"nvlink count": "soft"}),
        (lost(2), {"nvlink_count": 18}, {"nvlink count": "hard"}),
        (H100.replace("26.562", "<inactive>").replace(" GB/s", ""), {}, {}),
        (
            H100.replace("26.562", "<inactive>").replace(" GB/s", ""),
            {"nvlink_count": 18},
            {"nvlink count": "hard"},
        ),
        (H100.replace("26.562", "13.281", 1), {}, {"nvlink speed": "soft"}),
        ("", {}, {}),
        ("", {"nvlink_count": 18}, {"nvlink count": "hard"}),
    ],
    ids=[
        "8 A100",
        "12 of 18",
        "8 H100",
        "8 H100 as expected",
        "one down",
        "one down of those expected",
        "one down of each",
        "all of one GPU down",
        "all of one GPU down, but expected",
        "cards without a bridge",
        "no link at all where they are expected",
        "one at half its speed",
        "no NVLink",
        "no NVLink where it is expected",
    ],
)
def test_links(status, expected, outcome):
    assert faults(judged(nvlink, report(), expected, outputs={STATUS: status})) == outcome


def test_which_link_of_which_gpu_is_down():
    findings = judged(nvlink, report(), {"nvlink_count": 18}, outputs={STATUS: one_down()})
    (fault,) = [each for each in findings if each.outcome == "failed"]
    assert (
        fault.observed == "GPU 0 (0000:53:00.0, serial 1650000000001): 17 NVLinks up instead of 18, down: 17"
    )


def test_a_recorded_v100_with_links_down():
    assert nvlink.parse(V100) == {0: {"up": 4, "down": [3, 5], "speeds": [25.781] * 4}}


def test_a_gpu_in_mig_mode_has_none():
    text = report(HEALTHY, ("current_mig>Disabled", "current_mig>Enabled"), gpu=None)
    assert faults(judged(nvlink, text, {"nvlink_count": 18}, outputs={STATUS: ""})) == {}


def test_cards_beside_one_another_with_and_without_links():
    """Two cards with a bridge, and six whose links have no bridge: how they are wired, or a fault."""
    bridged = "".join(
        f"GPU {index}: NVIDIA RTX A6000 (UUID: GPU-0)\n"
        + "".join(
            f"         Link {link}: {'14.062 GB/s' if index < 2 else '<inactive>'}\n" for link in range(4)
        )
        for index in range(8)
    )
    assert faults(judged(nvlink, report(), outputs={STATUS: bridged})) == {"nvlink count": "soft"}


def test_cards_with_a_bridge_that_leaves_links_free():
    """An H100 PCIe's bridges join 12 of its 18 links, as on a healthy HPE DL380a; six cards have none."""
    free = (4, 5, 10, 11, 16, 17)
    bridged = "".join(
        f"GPU {index}: NVIDIA H100 PCIe (UUID: GPU-6968dfc2-d444-d92c-c36b-6abe53445cb9)\n"
        + "".join(
            f"         Link {link}: {'<inactive>' if index > 1 or link in free else '26.562 GB/s'}\n"
            for link in range(18)
        )
        for index in range(8)
    )
    broken = bridged.replace("Link 0: 26.562 GB/s", "Link 0: <inactive>", 1)
    severities = [
        {finding.severity for finding in judged(nvlink, report(), outputs={STATUS: status})}
        for status in (bridged, broken)
    ]
    assert severities == [{"", "soft"}, {"", "soft", "hard"}]


def test_what_is_learned():
    outputs = {"gpu nvidia-smi": report(), STATUS: H100}
    assert nvlink.readings(answers(nvlink.QUESTIONS, outputs=outputs))["nvlink_count"] == 18
    outputs = {"gpu nvidia-smi": report(), STATUS: one_down()}
    assert "nvlink_count" not in nvlink.readings(answers(nvlink.QUESTIONS, outputs=outputs))


@pytest.mark.parametrize("rc", [124, 127, 137])
def test_a_status_that_does_not_come_is_no_missing_link(rc):
    recorded = answers(nvlink.QUESTIONS, outputs={"gpu nvidia-smi": report()})
    recorded[STATUS] = {"rc": rc, "out": "", "err": ""}
    (finding,) = nvlink.findings(nvlink.readings(recorded), {"nvlink_count": 18})
    assert finding.outcome == "skipped"
