"""How the variants of Horovod are built for a host."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hvlab.base.paths import project_dir
from hvlab.base.yaml_files import read_shipped
from hvlab.stack.provision.warm import warm

# What Horovod calls the things that a variant asks for.
_NAMES = {
    "torch": "PyTorch", "tensorflow": "TensorFlow", "mxnet": "MXNet",
    "mpi": "MPI", "gloo": "Gloo", "ccl": "CCL", "nccl": "NCCL",
}  # fmt: skip
_FRAMEWORKS = {"torch": "PYTORCH", "tensorflow": "TENSORFLOW", "mxnet": "MXNET"}
_CCL_ARCHITECTURES = ("x86_64",)
# From this gcc on the standard headers no longer bring in cstdint.
_NO_CSTDINT = (15,)


def plan(
    *,
    variants: Mapping[str, Mapping[str, Any]],
    version: str,
    checksum: str,
    prefix: str,
    python_prefix: str,
    minor: str,
    mpi_dir: str,
    oneccl: Mapping[str, str],
    cuda_home: str,
    nccl: Mapping[str, str],
    capabilities: Sequence[str],
    arch_flags: str,
    compilers: Mapping[str, str],
    system: str,
    architecture: str,
    sources: Mapping[str, Any],
) -> dict[str, Any]:
    """Return ``variants``, each as role horovod builds it, ``oneccl``, which some need, and the ``source``.

    ``minor`` is the version of the environments' Python, ``oneccl`` has prefix, version and sha256, ``nccl``
    the folders include and lib, ``compilers`` cc and cxx; ``sources`` says in which ways and in which folder
    the source is looked for, and ``system`` is the distribution with its release.
    """
    if arch_flags == "auto":
        arch_flags = "-mf16c -mavx -mfma" if architecture == "x86_64" else "-mtune=generic"
    rules, texts = _patches()
    planned: list[dict[str, Any]] = []
    for name, variant in variants.items():
        path, python = f"{prefix}/{name}", f"{python_prefix}/{variant.get('environment', 'python')}"
        site = f"lib/python{minor}/site-packages"
        gpu = variant.get("gpu_operations") or ""
        planes = sorted({plane for plane in (gpu.values() if isinstance(gpu, Mapping) else [gpu]) if plane})
        with_ccl = bool(variant.get("ccl")) and architecture in _CCL_ARCHITECTURES
        carriers = [carrier for carrier in ("mpi", "gloo") if variant[carrier]]
        operations = dict.fromkeys([*carriers, *(["ccl"] if with_ccl else []), *planes])
        asked = {
            "frameworks": [_NAMES[framework] for framework in variant["frameworks"]],
            "controllers": [_NAMES[carrier] for carrier in carriers],
            "operations": [_NAMES[operation] for operation in operations],
        }
        env = {
            "CMAKE_POLICY_VERSION_MINIMUM": "3.5",
            "HOROVOD_CPU_OPERATIONS": variant["cpu_operations"].upper(),
            "HOROVOD_BUILD_ARCH_FLAGS": arch_flags or " ",
            **_with(_FRAMEWORKS.values(), [_FRAMEWORKS[framework] for framework in variant["frameworks"]]),
            **_with(("MPI", "GLOO"), [carrier.upper() for carrier in carriers]),
            **(_ccl(oneccl["prefix"]) if with_ccl else {}),
            **({"HOROVOD_CUDA_HOME": cuda_home} if cuda_home else {}),
            **(_gpu(gpu, planes, capabilities) if gpu else {}),
            **(_nccl(nccl) if "nccl" in planes else {}),
            **({"CC": compilers["cc"], "CXX": compilers["cxx"]} if compilers["cc"] != "gcc" else {}),
            **variant.get("env", {}),
        }
        planned.append(
            {
                "name": name,
                "path": path,
                "python": python,
                # A line of a .pth file that takes in the environment with its own .pth files; setuptools'
                # brings distutils, which TensorFlow needs.
                "base": f"import site; site.addsitedir('{python}/{site}')\n",
                "gpu": bool(gpu),
                "asked": asked,
                "needs": [
                    *([mpi_dir] if variant["mpi"] else []),
                    python,
                    *([oneccl["prefix"]] if with_ccl else []),
                ],
                "env": env,
                "inputs": {
                    "version": version,
                    "sha256": checksum,
                    "rules": rules,
                    "patches": [hashlib.sha256(text.encode()).hexdigest() for text in texts.values()],
                    "asked": asked,
                    "env": env,
                    "prefix": path,
                    "os": system,
                    "architecture": architecture,
                },
                "stages": _stages(path, python, site, variant["frameworks"], version),
            }
        )
    ccl = {
        "needed": any("CCL" in variant["asked"]["operations"] for variant in planned),
        "inputs": {"version": oneccl["version"], "sha256": oneccl["sha256"], "parts": "cpu"},
        "wheels": {
            "name": "oneccl",
            "requirements": f"oneccl-devel=={oneccl['version']} --hash=sha256:{oneccl['sha256']}\n",
            "python": "3",
            "architecture": architecture,
            "deps": False,
            "folder": sources["folder"],
        },
    }
    source = {"name": "horovod", "version": version, "checksum": checksum, **sources}
    return {"variants": planned, "oneccl": ccl, "source": source}


def patches(*, torch: str, gcc: str) -> dict[str, str]:
    """Return the ``patch`` for Horovod's source and the ``flags`` for C++ with a torch and a gcc.

    Without torch its version is 0.
    """
    rules, texts = _patches()
    found = {"torch": _numbers(torch), "gcc": _numbers(gcc)}
    chosen = [
        rule["file"]
        for rule in rules
        if all(_numbers(rule[name][0]) <= now < _numbers(rule[name][1]) for name, now in found.items())
    ]
    flags = "-include cstdint" if found["gcc"] >= _NO_CSTDINT else ""
    return {"patch": "".join(texts[name] for name in chosen), "flags": flags}


def absent(*, asked: Mapping[str, Sequence[str]], printed: str) -> list[str]:
    """Return what a variant was built without, from what ``horovodrun --check-build`` printed."""
    sections = dict(re.findall(r"Available ([\w ]+):((?:\s+\[.\] \w+)+)", printed))
    titles = {"frameworks": "Frameworks", "controllers": "Controllers", "operations": "Tensor Operations"}
    missing = [
        name
        for key, title in titles.items()
        for name in asked[key]
        if name not in re.findall(r"\[X\] (\w+)", sections.get(title, ""))
    ]
    return list(dict.fromkeys(missing))


def _patches() -> tuple[list[dict[str, Any]], dict[str, str]]:
    folder = project_dir() / "roles/horovod/files/patches"
    texts = {file.name: file.read_text("utf-8") for file in sorted(folder.glob("*.patch"))}
    return read_shipped(folder / "rules.yml"), texts


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))


def _with(names: Iterable[str], chosen: Sequence[str]) -> dict[str, str]:
    return {f"HOROVOD_WITH{'' if name in chosen else 'OUT'}_{name}": "1" for name in names}


def _ccl(prefix: str) -> dict[str, str]:
    return {"CCL_ROOT": prefix, "CCL_CONFIGURATION": "ccl/cpu/lib", "CPATH": f"{prefix}/include"}


def _nccl(folders: Mapping[str, str]) -> dict[str, str]:
    return {
        "HOROVOD_NCCL_INCLUDE": folders["include"],
        "HOROVOD_NCCL_LIB": folders["lib"],
        "HOROVOD_NCCL_LINK": "SHARED",
    }


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
    """Return how a variant is built, in a folder with the source, the patch and base.pth."""
    source, own = f"horovod-{version}", f"{path}/bin/python"
    install = [own, "-m", "pip", "install", "--no-deps", "--no-index", "--no-build-isolation"]
    modules = ["horovod.runner.launch", *(f"horovod.{framework}.mpi_ops" for framework in frameworks)]
    strip = ["-exec", "strip", "--strip-unneeded", "{}", ";"]
    return [
        {"name": "clear", "argv": ["rm", "-rf", source]},
        {"name": "unpack", "argv": ["tar", "xf", "source.tar.gz"]},
        {"name": "patch", "argv": ["patch", "-p1", "-i", "../horovod.patch"], "chdir": source},
        {
            "name": "venv",
            "argv": [f"{python}/bin/python", "-m", "venv", "--clear", "--without-pip", path],
        },
        {"name": "base", "argv": ["cp", "base.pth", f"{path}/{site}/hvlab-base.pth"]},
        {"name": "install", "argv": [*install, "--no-cache-dir", "--verbose", f"./{source}"]},
        {"name": "strip", "argv": ["find", path, "-name", "mpi_lib*.so", *strip]},
        {"name": "warm", "argv": warm(modules, own, path)},
    ]
