"""Install or remove distribution packages; no round trip where the facts say that nothing is to be done."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

INSTALL = {"update_cache": True, "cache_valid_time": 3600, "install_recommends": False}


class ActionModule(ActionBase):  # type: ignore[misc]
    """Arguments: `name`, a list of packages; `state`, present or absent (which purges)."""

    _supports_check_mode = True
    _VALID_ARGS = frozenset({"name", "state"})

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the packages that were, or in check mode would be, installed or removed."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        facts = (task_vars or {})["ansible_facts"]
        present = self._task.args.get("state", "present") == "present"
        installed = facts["hvlab"]["packages"] or {}
        names = [name for name in self._task.args["name"] if (name in installed) is not present]
        if not names or self._task.check_mode:
            lines = "".join(f"{name}\n" for name in names)
            diff = {"before": "" if present else lines, "after": lines if present else ""}
            return result | {"changed": bool(names), "packages": names, "diff": diff if names else []}
        if facts["pkg_mgr"] != "apt":
            raise AnsibleActionFail(f"packages are managed by {facts['pkg_mgr']}; only apt is supported")
        arguments = {"name": names, "state": "present" if present else "absent", "lock_timeout": 300}
        if not present:
            return result | self._apt(arguments | {"purge": True}, task_vars) | {"packages": names}
        done = self._apt(arguments | INSTALL, task_vars)
        if done.get("failed"):  # the lists may be young and yet empty, or name files that are gone
            done = self._apt(arguments | INSTALL | {"cache_valid_time": 0}, task_vars)
        return result | done | {"packages": names}

    def _apt(self, arguments: dict[str, Any], task_vars: dict[str, Any] | None) -> dict[str, Any]:
        done: dict[str, Any] = self._execute_module(
            module_name="ansible.builtin.apt", module_args=arguments, task_vars=task_vars
        )
        return done
