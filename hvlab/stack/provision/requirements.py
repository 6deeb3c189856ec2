"""The Python packages of an environment: its lock file, or the fewest pins that work. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

# Needed besides a framework to build and start Horovod; the lock file for this Python pins them.
_TOOLS = re.compile(r"(?m)^(?:pip|wheel|cffi|cloudpickle|packaging|psutil|pycparser|pyyaml)==[^\s\\]+")
# Requirements with a build in their version, which the package index lacks, and the frameworks; with the
# hashes in the lines that follow.
_OF_FRAMEWORK = re.compile(
    r"(?m)^(?:(?:torch|tensorflow|tensorflow-cpu)(?:\[\S*\])?==|[\w.-]+(?:\[\S*\])?==[^\s;+]+\+)(?:.*\\\n)*.*$"
)
_SUMS = re.compile(r"\s*\\\n\s+--hash=\S+")
# What releases without a lock file need in addition: (below this version, requirement). From release notes.
_BESIDE = {
    "torch": (((2, 3), "numpy<2"), ((9999,), "numpy"), ((9999,), "setuptools<82")),
    "tensorflow": (((2, 18), "numpy<2"), ((9999,), "setuptools<82")),
}


def requirements(environment: Mapping[str, str], files: Path, *, python: str, architecture: str) -> str:
    """Return the text of a requirements file for an environment.

    ``environment`` has ``framework``, ``version`` (empty: the locked one) and ``build`` (cpu or, say, cu130);
    ``python`` is a minor version such as 3.11. Raises ValueError where this Python is unknown.
    """
    framework, version = environment["framework"], environment.get("version") or ""
    build = environment.get("build") or "cpu"
    for name in (f"{framework}-{build}-{python}-{architecture}.txt", f"{framework}-{build}-{python}.txt"):
        lock = files / name
        if lock.is_file():
            text = lock.read_text(encoding="utf-8")
            if version in ("", locked(text)):
                return text.rstrip("\n")
    if not version:
        raise ValueError(
            f"there is no lock file for {framework} ({build}) on Python {python}: set its version"
        )
    return _open(framework, version, build, files / f"torch-cpu-{python}.txt")


def locked(text: str) -> str:
    """Return the version of the framework that a requirements text pins, without its build."""
    pin = re.search(r"(?m)^(?:torch|tensorflow|tensorflow-cpu)(?:\[\S*\])?==([^\s;+]+)", text)
    return pin[1] if pin else ""


def without_build(text: str, index: Mapping[str, str], *, architecture: str) -> str | None:
    """Return requirements with torch from the Python package index; None if the index has another build.

    ``index`` is the CUDA release, such as 13.0, of the index's wheel of each torch release, for x86_64. Its
    version has no build, and ``===`` accepts none with one, such as CPU wheels beside it. Any build runs on a
    CPU. The sums are dropped: the index's file has another, and so do its other requirements.
    """
    plain = _SUMS.sub("", text)
    pin = re.search(r"(?m)^torch==([^\s;+]+)\+(?:cpu|cu(\d+)(\d))$", plain)
    if not pin or (pin[2] and (architecture != "x86_64" or index.get(pin[1]) != f"{pin[2]}.{pin[3]}")):
        return None
    return plain.replace(pin[0], f"torch==={pin[1]}")


def of_framework(text: str) -> str:
    """Return the requirements that may come from a framework's own index; all others never do."""
    return "\n".join(_OF_FRAMEWORK.findall(text))


def _open(framework: str, version: str, build: str, tools: Path) -> str:
    if not tools.is_file():
        known = sorted(path.stem.rpartition("-")[2] for path in tools.parent.glob("torch-cpu-3.*.txt"))
        raise ValueError(
            f"no packages are known for Python {tools.stem.rpartition('-')[2]}; they are for {known}"
        )
    pins = _TOOLS.findall(tools.read_text(encoding="utf-8"))
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    beside: dict[str, str] = {}
    for below, requirement in _BESIDE[framework]:
        if numbers < below:
            beside.setdefault(re.split(r"[<=>]", requirement)[0], requirement)
    return "\n".join([*pins, *beside.values(), _pin(framework, version, build)])


def _pin(framework: str, version: str, build: str) -> str:
    if framework == "torch":
        return f"torch=={version}+{build}"
    return f"tensorflow-cpu=={version}" if build == "cpu" else f"tensorflow[and-cuda]=={version}"
