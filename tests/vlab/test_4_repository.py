"""NVIDIA's repository on real apt and dnf: added once, refused when something is wrong."""

import json
import sys
from pathlib import Path

import pytest

from tests.vlab.labs import PROJECT, RECAP, Lab
from tests.vlab.repository import Repository

pytestmark = pytest.mark.repositories

GPU = PROJECT / "tests/vlab/gpu"
# For each family: its node, its files, and how the package manager shows what it can get.
NODES = {"debian": "d1", "redhat": "e9"}
FILES = {
    "debian": "/etc/apt/sources.list.d /etc/apt/keyrings /etc/apt/preferences.d /etc/apt/sources.list",
    "redhat": "/etc/yum.repos.d /etc/pki/rpm-gpg",
}
VERSIONS = {
    "debian": "apt-cache madison {}",
    "redhat": "dnf -q --disablerepo=* --enablerepo=nvidia-cuda list --showduplicates {}",
}
REFRESH = {"debian": "apt-get -q update", "redhat": "dnf -q clean expire-cache"}
NCCL = {"debian": "libnccl2", "redhat": "libnccl"}
SOURCE = {
    "debian": "/etc/apt/sources.list.d/nvidia-cuda.sources",
    "redhat": "/etc/yum.repos.d/nvidia-cuda.repo",
}
INSTALL = {
    "debian": "apt-get -qy --no-install-recommends install {}=580.95.05-1",
    "redhat": "dnf -qy module enable nvidia-driver:580-open && dnf -qy install {}-580.95.05",
}
INSTALLED = {"debian": "dpkg -s {}", "redhat": "rpm -q {}"}
# What NVIDIA's own packages or a person may have written before.
OLD = {
    "debian": (
        "/etc/apt/sources.list.d/cuda-debian12-x86_64.list",
        "deb [signed-by=/usr/share/keyrings/cuda-archive-keyring.gpg] {}/debian12/x86_64/ /",
    ),
    "redhat": (
        "/etc/yum.repos.d/cuda-rhel9.repo",
        "[cuda-rhel9-x86_64]\nname=cuda\nbaseurl={}/rhel9/x86_64\nenabled=1\ngpgcheck=1",
    ),
}


class Family:
    """One node of a family, and the role run on it."""

    def __init__(self, name, lab, repository):
        self.name, self.lab, self.repository, self.node = name, lab, repository, NODES[name]

    def role(self, *words, expect=0, **variables):
        """Run the role; return how much it changed, or what it said when it was to fail."""
        playbook = [str(Path(sys.executable).parent / "ansible-playbook"), str(GPU / "repository.yml")]
        extra = json.dumps(self.repository.variables | variables)
        done = self.lab.run([*playbook, "-i", str(self.lab.inventory), "-e", extra, *words], expect)
        return done.stdout if expect else int(RECAP.findall(done.stdout)[0][1])

    def on(self, command, expect=0):
        return self.lab.on(self.node, command, expect)

    def state(self):
        """Return everything about package sources that is on the node."""
        keys = "; rpm -qa 'gpg-pubkey*' | sort" if self.name == "redhat" else ""
        return self.on(f"find {FILES[self.name]} -type f | sort | xargs -r sha256sum{keys}")

    def versions(self, package):
        self.on(REFRESH[self.name])
        return self.on(VERSIONS[self.name].format(package) + " || true")


@pytest.fixture(scope="module", params=["debian", "redhat"])
def family(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    lab = Lab(GPU / request.param, folder / "results", folder / "data")
    lab.hvlab("lab down")
    try:
        lab.hvlab("lab up")
        gateway = "198.18.252.1" if request.param == "debian" else "198.18.252.129"
        packages = tmp_path_factory.getbasetemp() / "repository"
        with Repository(packages, gateway) as repository:
            yield Family(request.param, lab, repository)
    finally:
        lab.hvlab("lab down")


@pytest.fixture
def bare(family):
    """The node without NVIDIA's repository, and what it has of others."""
    family.on(f"rm -f {SOURCE[family.name]} {OLD[family.name][0]}")
    before = family.state()
    yield before
    family.repository.start()
    family.repository.restore()


def test_check_mode_changes_nothing(family, bare):
    assert family.role("--check") > 0
    assert family.state() == bare


def test_a_wrong_key_is_refused(family, bare):
    said = family.role(expect=2, nvidia_repository_key_fingerprint="0" * 40)
    assert f"{family.node}: " in said
    assert f"has the fingerprint {family.repository.fingerprint}, not {'0' * 40}" in " ".join(said.split())
    assert family.state() == bare


def test_nobody_answers(family, bare):
    family.repository.stop()
    said = " ".join(family.role(expect=2).split())
    assert f"{family.node}: {family.repository.site}" in said
    assert "does not answer" in said
    assert "check that the host reaches" in said
    assert family.state() == bare


def test_nobody_answers_though_the_key_is_at_hand(family, bare, tmp_path):
    key = tmp_path / "key.asc"
    key.write_bytes(family.repository.key.public)
    family.repository.stop()
    said = " ".join(family.role(expect=2, nvidia_repository_key_url=str(key)).split())
    assert f"{family.node}: {family.repository.url}" in said
    assert "cannot be used" in said
    assert "check that the host reaches" in said
    assert family.state() == bare


def test_a_system_without_a_folder_is_refused(family, bare):
    said = " ".join(
        family.role(
            expect=2,
            nvidia_repository_system="nowhere1/x86_64",
            nvidia_repository_key_url=f"{family.repository.site}/libnvidia-container/gpgkey",
        ).split()
    )
    assert "cannot be used" in said
    assert "not every system has a folder there" in said
    assert family.state() == bare


def test_a_system_that_is_unknown_is_refused(family, bare):
    said = " ".join(family.role(expect=2, nvidia_repository_system="nowhere1/x86_64").split())
    assert f"{family.node}: nowhere1/x86_64 is no folder of NVIDIA's repository" in said
    assert family.state() == bare


def test_lists_signed_by_another_key_are_refused(family, bare):
    family.repository.sign(family.repository.other)
    said = " ".join(family.role(expect=2, nvidia_repository_metadata_signed=True).split())
    assert "cannot be used" in said
    assert "find out who signs" in said
    assert family.state() == bare


def test_an_old_entry_is_refused_or_switched_off(family, bare):
    path, text = OLD[family.name]
    family.on(f"cat > {path} <<'END'\n{text.format(family.repository.url)}\nEND")
    before = family.state()
    said = " ".join(family.role(expect=2).split())
    assert f"{family.node}: {path} already leads to this source" in said
    assert family.state() == before
    assert family.role(nvidia_repository_replace_old=True) > 0
    assert family.role(nvidia_repository_replace_old=True) == 0
    assert "2.21.5" in family.versions(NCCL[family.name])
    family.on(f"rm {path}")


def test_it_is_added_once(family, bare):
    assert family.role() > 0
    assert family.role() == 0
    assert family.role("--check") == 0
    assert "2.21.5-1+cuda12.4" in family.versions(NCCL[family.name])


def test_a_label_that_the_priority_is_not_for_is_refused(family, bare):
    if family.name == "redhat":
        pytest.skip("dnf has no such priority")
    said = " ".join(family.role(expect=2, nvidia_repository_label="site").split())
    assert f"{family.node}: {family.repository.url}" in said
    assert "has the label 'NVIDIA CUDA', not 'site'" in said
    assert family.state() == bare
    family.role()
    policy = family.on("apt-cache policy").split("\n ")
    assert any(part.startswith("600 ") and family.repository.site in part for part in policy)


def test_a_damaged_source_is_repaired(family, bare):
    family.role()
    family.on(f"sed -i s,{family.repository.site},http://198.18.252.77, {SOURCE[family.name]}")
    assert family.role() == 1
    assert family.repository.site in family.on(f"cat {SOURCE[family.name]}")


def test_a_version_vanishes(family, bare):
    family.role()
    family.repository.withdraw(NCCL[family.name], "2.21.5-1+cuda12.4")
    observed = family.versions(NCCL[family.name])
    assert "2.21.5-1+cuda12.4" not in observed
    assert "2.21.5-1+cuda12.5" in observed


def test_a_package_that_was_tampered_with_is_not_installed(family, bare):
    """Its file is not the one that was signed for: apt compares the sum, dnf the signature too."""
    family.role()
    for path in family.repository.served.glob("**/nvidia-persistenced*580.95.05*"):
        if path.suffix in (".deb", ".rpm"):
            data = bytearray(path.read_bytes())
            data[-30] ^= 1
            path.write_bytes(data)
    install, installed = INSTALL[family.name], INSTALLED[family.name]
    family.on(install.format("nvidia-modprobe"))
    family.on(f"! {{ {install.format('nvidia-persistenced')}; }}")
    family.on(f"! {installed.format('nvidia-persistenced')}")
    family.on(installed.format("nvidia-modprobe"))
