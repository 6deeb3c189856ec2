"""The host answers, and the roles' records on it can be read."""

from __future__ import annotations

import json
import re

from hvlab.base.yaml_files import read_shipped
from hvlab.checks.provisioned import FACTS, ROOT, Role, RoleHost, UnreachableHostError, is_virtual
from hvlab.doctor import reading

# Causes that `hvlab lab up` fixes on a virtual host.
_VIRTUAL = ("host-key", "host-key-changed", "host-unreachable", "ssh-denied", "ssh-refused")
HOST = Role("host")
COMMON = Role("common")


@HOST.check
def answers(node: RoleHost) -> None:
    """Its failure makes the other checks skip the host."""
    if node.silence:
        raise UnreachableHostError(
            node.name,
            f"does not answer at {node.variables.get('ansible_host', node.name)}: {node.silence}",
            _remedy(node),
        )


def _remedy(node: RoleHost) -> str:
    known = reading.cause_of(node.silence)
    if known and is_virtual(node) and known.cause.id in _VIRTUAL:
        return "`hvlab lab up`: it boots virtual hosts, and lets this machine know their keys"
    if known:
        return known.cause.remedy
    if "No such file or directory: b'ssh'" in node.silence:
        return "install openssh-client on this machine, or put the folder of ssh into PATH"
    return (
        f"`ansible -m ping -vvv {node.name}` with this inventory shows where it ends; correct ansible_host, "
        "ansible_user or the ssh key"
    )


@COMMON.check
def facts_are_json(node: RoleHost) -> None:
    for path, text in node["facts"].items():
        try:
            json.loads(text)
        except ValueError as error:
            node.expect(
                False, f"{path} is not JSON: {error}", "remove it, and run the role it is named after"
            )


def applied_roles() -> list[str]:
    """Return the roles that any playbook names."""
    names = set()
    for path in (ROOT / "playbooks").glob("*.yml"):
        for play in read_shipped(path) or []:
            for role in play.get("roles", []):
                names.add(role["role"] if isinstance(role, dict) else role)
            for task in play.get("tasks", []):
                if "ansible.builtin.import_role" in task:
                    names.add(task["ansible.builtin.import_role"]["name"])
    return sorted(names)


@COMMON.check
def facts_belong_to_roles(node: RoleHost) -> None:
    known = {f"{FACTS}/hvlab_{role}.fact" for role in applied_roles()}
    # hvlab_ROLE@NAME.fact belongs to a stack beside the one in use.
    written = {path: re.sub(r"@[^/]+(?=\.fact$)", "", path) for path in node["facts"]}
    unknown = sorted(path for path, own in written.items() if "/hvlab_" in path and own not in known)
    node.expect(not unknown, f"unknown fact files, which no role writes: {', '.join(unknown)}", "remove them")
