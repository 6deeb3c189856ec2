"""CUDA, cuDNN and NCCL out of NVIDIA's repository: pins, holds, other versions, and what is refused."""

import hashlib
import json
import shlex
import sys
from pathlib import Path

import pytest

from tests.vlab.labs import PROJECT, RECAP, Lab
from tests.vlab.repository import Repository

pytestmark = pytest.mark.repositories

GPU = PROJECT / "tests/vlab/gpu"
NODES = {"debian": ("d1", "198.18.252.1"), "redhat": ("e9", "198.18.252.129")}
OLD = {
    "cuda_version": "12.4",
    "cudnn_version": "9.1.0.70",
    "cudnn_cuda_version": "12.4",
    "nccl_version": "2.21.5",
    "nccl_cuda_version": "12.4",
}
NEW = {
    "cuda_version": "13.0",
    "cudnn_version": "9.13.0.50",
    "cudnn_cuda_version": "13.0",
    "nccl_version": "2.28.3-1+cuda13.0",
}
# How a family lists its packages, tries to bring them up to date, and what it calls the libraries.
LIST = {
    "debian": "dpkg-query -W -f '${Package} ${Version}\\n' '*cuda*' '*cudnn*' '*nccl*' '*gpu-manager*'",
    "redhat": "rpm -qa --qf '%{NAME} %{VERSION}-%{RELEASE}\\n' '*cuda*' '*cudnn*' '*nccl*' '*gpu-manager*'",
}
UPGRADE = {"debian": "apt-get -q update && apt-get -qy upgrade", "redhat": "dnf -qy upgrade --nobest"}
REFRESH = {"debian": "apt-get -q update", "redhat": "dnf -q clean expire-cache"}
HELD_OWN = "/etc/hvlab/held.json"
INSTALLED_OWN = "/etc/hvlab/installed.json"
NCCL = {"debian": ("libnccl2", "libnccl-dev"), "redhat": ("libnccl", "libnccl-devel")}
# The repository has a newer cuDNN for CUDA 13, too.
DCGM = {"dcgm_enabled": True, "dcgm_driver_version": "580.95.05"}
DCGM_PACKAGES = {
    f"datacenter-gpu-manager-4-{name}" for name in ("core", "cuda13", "proprietary", "proprietary-cuda13")
}
# An rpm's epoch is not in its version.
DCGM_VERSION = {"debian": "1:4.5.2-1", "redhat": "4.5.2-1"}
DCGM_3 = {"debian": "3.3.9", "redhat": "3.3.9-1"}
CUDNN = {
    "debian": ("libcudnn9-cuda-13", "libcudnn9-dev-cuda-13", "libcudnn9-headers-cuda-13"),
    "redhat": ("libcudnn9-cuda-13", "libcudnn9-devel-cuda-13", "libcudnn9-headers-cuda-13"),
}


class Family:
    """One node of a family, and the roles run on it."""

    def __init__(self, name, lab, repository):
        self.name, self.lab, self.repository, self.node = name, lab, repository, NODES[name][0]

    def play(self, variables, *words, expect=0):
        """Run the roles; return how much they changed, or what they said when they were to fail."""
        extra = self.repository.variables | {"cuda_check_compile": False} | variables
        argv = [str(Path(sys.executable).parent / "ansible-playbook"), str(GPU / "cuda.yml")]
        argv += ["-i", str(self.lab.inventory), "-e", json.dumps(extra), *words]
        done = self.lab.run(argv, expect)
        return " ".join(done.stdout.split()) if expect else int(RECAP.findall(done.stdout)[0][1])

    def on(self, command):
        return self.lab.on(self.node, command)

    def packages(self):
        """Return the versions of the packages concerned."""
        lines = self.on(f"{LIST[self.name]} 2>/dev/null || true").splitlines()
        return {line.split()[0]: line.split()[1] for line in lines if len(line.split()) == 2}

    def fact(self, role):
        return json.loads(self.on(f"cat /etc/ansible/facts.d/hvlab_{role}.fact"))

    def nvcc(self):
        return self.on("/usr/local/cuda/bin/nvcc --version")


@pytest.fixture(scope="module", params=["debian", "redhat"])
def family(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(f"cuda-{request.param}")
    lab = Lab(GPU / request.param, folder / "results", folder / "data")
    lab.hvlab("lab down")
    try:
        lab.hvlab("lab up")
        with Repository(tmp_path_factory.getbasetemp() / "repository", NODES[request.param][1]) as repository:
            yield Family(request.param, lab, repository)
    finally:
        lab.hvlab("lab down")


@pytest.fixture(scope="module")
def old(family):
    """The node with the older stack."""
    before = family.packages()
    assert family.play(OLD, "--check", "--tags", "repository") > 0
    assert family.packages() == before == {}
    assert family.play(OLD) > 0
    return family


def refused(family, said, *, variables, tags):
    """Run roles that must refuse, with ``said`` among their words, and change no package."""
    before = family.packages()
    text = family.play(variables, "--tags", tags, expect=2)
    assert f"{family.node}: " in text
    for words in said:
        assert words in text, text
    assert family.packages() == before


def test_the_build_for_this_cuda_is_installed(old):
    there = old.packages()
    for name in NCCL[old.name]:
        assert there[name] == "2.21.5-1+cuda12.4"
    assert there["libcudnn9-cuda-12"] == "9.1.0.70-1"
    assert "release 12.4," in old.nvcc()
    assert old.fact("nccl")["cuda"] == "12.4"
    assert old.fact("cuda")["home"] == "/usr/local/cuda-12.4"


def test_what_builds_on_it_finds_it(old):
    header = old.on("cat /opt/hvlab/nccl/current/include/nccl.h")
    assert "NCCL_VERSION_CODE 22105" in header
    for library in ("nccl/current/lib/libnccl.so.2", "cudnn/current/lib/libcudnn.so.9"):
        old.on(f"test -f /opt/hvlab/{library}")
    assert "libcudart.so.12" in old.on("ldconfig -p")


def test_a_second_run_changes_nothing(old):
    assert old.play(OLD) == 0
    assert old.play(OLD, "--check") == 0


def test_an_upgrade_of_the_system_leaves_it(old):
    before = old.packages()
    old.on(UPGRADE[old.name])
    after = old.packages()
    kept = [*NCCL[old.name], "libcudnn9-cuda-12"]
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}


def test_a_loose_version_is_refused(old):
    """The newest 2.21.5 is the build for CUDA 12.5."""
    loose = [{"name": name, "version": "2.21.*"} for name in NCCL[old.name]]
    said = ["may be built with another CUDA than 12.4", "ends in +cuda12.4"]
    refused(old, said, variables=OLD | {"nccl_packages": loose}, tags="nccl")


def test_a_build_for_another_cuda_is_refused(old):
    other = [{"name": name, "version": "2.21.5-1+cuda12.5"} for name in NCCL[old.name]]
    refused(old, ["than 12.4"], variables=OLD | {"nccl_packages": other}, tags="nccl")
    other = [{"name": "libcudnn9-cuda-11", "version": "9.1.0.70-1"}]
    refused(old, ["for CUDA 11"], variables=OLD | {"cudnn_packages": other}, tags="cudnn")


def test_a_version_that_vanished_is_refused_before_the_old_is_removed(old):
    name = NCCL[old.name][0]
    old.repository.withdraw(name, "2.23.4-1+cuda12.6")
    old.on(REFRESH[old.name])
    try:
        wanted = OLD | {"nccl_version": "2.23.4-1+cuda12.6", "nccl_remove_old": True}
        said = [f"{name} 2.23.4-1+cuda12.6 is not available", "2.23.4-1+cuda12.2"]
        refused(old, said, variables=wanted, tags="nccl")
    finally:
        old.repository.restore()
        old.on(REFRESH[old.name])


def test_what_is_in_the_way_goes_only_when_asked(old):
    refused(old, ["libcudnn9-cuda-12", "cudnn_remove_old"], variables=NEW, tags="cudnn")


def test_a_hold_of_somebody_else_is_respected(old):
    old.on(f"mv {HELD_OWN} /root/")
    try:
        refused(old, ["held"], variables=NEW, tags="nccl")
    finally:
        old.on(f"mv /root/held.json {HELD_OWN}")


def test_a_folder_in_the_place_of_the_link_is_refused(old):
    variables = OLD | {"cuda_prefix": "/opt/somebody/cuda", "cuda_version": "12.6"}
    old.on("mkdir -p /opt/somebody/cuda/bin")
    refused(old, ["/opt/somebody/cuda is a folder"], variables=variables, tags="cuda")
    old.on("test -d /opt/somebody/cuda/bin")


def test_wheels_without_a_compiler_are_refused(old):
    said = ["hold a compiler for 13.0"]
    refused(old, said, variables=OLD | {"cuda_method": "wheel"}, tags="cuda")


def test_two_releases_side_by_side(old):
    assert old.play(NEW, "--tags", "cuda") > 0
    assert "release 13.0," in old.nvcc()
    assert "cuda-nvcc-12-4" in old.packages()
    assert "release 12.4," in old.on("/usr/local/cuda-12.4/bin/nvcc --version")
    assert old.play(OLD, "--tags", "cuda") > 0
    assert "release 12.4," in old.nvcc()


def test_the_old_goes_when_asked(old):
    wanted = NEW | {"cuda_remove_old": True, "cudnn_remove_old": True, "nccl_remove_old": True}
    old.on("mkdir -p /usr/local/4.1.5-mine /usr/local/distro")
    assert old.play(wanted) > 0
    old.on("rmdir /usr/local/4.1.5-mine /usr/local/distro")
    there = old.packages()
    assert not [name for name in there if "12-4" in name or ("cuda-12" in name and "cudnn" in name)]
    assert {there[name] for name in CUDNN[old.name]} == {"9.13.0.50-1"}
    assert set(CUDNN[old.name]) <= set(json.loads(old.on(f"cat {HELD_OWN}")))
    assert there[NCCL[old.name][0]] == "2.28.3-1+cuda13.0"
    assert "release 13.0," in old.nvcc()
    assert "12.4" not in old.on("ls -d /usr/local/cuda-*")
    assert old.play(wanted) == 0


def test_back_to_the_older_version(old):
    assert old.play(OLD | {"nccl_version": "2.18.5", "nccl_cuda_version": "12.2"}, "--tags", "nccl") > 0
    for name in NCCL[old.name]:
        assert old.packages()[name] == "2.18.5-1+cuda12.2"
    assert old.fact("nccl")["version"] == "2.18.5"


def dcgm(family):
    """Return the versions of DCGM's packages."""
    return {name: version for name, version in family.packages().items() if "gpu-manager" in name}


def test_dcgm_is_pinned_and_held_and_its_service_runs(old):
    assert old.play(DCGM, "--tags", "dcgm", "--check") > 0
    assert dcgm(old) == {}
    assert old.play(DCGM, "--tags", "dcgm") > 0
    assert dcgm(old) == dict.fromkeys(DCGM_PACKAGES, DCGM_VERSION[old.name])
    assert old.on("systemctl is-active nvidia-dcgm; systemctl is-enabled nvidia-dcgm").split() == [
        "active",
        "enabled",
    ]
    assert old.play(DCGM, "--tags", "dcgm") == 0
    # The repository has 4.6.0, too.
    old.on(UPGRADE[old.name])
    assert dcgm(old) == dict.fromkeys(DCGM_PACKAGES, DCGM_VERSION[old.name])


def test_dcgm_3_comes_for_4_only_when_asked(old):
    three = DCGM | {"dcgm_version": DCGM_3[old.name]}
    refused(old, ["set dcgm_remove_old to true"], variables=three, tags="dcgm")
    assert old.play(three | {"dcgm_remove_old": True}, "--tags", "dcgm") > 0
    assert set(dcgm(old)) == {"datacenter-gpu-manager"}
    assert old.fact("dcgm")["version"] == "3.3.9"
    assert old.play(DCGM | {"dcgm_remove_old": True}, "--tags", "dcgm") > 0
    assert set(dcgm(old)) == DCGM_PACKAGES


def test_a_toolkit_that_is_another_one_is_refused(old):
    variables = NEW | {"cuda_method": "none", "cuda_version": "12.6"}
    refused(old, ["should be of CUDA 12.6", "release 13.0"], variables=variables, tags="cuda")


def test_the_installer_runs_only_when_it_is_the_right_one(old, tmp_path):
    if old.name == "redhat":
        pytest.skip("this node has no source for the compiler that nvcc needs")
    runfile = tmp_path / "cuda_12.6.3_linux.run"
    runfile.write_text(
        "#!/bin/sh\nfor word; do case $word in --toolkitpath=*) home=${word#*=};; esac; done\n"
        'mkdir -p "$home/bin" "$home/lib64"\n'
        'printf \'#!/bin/sh\\necho "Cuda compilation tools, release 12.6, V12.6.85"\\n\' > "$home/bin/nvcc"\n'
        'chmod 755 "$home/bin/nvcc"; echo "$@" > "$home/arguments"\n',
        encoding="utf-8",
    )
    variables = NEW | {"cuda_version": "12.6", "cuda_method": "runfile", "cuda_runfile": str(runfile)}
    refused(old, ["set cuda_runfile and cuda_runfile_checksum"], variables=variables, tags="cuda")
    wrong = variables | {"cuda_runfile_checksum": "0" * 64}
    assert "has the sha256" in old.play(wrong, "--tags", "cuda", expect=2)
    right = variables | {"cuda_runfile_checksum": hashlib.sha256(runfile.read_bytes()).hexdigest()}
    assert old.play(right, "--tags", "cuda") > 0
    assert old.on("cat /usr/local/cuda-12.6/arguments").split()[:2] == ["--silent", "--toolkit"]
    assert "release 12.6," in old.nvcc()
    assert old.play(right, "--tags", "cuda") == 0


def test_what_came_goes_when_asked(old):
    """Packages that were there before stay."""
    before = set(NCCL[old.name])
    recorded = json.loads(old.on(f"cat {INSTALLED_OWN}"))
    assert set(old.packages()) <= set(recorded)
    others = {name: by_name for name, by_name in recorded.items() if name not in before}
    old.on(f"echo {shlex.quote(json.dumps(others))} > {INSTALLED_OWN}")
    shown = old.lab.hvlab("remove", "--packages", "--yes")
    # dnf looks for the dependencies of what goes now, not of a release that went before.
    earlier = {"cuda-toolkit-12-config-common"} if old.name == "redhat" else set()
    assert set(old.packages()) - earlier == before
    assert f"{' '.join(sorted(before))}` there" in shown.stderr
    # The test's rpm packages do not own their folders.
    assert old.on("find /etc/hvlab /usr/local/cuda* ! -type d 2>/dev/null || true") == ""
    assert old.play(OLD | {"nccl_remove_old": True}) > 0
