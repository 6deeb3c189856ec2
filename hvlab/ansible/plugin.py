"""What hvlab's action plugins share: documented arguments, the host's own module, errors with a remedy."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from hvlab.base.paths import project_dir
from hvlab.base.yaml_files import read_shipped

_KEYS = ("type", "elements", "required", "default", "choices")


class HvlabAction(ActionBase):  # type: ignore[misc]
    """An action plugin: ``act`` returns the result of a task from ``args``, ``vars`` and ``host``."""

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        """Return the task's result; an undocumented option or a wrong value fails the task."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        self.vars: dict[str, Any] = task_vars or {}
        self.host = str(self.vars.get("inventory_hostname", "?"))
        self.args: dict[str, Any] = self.validate_argument_spec(argument_spec=options(self._module))[1]
        return result | self.act()

    def act(self) -> dict[str, Any]:
        """Return the plugin's part of the task's result."""
        raise NotImplementedError

    @property
    def _module(self) -> str:
        plugin = next(each for each in type(self).__mro__ if each.__name__ == "ActionModule")
        return plugin.__module__.rpartition(".")[2]

    def _on_host(self, **arguments: Any) -> dict[str, Any]:
        """Return the result of the module of this plugin's name, run on the host."""
        done: dict[str, Any] = self._execute_module(
            module_name=self._module, module_args=arguments, task_vars=self.vars
        )
        return done

    def _failure(self, problem: object, remedy: str = "", **more: Any) -> AnsibleActionFail:
        advice = f".\nWhat to do: {remedy}." if remedy else ""
        return AnsibleActionFail(f"{self.host}: {problem}{advice}", **more)


@cache
def options(module: str) -> dict[str, Any]:
    """Return Ansible's argument spec of a module, from its documentation."""
    path = project_dir() / f"hvlab/ansible/modules/{module}.yml"
    return _spec(read_shipped(path)["DOCUMENTATION"]["options"])


def _spec(documented: Mapping[str, Any]) -> dict[str, Any]:
    known = {}
    for name, option in documented.items():
        known[name] = {key: option[key] for key in _KEYS if key in option}
        if "suboptions" in option:
            known[name]["options"] = _spec(option["suboptions"])
    return known
