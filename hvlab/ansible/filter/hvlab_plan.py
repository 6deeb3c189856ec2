"""The filter by which roles ask their planners."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from hvlab.stack.provision import containers, horovod, libraries, openmpi, python_env, roles

DOCUMENTATION = """
name: hvlab_plan
short_description: What a role decides, from its request
description:
  - Calls a function of C(hvlab/stack/provision) with the request's fields; each says there what it takes
    and returns.
positional: _input, planner
options:
  _input: {description: The request., type: dict, required: true}
  planner: {description: The planner's name., type: str, required: true}
author: [the hvlab authors]
"""
PLANNERS: Mapping[str, Callable[..., Any]] = {
    "absent": roles.mark_absent,
    "by_host": roles.map_by_host,
    "container_runtime": containers.plan,
    "container_settings": containers.plan_settings,
    "cuda": lambda **request: libraries.plan_toolkit(libraries.CudaToolkit(**request)),
    "dcgm": roles.plan_dcgm,
    "gpudirect": roles.plan_gpudirect,
    "gpu_type": roles.name_gpu_type,
    "horovod": horovod.plan,
    "horovod_absent": horovod.find_absent,
    "horovod_patches": horovod.choose_patches,
    "library": lambda **request: libraries.plan(libraries.Library(**request)),
    "nccl_tests": roles.plan_nccl_tests,
    "node_health": roles.plan_node_health,
    "nvidia_repository": roles.plan_nvidia_repository,
    "openmpi": openmpi.plan,
    "programs": roles.list_programs,
    "python_env": python_env.plan,
    "stack_changes": roles.changes_stack,
    "stack_record": roles.record_stack,
    "used_gpus": roles.choose_used_gpus,
}


def hvlab_plan(request: Mapping[str, Any], planner: str) -> Any:
    """Return a planner's decision."""
    try:
        return PLANNERS[planner](**request)
    except (OSError, ValueError) as error:
        raise AnsibleFilterError(f"{error}") from error


class FilterModule:
    """Names the filter for Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filter by its name."""
        return {"hvlab_plan": hvlab_plan}
