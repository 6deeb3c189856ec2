"""What group_vars/all/roles.yml makes of the chosen stacks."""

from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

ROLES = Path(__file__).parents[2] / "inventory/lab/group_vars/all/roles.yml"


def stack(
    python: str = "3.11", own: str = "3.11", packages: tuple[str, ...] = (), **changes: Any
) -> dict[str, Any]:
    return {
        "system": {"python": own},
        "versions": {"python": python, "cuda": changes.get("cuda")},
        "packages": {"python": [{"name": name, "version": None} for name in packages]},
        "compute_capabilities": changes.get("capabilities", []),
    }


def wired(name: str, *, host: str = "n1", executable: str = "/usr/bin/python3", **stacks: Any) -> Any:
    loader = DataLoader()
    facts = {"hvlab_stacks": stacks, "python": {"executable": executable}, "python_version": "3.99.1"}
    own = {"ansible_facts": facts, "inventory_hostname": host, "group_names": ["gpu"]}
    variables = {**loader.load_from_file(str(ROLES), trusted_as_template=True), **own}
    return Templar(loader, variables=variables).template(variables[name])


@pytest.mark.parametrize(
    ("found", "path", "packages"),
    [
        (stack(packages=("python3.11-venv",)), "/usr/bin/python3", []),
        (stack("3.8", own="3.6", packages=("python3.8-venv",)), "/usr/bin/python3.8", ["python3.8-venv"]),
        (stack("3.13"), "/opt/python/bin/python3", []),
    ],
    ids=["the system's own", "another of the system's", "one that is there"],
)
def test_the_python_of_the_environments(found, path, packages):
    """Whichever Python Ansible itself runs on there."""
    asked = {"n1": found, "executable": "/opt/python/bin/python3"}
    assert wired("python_env_python", **asked) == path
    assert [item["name"] for item in wired("python_env_packages", **asked)] == packages


def test_code_is_made_for_the_gpus_of_hosts_with_the_same_cuda():
    stacks = {
        "n1": stack(cuda="12.6", capabilities=["6.0"]),
        "n2": stack(cuda="13.0", capabilities=["12.0"]),
        "n3": stack(cuda="12.6", capabilities=["8.0", "6.0"]),
        "n4": stack(),
    }
    for name in ("horovod_cuda_capabilities", "nccl_tests_compute_capabilities"):
        found = [wired(name, host=host, **stacks) for host in stacks]
        assert found == [["6.0", "8.0"], ["12.0"], ["6.0", "8.0"], []]
