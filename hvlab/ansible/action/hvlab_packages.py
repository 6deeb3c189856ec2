"""Install or remove distribution packages; no round trip where the facts say that nothing is to be done."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

APT = {"update_cache": True, "cache_valid_time": 3600, "install_recommends": False, "lock_timeout": 300}


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
        arguments = APT if present else {"purge": True, "lock_timeout": 300}
        done = self._execute_module(
            module_name="ansible.builtin.apt",
            module_args={"name": names, "state": "present" if present else "absent", **arguments},
            task_vars=task_vars,
        )
        result |= done
        return result | {"packages": names}
