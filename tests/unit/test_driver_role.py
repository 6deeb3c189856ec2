"""What a system calls the driver that the role asks for."""

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from hvlab.ansible.action.hvlab_driver import as_request
from hvlab.stack.provision.driver.host import DriverHost
from hvlab.stack.provision.driver.packages import driver_packages
from hvlab.stack.provision.driver.system import module_kind
from tests.contract.tree import ROOT
from tests.unit.test_container_runtime import trusted

FAMILIES = {"Debian": "Debian", "Ubuntu": "Debian", "Rocky": "RedHat", "Amazon": "RedHat"}


def requested(system, *, release="9", installed=(), switches=0, **options):
    """Return the request for a distribution with some installed packages."""
    facts = {
        "distribution": system,
        "os_family": FAMILIES.get(system, "Suse"),
        "distribution_major_version": release,
        "hvlab": {"packages": dict.fromkeys(installed, "1"), "nvswitches": switches},
    }
    return as_request({"method": "repo", "opened": True, **options}, facts)


def filled(name, **known):
    """Return one of the role's variables."""
    variables = trusted(yaml.safe_load((ROOT / "roles/nvidia_driver/vars/main.yml").read_text("utf-8")))
    return Templar(loader=DataLoader(), variables=variables | known).template(variables[name])


@pytest.mark.parametrize(
    ("system", "kernel", "package"),
    [
        ("Debian", "6.1.0-9-amd64", "linux-headers-6.1.0-9-amd64"),
        ("Debian", "6.8.12-9-pve", "proxmox-headers-6.8.12-9-pve"),
        ("Rocky", "4.18.0-553.el8_10.x86_64", "kernel-devel-4.18.0-553.el8_10"),
        ("Rocky", "4.18.0-553.rt7.342.el8_10.x86_64", "kernel-rt-devel-4.18.0-553.rt7.342.el8_10"),
        ("Rocky", "5.14.0-427.13.1.el9_4.aarch64", "kernel-devel-5.14.0-427.13.1.el9_4"),
        ("Rocky", "5.14.0-427.el9.aarch64+64k", "kernel-64k-devel-5.14.0-427.el9"),
        ("Rocky", "5.14.0-427.el9.x86_64+debug", "kernel-debug-devel-5.14.0-427.el9"),
        ("Rocky", "5.15.0-209.161.7.2.el9uek.x86_64", "kernel-uek-devel-5.15.0-209.161.7.2.el9uek"),
        ("Amazon", "6.1.141-155.222.amzn2023.x86_64", "kernel-devel-6.1.141-155.222.amzn2023"),
        ("Amazon", "6.12.37-61.105.amzn2023.aarch64", "kernel6.12-devel-6.12.37-61.105.amzn2023"),
        ("Amazon", "5.10.238-234.956.amzn2.x86_64", "kernel-devel-5.10.238-234.956.amzn2"),
    ],
)
def test_headers_are_of_the_running_kernels_package(system, kernel, package):
    [headers] = requested(system, kernel=kernel).headers_packages
    assert headers == {"name": package, "version": None}


@pytest.mark.parametrize(
    ("system", "installed", "words"),
    [
        ("Ubuntu", [], ("update-initramfs", "-u", "-k", "all")),
        ("Ubuntu", ["dracut", "initramfs-tools"], ("dracut", "--force", "--regenerate-all")),
        ("Debian", ["dracut-core"], ("update-initramfs", "-u", "-k", "all")),
        ("Rocky", ["dracut"], ("dracut", "--force", "--regenerate-all")),
    ],
)
def test_the_initramfs_of_every_kernel_is_built_by_what_builds_it_there(system, installed, words):
    assert requested(system, installed=installed).initramfs == words


PINNING = {"name": "nvidia-driver-pinning-580", "version": ""}


@pytest.mark.parametrize("system", ["Debian", "Ubuntu"])
@pytest.mark.parametrize(
    ("version", "packages"),
    [
        ("", [{"name": "nvidia-open", "version": ""}]),
        ("570", [{"name": "nvidia-open-570", "version": ""}]),
        ("580", [PINNING, {"name": "nvidia-open", "version": ""}]),
        ("580.95.05", [PINNING, {"name": "nvidia-open", "version": "580.95.05-*"}]),
    ],
)
def test_from_580_on_a_package_of_its_own_pins_the_branch(system, version, packages):
    assert list(requested(system, version=version).packages) == packages


@pytest.mark.parametrize(
    ("system", "name", "version", "pins"),
    [
        ("Debian", "nvidia-kernel-open-dkms", "550", ["", "550.*"]),
        ("Debian", "nvidia-kernel-open-dkms", "550.54.15", ["550.54.15-*", "550.54.15-*"]),
        ("Ubuntu", "nvidia-kernel-open-550", "550", ["", ""]),
        ("Ubuntu", "nvidia-kernel-open-550", "550.54.15", ["550.54.15-*", "550.54.15-*"]),
    ],
)
def test_until_555_open_modules_are_a_package_beside_the_others(system, name, version, pins):
    packages = requested(system, version=version).packages
    assert [package["name"] for package in packages] == ["cuda-drivers-550", name]
    assert [package["version"] for package in packages] == pins


@pytest.mark.parametrize(
    ("release", "version", "opened", "stream"),
    [
        ("9", "550", True, "nvidia-driver:550-open"),
        ("8", "418", False, "nvidia-driver:418-dkms"),
        ("10", "580", True, ""),
        ("9", "", True, ""),
    ],
)
def test_the_rhel_family_has_streams_of_packages_of_which_any_nvidia_modprobe_would_do(
    release, version, opened, stream
):
    request = requested("Rocky", release=release, version=version, opened=opened)
    assert request.stream == stream
    pin = f"{version}.*" if version else ""
    top = "nvidia-open" if opened else "cuda-drivers"
    assert list(request.packages) == [{"name": n, "version": pin} for n in (top, "nvidia-modprobe")]


def test_the_users_own_names_go_before_those_of_the_system():
    own = {"packages": ["my-driver"], "stream": "s:1", "components": ["c"], "fabric_manager_package": "fm"}
    request = requested("Ubuntu", **own)
    assert request.packages == ({"name": "my-driver", "version": None},)
    assert (request.stream, request.components, request.fabric_manager_package) == ("s:1", ("c",), "fm")


def test_a_system_without_names_takes_the_driver_that_is_there():
    assert requested("SLES").methods == ("none",)


@pytest.mark.parametrize(
    ("version", "opened", "words"),
    [
        ("560.28.03", True, ["--kernel-module-type=open"]),
        ("580.95.05", False, ["--kernel-module-type=proprietary"]),
        ("550.54.15", True, ["-m=kernel-open"]),
        ("550.54.15", False, []),
    ],
)
def test_nvidias_installer_is_told_the_kind_of_modules(version, opened, words):
    assert module_kind(version, opened=opened) == words


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
    request = requested("Ubuntu", method=method, version=branch)
    assert request.fabric_manager_package == f"nvidia-fabricmanager{suffix}"
    assert request.imex_package == f"nvidia-imex{suffix}"


@pytest.mark.parametrize(
    ("switches", "options", "components"),
    [
        (4, {}, ("restricted", "multiverse")),
        (4, {"fabric_manager": False}, ("restricted",)),
        (0, {"imex": True}, ("restricted", "multiverse")),
        (None, {}, ("restricted",)),
    ],
)
def test_ubuntus_packages_of_links_are_in_multiverse(switches, options, components):
    assert requested("Ubuntu", switches=switches, **options).components == components


@pytest.mark.parametrize(
    ("system", "kernel", "packages", "names"),
    [
        ("Debian", "6.1.0-9-amd64", ["linux-image-amd64", "linux-image-6.1.0-9-amd64"], ["amd64"]),
        ("Debian", "6.1.0-9-cloud-amd64", [], ["cloud-amd64"]),
        ("Debian", "6.12.73+deb13-arm64", [], ["arm64"]),
        ("Ubuntu", "6.8.0-45-generic", ["linux-image-generic-hwe-22.04"], ["generic-hwe-22.04"]),
        ("Ubuntu", "6.8.0-1015-aws", ["linux-image-aws", "linux-image-unsigned-6.8.0-1015-aws"], ["aws"]),
        ("Ubuntu", "5.15.0-1051-azure", [], ["azure"]),
        ("Ubuntu", "6.17.0-1018-nvidia-64k", ["linux-image-extra-virtual"], ["nvidia-64k"]),
        ("Ubuntu", "7.0.0-custom1", [], ["custom1"]),
        ("Debian", "6.14.8-2-pve", ["linux-image-amd64"], ["proxmox-default-headers"]),
    ],
)
def test_headers_follow_the_kernels_that_are_kept_up_to_date(system, kernel, packages, names):
    following = requested(system, kernel=kernel, installed=packages).headers_following
    assert [package["name"].removeprefix("linux-headers-") for package in following] == names


@pytest.mark.parametrize(
    ("release", "kernel", "names"),
    [
        ("9", "5.14.0-427.el9.x86_64", ["kernel-devel-matched"]),
        ("10", "6.12.0-55.el10.aarch64+64k", ["kernel-64k-devel-matched"]),
        # Without such a package, kernel-devel itself is installed again with each kernel.
        ("8", "4.18.0-553.el8_10.x86_64", []),
        ("9", "5.15.0-209.161.7.2.el9uek.x86_64", []),
    ],
)
def test_on_the_rhel_family_a_package_matches_kernel_and_headers(release, kernel, names):
    following = requested("Rocky", release=release, kernel=kernel).headers_following
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
    "akmod-nvidia cuda-drivers kmod-nvidia-open-dkms libnvidia-cfg libnvidia-nscq libnvsdm "
    "nvidia-driver-cuda-libs nvidia-imex nvidia-kmod-common nvidia-modprobe nvidia-open "
    "nvidia-xconfig nvlink5 xorg-x11-nvidia"
)


@pytest.mark.parametrize(
    ("system", "names"),
    [("Debian", DEBIANS), ("Ubuntu", DEBIANS), ("Rocky", RPMS), ("Amazon", RPMS)],
)
def test_every_package_of_the_driver_is_known_as_one(system, names):
    others = {"nvidia-container-toolkit": "1.17.8-1", "libnvidia-container1": "1.17.8-1"}
    host = DriverHost("n1", {"hvlab": {"packages": dict.fromkeys(names.split(), "580.95.05-1") | others}}, {})
    assert driver_packages(host, requested(system)) == sorted(names.split())
