"""How role horovod builds its variants."""

from types import SimpleNamespace
from typing import Any

import pytest

from hvlab.stack.provision import horovod
from hvlab.stack.provision.packs import pack_key
from hvlab.stack.resolver import packages
from hvlab.stack.resolver.catalogue import load
from tests.contract.tree import defaults

CPU = defaults("horovod")["horovod_variants"]["cpu"]
REQUEST: dict[str, Any] = {
    "variants": {"cpu": CPU}, "version": "0.28.1", "checksum": "0a", "prefix": "/opt/hvlab/horovod",
    "python_prefix": "/opt/hvlab", "minor": "3.11", "mpi_dir": "/mpi", "cuda_home": "",
    "oneccl": {"prefix": "/oneccl", "version": "2021.13.1", "sha256": "0b"},
    "nccl": {"include": "/nccl/include", "lib": "/nccl/lib"}, "capabilities": [], "arch_flags": "auto",
    "compilers": {"cc": "gcc", "cxx": "g++"}, "system": "Debian bookworm",
    "architecture": "x86_64", "sources": {"ways": ["pip"], "folder": "/sources"},
}  # fmt: skip
PRINTED = """
Available Frameworks:
    [ ] TensorFlow
    [X] PyTorch

Available Controllers:
    [X] MPI
    [ ] Gloo

Available Tensor Operations:
    [ ] NCCL
    [X] MPI
    [ ] Gloo
"""


def planned(variant: dict[str, Any], **changes: Any) -> dict[str, Any]:
    (plan,) = horovod.plan(**REQUEST | {"variants": {"v": {**CPU, **variant}}} | changes)["variants"]
    return dict(plan)


def test_the_default_variant() -> None:
    plan = horovod.plan(**REQUEST)
    (cpu,) = plan["variants"]
    assert cpu["env"] == {
        "CMAKE_POLICY_VERSION_MINIMUM": "3.5", "HOROVOD_CPU_OPERATIONS": "MPI",
        "HOROVOD_BUILD_ARCH_FLAGS": "-mf16c -mavx -mfma", "HOROVOD_WITH_PYTORCH": "1",
        "HOROVOD_WITHOUT_TENSORFLOW": "1", "HOROVOD_WITHOUT_MXNET": "1", "HOROVOD_WITH_MPI": "1",
        "HOROVOD_WITH_GLOO": "1", "CCL_ROOT": "/oneccl", "CCL_CONFIGURATION": "ccl/cpu/lib",
        "CPATH": "/oneccl/include",
    }  # fmt: skip
    assert cpu["needs"] == ["/mpi", "/opt/hvlab/python", "/oneccl"]
    assert cpu["asked"]["operations"] == ["MPI", "Gloo", "CCL"]
    # Another key, and everybody compiles again. Patches that change may change it.
    inputs = {**cpu["inputs"], "rules": [], "patches": [], "needs": []}
    assert pack_key("horovod-cpu", inputs) == "4d366ab214eb204f"
    assert plan["oneccl"]["needed"]


def test_there_is_no_oneccl_for_other_processors() -> None:
    plan = horovod.plan(**REQUEST | {"architecture": "aarch64"})
    assert not plan["oneccl"]["needed"]
    assert plan["variants"][0]["env"]["HOROVOD_BUILD_ARCH_FLAGS"] == "-mtune=generic"
    assert "CCL_ROOT" not in plan["variants"][0]["env"]


def test_gpus_may_have_one_carrier_for_all_operations_or_one_for_each() -> None:
    one = planned({"gpu_operations": "nccl"}, cuda_home="/cuda", capabilities=["8.0", "9.0"])
    assert one["gpu"]
    assert one["env"].items() >= {
        "HOROVOD_GPU": "CUDA", "HOROVOD_GPU_OPERATIONS": "NCCL", "HOROVOD_CUDA_HOME": "/cuda",
        "HOROVOD_BUILD_CUDA_CC_LIST": "80,90", "HOROVOD_NCCL_INCLUDE": "/nccl/include",
        "HOROVOD_NCCL_LIB": "/nccl/lib", "HOROVOD_NCCL_LINK": "SHARED",
    }.items()  # fmt: skip
    each = planned({"gpu_operations": {"allreduce": "nccl", "allgather": "mpi"}, "gloo": False})
    assert each["env"].items() >= {
        "HOROVOD_GPU_ALLREDUCE": "NCCL", "HOROVOD_GPU_ALLGATHER": "MPI", "HOROVOD_WITHOUT_GLOO": "1",
        "HOROVOD_ALLOW_MIXED_GPU_IMPL": "1",
    }.items()  # fmt: skip
    assert each["asked"]["operations"] == ["MPI", "CCL", "NCCL"]


def test_the_variant_and_another_compiler_have_the_last_word() -> None:
    plan = planned(
        {"env": {"CC": "clang"}}, compilers={"cc": "/usr/bin/gcc-12", "cxx": "/usr/bin/g++-12"}, arch_flags=""
    )
    assert plan["env"].items() >= {
        "CC": "clang", "CXX": "/usr/bin/g++-12", "HOROVOD_BUILD_ARCH_FLAGS": " ",
    }.items()  # fmt: skip


@pytest.mark.parametrize(
    ("torch", "gcc", "only", "flags"),
    [
        ("0", "12.2.0", set(), ""),
        ("2.12.1", "13.1.0", {"cxx17.patch", "gcc13-headers.patch"}, ""),
        (
            "2.13.0",
            "15.1.0",
            {"cxx20.patch", "gcc13-headers.patch", "torch-headers.patch"},
            "-include cstdint",
        ),
    ],
)
def test_patches_follow_torch_and_the_compiler(torch: str, gcc: str, only: set[str], flags: str) -> None:
    chosen = horovod.choose_patches(torch=torch, gcc=gcc)
    rules, texts = horovod._patches()
    assert {rule["file"] for rule in rules} == set(texts)
    limited = {"cxx17.patch", "cxx20.patch", "gcc13-headers.patch", "torch-headers.patch"}
    assert {name for name in limited if texts[name] in chosen["patch"]} == only
    assert all(text in chosen["patch"] for name, text in texts.items() if name not in limited)
    assert chosen["flags"] == flags


def test_what_horovod_was_built_without_is_named_once() -> None:
    """Gloo is a controller and an operation."""
    asked = {"frameworks": ["PyTorch"], "controllers": ["MPI", "Gloo"], "operations": ["MPI", "Gloo", "NCCL"]}
    assert horovod.find_absent(asked=asked, printed=PRINTED) == ["Gloo", "NCCL"]
    assert (
        horovod.find_absent(asked={**asked, "controllers": ["MPI"], "operations": ["MPI"]}, printed=PRINTED)
        == []
    )


@pytest.mark.parametrize(
    ("name", "minor", "headers"),
    [
        ("debian12", "3.11", "python3-dev"),
        # It was python3.8-devel, which RHEL 8 does not have.
        ("rhel8", "3.8", "python38-devel"),
        ("rhel9", "3.9", "python3-devel"),
        ("rhel9", "3.12", "python3.12-devel"),
    ],
)
def test_the_headers_of_python_have_the_name_of_the_system(name: str, minor: str, headers: str) -> None:
    system = next(system for system in load().systems if system.name == name)
    group: Any = SimpleNamespace(system=system, host=SimpleNamespace(architecture="x86_64"), methods={})
    build = packages.of_roles(group, packages.python(group, minor))["horovod"]["build"]
    assert [package for package in build if package.startswith("python")] == [headers]


@pytest.mark.parametrize(
    ("name", "headers"), [("debian12", "libopenmpi-dev"), ("rhel9", "openmpi-devel")], ids=["deb", "rpm"]
)
def test_headers_of_the_distributions_mpi_come_only_where_something_is_built(name: str, headers: str) -> None:
    system = next(system for system in load().systems if system.name == name)
    group: Any = SimpleNamespace(system=system, host=SimpleNamespace(architecture="x86_64"), methods={})
    built = packages.of_roles(group, [])
    assert headers not in [*built["openmpi"]["distro"], *built["horovod"]["build"], *built["nccl_tests"]]
    group.methods = {"openmpi": "distro"}
    packaged = packages.of_roles(group, [])
    assert headers in packaged["horovod"]["build"]
    assert packaged["nccl_tests"] == [headers]


def test_without_a_version_nothing_is_built_or_fetched() -> None:
    plan = horovod.plan(**REQUEST | {"version": ""})
    assert plan["variants"] == []
    assert not plan["oneccl"]["needed"]
