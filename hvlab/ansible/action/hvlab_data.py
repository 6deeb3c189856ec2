# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""The controller's part of hvlab_data: one look at the host, and one archive for each missing data set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError

from hvlab.ansible.plugin import HvlabAction
from hvlab.base.errors import CheckError, HvlabError
from hvlab.workloads.datasets import archive

MIB = 1 << 20


class ActionModule(HvlabAction):
    """See the module of the same name for its options and results."""

    def act(self) -> dict[str, Any]:
        """Copy the data sets that are missing on this host."""
        try:
            return self._copy_missing({item["key"]: Path(item["folder"]) for item in self.args["sets"]})
        except HvlabError as error:
            remedy = error.remedy or "correct that"
            return {"failed": True, "msg": f"{error}\nWhat to do: {remedy}, and run again"}

    def _copy_missing(self, folders: Mapping[str, Path]) -> dict[str, Any]:
        state = self._step("look", keys=list(folders))
        if state.get("failed"):
            raise CheckError(str(state.get("msg")), remedy="correct that on the host")
        missing = state["missing"]
        for key in missing if not self._task.check_mode else ():
            self._check_room(f"{state['path']}/{key}", folders[key], state["free"])
            self._copy(f"{state['path']}/{key}", key, archive(folders[key]))
        return {"changed": bool(missing), "brought": missing}

    def _step(self, step: str, **more: Any) -> dict[str, Any]:
        return self._on_host(step=step, path=self.args["path"], **more)

    def _check_room(self, place: str, folder: Path, free: int) -> None:
        need = sum(file.stat().st_size for file in folder.iterdir()) + archive(folder).stat().st_size
        if free < need:
            space = f"{need / MIB:.1f} MiB, its file system has {free / MIB:.1f} MiB free"
            raise CheckError(f"{place} needs {space}", remedy="free space there")

    def _copy(self, place: str, key: str, packed: Path) -> None:
        # Without pipelining the module already made one, and Ansible removes only one.
        remote = self._connection._shell.tmpdir or self._make_tmp_path()
        try:
            copy = self._connection._shell.join_path(remote, packed.name)
            try:
                self._transfer_file(str(packed), copy)
            except AnsibleError as error:
                raise CheckError(
                    f"could not copy {packed} to {copy}: {error}",
                    remedy=f"see that {remote} is on a file system with room",
                ) from error
            self._fixup_perms2((remote, copy))
            done = self._step("put", keys=[key], archive=copy)
        finally:
            self._remove_tmp_path(remote)
        if done.get("failed"):
            remedy = "free space there" if "No space left" in done["msg"] else "correct that there"
            raise CheckError(
                f"{place} could not be written: {done['msg']}",
                remedy=f"rm {packed} on the controller" if done.get("damaged") else remedy,
            )
