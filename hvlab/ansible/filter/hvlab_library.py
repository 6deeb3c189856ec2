"""A filter of the roles cuda, cudnn and nccl."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hvlab.stack.provision import libraries

DOCUMENTATION = """
name: hvlab_library
short_description: What role cuda, cudnn or nccl installs, refuses, records and removes
description: C(hvlab/stack/provision/libraries.py) decides.
positional: _input, facts
options:
  _input: {description: The role's C(name) and options., type: dict, required: true}
  facts: {description: The host's facts., type: dict, required: true}
author: [the hvlab authors]
"""


def hvlab_library(request: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plan for a library on a host."""
    if request["name"] == "cuda":
        options = {key: value for key, value in request.items() if key != "name"}
        return libraries.plan_toolkit(libraries.CudaToolkit(facts=facts, **options))
    return libraries.plan(libraries.Library(facts=facts, **request))


class FilterModule:
    """Names the filter for Ansible."""

    def filters(self) -> dict[str, Callable[..., dict[str, Any]]]:
        """Return the filter by its name."""
        return {"hvlab_library": hvlab_library}
