"""What the role's variables make of a host."""

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from hvlab.stack.provision.driver.host import DriverHost, DriverRequest
from hvlab.stack.provision.driver.packages import driver_packages
from tests.contract.tree import ROOT
from tests.unit.test_container_runtime import trusted

VARS = ROOT / "roles/nvidia_driver/vars"


def filled(file, name, **known):
    variables = trusted(yaml.safe_load((VARS / file).read_text("utf-8"))) | known
    return Templar(loader=DataLoader(), variables=variables).template(variables[name])


@pytest.mark.parametrize(
    ("file", "kernel", "package"),
    [
        ("Debian.yml", "6.1.0-9-amd64", "linux-headers-6.1.0-9-amd64"),
        ("RedHat.yml", "4.18.0-553.el8_10.x86_64", "kernel-devel-4.18.0-553.el8_10"),
        ("RedHat.yml", "5.14.0-427.13.1.el9_4.aarch64", "kernel-devel-5.14.0-427.13.1.el9_4"),
        ("RedHat.yml", "5.14.0-427.el9.aarch64+64k", "kernel-64k-devel-5.14.0-427.el9"),
        ("RedHat.yml", "5.14.0-427.el9.x86_64+debug", "kernel-debug-devel-5.14.0-427.el9"),
        ("RedHat.yml", "5.15.0-209.161.7.2.el9uek.x86_64", "kernel-uek-devel-5.15.0-209.161.7.2.el9uek"),
        ("Amazon.yml", "6.1.141-155.222.amzn2023.x86_64", "kernel-devel-6.1.141-155.222.amzn2023"),
        ("Amazon.yml", "6.12.37-61.105.amzn2023.aarch64", "kernel6.12-devel-6.12.37-61.105.amzn2023"),
        ("Amazon.yml", "5.10.238-234.956.amzn2.x86_64", "kernel-devel-5.10.238-234.956.amzn2"),
    ],
)
def test_headers_are_of_the_running_kernels_package(file, kernel, package):
    [headers] = filled(file, "__nvidia_driver_headers", nvidia_driver_kernel=kernel)
    assert headers == {"name": package, "version": None}


@pytest.mark.parametrize("file", ["Debian.yml", "Ubuntu.yml"])
@pytest.mark.parametrize(
    ("version", "packages"),
    [
        ("", [{"name": "nvidia-open", "version": ""}]),
        ("570", [{"name": "nvidia-open-570", "version": ""}]),
        ("580", [{"name": "nvidia-driver-pinning-580"}, {"name": "nvidia-open", "version": ""}]),
        (
            "580.95.05",
            [{"name": "nvidia-driver-pinning-580"}, {"name": "nvidia-open", "version": "580.95.05-*"}],
        ),
    ],
)
def test_from_580_on_a_package_of_its_own_pins_the_branch(file, version, packages):
    known = {
        "nvidia_driver_version": version,
        "nvidia_driver_open_modules": True,
        "__nvidia_driver_branch": version.partition(".")[0],
    }
    assert filled(file, "__nvidia_driver_nvidia_packages", **known) == packages


@pytest.mark.parametrize(
    ("file", "name", "version", "pins"),
    [
        ("Debian.yml", "nvidia-kernel-open-dkms", "550", ["", "550.*"]),
        ("Debian.yml", "nvidia-kernel-open-dkms", "550.54.15", ["550.54.15-*", "550.54.15-*"]),
        ("Ubuntu.yml", "nvidia-kernel-open-550", "550", ["", ""]),
        ("Ubuntu.yml", "nvidia-kernel-open-550", "550.54.15", ["550.54.15-*", "550.54.15-*"]),
    ],
)
def test_until_555_open_modules_are_a_package_beside_the_others(file, name, version, pins):
    known = {
        "nvidia_driver_version": version,
        "nvidia_driver_open_modules": True,
        "__nvidia_driver_branch": "550",
    }
    packages = filled(file, "__nvidia_driver_nvidia_packages", **known)
    assert [package["name"] for package in packages] == ["cuda-drivers-550", name]
    assert [package["version"] for package in packages] == pins


@pytest.mark.parametrize(
    ("method", "branch", "suffix"),
    [
        ("repo", "570", "-570"),
        ("repo", "580", ""),
        ("distro", "580", "-580"),
        ("distro", "570", "-570"),
        ("repo", "", ""),
    ],
)
def test_ubuntus_own_packages_beside_the_driver_have_the_branch_in_their_names(method, branch, suffix):
    """As packages.ubuntu.com lists them: nvidia-fabricmanager-580, in multiverse."""
    known = {
        "nvidia_driver_method": method,
        "__nvidia_driver_branch": branch,
        "nvidia_driver_imex_enabled": False,
        "nvidia_driver_nvswitch": False,
        "nvidia_driver_fabric_manager": "auto",
    }
    assert filled("Ubuntu.yml", "__nvidia_driver_fabric_manager", **known) == f"nvidia-fabricmanager{suffix}"
    assert filled("Ubuntu.yml", "__nvidia_driver_imex", **known) == f"nvidia-imex{suffix}"
    for switches, changes, components in (
        (4, {}, ["restricted", "multiverse"]),
        (4, {"nvidia_driver_fabric_manager": False}, ["restricted"]),
        (0, {"nvidia_driver_imex_enabled": True}, ["restricted", "multiverse"]),
        (None, {}, ["restricted"]),
    ):
        host = {"ansible_facts": {"hvlab": {"nvswitches": switches}}, **known, **changes}
        assert filled("Ubuntu.yml", "__nvidia_driver_components", **host) == components


@pytest.mark.parametrize(
    ("file", "kernel", "packages", "names"),
    [
        ("Debian.yml", "6.1.0-9-amd64", ["linux-image-amd64", "linux-image-6.1.0-9-amd64"], ["amd64"]),
        ("Debian.yml", "6.1.0-9-cloud-amd64", [], ["cloud-amd64"]),
        ("Debian.yml", "6.12.73+deb13-arm64", [], ["arm64"]),
        ("Ubuntu.yml", "6.8.0-45-generic", ["linux-image-generic-hwe-22.04"], ["generic-hwe-22.04"]),
        ("Ubuntu.yml", "6.8.0-1015-aws", ["linux-image-aws", "linux-image-unsigned-6.8.0-1015-aws"], ["aws"]),
        ("Ubuntu.yml", "5.15.0-1051-azure", [], ["azure"]),
        ("Ubuntu.yml", "6.17.0-1018-nvidia-64k", ["linux-image-extra-virtual"], ["nvidia-64k"]),
        ("Ubuntu.yml", "7.0.0-custom1", [], ["custom1"]),
    ],
)
def test_headers_follow_the_kernels_that_are_kept_up_to_date(file, kernel, packages, names):
    facts = {"hvlab": {"packages": dict.fromkeys(packages, "1")}}
    known = {"nvidia_driver_kernel": kernel, "ansible_facts": facts}
    following = filled(file, "__nvidia_driver_headers_following", **known)
    assert [package["name"] for package in following] == [f"linux-headers-{name}" for name in names]


@pytest.mark.parametrize(
    ("release", "kernel", "names"),
    [
        ("9", "5.14.0-427.el9.x86_64", ["kernel-devel-matched"]),
        ("10", "6.12.0-55.el10.aarch64+64k", ["kernel-64k-devel-matched"]),
        # Where there is no such package, kernel-devel itself is installed anew with each kernel.
        ("8", "4.18.0-553.el8_10.x86_64", []),
        ("9", "5.15.0-209.161.7.2.el9uek.x86_64", []),
    ],
)
def test_on_the_rhel_family_a_package_matches_kernel_and_headers(release, kernel, names):
    known = {"nvidia_driver_kernel": kernel, "ansible_facts": {"distribution_major_version": release}}
    following = filled("RedHat.yml", "__nvidia_driver_headers_following", **known)
    assert [package["name"] for package in following] == names
    assert all(package["version"] == kernel.rpartition(".")[0] for package in following)


# The packages of 580 that `dpkg -l`, `rpm -qa` and release notes list.
DEBIANS = (
    "firmware-nvidia-gsp libcuda1 libcudadebugger1 libegl-nvidia0 libgl1-nvidia-glvnd-glx libgles-nvidia2 "
    "libglx-nvidia0 libnvidia-ml1 libnvidia-gpucomp libnvsdm nvidia-driver-cuda nvidia-fabricmanager "
    "nvidia-imex nvidia-kernel-open-dkms nvidia-modprobe nvidia-open nvidia-smi nvlink5-580 "
    "xserver-xorg-video-nvidia"
)
RPMS = (
    "cuda-drivers kmod-nvidia-open-dkms libnvidia-cfg libnvidia-nscq libnvsdm nvidia-driver-cuda-libs "
    "nvidia-imex nvidia-kmod-common nvidia-modprobe nvidia-open nvidia-xconfig nvlink5 xorg-x11-nvidia"
)


@pytest.mark.parametrize(
    ("file", "names"),
    [("Debian.yml", DEBIANS), ("Ubuntu.yml", DEBIANS), ("RedHat.yml", RPMS), ("Amazon.yml", RPMS)],
)
def test_every_package_of_the_driver_is_known_as_one(file, names):
    variables = yaml.safe_load((VARS / file).read_text("utf-8"))
    request = DriverRequest(
        method="repo",
        old=tuple(variables["__nvidia_driver_old"]),
        keep=tuple(variables["__nvidia_driver_keep"]),
    )
    others = {"nvidia-container-toolkit": "1.17.8-1", "libnvidia-container1": "1.17.8-1"}
    packages = dict.fromkeys(names.split(), "580.95.05-1") | others
    assert driver_packages(DriverHost("n1", {"hvlab": {"packages": packages}}, {}), request) == sorted(
        names.split()
    )
