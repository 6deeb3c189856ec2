"""Decisions of group_vars/ when it passes values from role to role. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

# "NVIDIA H100 80GB HBM3" as NVIDIA's library names it, "GH100 [H100 SXM5 80GB]" as the PCI bus does without
# a driver, "NVIDIA GeForce RTX 4090".
_MODEL = re.compile(r"(?:RTX|GTX) \w+|\b[A-Z]{1,2}[0-9]+\w*")


def gpu_type(*, gpus: Sequence[Mapping[str, Any]]) -> str:
    """Return the model of a host's GPUs in Slurm's spelling, such as rtx_4090; empty for several."""
    names = (re.sub(r"^.*\[(.*)\]", r"\1", gpu["name"]) for gpu in gpus if gpu.get("name"))
    models = {found[0].lower().replace(" ", "_") for name in names if (found := _MODEL.search(name))}
    return models.pop() if len(models) == 1 else ""


def stack_changes(*, versions: Mapping[str, Any], recorded: Mapping[str, Any] | None) -> bool:
    """Return whether a library that jobs may have loaded changes from its recorded version."""
    before = {name: (recorded or {}).get(f"hvlab_{name}", {}) for name in versions}
    return any(
        str(version or "") not in ("", str(before[name].get("requested", version)))
        for name, version in versions.items()
    )
