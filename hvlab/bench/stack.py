"""The stack of a case, for its records: the versions on its hosts, from the facts of the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hvlab.bench import containers
from hvlab.lab import environment
from hvlab.workloads.case import Case
from hvlab.workloads.parameters import STACK

_OUTSIDE = ("os", "gcc", "libfabric", "cuda", "cudnn", "nccl_installed")


def of_case(folder: Path, case: Case) -> dict[str, Any]:
    """Return the versions on the hosts of a case, and its image; ``folder`` is the run's."""
    facts = json.loads((folder / "facts.json").read_text("utf-8"))
    stack = case.params.get(STACK.name, "")
    versions = environment.stack(
        {host: environment.of_stack(facts[host], stack) for host in case.hosts}, case.variant
    )
    if not case.container:
        return versions
    image = containers.images(folder).get(case.hosts[0])
    if image is None:
        # srun starts the ranks inside, and the facts are those of the host outside.
        versions = {name: value for name, value in versions.items() if name not in _OUTSIDE}
    return versions | {"image": image or case.container}
