"""A filter of the role python_env."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from ansible.errors import AnsibleFilterError

from hvlab.stack.provision.requirements import requirements

DOCUMENTATION = """
name: hvlab_requirements
short_description: The requirements of a Python environment, as pip reads them
description:
  - Those of the environment's own file, or what hvlab has for its framework, version, Python and processor.
positional: _input, files, python, architecture
options:
  _input: {description: The environment as C(python_env_environments) has it., type: dict, required: true}
  files: {description: Folder of hvlab's requirements., type: str, required: true}
  python: {description: The host's Python, such as 3.11., type: str, required: true}
  architecture: {description: The host's processor, such as x86_64., type: str, required: true}
author: [the hvlab authors]
"""


def hvlab_requirements(environment: Mapping[str, str], files: str, python: str, architecture: str) -> str:
    """Return the requirements of an environment: those of its own file, or what hvlab has for it."""
    try:
        if environment.get("requirements"):
            return Path(environment["requirements"]).read_text(encoding="utf-8").rstrip("\n")
        return requirements(environment, Path(files), python=python, architecture=architecture)
    except (OSError, ValueError, KeyError) as error:
        raise AnsibleFilterError(f"python_env_environments: {error}") from error


class FilterModule:
    """Names the filter for Ansible."""

    def filters(self) -> dict[str, Callable[..., str]]:
        """Return the filter by its name."""
        return {"hvlab_requirements": hvlab_requirements}
