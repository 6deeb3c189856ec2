"""A host's facts, from a file or from Ansible, in one shape."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from hvlab.base.errors import UsageError
from hvlab.base.groups import grouped
from hvlab.stack.resolver import versions
from hvlab.stack.resolver.catalogue import Catalogue, GpuModel, OperatingSystem, load

# Kinds of GPUs and hosts, recognised by their names. Sources:
# https://docs.nvidia.com/datacenter/tesla/mig-user-guide/index.html (MIG: what programs can do),
# https://docs.nvidia.com/vgpu/latest/grid-vgpu-user-guide/index.html (names of vGPU types),
# https://docs.nvidia.com/cuda/wsl-user-guide/index.html (the driver is that of Windows). NVIDIA
# A100-SXM4-40GB MIG 1g.5gb
_MIG = re.compile(r"\bMIG\b|\b\d+g\.\d+gb\b", re.IGNORECASE)
# GRID A100-10C, NVIDIA A40-48Q, NVIDIA A100-4-20C, A100-1-5CME: memory in GB and the series of the licence.
_VGPU = re.compile(r"[A-Za-z0-9]-(\d+-)?\d+[ABCQ](ME|NOME|MEALL|GFX)?$")
# NVIDIA A100-SXM4-80GB, not SXM2, which predates NVSwitch; Hopper boards say HBM3 or nothing, cards PCIe or
# NVL.
_BOARD = re.compile(
    r"\bSXM(?!2)\d?\b|\bH100 80GB HBM3$|\b(H800|H20-3e|(H200|H20|B200|B300)( \d+GB( HBM3e?)?)?)$"
)
VGPU, WSL, CONTAINER = "vGPU", "WSL2", "container"


def is_mig(name: str) -> bool:
    """Whether a GPU's name is that of a MIG slice."""
    return bool(_MIG.search(name))


def is_vgpu(name: str) -> bool:
    """Whether a GPU's name is that of a vGPU, as a guest sees it."""
    return bool(_VGPU.search(name.strip()))


def is_board(name: str) -> bool:
    """Whether a GPU is one of an HGX or DGX board that may have NVSwitches."""
    return not is_vgpu(name) and bool(_BOARD.search(name.strip()))


# Names in facts of the rebuilds and relatives of a distribution that share one NVIDIA repository.
_ALIASES = {
    "redhatenterpriselinux": "redhat",
    "redhatenterpriselinuxserver": "redhat",
    "rhel": "redhat",
    "centoslinux": "centos",
    "centosstream": "centos",
    "rockylinux": "rocky",
    "oraclelinuxserver": "oraclelinux",
    "oracle": "oraclelinux",
    "ol": "oraclelinux",
    "alma": "almalinux",
    "amazonlinux": "amazon",
    "amzn": "amazon",
    "debiangnulinux": "debian",
}
_ARCHITECTURES = {"amd64": "x86_64", "x64": "x86_64", "x86-64": "x86_64", "arm64": "aarch64"}
_TYPES: Mapping[str, tuple[type, ...]] = {
    "distribution": (str,),
    "distribution_version": (str, int, float),
    "kernel": (str,),
    "architecture": (str,),
    "python": (str, int, float),
    "gcc": (str, int, float),
    "kernel_gcc": (str, int),
    "driver": (str, int, float),
    "loaded": (bool,),
    "gpus": (list,),
    "secure_boot": (bool,),
    "container": (bool,),
}
_GPU_FIELDS = ("name", "compute_capability", "memory_mib")
_VERSIONS = ("python", "gcc", "kernel_gcc", "driver")
_FIRST_TWO_DIGITS = 20
# Pythons supported by the modules of ansible-core 2.19.
LEAST_PYTHON, LAST_PYTHON = "3.8", "3.13"
# Maximum characters of a version or name.
_LONGEST = 200
REQUIRED = ("distribution", "distribution_version")


@dataclass(frozen=True)
class Gpu:
    """One GPU; the capability is None until it is known."""

    name: str
    capability: str | None = None
    memory_mib: int | None = None

    @property
    def sm(self) -> str:
        """Its code's name, such as sm_52."""
        return "sm_" + (self.capability or "?").replace(".", "")

    @property
    def title(self) -> str:
        """The GPU for the reader: Tesla M40 (sm_52)."""
        return f"{self.name} ({self.sm})"

    def as_json(self) -> dict[str, Any]:
        """Return it as facts have it."""
        return {"name": self.name, "compute_capability": self.capability, "memory_mib": self.memory_mib}


@dataclass(frozen=True)
class HostFacts:
    """One host's facts.

    ``kernel_gcc``: the major of the gcc that built its kernel; None if unknown.
    ``declared``: the inventory names its GPUs (``lab_gpus``).
    ``others``: the names of its GPUs from other makers, and of those given to virtual machines.
    ``loaded``: whether its driver is; True without one, and if unknown.
    ``secure_boot``: its firmware lets only signed modules in; ``container``: it shares its machine's kernel.
    """

    name: str
    distribution: str
    version: str
    kernel: str | None = None
    architecture: str = "x86_64"
    python: str | None = None
    gcc: str | None = None
    kernel_gcc: str | None = None
    driver: str | None = None
    gpus: tuple[Gpu, ...] = ()
    declared: bool = False
    others: tuple[str, ...] = ()
    secure_boot: bool = False
    container: bool = False
    loaded: bool = True

    @property
    def guest(self) -> str | None:
        """Why its driver comes from outside (``WSL2``, ``vGPU``); None if it does not."""
        if self.gpus and "microsoft" in (self.kernel or "").lower():
            return WSL
        return VGPU if any(is_vgpu(gpu.name) for gpu in self.gpus) else None

    def as_json(self) -> dict[str, Any]:
        """Return the host's entry in a facts file."""
        return {
            "distribution": self.distribution,
            "distribution_version": self.version,
            "kernel": self.kernel,
            "architecture": self.architecture,
            "python": self.python,
            "gcc": self.gcc,
            "kernel_gcc": self.kernel_gcc,
            "driver": self.driver,
            "loaded": self.loaded,
            "gpus": [gpu.as_json() for gpu in (*self.gpus, *map(Gpu, self.others))],
            "secure_boot": self.secure_boot,
            "container": self.container,
        }


def from_file(data: object) -> dict[str, HostFacts]:
    """Return the hosts of a facts file's JSON. Raises UsageError that names every wrong host and field."""
    if not isinstance(data, Mapping) or not data:
        raise UsageError(
            "the facts are not a JSON object by host",
            remedy='write {"n1": {"distribution": "Debian", ...}, ...}',
        )
    wrong, hosts = [], {}
    for name, facts in data.items():
        if not str(name).strip():
            wrong.append("a host has no name")
            continue
        if odd := _unprintable(name):
            wrong.append(f"the host {str(name)[:_LONGEST]!r}: its name {odd}")
            continue
        if not isinstance(facts, Mapping):
            wrong.append(f"{name}: its facts are {facts!r}, not an object")
            continue
        problems = _problems(facts)
        wrong += [f"{name}: {problem}" for problem in problems]
        if not problems:
            hosts[name] = _host(name, facts)
    if wrong:
        text = "\n".join(f"  {line}" for line in wrong)
        needed = ", ".join(_TYPES)
        raise UsageError(f"the facts cannot be used:\n{text}", remedy=f"a host's facts are {needed}")
    return hosts


def from_ansible(name: str, facts: Mapping[str, Any]) -> HostFacts:
    """Return a host from Ansible's facts and hvlab_facts."""
    return from_file({name: as_recorded(facts)})[name]


def as_recorded(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return Ansible's facts and hvlab_facts of a host as a facts file has them.

    A GPU without a driver is recognised by its PCI device id.
    """
    own, known = facts.get("hvlab") or {}, load()
    gpus = [on_bus(item, known) for item in own.get("gpus") or () if isinstance(item, Mapping)]
    gpus += [{"name": name} for name in own.get("other_gpus") or ()]
    gpus = [{field: gpu.get(field) for field in _GPU_FIELDS} for gpu in gpus]
    return {
        "distribution": facts.get("distribution") or "unknown",
        "distribution_version": facts.get("distribution_version") or "unknown",
        "kernel": facts.get("kernel"),
        "architecture": facts.get("architecture"),
        "python": facts.get("python_version"),
        "gcc": own.get("gcc"),
        "kernel_gcc": own.get("kernel_gcc"),
        "driver": own.get("driver") or own.get("driver_installed"),
        "loaded": bool(own.get("driver") or not own.get("driver_installed")),
        "gpus": gpus,
        "secure_boot": own.get("secure_boot"),
        "container": own.get("container"),
    }


def on_bus(gpu: Mapping[str, Any], catalogue: Catalogue) -> dict[str, Any]:
    """Return a GPU of hvlab_facts with its name, and the compute capability found by its device id."""
    device = str(gpu.get("pci_device") or "").lower()
    model = next((model for model in catalogue.models if device in model.pci), None)
    number = int(device, 16) if re.fullmatch("[0-9a-f]{4}", device) else -1
    families = (item for item in catalogue.families if item.first <= number <= item.last)
    known = model or next(families, None)
    name = gpu.get("name") or (
        f"NVIDIA {model.match}" if model else f"NVIDIA device 10de:{device or 'unknown'}"
    )
    return {
        **gpu,
        "name": f"{name} MIG" if gpu.get("mig") else name,
        "compute_capability": gpu.get("compute_capability") or (known.capability if known else None),
    }


def with_gpus(host: HostFacts, declared: Sequence[Mapping[str, Any]]) -> HostFacts:
    """Return the host with the GPUs that the inventory declares (``lab_gpus``)."""
    gpus = _gpu_problems(declared)
    if gpus:
        raise UsageError(f"{host.name}: lab_gpus: {'; '.join(gpus)}", remedy="each needs at least a name")
    return replace(host, declared=True, **_split_by_maker(declared))


def system_of(host: HostFacts, catalogue: Catalogue) -> OperatingSystem | None:
    """Return the operating system of a host; None if the catalogue lacks it."""
    distribution = _to_plain(host.distribution)
    own = versions.numbers(host.version)
    for system in catalogue.systems:
        release = versions.numbers(system.version)
        if distribution in map(_to_plain, system.distributions) and own[: len(release)] == release:
            return system
    return None


def advise_python(system: OperatingSystem | None) -> str:
    """Return how a host with this system gets a Python that Ansible's modules run on."""
    if system is None:
        return f"install Python {LEAST_PYTHON} or later there, or use a newer system"
    usable = [minor for minor in system.python if versions.numbers(minor) >= versions.numbers(LEAST_PYTHON)]
    if not usable:
        return "it has none that is newer: use a newer system, or a container"
    if usable[0] == system.python[0]:
        return "install python3 there, and set ansible_python_interpreter: /usr/bin/python3"
    newest = max(
        (minor for minor in usable if versions.numbers(minor) <= versions.numbers(LAST_PYTHON)),
        key=versions.numbers,
    )
    packages = system.python_packages
    package = packages.get(newest, packages["default"])[0].format(minor=newest)
    return f"install {package} there, and set ansible_python_interpreter: /usr/bin/python{newest}"


def list_supported_systems(catalogue: Catalogue) -> str:
    """Return the supported systems for the reader."""
    names = grouped(("/".join(system.distributions), system.version) for system in catalogue.systems)
    every = ((name, " ".join(sorted(releases, key=versions.numbers))) for name, releases in names.items())
    return ", ".join(map(" ".join, every))


def capability_of(gpu: Gpu, catalogue: Catalogue) -> str | None:
    """Return a GPU's compute capability, from its name if the facts lack it; None if unknown."""
    if gpu.capability:
        return gpu.capability
    model = model_of(gpu, catalogue)
    return model.capability if model else None


def model_of(gpu: Gpu, catalogue: Catalogue) -> GpuModel | None:
    """Return the model with the longest match in a GPU's name; None without a match."""
    name = _vgpu_board(gpu.name.lower())
    fits = [model for model in catalogue.models if _words(model.match).search(name)]
    return max(fits, key=lambda model: len(model.match), default=None)


@cache
def _words(match: str) -> re.Pattern[str]:
    """Return a pattern for whole words: RTX 3080 Ti is in RTX3080Ti, and T10 is not in GT 1030."""
    parts = re.findall(r"[a-z0-9]+", match.lower())
    return re.compile(rf"(?<![a-z0-9]){'[^a-z0-9]*'.join(parts)}(?![a-z0-9])")


def _vgpu_board(name: str) -> str:
    """Return the board's name for a vGPU: H100 for H100XM-80C, a Quadro for RTX8000P-48Q."""
    board = re.sub(r"^(.*[a-z]\d{2,4})(?:dx?|x[mls]?|l|p)(-[\d-]+[abcq])", r"\1\2", name.strip())
    return board.replace("grid rtx", "quadro rtx")


def _to_plain(name: str) -> str:
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    return _ALIASES.get(plain, plain)


def _problems(facts: Mapping[str, Any]) -> list[str]:
    wrong = [f"{field} is missing" for field in REQUIRED if facts.get(field) in (None, "")]
    wrong += _explain_unknown(facts, _TYPES)
    for field, types in _TYPES.items():
        value = facts.get(field)
        if value is not None and (
            not isinstance(value, types) or (isinstance(value, bool) and bool not in types)
        ):
            wrong.append(f"{field} is {value!r}")
        elif not isinstance(value, list) and (odd := _unprintable(value)):
            wrong.append(f"{field} {odd}")
        elif field in _VERSIONS and str(value or "").strip() and not versions.numbers(str(value).strip()):
            wrong.append(f"{field} is {value!r}, not a version")
    if isinstance(facts.get("python"), float):
        # 3.10 without quotes is 3.1.
        wrong.append(f"python is the number {facts['python']}: write it in quotes")
    return wrong + (_gpu_problems(facts["gpus"]) if isinstance(facts.get("gpus"), list) else [])


def _unprintable(value: object) -> str | None:
    text = "" if value is None else str(value)
    if len(text) > _LONGEST:
        return f"is longer than {_LONGEST} characters"
    return None if text.isprintable() else f"has characters that cannot be printed: {text!r}"


def _explain_unknown(given: Iterable[Any], known: Iterable[str]) -> list[str]:
    fields, wrong = list(known), []
    for field in given:
        if field not in fields:
            near = difflib.get_close_matches(str(field).lower(), fields, n=1)
            wrong.append(f"unknown field {field!r}" + (f": did you mean {near[0]}?" if near else ""))
    return wrong


def _gpu_problems(gpus: object) -> list[str]:
    wrong = []
    for number, item in enumerate(
        gpus if isinstance(gpus, Sequence) and not isinstance(gpus, str) else [gpus]
    ):
        if not isinstance(item, Mapping) or not (item.get("name") or item.get("compute_capability")):
            wrong.append(f"gpus[{number}] is {item!r}, without a name")
        elif odd := _unprintable(item.get("name")) or _unprintable(item.get("compute_capability")):
            wrong.append(f"gpus[{number}] {odd}")
        elif unknown := _explain_unknown(item, _GPU_FIELDS):
            wrong += [f"gpus[{number}]: {text}" for text in unknown]
        elif item.get("compute_capability") is not None and _capability(item["compute_capability"]) is None:
            wrong.append(f"gpus[{number}].compute_capability is {item['compute_capability']!r}")
        elif not _is_memory(item.get("memory_mib")):
            wrong.append(f"gpus[{number}].memory_mib is {item['memory_mib']!r}")
    return wrong


def _is_memory(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return value is None or (number and 0 <= float(str(value)) < float("inf"))


def _capability(value: object) -> str | None:
    """Return 5.2 for 5.2, "5.2", "52", "sm_52" or "compute_52"; None for anything else."""
    match = re.fullmatch(r"(?:sm_|compute_)?(\d{1,3})(?:\.(\d))?[a-f]?", str(value).strip())
    if isinstance(value, bool) or not match:
        return None
    whole, dotted = match.groups()
    if dotted is not None:
        return f"{int(whole)}.{dotted}"
    # 52 is 5.2 and 120 is 12.0, but 9, 10, 11 and 12 are majors: no 1.x GPU is supported.
    return f"{int(whole)}.0" if int(whole) < _FIRST_TWO_DIGITS else f"{int(whole[:-1])}.{whole[-1]}"


def _gpu(item: Mapping[str, Any]) -> Gpu:
    value, memory = item.get("compute_capability"), item.get("memory_mib")
    capability = None if value is None else _capability(value)
    name = str(item.get("name") or f"GPU of compute capability {capability}")
    return Gpu(name, capability, None if memory is None else int(memory))


def _host(name: str, facts: Mapping[str, Any]) -> HostFacts:
    def text(field: str) -> str | None:
        value = facts.get(field)
        return None if value is None or not str(value).strip() else str(value).strip()

    architecture = text("architecture") or "x86_64"
    return HostFacts(
        name=name,
        distribution=str(facts["distribution"]).strip(),
        version=str(facts["distribution_version"]).strip(),
        kernel=text("kernel"),
        architecture=_ARCHITECTURES.get(architecture.lower(), architecture),
        python=text("python"),
        gcc=text("gcc"),
        kernel_gcc=text("kernel_gcc"),
        driver=text("driver"),
        secure_boot=bool(facts.get("secure_boot")),
        container=bool(facts.get("container")),
        loaded=facts.get("loaded") is not False,
        **_split_by_maker(facts.get("gpus") or ()),
    )


def _split_by_maker(items: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the GPUs for NVIDIA's driver, and the names of the others."""
    gpus, words = [_gpu(item) for item in items], _compile_other_makers()
    others = [
        gpu
        for gpu in gpus
        if ("nvidia" not in gpu.name.lower() and words.search(gpu.name)) or gpu.name.endswith("(vfio-pci)")
    ]
    return {
        "gpus": tuple(gpu for gpu in gpus if gpu not in others),
        "others": tuple(dict.fromkeys(gpu.name for gpu in others)),
    }


@cache
def _compile_other_makers() -> re.Pattern[str]:
    return re.compile(rf"(?<![a-z0-9])({load().other_gpus})(?![a-z0-9])", re.IGNORECASE)
