"""The stack of a case, for its records: the versions on its hosts, from the facts of the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hvlab.bench import containers
from hvlab.lab import environment
from hvlab.workloads.case import Case
from hvlab.workloads.parameters import STACK


def of_case(folder: Path, case: Case) -> dict[str, Any]:
    """Return the versions on the hosts of a case, and its image; ``folder`` is the run's."""
    facts = json.loads((folder / "facts.json").read_text("utf-8"))
    stack = case.params.get(STACK.name, "")
    versions = environment.stack(
        {host: environment.of_stack(facts[host], stack) for host in case.hosts}, case.variant
    )
    return versions | ({"image": containers.images(folder)[case.hosts[0]]} if case.container else {})
