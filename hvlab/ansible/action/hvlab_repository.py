"""Add a package source; a key that is a file of the controller is read here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):  # type: ignore[misc]
    """See the module of the same name for what it takes and gives."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the module's result."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        host = (task_vars or {})["inventory_hostname"]
        arguments = dict(self._task.args) | {"host": host}
        key = str(arguments.get("key") or "")
        if key and "://" not in key and "BEGIN PGP" not in key:
            try:
                arguments["key"] = Path(key).expanduser().read_text(encoding="ascii")
            except (OSError, UnicodeDecodeError) as error:
                why = getattr(error, "strerror", None) or "it is not ASCII-armored text"
                raise AnsibleActionFail(
                    f"{host}: the key {key} on the controller cannot be read: {why}.\n"
                    "To go on: give a URL, or the path of an ASCII-armored public key on the controller."
                ) from None
        done: dict[str, Any] = self._execute_module(
            module_name="hvlab_repository", module_args=arguments, task_vars=task_vars
        )
        return result | done
