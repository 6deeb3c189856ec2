"""What is known of failures: a YAML file for each family, whose entries are :class:`Cause`."""

from __future__ import annotations

from pathlib import Path

from pydantic import TypeAdapter

from hvlab.base.yaml_files import read_shipped
from hvlab.doctor.cause import WEIGHTS, Cause

# If a line shows two causes of the same weight, the one from the earlier family comes first.
FILES = (
    *("ssh", "hosts", "mpirun", "mpi", "transport", "slurm_daemons", "slurm_jobs", "horovod", "gloo", "nccl"),
    *("torch", "gpu", "cuda", "libraries", "compiling", "build_tools", "python_builds", "containers"),
    *("kubernetes", "ansible", "packages", "resources", "system", "noise"),
)
_FAMILY: TypeAdapter[tuple[Cause, ...]] = TypeAdapter(tuple[Cause, ...])


def _read(name: str) -> tuple[str, tuple[Cause, ...]]:
    family = read_shipped(Path(__file__).with_name(f"{name}.yml"))
    shared = {"speakers": family.get("speakers", ())}
    entries = [
        {**shared, **entry, "weight": WEIGHTS[entry.get("weight", "setting")]} for entry in family["causes"]
    ]
    return family["family"], _FAMILY.validate_python(entries)


FAMILIES: dict[str, tuple[Cause, ...]]
CAUSES: tuple[Cause, ...]


def __getattr__(name: str) -> object:
    """Read all families when one is first asked for: a bench without failures needs none."""
    if name not in ("FAMILIES", "CAUSES"):
        raise AttributeError(name)
    families = dict(map(_read, FILES))
    globals()["FAMILIES"] = families
    globals()["CAUSES"] = tuple(cause for causes in families.values() for cause in causes)
    return globals()[name]
