"""Check the inventory itself, before any host is contacted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible import constants

from hvlab.ansible.plugin import HvlabAction
from hvlab.base.errors import Problem, report
from hvlab.base.paths import project_dir
from hvlab.lab.inventory_files import file_problems
from hvlab.lab.inventory_reader import evaluate
from hvlab.lab.inventory_rules import check_evaluated, problems

WIRING = "group_vars/all.yml"


class ActionModule(HvlabAction):
    """Run once for all hosts; needs no connection and takes no argument."""

    _requires_connection = False

    def act(self) -> dict[str, Any]:
        """Fail with everything that is wrong in the inventory's files, names and variables."""
        groups, hostvars = self.vars["groups"], self.vars["hostvars"]
        listed = [Path(source) for source in self.vars.get("ansible_inventory_sources") or ()]
        sources = [source for source in listed if source.exists()]
        all_problems = wiring_problems(self.vars, constants.VARIABLE_PRECEDENCE)
        all_problems += [problem for source in sources for problem in file_problems(source)]
        everyone = {}
        for name in groups["all"]:
            everyone[name], failures = evaluate(hostvars.raw_get(name), self._loader)
            all_problems += check_evaluated(name, failures)
        all_problems += problems(everyone, groups, project_dir() / "roles")
        if all_problems:
            head = "the inventory cannot be used; no host was contacted."
            return {"failed": True, "msg": head, "problems": report(all_problems)}
        return {}


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
