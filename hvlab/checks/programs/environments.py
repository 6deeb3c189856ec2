"""Runs on a node as the user who runs the ranks: imports what ranks import, in each Python environment.

Its argument is a JSON object: ``horovod`` (the folder of Horovod's variants), ``records`` (what the roles
python_env and horovod wrote down) and ``seconds`` (for one import). It prints environment -> what is in it.
"""

import glob
import json
import os
import subprocess
import sys
import time
from typing import Any, Dict, List, Mapping, Tuple

# For all of them together: what is not begun by then is left out.
TOTAL_S = 150
LOOK_S = 30
PRINTED = 6000
# As the role horovod writes them, and as Python does.
FRAMEWORKS = {"PyTorch": "torch", "TensorFlow": "tensorflow", "MXNet": "mxnet"}
# Runs in the environment; nothing large is imported.
LOOK = """
import glob, importlib.metadata, importlib.util, json, os, runpy, sys
def folder(name):
    spec = importlib.util.find_spec(name)
    return (list(spec.submodule_search_locations or []) + [""])[0] if spec else ""
packages = {}
for each in importlib.metadata.distributions():
    packages.setdefault((each.metadata["Name"] or "").lower().replace("_", "-"), each.version)
torch, horovod = folder("torch"), folder("horovod")
version = os.path.join(torch, "version.py")
named = runpy.run_path(version) if torch and os.path.exists(version) else {}
print(json.dumps({
    "packages": {name: packages[name] for name in sys.argv[1:] if name in packages},
    "torch_cuda": named.get("cuda") or "" if "cuda" in named else None,
    "extensions": sorted(glob.glob(os.path.join(horovod, "*", "mpi_lib*.so"))) if horovod else [],
}))
"""
PACKAGES = ("horovod", "torch", "tensorflow", "tensorflow-cpu", "tf-keras")
# The extension itself; what it was built with follows where it loads.
IMPORT = "import horovod.{0}.mpi_ops as ops; print('built', int(ops.mpi_built()), int(ops.gloo_built()))"


def run(argv: List[str], seconds: float) -> Dict[str, Any]:
    """Return the status of a command, and the end of its output."""
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return {"rc": 124, "out": "", "err": ""}
    except OSError as error:
        return {"rc": 127, "out": "", "err": str(error)}
    out, err = (text.decode("utf-8", "replace")[-PRINTED:] for text in (done.stdout, done.stderr))
    return {"rc": done.returncode, "out": out, "err": err}


def record(path: str) -> Dict[str, Any]:
    """Return a role's record; empty without one."""
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def imports(python: str, frameworks: List[str], seconds: float, end: float) -> Dict[str, Any]:
    """Return the outcome of importing each framework's extension."""
    ended = {}
    for name in frameworks:
        if time.monotonic() < end:
            ended[name] = run([python, "-c", IMPORT.format(name)], seconds)
    return ended


def libmpi(extension: str) -> str:
    """Return the libmpi that the loader finds for an extension; empty if it is linked with none."""
    for line in run(["ldd", extension], LOOK_S)["out"].splitlines():
        name, _, rest = line.strip().partition(" => ")
        if name.startswith("libmpi.so"):
            return "" if rest.startswith("not found") else os.path.realpath(rest.rpartition(" (")[0])
    return ""


def environments(given: Mapping[str, Any]) -> List[Tuple[str, str, List[str]]]:
    """Return each environment, the build that was asked for and the frameworks: Horovod's variants first.

    A variant's framework is asked for where the role says that it is there, or where its extension lies.
    """
    variants = record(given["records"]["horovod"]).get("variants") or {}
    folders = sorted({os.path.join(given["horovod"], name) for name in variants})
    other = {os.path.dirname(os.path.dirname(path)) for path in glob.glob(given["horovod"] + "/*/bin/python")}
    listed = [
        (path, "", (variants.get(os.path.basename(path)) or {}).get("frameworks", []))
        for path in [*folders, *sorted(other - set(folders))]
    ]
    written = record(given["records"]["python_env"])
    for name, each in (written.get("environments") or {}).items():
        listed.append((os.path.join(written.get("prefix", "/opt/hvlab"), name), each.get("build", ""), []))
    return listed


def inspect(path: str, build: str, asked: List[str], seconds: float, end: float) -> Dict[str, Any]:
    """Return the contents of an environment, and the outcomes of its imports."""
    python = os.path.join(path, "bin", "python")
    looked = run([python, "-c", LOOK, *PACKAGES], LOOK_S)
    try:
        own = json.loads(looked["out"])
    except ValueError:
        own = {"packages": {}, "torch_cuda": None, "extensions": []}
    there = {FRAMEWORKS.get(name, "") for name in asked}
    there |= {extension.split(os.sep)[-2] for extension in own["extensions"]}
    frameworks = [name for name in FRAMEWORKS.values() if name in there and looked["rc"] == 0]
    return {
        "looked": looked["rc"],
        "said": "" if looked["rc"] == 0 else looked["err"],
        "build": build,
        "packages": own["packages"],
        "torch_cuda": own["torch_cuda"],
        "libmpi": sorted({library for each in own["extensions"] for library in [libmpi(each)] if library}),
        "imports": imports(python, frameworks, seconds, end),
    }


def main() -> None:
    """Look at the environments one after another and print what was seen."""
    given = json.loads(sys.argv[1])
    end = time.monotonic() + TOTAL_S
    observed = {
        path: inspect(path, build, asked, given["seconds"], end)
        for path, build, asked in environments(given)
        if time.monotonic() < end
    }
    json.dump(observed, sys.stdout)


main()
