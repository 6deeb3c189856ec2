"""A filter of the role python_env."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from ansible.errors import AnsibleFilterError

from hvlab.provision.requirements import requirements


def hvlab_requirements(asked: Mapping[str, str], files: str, python: str, architecture: str) -> str:
    """Return the requirements of an environment: those of its own file, or what hvlab has for it."""
    try:
        if asked.get("requirements"):
            return Path(asked["requirements"]).read_text(encoding="utf-8").rstrip("\n")
        return requirements(asked, Path(files), python=python, architecture=architecture)
    except (OSError, ValueError, KeyError) as error:
        raise AnsibleFilterError(f"python_env_environments: {error}") from error


class FilterModule:
    """Names the filter for Ansible."""

    def filters(self) -> dict[str, Callable[..., str]]:
        """Return the filter by its name."""
        return {"hvlab_requirements": hvlab_requirements}
