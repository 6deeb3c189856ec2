"""What shows who carried the data, and what this rank runs with.

``world`` is the ranks of a case, see world.py. Needs Python 3.8+.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import time
from importlib import import_module
from typing import Any, Sequence

import wire

TIMELINE_WAIT_S = 5.0


def activities(path: str, shown: Sequence[str]) -> list[str]:
    """Return the names of the timeline's events, read until its writer has closed the file."""
    names: list[str] = []
    deadline = time.time() + TIMELINE_WAIT_S
    while time.time() < deadline:
        names = events(path)
        done = [name for name in names if not name.startswith("NEGOTIATE_")]
        if all(any(name.endswith(end) for name in done) for end in shown):
            break
        time.sleep(0.02)
    return names


def events(path: str) -> list[str]:
    """Return the names of a timeline's events; several are on a line, and the last may be cut off."""
    names = set()
    with contextlib.suppress(OSError), open(path) as file:
        text = file.read()
        decoder, at = json.JSONDecoder(), text.find("{")
        while at >= 0:
            try:
                event, end = decoder.raw_decode(text, at)
            except ValueError:
                event, end = {}, at + 1
            if event.get("ph") in ("B", "X"):
                names.add(event.get("name", ""))
            at = text.find("{", end)
    return sorted(names - {""})


def loaded_nccl(world: Any) -> str:
    """Return the NCCL that the ranks have loaded, with its hosts where it is not the same on all."""
    hosts: dict[str, list[str]] = {}
    for host, release in world.gather((platform.node(), wire.nccl()), "nccl"):
        if host not in hosts.setdefault(release, []):
            hosts[release].append(host)
    if len(hosts) == 1:
        return next(iter(hosts))
    return ", ".join(
        "{} ({})".format(release or "none", " ".join(hosts[release])) for release in sorted(hosts)
    )


def horovod_state(hvd: Any) -> dict[str, Any]:
    """Return Horovod's own report on its build."""
    state: dict[str, Any] = {}
    for name in ("mpi_enabled", "gloo_enabled", "nccl_built", "ccl_built", "mpi_threads_supported"):
        try:
            state[name] = int(getattr(hvd, name)())
        except (AttributeError, ValueError, RuntimeError) as error:
            state[name] = str(error)
    return state


def state(world: Any) -> dict[str, Any]:
    """Return the connecting library's own report, and the versions on this rank."""
    versions = {"python": platform.python_version(), **world.versions()}
    connection = world.state()
    if connection.get("horovod"):
        versions["horovod"] = import_module("horovod").__version__
    nccl = loaded_nccl(world)
    if nccl:
        versions["nccl"] = nccl
    kept = ("HOROVOD_", "MASTER_", "GLOO_", "NCCL_", "CCL_", "FI_", "OMP_", "OMPI_MCA_", "UCX_")
    return {
        **connection,
        "pml": wire.pml(),
        "versions": versions,
        "environment": {
            key: value
            for key, value in sorted(os.environ.items())
            if key.startswith(kept) and "SECRET" not in key and "KEY" not in key
        },
    }
