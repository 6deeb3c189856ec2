"""Check the inventory itself, before any host is contacted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible import constants
from ansible.plugins.action import ActionBase

from hvlab.ansible.modules.hvlab_inventory import DOCUMENTATION
from hvlab.base.errors import Problem, report
from hvlab.base.paths import project_dir
from hvlab.lab.inventory_files import file_problems
from hvlab.lab.inventory_reader import evaluated
from hvlab.lab.inventory_rules import not_evaluated, problems
from hvlab.stack.provision.arguments import arguments

WIRING = "group_vars/all.yml"


class ActionModule(ActionBase):  # type: ignore[misc]
    """Run once for all hosts; needs no connection and takes no argument."""

    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Fail with everything that is wrong in the inventory's files, names and variables."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments(self, DOCUMENTATION)
        variables = task_vars or {}
        groups, hostvars = variables["groups"], variables["hostvars"]
        listed = [Path(source) for source in variables.get("ansible_inventory_sources") or ()]
        sources = [source for source in listed if source.exists()]
        all_problems = wiring_problems(variables, constants.VARIABLE_PRECEDENCE)
        all_problems += [problem for source in sources for problem in file_problems(source)]
        everyone = {}
        for name in groups["all"]:
            everyone[name], failures = evaluated(hostvars.raw_get(name), self._loader)
            all_problems += not_evaluated(name, failures)
        all_problems += problems(everyone, groups, project_dir() / "roles")
        if all_problems:
            head = "the inventory cannot be used; no host was contacted."
            return result | {"failed": True, "msg": head, "problems": report(all_problems)}
        return result


def wiring_problems(variables: dict[str, Any], precedence: list[str]) -> list[Problem]:
    """Return a problem if the project's wiring is not in force, or would outrank the inventory."""
    config = f"set ANSIBLE_CONFIG={project_dir() / 'ansible.cfg'}"
    if "__stack" not in variables:
        reason = f"{WIRING} of the project is not read, because the playbook lies in another folder"
        return [
            Problem(
                "playbook",
                reason,
                "run site.yml or one of playbooks/, or put a link to group_vars beside yours",
            )
        ]
    if precedence.index("all_plugins_play") > precedence.index("all_inventory"):
        return [
            Problem("ansible.cfg", "its `precedence` lets the project's wiring outrank the inventory", config)
        ]
    return []
