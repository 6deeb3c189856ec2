"""The wiring in group_vars/all.yml: what it makes of the chosen stacks; every inventory outranks it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from hvlab.ansible.action.hvlab_inventory import wiring_problems
from hvlab.ansible.filter.hvlab_plan import hvlab_plan
from tests.contract.tree import ROOT

WIRING = ROOT / "group_vars/all.yml"
WIRED = [name for name in yaml.safe_load(WIRING.read_text("utf-8")) if not name.startswith("__")]
LAB = {"lab_network": "10.0.0.0/24", "lab_interface": "eth0"}


def stack(
    python: str = "3.11", own: str = "3.11", packages: tuple[str, ...] = (), **changes: Any
) -> dict[str, Any]:
    return {
        "system": {"python": own},
        "versions": {"python": python, "cuda": changes.get("cuda")},
        "packages": {"python": [{"name": name, "version": None} for name in packages]},
        "compute_capabilities": changes.get("capabilities", []),
        "fabric_manager": changes.get("fabric_manager", False),
        "imex": changes.get("imex", False),
    }


def wired(
    name: str,
    *,
    host: str = "n1",
    executable: str = "/usr/bin/python3",
    users: tuple[str, ...] = (),
    known: dict[str, Any] | None = None,
    lab_hosts: dict[str, Any] | None = None,
    **stacks: Any,
) -> Any:
    loader, known = DataLoader(), known or {}
    facts: dict[str, Any] = {"python": {"executable": executable}, "python_version": "3.99.1"}
    facts["hvlab"] = {"users": {key: {} for key in users}}
    own = {"ansible_facts": facts, "inventory_hostname": host, "group_names": ["gpu"], **known}
    own |= {"__preflight_stacks": {"stacks": stacks}, "__preflight_hosts": {"hosts": lab_hosts or {}}}
    variables = {**loader.load_from_file(str(WIRING), trusted_as_template=True), **own}
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


def test_a_host_keeps_its_stack_without_reasons_and_packages_of_roles():
    chosen = stack() | {"reasons": ["x"], "notes": ["x"], "role_packages": {"common": []}}
    assert wired("common_stack", n1=chosen) == stack()


def test_shapes_that_playbooks_build():
    paths = {"paths": ["/a", "/b", "/a"]}
    gone = [{"path": path, "state": "absent"} for path in ("/a", "/b")]
    assert hvlab_plan(paths, "absent") == gone
    assert hvlab_plan({"hosts": ["n1", "n2"], "values": [1, 2]}, "by_host") == {"n1": 1, "n2": 2}


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


def test_masking_nvswitches_come_from_the_stack_of_the_host():
    stacks = {"n1": stack(fabric_manager=True), "n2": stack()}
    assert [wired("nvidia_driver_nvswitch", host=host, **stacks) for host in stacks] == [True, False]


def test_imex_connects_the_hosts_of_the_group_gpu():
    facts = {"n1": {"address": "10.0.0.12"}, "n2": {"address": "10.0.0.11"}, "n3": {"address": None}}
    known = {"groups": {"gpu": list(facts)}}
    stacks = {"n1": stack(imex=True), "n2": stack()}
    asked = {"known": known, "lab_hosts": facts, **stacks}
    assert wired("nvidia_driver_imex_enabled", **asked) is True
    assert wired("nvidia_driver_imex_nodes", **asked) == ["10.0.0.11", "10.0.0.12"]
    assert wired("nvidia_driver_imex_nodes", host="n2", **asked) == []


def test_open_mpi_is_checked_as_the_lab_user_where_there_is_one():
    just_made = {"__lab_user_written": {"changed": True}}
    found = [
        wired("openmpi_check_user", **change) for change in ({}, {"users": ("hvlab",)}, {"known": just_made})
    ]
    assert found == ["", "hvlab", "hvlab"]


def inventory(folder: Path, **files: dict[str, Any]) -> Path:
    """Write an inventory of the host n1 in group cpu; ``files`` go on top, their names with __ for /."""
    files = {"hosts": {"all": {"children": {"cpu": {"hosts": {"n1": {}}}}}}, "group_vars__all": LAB} | files
    for name, content in files.items():
        path = folder / f"{name.replace('__', '/')}.yml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content), "utf-8")
    return folder


def ansible(program: str, *words: str | Path) -> str:
    argv = [Path(sys.executable).parent / program, *words]
    env = os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "PYTHONPATH": str(ROOT)}
    return subprocess.run(argv, capture_output=True, text=True, check=True, env=env).stdout


def with_vars(**variables: Any) -> dict[str, Any]:
    """A hosts.yml with variables of ``all``, of the group ``cpu`` or of the host ``n1``."""
    host = {"n1": variables.get("n1", {})}
    return {
        "all": {
            "vars": variables.get("all", {}),
            "children": {"cpu": {"hosts": host, "vars": variables.get("cpu", {})}},
        }
    }


@pytest.mark.parametrize(
    "place",
    ["hosts: all", "hosts: cpu", "hosts: n1", "group_vars__all", "group_vars__cpu", "host_vars__n1"],
)
def test_an_inventory_outranks_every_line_of_the_wiring(tmp_path, place):
    own = dict.fromkeys(WIRED, "own")
    in_hosts = place.startswith("hosts: ")
    files = {"hosts": with_vars(**{place.removeprefix("hosts: "): own})} if in_hosts else {place: own}
    listing = json.loads(ansible("ansible-inventory", "-i", inventory(tmp_path, **files), "--list"))
    found = listing["_meta"]["hostvars"]["n1"]
    assert {name: found[name] for name in WIRED} == own


def test_a_play_sees_the_inventory_before_the_wiring_and_the_wiring_before_a_roles_default(tmp_path):
    """In a playbook beside group_vars, in a role: with its three layers, and the group gpu's own wiring."""
    (tmp_path / "group_vars").symlink_to(ROOT / "group_vars")
    for name, content in {
        "defaults": {"cuda_prefix": "default", "nccl_prefix": "default", "cuda_hold": "default"},
        "tasks": [
            {"name": "Show", "ansible.builtin.debug": {"msg": "{{ [cuda_prefix, nccl_prefix, cuda_hold] }}"}}
        ],
    }.items():
        file = tmp_path / "roles/cuda" / name / "main.yml"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(content), "utf-8")
    play = {"name": "Show", "hosts": "all", "gather_facts": False, "roles": ["cuda"]}
    (tmp_path / "play.yml").write_text(json.dumps([play]), "utf-8")
    source = inventory(tmp_path / "lab", group_vars__all={**LAB, "nccl_prefix": "own"})
    said = ansible("ansible-playbook", tmp_path / "play.yml", "-i", source)
    assert [said.count(value) for value in ("- /usr/local/cuda", "- own", "- default")] == [1, 1, 1]


def test_a_playbook_without_the_wiring_is_refused():
    usual = ["all_plugins_play", "all_inventory"]
    assert wiring_problems({"__stack": "x"}, usual) == []
    [problem] = wiring_problems({}, usual)
    assert "group_vars/all.yml of the project is not read" in problem.observed
    [problem] = wiring_problems({"__stack": "x"}, usual[::-1])
    assert "outrank the inventory" in problem.observed
