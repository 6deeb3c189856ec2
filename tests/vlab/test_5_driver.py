"""NVIDIA's driver on a node: built by DKMS for another kernel than the running one, changed, refused."""

import base64
import hashlib
import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.vlab.labs import PROJECT, RECAP, Lab
from tests.vlab.repository import Repository
from tests.vlab.runfile import runfile

pytestmark = pytest.mark.repositories

GPU = PROJECT / "tests/vlab/gpu"
GATEWAY = "198.18.249.1"
OLD, NEW = "570.86.15", "570.124.06"
HELD_OWN = "/etc/hvlab/held.json"


class Node:
    """A node without a GPU, and the role run on it."""

    def __init__(self, lab, repository):
        self.lab, self.repository = lab, repository
        self.on("apt-get -qq update")
        depends = self.on("apt-cache depends linux-headers-amd64").split()
        self.kernel = next(word for word in depends if word.startswith("linux-headers-6")).removeprefix(
            "linux-headers-"
        )

    def play(self, variables, *words, expect=0):
        """Run the roles; return how much they changed, or what they said when they were to fail."""
        given = {"nvidia_driver_kernel": self.kernel, "nvidia_driver_load": "never"}
        extra = self.repository.variables | given | variables
        argv = [str(Path(sys.executable).parent / "ansible-playbook"), str(GPU / "driver.yml")]
        argv += ["-i", str(self.lab.inventory), "-e", json.dumps(extra), *words]
        done = self.lab.run(argv, expect)
        return " ".join(done.stdout.split()) if expect else int(RECAP.findall(done.stdout)[0][1])

    def on(self, command):
        return self.lab.on("d1", command)

    @property
    def packages(self):
        """Return the driver's packages with their versions."""
        rows = self.on("dpkg-query -W -f '${Status} ${Package} ${Version}\\n' | grep '^[a-z]* ok installed'")
        rows = [row.split()[3:] for row in rows.splitlines()]
        return {name: version for name, version in rows if "nvidia" in name or "cuda" in name}

    @property
    def built(self):
        """Return the version of the module that the kernel would load."""
        return self.on(f"modinfo -k {self.kernel} -F version nvidia").strip()

    @property
    def fact(self):
        return json.loads(self.on("cat /etc/ansible/facts.d/hvlab_nvidia_driver.fact"))


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    folder = tmp_path_factory.mktemp("driver")
    lab = Lab(GPU / "driver", folder / "results", folder / "data")
    lab.hvlab("lab down")
    try:
        lab.hvlab("lab up")
        with Repository(tmp_path_factory.getbasetemp() / "repository", GATEWAY) as repository:
            yield Node(lab, repository)
    finally:
        lab.hvlab("lab down")


@pytest.fixture(scope="module")
def node(bare):
    """The node with a driver of an exact version."""
    bare.play({"nvidia_driver_version": OLD}, "--check", "--tags", "repository")
    bare.play({}, "--tags", "repository")
    bare.play({"nvidia_driver_version": OLD}, "--check")
    assert not bare.packages
    assert bare.play({"nvidia_driver_version": OLD}) > 0
    return bare


def refused(node, variables, *said):
    """Run the role, which must refuse with some words and change no package."""
    before = node.packages
    text = node.play(variables, expect=2)
    for words in ("d1: ", "What to do: ", *said):
        assert words in text, text
    assert node.packages == before


def test_the_module_is_built_for_the_kernel(node):
    assert set(node.packages.values()) == {f"{OLD}-1"}
    assert node.built == OLD
    fact = node.fact
    assert fact["modules"] == [f"nvidia-current-open/{OLD} installed"]
    assert (fact["version"], fact["kernel"], fact["loaded"]) == (OLD, node.kernel, False)
    assert fact["reason"] == "nvidia_driver_load is never"
    assert "blacklist nouveau" in node.on("cat /etc/modprobe.d/hvlab-nvidia.conf")


def test_all_packages_are_held(node):
    assert sorted(node.on("apt-mark showhold").split()) == sorted(node.packages)
    blacklist = node.on("apt-config dump Unattended-Upgrade::Package-Blacklist")
    for name in ("libcuda1", "nvidia-modprobe"):
        assert f'"^{name}$"' in blacklist
    changed = re.findall(r"(?m)^Inst (\S+)", node.on("apt-get --simulate dist-upgrade"))
    assert not set(changed) & set(node.packages)


def test_a_second_run_changes_nothing(node):
    assert node.play({"nvidia_driver_version": OLD}) == 0
    assert node.play({"nvidia_driver_version": OLD}, "--check") == 0


@pytest.mark.parametrize("version", [NEW, OLD])
def test_all_parts_go_up_and_down(node, version):
    assert node.play({"nvidia_driver_version": version}, "--check") > 0
    assert node.play({"nvidia_driver_version": version}) > 0
    assert set(node.packages.values()) == {f"{version}-1"}
    assert node.built == node.fact["version"] == version
    assert node.play({"nvidia_driver_version": version}) == 0


def test_a_driver_that_does_not_build_leaves_the_present_one(node):
    """A kernel newer than a driver knows does this; here its headers refuse every module."""
    header = "/usr/src/linux-headers-*-common/include/linux/module.h"
    pinned = node.on("cat /etc/apt/preferences.d/hvlab-nvidia-driver")
    node.on(f"sed -i.kept '1i #error too new' {header}")
    try:
        refused(node, {"nvidia_driver_version": NEW}, f"{NEW} does not build", "#error too new")
    finally:
        node.on(f"for f in {header}; do mv $f.kept $f; done")
    assert node.built == OLD
    assert node.on("dpkg --audit; ls -d /tmp/hvlab-driver-* 2>/dev/null || true") == ""
    assert node.on("cat /etc/apt/preferences.d/hvlab-nvidia-driver") == pinned
    assert node.play({"nvidia_driver_version": OLD}) == 0


def test_a_version_that_vanished_is_named(node):
    refused(node, {"nvidia_driver_version": "570.99.99"}, "nvidia-open-570 570.99.99-* is not available", NEW)


def test_a_kernel_without_headers_is_named(node):
    variables = {"nvidia_driver_version": OLD, "nvidia_driver_kernel": "5.5.5-1-amd64"}
    refused(
        node, variables, "headers are installed for " + node.kernel, "install linux-headers-5.5.5-1-amd64"
    )


def test_headers_come_with_each_kernel_update(node):
    node.on("dpkg-query -W linux-headers-amd64")


def test_a_kernel_that_boots_next_has_a_module(node):
    variables, kernel = {"nvidia_driver_version": node.fact["version"]}, "99.0.0-1-amd64"
    node.on(f"mkdir -p /boot && touch /boot/vmlinuz-{kernel}")
    try:
        said = f"kernel {kernel} is installed and has no module of the driver"
        refused(node, variables, said, f"install linux-headers-{kernel}")
    finally:
        node.on(f"rm /boot/vmlinuz-{kernel}")
    assert node.play(variables) == 0


def test_an_initramfs_older_than_what_keeps_nouveau_from_loading_is_rebuilt(node):
    """As after a playbook that was killed between the file and its handler."""
    variables, image = {"nvidia_driver_version": node.fact["version"]}, f"/boot/initrd.img-{node.kernel}"
    # Only the kernel's own package brings its settings and itself.
    node.on(f"echo CONFIG_RD_ZSTD=y > /boot/config-{node.kernel}; touch /boot/vmlinuz-{node.kernel}")
    node.on(f"apt-get -qq install --yes initramfs-tools && update-initramfs -c -k {node.kernel}")
    assert node.play(variables) == 0
    node.on("touch /etc/modprobe.d/hvlab-nvidia.conf")
    built = node.on(f"stat -c %Y {image}")
    assert node.play(variables) > 0
    assert node.on(f"stat -c %Y {image}") != built
    assert "hvlab-nvidia.conf" in node.on(f"lsinitramfs {image}")
    assert node.play(variables) == 0


def test_a_container_takes_no_driver(node):
    variables = {"nvidia_driver_version": OLD, "nvidia_driver_load": "auto"}
    refused(node, variables, "it is a container", "lab_driver_method: none")


def test_what_somebody_holds_is_left(node):
    """Holds that are not recorded as the role's are somebody's."""
    other = {OLD: NEW, NEW: OLD}[node.fact["version"]]
    node.on(f"mv {HELD_OWN} /root/")
    try:
        refused(node, {"nvidia_driver_version": other}, "held at their version: ", "apt-mark unhold")
    finally:
        node.on(f"mv /root/held.json {HELD_OWN}")


def test_gpus_that_nvswitches_link_get_what_they_need(node):
    linked = {
        "nvidia_driver_version": NEW,
        "nvidia_driver_nvswitch": True,
        "nvidia_driver_imex_enabled": True,
    }
    refused(node, linked, "nvidia_driver_imex_nodes is empty")
    linked["nvidia_driver_imex_nodes"] = ["192.0.2.1", "192.0.2.2"]
    assert node.play(linked) > 0
    assert node.packages["nvidia-fabricmanager-570"] == node.packages["nvidia-imex-570"] == f"{NEW}-1"
    assert node.on("dpkg-query -W -f '${Version}' nvlsm") == "2025.06.10-1"
    assert node.on("cat /etc/modules-load.d/hvlab-nvidia-fabric.conf").split() == ["ib_umad", "mlx5_ib"]
    assert node.on("cat /etc/nvidia-imex/nodes_config.cfg").split() == linked["nvidia_driver_imex_nodes"]
    assert "NVreg_CreateImexChannel0=1" in node.on("cat /etc/modprobe.d/hvlab-nvidia-imex.conf")
    assert node.on("systemctl is-enabled nvidia-imex nvidia-fabricmanager").split() == ["enabled", "enabled"]
    assert node.play(linked) == 0
    assert node.play(linked | {"nvidia_driver_imex_enabled": False}) > 0
    assert node.on("systemctl is-enabled nvidia-imex || true").strip() == "disabled"
    # Packages of the test repository do not stop their services when they go.
    node.on("systemctl disable nvidia-imex nvidia-fabricmanager")
    node.on("apt-get -qy --allow-change-held-packages purge nvidia-imex-570 nvidia-fabricmanager-570 nvlsm")
    node.on("systemctl daemon-reload")


def test_another_branch_replaces_the_old_one(node):
    variables = {"nvidia_driver_version": "580", "nvidia_driver_remove_old": True}
    assert node.play(variables) > 0
    packages = node.packages
    assert "nvidia-open-570" not in packages
    assert packages.pop("nvidia-driver-pinning-580") == "580-5"
    assert set(packages.values()) == {"580.95.05-1"}
    assert node.built == "580.95.05"
    assert node.play(variables) == 0


def test_a_driver_of_that_branch_stays_though_its_packages_are_others(node):
    before = node.packages
    assert node.play({"nvidia_driver_version": "580", "nvidia_driver_open_modules": False}) == 0
    assert node.packages == before


def test_runfile(node):
    version = "550.54.14"
    program = runfile(version)
    name = f"/root/NVIDIA-Linux-x86_64-{version}.run"
    node.on(f"echo {base64.b64encode(program).decode()} | base64 -d > {name}")
    wanted = {
        "nvidia_driver_method": "runfile",
        "nvidia_driver_version": version,
        "nvidia_driver_runfile_url": f"file://{name}",
        "nvidia_driver_runfile_checksum": f"sha256:{hashlib.sha256(program).hexdigest()}",
    }
    refused(node, wanted, "the runfile would write over it", "nvidia_driver_remove_old: true")
    wanted["nvidia_driver_remove_old"] = True
    refused(node, wanted | {"nvidia_driver_runfile_checksum": f"sha256:{'0' * 64}"}, "checksum", name)
    assert node.play(wanted, "--check") > 0
    assert node.play(wanted) > 0
    assert not node.packages
    assert node.built == node.fact["version"] == version
    assert node.play(wanted) == 0

    back = {"nvidia_driver_version": "580"}
    refused(node, back, "was installed by NVIDIA's runfile")
    node.repository.withdraw("nvidia-kernel-open-dkms", "580.95.05-1")
    node.on("apt-get -qq update")
    refused(node, back | {"nvidia_driver_remove_old": True}, "the package manager refuses to install")
    assert node.built == version
    node.on("test -x /usr/bin/nvidia-uninstall")
    node.repository.restore()
    node.on("apt-get -qq update")
    assert node.play(back | {"nvidia_driver_remove_old": True}) > 0
    assert node.built == "580.95.05"
    assert node.on("ls /usr/bin/nvidia-uninstall 2>/dev/null || true") == ""


def test_remove_takes_the_driver_when_asked(node):
    node.play({"nvidia_driver_version": node.fact["version"]})
    recorded = json.loads(node.on("cat /etc/hvlab/installed.json"))
    before, asked = node.packages, next(name for name, by_name in recorded.items() if by_name)
    theirs = f"Package: theirs\nVersion: 1\nArchitecture: all\nDepends: {asked}\n"
    theirs += "Maintainer: x\nDescription: x\n"
    node.on(f"mkdir -p /root/x/DEBIAN; printf {shlex.quote(theirs)} > /root/x/DEBIAN/control")
    node.on("dpkg-deb --build /root/x /root/theirs.deb && dpkg --install /root/theirs.deb")
    refusal = node.lab.hvlab("remove", "--packages", expect=1).stderr
    assert "d1: " in refusal
    assert "theirs would be removed with it" in refusal
    assert "leave out --packages" in refusal
    node.on("dpkg --purge theirs")
    shown = json.loads(node.lab.hvlab("remove", "--packages", "--format", "json").stdout)
    assert set(before) <= set(shown["d1"]["gone"]["packages"])
    assert node.packages == before
    node.lab.hvlab("remove", "--packages", "--yes")
    assert node.packages == {}
    left = node.on("dkms status; ls -d /etc/modprobe.d/hvlab* /etc/hvlab 2>/dev/null || true")
    assert left == ""
    assert node.on("apt-mark showhold") == ""
    assert "hvlab-nvidia.conf" not in node.on(f"lsinitramfs /boot/initrd.img-{node.kernel}")


@pytest.mark.driver
def test_debians_own_driver_is_built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("distro")
    lab = Lab(GPU / "driver", folder / "results", folder / "data")
    lab.hvlab("lab down")
    lab.hvlab("lab up")
    try:
        with Repository(tmp_path_factory.getbasetemp() / "repository", GATEWAY) as repository:
            node = Node(lab, repository)
            wanted = {"nvidia_driver_method": "distro", "nvidia_driver_open_modules": False}
            assert node.play(wanted, "--tags", "driver") > 0
            version = node.fact["version"]
            assert version.startswith("535.")
            assert node.fact["modules"] == [f"nvidia-current/{version} installed"]
            # Debian's module has a name of its own.
            assert node.on(f"modinfo -k {node.kernel} -F version nvidia-current").strip() == version
            assert node.play(wanted, "--tags", "driver") == 0
    finally:
        lab.hvlab("lab down")
