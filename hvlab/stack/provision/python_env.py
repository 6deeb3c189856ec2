"""What the Python environments of a host are made of."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hvlab.base.paths import project_dir
from hvlab.stack.provision.requirements import requirements
from hvlab.stack.provision.warm import warm

# Imported once after installation, to write byte code for users who cannot write it.
_TORCH = ("torch", "torch.distributed", "torch.nn", "torch.optim", "torch.utils.data")
_WARM = {
    "torch": ["numpy", *_TORCH, "psutil", "yaml", "cffi", "cloudpickle"],
    "tensorflow": ["numpy", "tensorflow", "psutil", "yaml", "cffi", "cloudpickle"],
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
