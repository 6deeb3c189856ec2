"""Judge the inventory itself, before any host is contacted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from hvlab.ansible.modules.hvlab_inventory import DOCUMENTATION
from hvlab.lab.inventory_files import file_problems
from hvlab.lab.inventory_rules import not_evaluated, problems
from hvlab.lab.inventory_values import evaluated
from hvlab.paths import project_dir
from hvlab.provision.arguments import arguments
from hvlab.provision.preflight import report


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
        sources = [Path(source) for source in variables.get("ansible_inventory_sources") or ()]
        wrong = [problem for source in sources if source.exists() for problem in file_problems(source)]
        everyone = {}
        for name in groups["all"]:
            everyone[name], failures = evaluated(hostvars.raw_get(name), self._loader)
            wrong += not_evaluated(name, failures)
        wrong += problems(everyone, groups, project_dir() / "roles")
        if not wrong:
            return result
        head = "the inventory cannot be used; no host was contacted."
        return result | {"failed": True, "msg": head, "problems": report(wrong)}
