"""Values of the options that select one configuration, in ``hvlab tune`` and ``hvlab bisect``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import click

from hvlab.bench.request import BenchRequest, one_configuration
from hvlab.cli import candidates
from hvlab.lab.backends import BACKENDS, LAUNCHERS
from hvlab.lab.inventory import Lab
from hvlab.workloads import WORKLOADS

COMPUTED: Mapping[str, Mapping[str, Any]] = {
    "workload": {"shell_complete": candidates.words(WORKLOADS)},
    "backend": {"type": click.Choice(list(BACKENDS)), "metavar": "NAME"},
    "launcher": {"type": click.Choice(LAUNCHERS)},
}


def read_request(values: Mapping[str, Any], lab: Lab) -> BenchRequest:
    """Return the configuration that the options select."""
    known = {item.name for item in fields(BenchRequest)}
    texts = {name: str(values[name]) for name in ("hosts", "slots") if values[name]}
    return one_configuration(
        BenchRequest(**{name: values[name] for name in known & values.keys()} | texts), lab
    )
