"""The training software of this Python, as the roles would record it: Horovod's build, torch, Open MPI.

    installed.py [FOLDER]    prints, or writes to HOST.json: {"prefix", "recorded": {"hvlab_horovod", ...}}

Run once on each host of a Slurm job, by the Python that the ranks will use. Needs Python 3.8+ and no package.
"""

from __future__ import annotations

import json
import os
import platform
import re
import socket
import subprocess
import sys
from importlib import metadata, util
from typing import Any, Sequence

# Importing TensorFlow alone may take a minute on a cold file system.
_ANSWER_S = 180


def main() -> int:
    # As the inventory calls torch in Horovod's place.
    variant = os.path.basename(sys.prefix) if version("horovod") or not torch() else "torch"
    answered = {"prefix": sys.prefix, "recorded": read_record(variant)}
    if not sys.argv[1:]:
        print(json.dumps(answered))
        return 0
    host = os.environ.get("SLURMD_NODENAME") or socket.gethostname().split(".")[0]
    path = os.path.join(sys.argv[1], host + ".json")
    with open(path + ".part", "w") as file:
        json.dump(answered, file)
    os.replace(path + ".part", path)
    return 0


def read_record(variant: str) -> dict[str, Any]:
    """Return the roles' record of a host that has this Python as its only ``variant``."""
    build = parse_build(answer([sys.executable, "-m", "horovod.runner.launch", "--check-build"]))
    frameworks = [known for known in (torch(), tensorflow()) if known]
    facts: dict[str, Any] = {
        "hvlab_horovod": {"version": version("horovod"), "variants": {variant: build}},
        "hvlab_python_env": {
            "python": ".".join(platform.python_version_tuple()[:2]),
            "environments": {item["framework"]: item for item in frameworks},
        },
    }
    openmpi = re.search(r"Open MPI\) (\S+)", answer(["mpirun", "--version"]))
    return {**facts, "hvlab_openmpi": {"version": openmpi.group(1)}} if openmpi else facts


def parse_build(text: str) -> dict[str, Any]:
    """Return Horovod's frameworks, controllers and operations from horovodrun's output."""
    sections: dict[str, list[str]] = {}
    for line in text.splitlines():
        heading = re.match(r"Available (?:Tensor )?(\w+):", line)
        if heading:
            kind = heading.group(1).lower()
            sections[kind] = []
        entry = re.match(r"\s*\[X\] (\S+)", line)
        if entry and sections:
            sections[kind].append(entry.group(1))
    return {name: sections.get(name, []) for name in ("frameworks", "controllers", "operations")}


def torch() -> dict[str, str | None] | None:
    """Return torch's version and its build, cpu or that of a CUDA release; None without torch."""
    installed = version("torch")
    spec = util.find_spec("torch") if installed else None
    if not installed or not spec or not spec.origin:
        return None
    path = os.path.join(os.path.dirname(spec.origin), "version.py")
    with open(path) as file:
        cuda = re.search(r"^cuda\b.*?=\s*'([\d.]+)'", file.read(), re.MULTILINE)
    build = "cu" + cuda.group(1).replace(".", "") if cuda else "cpu"
    return {"framework": "torch", "version": installed, "build": build}


def tensorflow() -> dict[str, str | None] | None:
    installed = version("tensorflow") or version("tensorflow-cpu")
    return {"framework": "tensorflow", "version": installed, "build": ""} if installed else None


def version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def answer(argv: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            argv,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            universal_newlines=True,
            timeout=_ANSWER_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
