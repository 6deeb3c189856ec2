"""MIG slices, vGPU guests, WSL2 and HGX boards are recognised and noted; names of GPUs are whole words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hvlab.base.errors import UsageError
from hvlab.base.yaml_files import read_shipped
from hvlab.stack.resolver import HostRequest, Infeasible, Resolution, facts, pins, plan
from hvlab.stack.resolver.catalogue import load
from hvlab.stack.resolver.lab import request

UBUNTU = {"distribution": "Ubuntu", "distribution_version": "22.04", "python": "3.10.12", "gcc": "11.4.0"}
NAMES = read_shipped(Path(__file__).parents[1] / "data/gpu-names.yml")
WSL = "5.15.167.4-microsoft-standard-WSL2"


def host(
    name: str = "n1", gpu: str | None = None, capability: str | None = None, **changes: Any
) -> facts.HostFacts:
    gpus = [{"name": gpu, "compute_capability": capability}] if gpu else []
    return facts.from_file({name: {**UBUNTU, "gpus": gpus, **changes}})[name]


def asked(*hosts: facts.HostFacts, pin: tuple[str, ...] = ()) -> Resolution | Infeasible:
    return plan([HostRequest(one) for one in hosts], [pins.parse(text) for text in pin])


def noted(answer: Resolution | Infeasible) -> str:
    assert isinstance(answer, Resolution), answer.message
    return "\n".join(answer.hosts["n1"]["notes"])


@pytest.mark.parametrize(("name", "kind"), NAMES["platforms"].items())
def test_what_a_name_tells_of_the_platform(name: str, kind: str) -> None:
    tests = {"mig": facts.is_mig, "vgpu": facts.is_vgpu, "board": facts.is_board}
    assert " ".join(word for word, holds in tests.items() if holds(name)) == kind


def test_a_capability_that_is_not_that_of_the_name_is_noted() -> None:
    text = noted(asked(host(gpu="NVIDIA A100-PCIE-40GB", capability="9.0")))
    assert "NVIDIA A100-PCIE-40GB is known as sm_80; sm_90 is taken, as the facts say" in text
    assert "is known as" not in noted(asked(host(gpu="NVIDIA A100-PCIE-40GB", capability="8.0")))


@pytest.mark.parametrize("architecture", ["AMD64", "x86-64", "arm64"])
def test_an_architecture_has_many_spellings(architecture: str) -> None:
    noted(asked(host(gpu="NVIDIA H100 PCIe", architecture=architecture)))


def test_mig_mode_is_known_from_the_hosts_facts() -> None:
    gpu = {"name": "NVIDIA A100-PCIE-40GB", "compute_capability": "8.0", "memory_mib": 40960, "mig": True}
    found = facts.from_ansible(
        "n1", {"distribution": "Ubuntu", "distribution_version": "22.04", "hvlab": {"gpus": [gpu]}}
    )
    assert "NVIDIA A100-PCIE-40GB MIG: a process sees one MIG slice" in noted(asked(found))


@pytest.mark.parametrize(
    ("changes", "variables", "told"),
    [
        ({"secure_boot": True}, {}, "Secure Boot is on"),
        ({"secure_boot": True, "driver": "595.10"}, {}, ""),
        ({"secure_boot": True, "driver": "595.10", "loaded": False}, {}, "Secure Boot is on"),
        ({"driver": "595.10", "loaded": False}, {}, ""),
        ({"driver": "595.10", "loaded": False}, {"lab_driver_method": "none"}, "is not loaded, and lab_dr"),
        (
            {"driver": "595.10", "loaded": False},
            {"lab_driver_method": "none", "nvidia_driver_load": "never"},
            "",
        ),
        ({"gpu": "GRID T4-16Q", "driver": "550.144.03", "loaded": False}, {}, "it comes from outside (vGPU)"),
        ({"container": True, "driver": "595.10", "loaded": False}, {}, "it is a container"),
        ({"secure_boot": True}, {"nvidia_driver_secure_boot": "allow"}, ""),
        ({"secure_boot": True}, {"lab_driver_method": "distro"}, ""),
        ({"secure_boot": True, "gpu": None}, {}, ""),
        ({"container": True}, {}, "it is a container"),
        ({"container": True}, {"nvidia_driver_load": "never"}, ""),
        ({"container": True, "driver": "580.95.05"}, {"lab_driver_method": "none"}, ""),
        ({"container": True, "driver": "580.95.05"}, {}, ""),
    ],
)
def test_plan_refuses_modules_that_would_not_load(changes, variables, told) -> None:
    given = {"gpu": "NVIDIA H100 PCIe", **changes}
    answer = plan([request(host(**given), variables, gpu=bool(given["gpu"]))])
    assert isinstance(answer, Resolution)
    assert [told in problem.observed for problem in answer.refused] == ([True] if told else [])


def test_an_hgx_board_is_noted_with_its_fabric_manager() -> None:
    answer = asked(host(gpu="NVIDIA H100 80GB HBM3"))
    text = noted(answer)
    assert isinstance(answer, Resolution)
    assert (
        f"the fabric manager {answer.hosts['n1']['versions']['driver']}, of exactly the driver's version"
        in text
    )
    assert "HGX" not in noted(asked(host(gpu="NVIDIA H100 PCIe")))


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"gpu": "GRID T4-16Q", "driver": "550.144.03"}, "a vGPU"),
        ({"gpu": "NVIDIA A100-PCIE-40GB", "kernel": WSL, "driver": "560.35"}, "WSL2"),
        (
            {"gpu": "NVIDIA H100 PCIe", "container": True, "driver": "570.133.07"},
            "a container: driver 570.133.07",
        ),
    ],
)
def test_a_guests_driver_is_left_as_it_is(changes: dict[str, str], kind: str) -> None:
    answer = asked(host(**changes))
    text = noted(answer)
    assert isinstance(answer, Resolution)
    stack = answer.hosts["n1"]
    assert kind in text
    assert stack["versions"]["driver"] == changes["driver"]
    assert (stack["methods"]["driver"], stack["packages"]["driver"]) == ("none", [])
    refused = asked(host(**changes), pin=("driver=580",))
    assert isinstance(refused, Infeasible)
    assert "which comes from outside" in refused.message


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"dirver": "580"}, "n1: unknown field 'dirver': did you mean driver?"),
        ({"os": "Ubuntu"}, "n1: unknown field 'os'"),
        (
            {"gpus": [{"name": "Tesla T4", "compute_capabilty": "7.5"}]},
            "gpus[0]: unknown field 'compute_capabilty': did you mean compute_capability?",
        ),
    ],
)
def test_unknown_fields_of_facts_are_refused(given: dict[str, Any], part: str) -> None:
    with pytest.raises(UsageError) as raised:
        facts.from_file({"n1": {**UBUNTU, **given}})
    assert part in str(raised.value)


def test_unknown_fields_of_lab_gpus_are_refused() -> None:
    with pytest.raises(UsageError, match="did you mean memory_mib"):
        request(host(), {"lab_gpus": [{"name": "Tesla T4", "memory_mb": 15109}]})


def test_a_pinned_build_of_torch_is_the_one_that_is_installed() -> None:
    answer = asked(host(gpu="NVIDIA A100-PCIE-40GB"), pin=("torch=2.7.1+cu128",))
    assert isinstance(answer, Resolution), answer.message
    stack = answer.hosts["n1"]
    assert (stack["versions"]["torch"], stack["torch_index"]) == ("2.7.1", "cu128")
    assert stack["versions"]["cuda"].startswith("12.8")


def test_a_pinned_build_without_code_for_the_gpu_is_refused_not_exchanged() -> None:
    """Volta has code in torch 2.11's build for CUDA 12.6, not in that for 12.8."""
    volta = host(gpu="Tesla V100-PCIE-32GB", capability="7.0")
    assert isinstance(asked(volta, pin=("torch=2.11.0+cu126",)), Resolution)
    refused = asked(volta, pin=("torch=2.11.0+cu128",))
    assert isinstance(refused, Infeasible)
    assert "torch 2.11.0 for CUDA 12.8 has no code for sm_70" in refused.message
    assert "torch=2.11.0+cu128" in [item["text"] for item in refused.conflict]


def test_builds_with_and_without_cuda_exclude_each_other() -> None:
    lab = [
        HostRequest(host("n1", "NVIDIA A100-PCIE-40GB"), (pins.parse("torch=2.7.1+cu128"),)),
        HostRequest(host("n2"), (pins.parse("torch=2.7.1+cpu"),)),
    ]
    refused = plan(lab)
    assert isinstance(refused, Infeasible)
    assert "torch=2.7.1+cu128 and torch=2.7.1+cpu exclude each other" in refused.message


def test_what_is_offered_instead_is_supported_and_not_warned_of() -> None:
    known = load()
    supported = {
        name for name, branch in known.branches.items() if branch.kind in ("production", "long-term")
    }
    blackwell = host(gpu="NVIDIA B200", capability="10.0")
    for driver in ("550", "565", "570.26", "590.1"):
        answer = asked(blackwell, pin=(f"driver={driver}", "cuda=13.0"))
        assert isinstance(answer, Infeasible), driver
        offers = [pin for remedy in answer.nearest for pin in remedy.pins if pin.startswith("driver=")]
        assert offers, driver
        assert {pin.removeprefix("driver=").partition(".")[0] for pin in offers} <= supported
    for version in ("3.1.3", "5.0.0"):
        answer = asked(host("n1"), pin=(f"openmpi={version}",))
        assert isinstance(answer, Infeasible), version
        offers = [pin.removeprefix("openmpi=") for remedy in answer.nearest for pin in remedy.pins]
        assert offers
        assert not any(known.openmpi[offer].warnings or known.openmpi[offer].avoid for offer in offers)
