"""Which packages of CUDA, cuDNN and NCCL a host gets, and which are refused."""

import pytest

from hvlab.stack.provision import libraries
from hvlab.stack.provision.libraries import Library, plan

DEBIAN = {"distribution": "Debian", "distribution_version": "12", "os_family": "Debian"}
ROCKY = {"distribution": "Rocky", "distribution_version": "9.4", "os_family": "RedHat"}


def planned(facts, name, version, cuda, *, installed=(), **options):
    """Return the plan for a library on a host."""
    usual = {"method": "repo", "home": "/usr", "prefix": "/opt/lib", "packages": (), "checksum": ""}
    own = {"architecture": "x86_64", "hvlab": {"packages": dict.fromkeys(installed, "9.13.0.50-1")}}
    request = {"name": name, "version": version, "for_cuda": cuda, "remove_old": False}
    return plan(Library(facts=facts | own, **usual | request | options))


@pytest.mark.parametrize(
    ("facts", "version", "kinds"),
    [
        (DEBIAN, "9.1.0.70", ["", "-dev"]),
        (DEBIAN, "9.10.2.21", ["", "-dev", "-headers"]),
        (ROCKY, "9.13.0.50", ["", "-devel", "-headers"]),
    ],
)
def test_all_packages_have_the_same_version(facts, version, kinds):
    packages = planned(facts, "cudnn", version, "12.8")["packages"]
    assert packages == [{"name": f"libcudnn9{kind}-cuda-12", "version": f"{version}-1"} for kind in kinds]


def test_headers_of_a_newer_version_are_in_the_way_of_an_older_one():
    installed = [f"libcudnn9{kind}-cuda-12" for kind in ("", "-dev", "-headers")]
    older = {"installed": installed, "version": "9.1.0.70", "cuda": "12.4"}
    (problem,) = planned(DEBIAN, "cudnn", **older)["problems"]
    assert problem.startswith("libcudnn9-headers-cuda-12 would be removed for cuDNN 9.1.0.70 for CUDA 12:")
    assert planned(DEBIAN, "cudnn", **older, remove_old=True)["problems"] == []
    assert planned(DEBIAN, "cudnn", **older | {"version": "9.10.2.21"})["problems"] == []


def test_packages_of_nccl_are_built_for_the_cuda_in_use():
    own = planned(DEBIAN, "nccl", "2.21.5-1+cuda12.2", "12.4")
    assert own["packages"][0] == {"name": "libnccl2", "version": "2.21.5-1+cuda12.2"}
    assert (own["cuda"], own["header"], own["problems"]) == ("12.2", "22105", [])
    assert planned(DEBIAN, "nccl", "2.8.4", "11.1")["header"] == "2804"
    loose = [{"name": "libnccl2", "version": None}, {"name": "libnccl-dev", "version": "2.21.5-1+cuda12.5"}]
    (problem,) = planned(DEBIAN, "nccl", "2.21.5", "12.4", packages=loose)["problems"]
    assert problem.startswith("libnccl2, libnccl-dev in any version, 2.21.5-1+cuda12.5 may be built with")


def test_a_system_without_known_packages_is_refused():
    (problem,) = planned(DEBIAN | {"distribution_version": "99"}, "nccl", "2.21.5", "12.4")["problems"]
    assert problem.startswith("no packages of nccl 2.21.5 are known for Debian 99.")


@pytest.mark.parametrize("checksum", ["", "f" * 64])
def test_a_wheel_is_checked_by_the_known_sum_or_the_one_given(checksum):
    own = planned(ROCKY, "nccl", "2.29.7", "13.0", method="wheel", checksum=checksum)
    known = "edd81538446786ec3b73972543e53bb43bcaf0bfc8ef76cb679fcc390ffe136d"
    assert own["requirement"] == f"nvidia-nccl-cu13==2.29.7 --hash=sha256:{checksum or known}"
    assert (own["path"], own["links"]) == ("/opt/lib/2.29.7-cuda13", [])


def cuda(facts, version, method, **options):
    """Return the plan for CUDA on a host."""
    usual = {"packages": (), "runfile": "", "checksum": "", "extra": (), "compiler": ()}
    folders = {"wheels_prefix": "/opt/cuda", "prefix": "/usr/local/cuda"}
    own = {"architecture": "x86_64"} | options
    return libraries.plan_toolkit(
        libraries.CudaToolkit(facts=facts | own, version=version, method=method, **usual | folders)
    )


def test_cuda_by_each_method():
    repo = cuda(DEBIAN, "12.4.1", "repo")
    assert repo["packages"] == [{"name": "cuda-toolkit-12-4", "version": None}]
    assert (repo["home"], repo["problem"]) == ("/usr/local/cuda-12.4", "")
    wheel = cuda(ROCKY, "13.0", "wheel")
    assert (wheel["home"], wheel["release"], wheel["compiler"]) == ("/opt/cuda/13.0", "13.0.2", ["gcc-c++"])
    assert wheel["requirements"][2].startswith("nvidia-cuda-nvcc==13.0.88 --hash=sha256:56fe50")
    assert [p["name"] for p in cuda(ROCKY, "12.4", "distro")["packages"]] == ["cuda", "cuda-devel"]
    assert cuda(DEBIAN, "12.4", "none")["links"] == []


def test_cuda_that_cannot_be_had_is_refused():
    said = cuda(DEBIAN, "12.4", "wheel")["problem"]
    assert said.startswith(
        "CUDA 12.4 by method wheel on x86_64: NVIDIA's wheels hold a compiler for 13.0, 13.1"
    )
    assert cuda(DEBIAN, "12.4", "runfile")["problem"].endswith("set cuda_runfile and cuda_runfile_checksum.")


def test_other_releases_of_cuda_are_old_and_the_driver_is_not():
    installed = [
        "cuda-nvcc-12-4",
        "libcublas-12-6",
        "nvidia-cuda-toolkit",
        "cuda-drivers-550",
        "cuda-drivers",
    ]
    own = cuda(DEBIAN, "12.4", "repo", hvlab={"packages": dict.fromkeys(installed, "1")})
    assert own["old_packages"] == ["libcublas-12-6", "nvidia-cuda-toolkit"]
