"""The names of a stack's packages on each system. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hvlab.lab.pin_variables import AUTO
from hvlab.stack.resolver import rules, versions
from hvlab.stack.resolver.catalogue import Catalogue, OperatingSystem, load
from hvlab.stack.resolver.facts import HostFacts, model_of, system_of
from hvlab.stack.resolver.lab import HostGroup
from hvlab.stack.resolver.pins import meets

Package = dict[str, str | None]
# From this branch on NVIDIA's installer uses the open kernel modules if the GPU allows both.
# Source: https://developer.nvidia.com/blog/nvidia-transitions-fully-towards-open-source-gpu-kernel-modules/
_OPEN_BY_DEFAULT = 560
# Parts of names of packages that do not have the driver's version.
_OWN_VERSIONS = ("pinning", "persistenced")


@dataclass(frozen=True)
class DriverPackages:
    """A driver's packages; ``module`` is a dnf module stream, ``lock`` a pattern for a version lock."""

    packages: tuple[Package, ...] = ()
    module: str | None = None
    lock: str | None = None


def modules(group: HostGroup, catalogue: Catalogue) -> set[str]:
    """Return whether the GPUs of a host can or must have the open kernel modules: no, allowed, required."""
    known, architecture = catalogue.capabilities, group.host.architecture
    return {known[capability].modules(architecture) for capability in group.capabilities}


def uses_open_modules(group: HostGroup, driver: str | None, catalogue: Catalogue) -> bool:
    """Whether a host gets the open kernel modules."""
    ways = modules(group, catalogue)
    if "required" in ways:
        return True
    return bool(ways) and "no" not in ways and versions.major(driver or "0") >= _OPEN_BY_DEFAULT


def needs_fabric_manager(group: HostGroup, catalogue: Catalogue) -> bool:
    """Whether a host's GPUs need the fabric manager although no NVSwitch is visible."""
    models = (model_of(gpu, catalogue) for gpu in group.gpus)
    return any(model is not None and model.fabric for model in models)


def needs_imex(group: HostGroup, catalogue: Catalogue) -> bool:
    """Whether NVLink connects a host's GPUs with those of other hosts."""
    models = (model_of(gpu, catalogue) for gpu in group.gpus)
    return any(model is not None and model.imex for model in models)


def keeps_driver(group: HostGroup, version: str, catalogue: Catalogue) -> bool:
    """Whether an installed driver stays although its hosts' method could not provide it here."""
    branch, method = catalogue.branches.get(str(versions.major(version))), group.methods["driver"]
    return (
        version == group.host.driver
        and method != "none"
        and not rules.offers_driver(version, branch, group.system, method, group.host.architecture)
    )


def is_exact(group: HostGroup, version: str | None) -> bool:
    """Whether exactly this driver is installed, not just any of its branch from the same source."""
    method = group.methods["driver"]
    if version is None or method in ("runfile", "local_repo"):
        return version is not None
    known = (group.host.driver, group.system.newest.get(str(versions.major(version))))
    if method == "repo" and version in known:
        return True
    return any(pin.name == "driver" and "." in pin.value and meets(pin, version) for pin in group.pins)


def driver(group: HostGroup, version: str, *, exact: bool, opened: bool) -> DriverPackages:
    """Return a driver's packages; ``exact``: this version and no other of its branch."""
    method, system, branch = group.methods["driver"], group.system, str(versions.major(version))
    names: Iterable[str] = ()
    rule: Mapping[str, Any] = {}
    if method == "distro":
        names = _list_distribution_packages(system, branch, opened=opened)
    elif method == "elrepo":
        legacy = system.elrepo.get("legacy") or {}
        names = legacy.get(branch) or system.elrepo.get("packages", ())
    elif method in ("repo", "local_repo"):
        rule = _driver_rule(system, branch, "open" if opened else "proprietary")
        names = rule.get("packages", ())
    packages = [name.format(branch=branch, version=version) for name in names]
    # The names of rpm packages lack the branch.
    of_branch = f"{branch}.*" if method == "repo" and system.manager != "apt" else None
    pinned = f"{version}*" if exact else of_branch
    return DriverPackages(
        packages=tuple(
            {"name": name, "version": None if any(part in name for part in _OWN_VERSIONS) else pinned}
            for name in packages
        ),
        module=rule["module"].format(branch=branch) if "module" in rule else None,
        lock=rule["lock"].format(branch=branch) if "lock" in rule else None,
    )


def _list_distribution_packages(system: OperatingSystem, branch: str, *, opened: bool) -> tuple[str, ...]:
    names = system.distro_packages
    legacy = (names.get("driver_legacy") or {}).get(branch)
    usual = (names.get("driver_open") if opened else None) or names.get("driver", ())
    return tuple(legacy or usual)


def _driver_rule(system: OperatingSystem, branch: str, modules: str) -> Mapping[str, Any]:
    fits = [
        rule for rule in system.naming["driver"] if versions.is_within(branch, (rule["from"], rule["to"]))
    ]
    return next((rule for rule in fits if rule["modules"] == modules), fits[0] if fits else {})


def cuda(group: HostGroup, version: str) -> list[Package]:
    """Return the toolkit's packages; none if it is not installed from packages."""
    method = methods(group, version)["cuda"]
    if method == "distro":
        return _distro(group.system, "cuda")
    if method != "repo":
        return []
    pinned = f"{version}-*" if version != versions.minor(version) else None
    return [{**package, "version": pinned} for package in _library(group.system, "cuda", version, version)]


def cudnn(group: HostGroup, version: str, cuda_version: str, catalogue: Catalogue) -> list[Package]:
    """Return cuDNN's packages for a CUDA release."""
    if group.methods["cudnn"] == "distro":
        return _distro(group.system, "cudnn")
    if methods(group)["cudnn"] != "repo":
        return []
    build = rules.cudnn_build(catalogue.cudnn[version], cuda_version) or versions.minor(cuda_version)
    return _library(group.system, "cudnn", version, build)


def nccl(group: HostGroup, version: str) -> list[Package]:
    """Return NCCL's packages, each in exactly this build."""
    build = rules.nccl_build(version)
    if build is None or methods(group)["nccl"] != "repo":
        return []
    return _library(group.system, "nccl", version.partition("-")[0], build)


def of_library(
    facts: Mapping[str, Any], name: str, version: str, cuda: str, *, distro: bool
) -> list[Package]:
    """Return the packages of CUDA, cuDNN or NCCL by a host's facts; none if unknown."""
    host = HostFacts("", str(facts.get("distribution")), str(facts.get("distribution_version")))
    system = system_of(host, load())
    if system is None:
        return []
    return _distro(system, name) if distro else _library(system, name, version, cuda)


def _library(system: OperatingSystem, name: str, version: str, cuda: str) -> list[Package]:
    named, release = system.naming[name], versions.minor(version)
    if name == "cuda":
        major, minor, *_ = versions.numbers(version)
        return [{"name": package.format(major=major, minor=minor), "version": None} for package in named]
    if name == "cudnn":
        fits = (rule for rule in named if versions.is_within(release, (rule["from"], rule["to"])))
        named = next((rule["packages"] for rule in fits), {})
    values = {"version": version, "cuda": cuda, "major": versions.major(cuda)}
    return [
        {"name": package.format(**values), "version": pattern.format(**values)}
        for package, pattern in named.items()
    ]


def _distro(system: OperatingSystem, name: str) -> list[Package]:
    return [{"name": package, "version": None} for package in system.distro_packages.get(name, ())]


def python(group: HostGroup, minor: str) -> list[Package]:
    """Return Python's packages; none for an installed one that is not the system's."""
    if minor not in group.system.python:
        return []
    names = group.system.python_packages.get(minor) or group.system.python_packages.get("default", ())
    return [{"name": name.format(minor=minor), "version": None} for name in names]


def of_roles(group: HostGroup, python_packages: Iterable[Package]) -> dict[str, Any]:
    """Return the distribution's packages that the roles install, by role."""
    named = group.system.packages
    headers = [str(each["name"]) for each in python_packages if str(each["name"]).endswith("-devel")]
    mpi = named["openmpi"]["headers"] if group.methods.get("openmpi") == "distro" else []
    horovod = {**named["horovod"], "build": [*named["horovod"]["build"], *headers, *mpi]}
    slurm = {
        key: value.format(architecture=group.host.architecture) if key == "pmix_link" else value
        for key, value in named.get("slurm", {}).items()
    }
    return {
        **{role: named[role] for role in ("common", "lab_user", "openmpi", "hwloc", "hwloc_slurm")},
        "horovod": horovod,
        "nccl_tests": mpi,
        "slurm": slurm,
    }


def gcc(group: HostGroup, major: str) -> list[Package]:
    """Return the compiler's packages; none for an installed one that is not the system's."""
    if major not in group.system.gcc:
        return []
    names = group.system.gcc_packages.get(major) or group.system.gcc_packages.get("default", ())
    return [{"name": name.format(major=major), "version": None} for name in names]


def compilers(group: HostGroup, major: str) -> dict[str, str]:
    """Return the C and C++ compiler: the system's own if its major fits, else by their paths."""
    usual = str(versions.major(group.host.gcc)) if group.host.gcc else group.system.gcc[0]
    path = group.system.gcc_path.get(major) or group.system.gcc_path.get("default")
    if major == usual or path is None:
        return {"cc": "gcc", "cxx": "g++"}
    cc = path.format(major=major)
    folder, name = cc.rsplit("/", 1)
    return {"cc": cc, "cxx": f"{folder}/{name.replace('gcc', 'g++', 1)}"}


def methods(group: HostGroup, cuda_version: str | None = None) -> dict[str, str]:
    """Return the method of each GPU component; wheels if the repository has no packages."""
    methods = {name: group.methods[name] for name in ("driver", "cuda", "cudnn", "nccl")}
    if methods["cuda"] == AUTO:
        packaged = cuda_version is None or versions.minor(cuda_version) in group.system.cuda
        methods["cuda"] = (
            "repo" if packaged and group.host.architecture in group.system.repository else "distro"
        )
    for name, limits in (("cudnn", group.system.cudnn), ("nccl", group.system.nccl)):
        if methods[name] == "repo" and limits is None:
            methods[name] = "wheel"
    return methods
