"""How the variants of Horovod are built for a host."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from hvlab.base.paths import project_dir
from hvlab.base.yaml_files import read_shipped
from hvlab.stack.provision.names import numbers
from hvlab.stack.provision.python_env import warm

# Horovod's names for the features that a variant requests.
_NAMES = {
    "torch": "PyTorch", "tensorflow": "TensorFlow", "mxnet": "MXNet",
    "mpi": "MPI", "gloo": "Gloo", "ccl": "CCL", "nccl": "NCCL",
}  # fmt: skip
_FRAMEWORKS = {"torch": "PYTORCH", "tensorflow": "TENSORFLOW", "mxnet": "MXNET"}
_CCL_ARCHITECTURES = ("x86_64",)
# From this gcc on the standard headers no longer include cstdint.
_NO_CSTDINT = (15,)


@dataclass(frozen=True, kw_only=True)
class HorovodRequest:
    """The variants of Horovod for a host, and their build environment.

    ``minor`` is the version of the environments' Python, ``oneccl`` has prefix, version and sha256, ``nccl``
    the folders include and lib, ``compilers`` cc and cxx; ``sources`` lists the ways and the folder in which
    to look for the source; ``system`` is the distribution with its release.
    """

    variants: Mapping[str, Mapping[str, Any]]
    version: str
    checksum: str
    prefix: str
    python_prefix: str
    minor: str
    mpi_dir: str
    oneccl: Mapping[str, str]
    cuda_home: str
    nccl: Mapping[str, str]
    capabilities: Sequence[str]
    arch_flags: str
    compilers: Mapping[str, str]
    system: str
    architecture: str
    sources: Mapping[str, Any]

    @property
    def flags(self) -> str:
        """The compiler's processor flags; a blank for none."""
        if self.arch_flags == "auto":
            return "-mf16c -mavx -mfma" if self.architecture == "x86_64" else "-mtune=generic"
        return self.arch_flags or " "

    def with_ccl(self, variant: Mapping[str, Any]) -> bool:
        """Whether a variant uses oneCCL."""
        return bool(variant.get("ccl")) and self.architecture in _CCL_ARCHITECTURES


def plan(**options: Any) -> dict[str, Any]:
    """Return ``variants`` as role horovod builds them, ``oneccl`` if needed, and the ``source``.

    The options are those of a HorovodRequest; without a version there are no variants.
    """
    request = HorovodRequest(**options)
    if not request.version:
        request = replace(request, variants={})
    source = {"name": "horovod", "version": request.version, "checksum": request.checksum}
    return {
        "variants": [_variant(request, name, variant) for name, variant in request.variants.items()],
        "oneccl": _oneccl(request),
        "source": source | dict(request.sources),
    }


def _variant(request: HorovodRequest, name: str, variant: Mapping[str, Any]) -> dict[str, Any]:
    path = f"{request.prefix}/{name}"
    python = f"{request.python_prefix}/{variant.get('environment', 'python')}"
    site = f"lib/python{request.minor}/site-packages"
    asked, env = _list_requested(request, variant), _environment(request, variant)
    rules, texts = _patches()
    return {
        "name": name,
        "path": path,
        "python": python,
        # This .pth line adds the base environment with its own .pth files; setuptools' one provides
        # distutils, which TensorFlow needs.
        "base": f"import site; site.addsitedir('{python}/{site}')\n",
        "gpu": bool(variant.get("gpu_operations")),
        "asked": asked,
        "needs": [
            *([request.mpi_dir] if variant["mpi"] else []),
            python,
            *([request.oneccl["prefix"]] if request.with_ccl(variant) else []),
        ],
        "env": env,
        "inputs": {
            "version": request.version,
            "sha256": request.checksum,
            "rules": rules,
            "patches": [hashlib.sha256(text.encode()).hexdigest() for text in texts.values()],
            "asked": asked,
            "env": env,
            "prefix": path,
            "os": request.system,
            "architecture": request.architecture,
        },
        "stages": _stages(path, python, site, variant["frameworks"], request.version),
    }


def _list_requested(request: HorovodRequest, variant: Mapping[str, Any]) -> dict[str, list[str]]:
    carriers = _carriers(variant)
    ccl = ["ccl"] if request.with_ccl(variant) else []
    operations = dict.fromkeys([*carriers, *ccl, *_planes(variant)])
    return {
        "frameworks": [_NAMES[framework] for framework in variant["frameworks"]],
        "controllers": [_NAMES[carrier] for carrier in carriers],
        "operations": [_NAMES[operation] for operation in operations],
    }


def _environment(request: HorovodRequest, variant: Mapping[str, Any]) -> dict[str, str]:
    gpu, planes, compilers = variant.get("gpu_operations"), _planes(variant), request.compilers
    oneccl, nccl = request.oneccl["prefix"], request.nccl
    ccl = {"CCL_ROOT": oneccl, "CCL_CONFIGURATION": "ccl/cpu/lib", "CPATH": f"{oneccl}/include"}
    plane = {f"HOROVOD_NCCL_{name.upper()}": nccl[name] for name in nccl} | {"HOROVOD_NCCL_LINK": "SHARED"}
    return {
        "CMAKE_POLICY_VERSION_MINIMUM": "3.5",
        "HOROVOD_CPU_OPERATIONS": variant["cpu_operations"].upper(),
        "HOROVOD_BUILD_ARCH_FLAGS": request.flags,
        **_enable(_FRAMEWORKS.values(), [_FRAMEWORKS[framework] for framework in variant["frameworks"]]),
        **_enable(("MPI", "GLOO"), [carrier.upper() for carrier in _carriers(variant)]),
        **(ccl if request.with_ccl(variant) else {}),
        **({"HOROVOD_CUDA_HOME": request.cuda_home} if request.cuda_home else {}),
        **(_gpu(gpu, planes, request.capabilities) if gpu else {}),
        **(plane if "nccl" in planes else {}),
        **({"CC": compilers["cc"], "CXX": compilers["cxx"]} if compilers["cc"] != "gcc" else {}),
        **variant.get("env", {}),
    }


def _carriers(variant: Mapping[str, Any]) -> list[str]:
    return [carrier for carrier in ("mpi", "gloo") if variant[carrier]]


def _planes(variant: Mapping[str, Any]) -> list[str]:
    gpu = variant.get("gpu_operations") or ""
    return sorted({plane for plane in (gpu.values() if isinstance(gpu, Mapping) else [gpu]) if plane})


def _oneccl(request: HorovodRequest) -> dict[str, Any]:
    version, checksum = request.oneccl["version"], request.oneccl["sha256"]
    return {
        "needed": any(map(request.with_ccl, request.variants.values())),
        "inputs": {"version": version, "sha256": checksum, "parts": "cpu"},
        "wheels": {
            "name": "oneccl",
            "requirements": f"oneccl-devel=={version} --hash=sha256:{checksum}\n",
            "python": "3",
            "architecture": request.architecture,
            "deps": False,
            "folder": request.sources["folder"],
        },
    }


def choose_patches(*, torch: str, gcc: str) -> dict[str, str]:
    """Return the ``patch`` for Horovod's source and the ``flags`` for C++ with a torch and a gcc.

    Without torch its version is 0.
    """
    rules, texts = _patches()
    releases = {"torch": numbers(torch), "gcc": numbers(gcc)}
    chosen = [
        rule["file"]
        for rule in rules
        if all(numbers(rule[name][0]) <= now < numbers(rule[name][1]) for name, now in releases.items())
    ]
    flags = "-include cstdint" if releases["gcc"] >= _NO_CSTDINT else ""
    return {"patch": "".join(texts[name] for name in chosen), "flags": flags}


def find_absent(*, asked: Mapping[str, Sequence[str]], printed: str) -> list[str]:
    """Return the features a variant lacks, from the output of ``horovodrun --check-build``."""
    sections = dict(re.findall(r"Available ([\w ]+):((?:\s+\[.\] \w+)+)", printed))
    titles = {"frameworks": "Frameworks", "controllers": "Controllers", "operations": "Tensor Operations"}
    built = {key: re.findall(r"\[X\] (\w+)", sections.get(title, "")) for key, title in titles.items()}
    return list(dict.fromkeys(name for key in titles for name in asked[key] if name not in built[key]))


@cache
def _patches() -> tuple[list[dict[str, Any]], dict[str, str]]:
    folder = project_dir() / "roles/horovod/files/patches"
    texts = {file.name: file.read_text("utf-8") for file in sorted(folder.glob("*.patch"))}
    return read_shipped(folder / "rules.yml"), texts


def _enable(names: Iterable[str], chosen: Sequence[str]) -> dict[str, str]:
    return {f"HOROVOD_WITH{'' if name in chosen else 'OUT'}_{name}": "1" for name in names}


def _gpu(gpu: str | Mapping[str, str], planes: Sequence[str], capabilities: Sequence[str]) -> dict[str, str]:
    operations = gpu if isinstance(gpu, Mapping) else {"operations": gpu}
    codes = ",".join(str(capability).replace(".", "") for capability in capabilities)
    return {
        "HOROVOD_GPU": "CUDA",
        **{f"HOROVOD_GPU_{name.upper()}": plane.upper() for name, plane in operations.items() if plane},
        **({"HOROVOD_ALLOW_MIXED_GPU_IMPL": "1"} if len(planes) > 1 else {}),
        **({"HOROVOD_BUILD_CUDA_CC_LIST": codes} if codes else {}),
    }


def _stages(
    path: str, python: str, site: str, frameworks: Sequence[str], version: str
) -> list[dict[str, Any]]:
    """Return the build stages of a variant, in a folder with the source, the patch and base.pth."""
    source, own = f"horovod-{version}", f"{path}/bin/python"
    install = [own, "-m", "pip", "install", "--no-deps", "--no-index", "--no-build-isolation"]
    imported = ", ".join(["horovod.runner.launch", *(f"horovod.{framework}" for framework in frameworks)])
    strip = ["-exec", "strip", "--strip-unneeded", "{}", ";"]
    return [
        {"name": "clear", "argv": ["rm", "-rf", source]},
        {"name": "unpack", "argv": ["tar", "xf", "source.tar.gz"]},
        {"name": "patch", "argv": ["patch", "-p1", "-i", "../horovod.patch"], "chdir": source},
        {"name": "venv", "argv": [f"{python}/bin/python", "-m", "venv", "--clear", "--without-pip", path]},
        {"name": "base", "argv": ["cp", "base.pth", f"{path}/{site}/hvlab-base.pth"]},
        {"name": "install", "argv": [*install, "--no-cache-dir", "--verbose", f"./{source}"]},
        {"name": "strip", "argv": ["find", path, "-name", "mpi_lib*.so", *strip]},
        {"name": "warm", "argv": warm(imported, own, path)},
    ]
