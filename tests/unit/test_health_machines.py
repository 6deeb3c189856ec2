"""The machine types that come with hvlab: what they match, and what they expect of recorded machines."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from hvlab.base.yaml_files import read_shipped
from hvlab.checks import machine_types
from hvlab.checks.node import gpu, machine, nvlink, pcie, smi
from tests.unit.gpu_reports import faults, report
from tests.unit.health_answers import answers
from tests.unit.test_health_nvlink import H100 as H100_LINKS

TYPES = machine_types.load(Path("nowhere/hosts.yml"))
FILES = sorted(machine_types.FOLDER.glob("*.yml"))
H100, B200, GB200 = "NVIDIA H100 80GB HBM3", "NVIDIA B200", "NVIDIA GB200"
A100, PCIE = "NVIDIA A100-SXM4-40GB", "NVIDIA A100 80GB PCIe"


def host(product: str, vendor: str, model: str, count: int) -> dict[str, Any]:
    return {"machine_product": product, "machine_vendor": vendor, "gpu_model": model, "gpu_count": count}


AZURE, GOOGLE = ("Virtual Machine", "Microsoft Corporation"), ("Google Compute Engine", "Google")


# The names of DMI: files in hvlab/checks/machines say where they are from; XE9680: leptonai/gpud, Xid 119.
@pytest.mark.parametrize(
    ("values", "name"),
    [
        (host("DGXA100 920-23687-2531-001", "NVIDIA", A100, 8), "dgx-a100-40gb"),
        (host("DGXA100 920-23687-2531-001", "NVIDIA", A100, 7), "dgx-a100-40gb"),
        (host("DGXH100", "NVIDIA", H100, 8), "dgx-h100"),
        (host("PowerEdge XE9680", "Dell Inc.", H100, 8), "hgx-h100"),
        (host("PowerEdge XE9680", "Dell Inc.", H100, 7), None),
        ({**host("PowerEdge XE9680", "Dell Inc.", H100, 7), "nvswitch_count": 4}, "hgx-h100"),
        # The memory of the machine with four or eight GPUs, of which one is left.
        ({**host(*AZURE, PCIE, 1), "memory_gib": 216.0}, "azure-nc24ads-a100-v4"),
        ({**host(*AZURE, PCIE, 1), "memory_gib": 866.0}, "azure-nc96ads-a100-v4"),
        ({**host(*AZURE, PCIE, 2), "memory_gib": 866.0}, "azure-nc96ads-a100-v4"),
        ({**host(*GOOGLE, A100, 4), "memory_gib": 670.0}, "gcp-a2-highgpu-8g"),
        (host("Standard PC (Q35 + ICH9, 2009)", "QEMU", H100, 1), None),
        (host("p5.48xlarge", "Amazon EC2", H100, 8), "aws-p5-48xlarge"),
        (host("p5.48xlarge", "Amazon EC2", H100, 7), "aws-p5-48xlarge"),
        (host("p5.4xlarge", "Amazon EC2", H100, 1), None),
        (host("p6e-gb200.36xlarge", "Amazon EC2", GB200, 4), "aws-p6e-gb200-36xlarge"),
        (host("GB200 NVL", "NVIDIA", GB200, 4), "gb200-tray"),
        (host("Virtual Machine", "Microsoft Corporation", H100, 8), "azure-nd96isr-h100-v5"),
        (host("Virtual Machine", "Microsoft Corporation", PCIE, 1), "azure-nc24ads-a100-v4"),
        (host("Virtual Machine", "Microsoft Corporation", PCIE, 2), "azure-nc48ads-a100-v4"),
        (host("Virtual Machine", "Microsoft Corporation", PCIE, 4), "azure-nc96ads-a100-v4"),
        (host("Google Compute Engine", "Google", H100, 1), "gcp-a3-highgpu-1g"),
        (host("Google Compute Engine", "Google", H100, 7), "gcp-a3-highgpu-8g"),
        (host("Google Compute Engine", "Google", A100, 16), None),
        (host("ProLiant", "HPE", B200, 8), "hgx-b200"),
        (host("ProLiant", "HPE", "NVIDIA L40S", 8), None),
    ],
    ids=lambda value: "" if isinstance(value, dict) else str(value),
)
def test_which_type_a_machine_is(values, name):
    assert machine.find_expected(TYPES, values).get("machine_type") == name


def test_every_value_has_a_source_and_agrees_with_the_match():
    for path in FILES:
        data = read_shipped(path)
        assert data["source"], path
        for name, entry in data["expect"].items():
            assert isinstance(entry, dict) or name in ("gpu_count", "gpu_model"), (
                f"{path}: {name} has no source"
            )
        [each] = machine.types({}, {"one": data})
        values = each["expect"]
        for name in ("gpu_count", "gpu_model"):
            assert data["match"].get(name, values[name]) == values[name], path


RECORDED = [
    ("h100-8-driver-580", "hgx-h100"),
    ("b200-8-driver-580", "hgx-b200"),
    ("gb200-4-driver-580", "gb200-tray"),
]


@pytest.mark.parametrize(("name", "type_name"), RECORDED)
def test_a_recorded_machine_is_what_its_type_expects(name, type_name):
    recorded = answers({**gpu.QUESTIONS, **pcie.QUESTIONS}, outputs={smi.NAME: report(name)})
    values = {**gpu.readings(recorded), **pcie.readings(recorded)}
    values_expected = machine.find_expected(TYPES, values)
    assert values_expected["machine_type"] == type_name
    findings = [*gpu.findings(values, values_expected), *pcie.findings(values, values_expected)]
    assert set(faults(findings)) <= {"gpu persistence mode"}


def test_a_gpu_less_on_a_machine_known_by_name_is_a_hard_fault():
    text = report()
    block = text[text.index("\t<gpu id=") : text.index("</gpu>\n") + len("</gpu>\n")]
    recorded = answers({**gpu.QUESTIONS, **nvlink.QUESTIONS}, outputs={smi.NAME: text.replace(block, "")})
    values = {**gpu.readings(recorded), "machine_product": "p5.48xlarge", "machine_vendor": "Amazon EC2"}
    (fault,) = [
        each
        for each in gpu.findings(values, machine.find_expected(TYPES, values))
        if each.outcome == "failed"
    ]
    assert (fault.check, fault.severity) == ("gpu count", "hard")
    assert fault.observed.startswith("7 GPUs instead of 8: 0000:64:00.0")


def test_a_users_own_type_goes_first():
    own = copy.deepcopy(next(each for each in TYPES if each["name"] == "hgx-h100"))
    own.update(name="ours", own=True)
    assert machine.find_expected([*TYPES, own], host("X", "Y", H100, 8))["machine_type"] == "ours"


def test_links_of_a_type():
    recorded = answers(nvlink.QUESTIONS, outputs={smi.NAME: report(), "nvlink status": H100_LINKS})
    values_expected = machine.find_expected(TYPES, host("p5.48xlarge", "Amazon EC2", H100, 8))
    assert faults(nvlink.findings(nvlink.readings(recorded), values_expected)) == {}
