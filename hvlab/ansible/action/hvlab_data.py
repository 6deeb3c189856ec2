# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""The controller's part of hvlab_data: one look at the host, and one archive for each missing data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

from hvlab.base.errors import HvlabError
from hvlab.stack.provision.arguments import arguments, documentation
from hvlab.workloads.datasets import archive

MIB = 1 << 20


class ActionModule(ActionBase):  # type: ignore[misc]
    """See the module of the same name for what it takes and gives."""

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        """Copy the data sets that are missing on this host."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        self.vars = task_vars
        self.args = arguments(self, documentation("hvlab_data"))
        folders = {item["key"]: Path(item["folder"]) for item in self.args["sets"]}
        state = self._step("look", keys=list(folders))
        if state.get("failed"):
            return result | _failed(state, "correct that on the host, and run again")
        missing = {key: folders[key] for key in state["missing"]}
        if not self._task.check_mode:
            failed = self._bring(missing, state)
            if failed:
                return result | failed
        return result | {"changed": bool(missing), "brought": list(missing)}

    def _bring(self, missing: dict[str, Path], state: dict[str, Any]) -> dict[str, Any] | None:
        """Copy sets, one after another; return what a failed task returns, None where all went well."""
        try:
            for key, folder in missing.items():
                failed = self._room(key, folder, state) or self._copy(key, folder, state["path"])
                if failed:
                    return failed
        except HvlabError as error:
            return _failed({"msg": str(error)}, f"{error.remedy or 'correct that'}, and run again")
        return None

    def _step(self, step: str, **more: Any) -> dict[str, Any]:
        args = {"step": step, "path": self.args["path"], **more}
        done: dict[str, Any] = self._execute_module(
            module_name="hvlab_data", module_args=args, task_vars=self.vars
        )
        return done

    def _room(self, key: str, folder: Path, state: dict[str, Any]) -> dict[str, Any] | None:
        need = sum(file.stat().st_size for file in folder.iterdir()) + archive(folder).stat().st_size
        if state["free"] >= need:
            return None
        space = f"{need / MIB:.1f} MiB, its file system has {state['free'] / MIB:.1f} MiB free"
        return _failed({"msg": f"{state['path']}/{key} needs {space}"}, "free space there, and run again")

    def _copy(self, key: str, folder: Path, root: str) -> dict[str, Any] | None:
        """Copy and unpack one set; return what a failed task returns, None where all went well."""
        packed = archive(folder)
        # Without pipelining the module made one already, and Ansible removes one only.
        remote = self._connection._shell.tmpdir or self._make_tmp_path()
        try:
            place = self._connection._shell.join_path(remote, packed.name)
            try:
                self._transfer_file(str(packed), place)
            except AnsibleError as error:
                msg = f"could not copy {packed} to {place}: {error}"
                return _failed(
                    {"msg": msg}, f"see that {remote} is on a file system with room, and run again"
                )
            self._fixup_perms2((remote, place))
            done = self._step("put", keys=[key], archive=place)
        finally:
            self._remove_tmp_path(remote)
        if not done.get("failed"):
            return None
        if done.get("damaged"):
            remedy = f"rm {packed} on the controller"
        else:
            remedy = "free space there" if "No space left" in done["msg"] else "correct that there"
        return _failed(
            {"msg": f"{root}/{key} could not be written: {done['msg']}"}, f"{remedy}, and run again"
        )


def _failed(result: dict[str, Any], remedy: str) -> dict[str, Any]:
    return {"failed": True, "msg": f"{result.get('msg')}\nWhat to do: {remedy}"}
