"""A host with what the inventory says of it: wishes, methods, GPUs that cannot be seen from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hvlab.resolver import pins
from hvlab.resolver.catalogue import load
from hvlab.resolver.facts import Host, with_gpus
from hvlab.resolver.lab import Wanted


def wanted(host: Host, variables: Mapping[str, Any], *, gpu: bool = True, only_pins: bool = False) -> Wanted:
    """Return the host with its variables' wishes. Raises UsageError for one that is malformed.

    ``gpu``: whether it gets the GPU stack (group ``gpu``); without, its GPUs do not count.
    """
    found = tuple(pins.of_host(host.name, variables))
    if only_pins:
        return Wanted(host, found)
    declared = variables.get("lab_gpus")
    if isinstance(declared, list):
        host = with_gpus(host, declared)
    host = host if gpu else replace(host, gpus=())
    return Wanted(host, found, pins.methods_of(host.name, variables), gpu, load().pythons)
