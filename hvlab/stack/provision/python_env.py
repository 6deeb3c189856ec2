"""The Python environments of a host: their requirements, and how they are built."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hvlab.base.paths import project_dir
from hvlab.stack.provision.names import numbers

# Run once after installation, to write byte code for users who cannot write it. An optimizer imports what the
# framework itself leaves out: without byte code that costs each rank of torch 2 s.
_TOOLS_USED = "numpy, psutil, yaml, cffi, cloudpickle"
_WARM = {
    "torch": f"{_TOOLS_USED}, torch, torch.utils.data; torch.optim.SGD([torch.zeros(1)], lr=0.1)",
    "tensorflow": f"{_TOOLS_USED}, tensorflow",
}
# Parts of packages below site-packages that no run needs.
_UNNEEDED = {"torch": ["torch/test"], "tensorflow": []}
_FRAMEWORK = re.compile(r"(?m)^(?:torch|tensorflow|tensorflow-cpu)(?:\[[^\]]*\])?==([^ \n]+)")
_PIP = re.compile(r"(?m)^pip==([^ \n]+)")


def plan(
    *,
    environments: Mapping[str, Mapping[str, str]],
    prefix: str,
    python: str,
    minor: str,
    index: str,
    system: str,
    architecture: str,
) -> list[dict[str, Any]]:
    """Return each environment as role python_env builds it.

    ``minor`` is the version of the Python at the path ``python``, such as 3.11; ``index`` the address of the
    framework's own index, ``system`` the distribution and its release.
    Raises ValueError for an unsupported environment.
    """
    planned, files = [], project_dir() / "roles/python_env/files"
    for name, asked in environments.items():
        path, framework = f"{prefix}/{name}", asked["framework"]
        try:
            text = (
                Path(asked["requirements"]).read_text("utf-8").rstrip("\n")
                if asked.get("requirements")
                else requirements(asked, files, python=minor, architecture=architecture)
            )
        except (OSError, ValueError) as error:
            raise ValueError(f"python_env_environments: {error}") from error
        pins = [pattern.search(text) for pattern in (_FRAMEWORK, _PIP)]
        if not all(pins):
            raise ValueError(
                f"python_env_environments: the requirements of {name} pin no framework, or no pip"
            )
        version, pip = (pin[1] for pin in pins if pin)
        planned.append(
            {
                "name": name,
                "path": path,
                "requirements": text,
                "entry": {"framework": framework, "version": version, "build": asked["build"]},
                "inputs": {
                    "requirements": hashlib.sha256(text.encode()).hexdigest(),
                    "prefix": path,
                    "python": f"{python} {minor}",
                    "unneeded": _UNNEEDED[framework],
                    "warm": _WARM[framework],
                    "os": system,
                    "architecture": architecture,
                },
                "wheels": {
                    "name": name,
                    "requirements": text,
                    "python": minor,
                    "architecture": architecture,
                    "fallback_index": f"{index}/{asked['build']}",
                },
                "stages": _stages(path, framework, pip, python=python, minor=minor),
            }
        )
    return planned


def _stages(path: str, framework: str, pip: str, *, python: str, minor: str) -> list[dict[str, Any]]:
    """Return the build stages of an environment, in a folder with its wheels and requirements."""
    own, site = f"{path}/bin/python", f"{path}/lib/python{minor}/site-packages"
    install = [own, f"pip-{pip}-py3-none-any.whl/pip", "install", "--no-index", "--find-links=."]
    unneeded = [f"{site}/{part}" for part in _UNNEEDED[framework]]
    return [
        {"name": "unpack", "argv": ["tar", "xf", "wheels.tar"]},
        {"name": "venv", "argv": [python, "-m", "venv", "--clear", "--without-pip", path]},
        {
            "name": "install",
            "argv": [*install, "--no-cache-dir", "--no-compile", "--requirement=requirements.txt"],
        },
        {"name": "trim", "argv": ["rm", "-rf", *unneeded]},
        {"name": "warm", "argv": warm(_WARM[framework], own, path)},
    ]


_IMPORT = """
import sys, {}
print('', *(m.__file__ for m in list(sys.modules.values()) if getattr(m, '__file__', None)), sep='\\n')
"""
_COMPILE = """
import compileall, os, subprocess, sys, tempfile

def become_nobody():
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)

with tempfile.TemporaryDirectory() as home:
    os.chown(home, 65534, 65534)
    done = subprocess.run(
        [sys.executable, '-B', '-c', sys.argv[1]],
        preexec_fn=become_nobody, cwd='/', env=dict(os.environ, HOME=home), stdout=subprocess.PIPE,
    )
if done.returncode:
    sys.exit(1)
for file in map(os.path.realpath, os.fsdecode(done.stdout).splitlines()):
    if file.endswith('.py') and file.startswith(os.path.join(os.path.realpath(sys.argv[2]), '')):
        compileall.compile_file(file, quiet=1)
"""


def warm(imported: str, python: str, folder: str) -> list[str]:
    """Return the command that writes the byte code of everything that ``import`` of these names loads.

    Statements may follow the names. User nobody runs them; root only compiles the files below ``folder``.
    """
    # Without -I and -S, root would run code from packages' .pth files.
    return [python, "-I", "-S", "-c", _COMPILE, _IMPORT.format(imported), folder]


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
    ``python`` is a minor version such as 3.11. Raises ValueError if this Python is unknown.
    """
    framework, version = environment["framework"], environment.get("version") or ""
    build = environment.get("build") or "cpu"
    for name in (f"{framework}-{build}-{python}-{architecture}.txt", f"{framework}-{build}-{python}.txt"):
        lock = files / name
        if lock.is_file():
            text = lock.read_text(encoding="utf-8")
            if version in ("", read_locked(text)):
                return text.rstrip("\n")
    if not version:
        raise ValueError(
            f"there is no lock file for {framework} ({build}) on Python {python}: set its version"
        )
    return _open(framework, version, build, files / f"torch-cpu-{python}.txt")


def read_locked(text: str) -> str:
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
    beside: dict[str, str] = {}
    for below, requirement in _BESIDE[framework]:
        if numbers(version)[:2] < below:
            beside.setdefault(re.split(r"[<=>]", requirement)[0], requirement)
    kind = "-cpu" if build == "cpu" else "[and-cuda]"
    pin = f"torch=={version}+{build}" if framework == "torch" else f"tensorflow{kind}=={version}"
    return "\n".join([*pins, *beside.values(), pin])
