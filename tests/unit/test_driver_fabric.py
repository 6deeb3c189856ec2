"""What HGX B200 and GB200 NVL need beside the driver."""

from dataclasses import replace

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from hvlab.stack.provision.driver.packages import list_requested
from hvlab.stack.provision.driver.plan import plan
from tests.contract.tree import ROOT, load
from tests.unit.test_container_runtime import trusted
from tests.unit.test_driver import KERNEL, REQUEST, make
from tests.unit.test_driver_role import requested

B200 = replace(
    REQUEST,
    version="580",
    packages=({"name": "nvidia-open", "version": None},),
    fabric=True,
    fabric_manager_package="nvidia-fabricmanager",
    subnet_manager_packages=("nvlsm", "infiniband-diags"),
    fabric_kernel_packages=(f"linux-modules-extra-{KERNEL}",),
)
GB200 = replace(
    B200, fabric=False, imex=True, imex_package="nvidia-imex", imex_nodes=("10.0.0.1", "10.0.0.2")
)
# As on NVIDIA's apt: the subnet manager has versions of its own.
VERSIONS = {
    "nvidia-open": ["580.95.05-1"],
    "nvidia-fabricmanager": ["580.95.05-1"],
    "nvidia-imex": ["580.95.05-1"],
    "nvlsm": ["2025.06.10-1"],
    "infiniband-diags": ["50.0-2build2"],
    f"linux-modules-extra-{KERNEL}": ["6.1.27-1"],
}
BOTH = ["ib_umad", "mlx5_ib"]


def planned(request, versions=VERSIONS, **state):
    return plan(make(versions=versions, **state), request, repository_ready=True)


def names(packages):
    return [package["name"] for package in packages]


def test_masking_switches_need_the_subnet_manager_too():
    result = planned(B200, kernel_modules=BOTH)
    assert names(result.install) == ["nvidia-open", "nvidia-fabricmanager", "nvlsm", "infiniband-diags"]
    assert result.install[1]["version"] == "580.95.05*"
    assert result.install[2]["version"] is None
    assert (result.fabric_manager, result.subnet_manager, result.imex) == (True, True, False)
    assert not result.prepare
    assert not result.problems


@pytest.mark.parametrize(
    "request_",
    [replace(B200, fabric=False), replace(B200, fabric_manager="false"), replace(B200, method="none")],
)
def test_without_them_there_is_none(request_):
    result = planned(request_, loaded="580.95.05", kernel_modules=[])
    assert not result.subnet_manager
    assert not {"nvlsm", "infiniband-diags"} & set(names(result.requested))
    assert not result.problems


def test_switches_on_the_bus_are_managed_without_a_subnet_manager():
    packages = list_requested(make(own={"nvswitches": 4}, versions=VERSIONS), replace(B200, fabric=False))
    assert names(packages) == ["nvidia-open", "nvidia-fabricmanager"]


def test_a_kernel_without_infinibands_modules_gets_them():
    result = planned(B200, kernel_modules=["ib_umad"])
    assert names(result.prepare) == [f"linux-modules-extra-{KERNEL}"]
    assert not result.problems
    # A kernel whose modules are not listed anywhere is not judged.
    assert not planned(B200, kernel_modules=None).prepare


def test_where_no_package_has_them_the_kernel_is_named():
    [problem] = planned(replace(B200, fabric_kernel_packages=()), kernel_modules=["mlx5_ib"]).problems
    assert problem.observed == f"kernel {KERNEL} has no module ib_umad, which NVLink's subnet manager needs"
    assert "DOCA-OFED" in problem.remedy


def test_a_subnet_manager_that_no_repository_has_is_a_problem():
    [problem] = planned(B200, {**VERSIONS, "nvlsm": []}, kernel_modules=BOTH).problems
    assert problem.observed == "package nvlsm is not available; no repository has it"


def test_nvlink_between_hosts_needs_imex_of_the_drivers_version():
    result = planned(GB200)
    assert result.install[1:] == [{"name": "nvidia-imex", "version": "580.95.05*"}]
    assert (result.fabric_manager, result.subnet_manager, result.imex) == (False, False, True)
    assert not result.problems
    [problem] = planned(GB200, {**VERSIONS, "nvidia-imex": ["580.65.06-1"]}).problems
    assert "IMEX must have the driver's version" in problem.remedy


def test_imex_asks_for_its_nodes():
    [problem] = planned(replace(GB200, imex_nodes=())).problems
    assert problem.observed == "nvidia_driver_imex_nodes is empty"
    assert not planned(replace(GB200, imex_nodes=(), method="none"), loaded="580.95.05").problems


@pytest.mark.parametrize("system", ["Debian", "Ubuntu", "Rocky", "Amazon"])
@pytest.mark.parametrize(("branch", "package"), [("570", "nvidia-imex-570"), ("580", "nvidia-imex")])
def test_imex_is_called_by_its_branch_before_580(system, branch, package):
    assert requested(system, version=branch).imex_package == package


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("modules-load.d/hvlab-nvidia-fabric.conf", "ib_umad\nmlx5_ib\n"),
        ("modprobe.d/hvlab-nvidia-imex.conf", "options nvidia NVreg_CreateImexChannel0=1\n"),
        ("nvidia-imex/nodes_config.cfg", "10.0.0.1\n10.0.0.2\n"),
        (
            "apt/apt.conf.d/52hvlab-nvidia-driver",
            'Unattended-Upgrade::Package-Blacklist {\n  "^libcuda1$";\n  "^nvidia-open$";\n};\n',
        ),
    ],
)
def test_files_of_settings(file, text):
    template = (ROOT / f"roles/nvidia_driver/templates/etc/{file}.j2").read_text("utf-8")
    variables = {
        "nvidia_driver_imex_nodes": ["10.0.0.1", "10.0.0.2"],
        "__nvidia_driver_listed": {"packages": ["libcuda1", "nvidia-open"]},
    }
    rendered = Templar(DataLoader(), variables=variables).template(trusted(template))
    assert rendered == text


@pytest.mark.parametrize("imex", [True, False])
def test_imex_is_left_alone_where_it_is_not_asked_for(imex):
    [task] = load(ROOT / "roles/nvidia_driver/tasks/services.yml")
    variables = {
        "__nvidia_driver_plan": {"imex": imex, "fabric_manager": False},
        "nvidia_driver_persistence_enabled": True,
    }
    templar = Templar(DataLoader(), variables=variables)
    services = {each["name"]: each["enabled"] for each in templar.template(trusted(task["loop"]))}
    assert services == {"nvidia-persistenced": True, "nvidia-fabricmanager": False, "nvidia-imex": imex}
    condition = trusted("{{ " + task["when"][0] + " }}")
    chosen = [
        name
        for name, on in services.items()
        if Templar(DataLoader(), variables={"item": {"name": name, "enabled": on}}).template(condition)
    ]
    assert ("nvidia-imex" in chosen) is imex
