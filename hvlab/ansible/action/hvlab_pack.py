# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""The controller's part of hvlab_pack: the key, the cache, the host that builds, and the transfers."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.plugins.action import ActionBase

from hvlab.paths import cache_dir

MARKER = ".hvlab-pack.json"
MIB = 1 << 20


def pack_key(name: str, inputs: dict[str, Any]) -> str:
    """Return 16 hex digits that stand for everything that went into a pack."""
    text = json.dumps({"name": name, "inputs": inputs}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def elect(states: Iterable[Mapping[str, Any]], key: str) -> str:
    """Return the host that hands the pack ``key`` to those that miss it; empty when none misses it.

    ``states`` are the results of state present, in the order of the play's hosts. A host that has the pack
    already is preferred, for it need not build; then the one with the most cores. Hosts that could unpack it
    from the cache are left out.
    """
    same = [state for state in states if state.get("key") == key and not state["cached"]]
    missing = [state for state in same if state["status"] == "missing"]
    installed = [state for state in same if state["status"] != "missing"]
    fastest = sorted(missing, key=lambda state: -int(state.get("cores") or 0))
    return str((installed + fastest)[0]["host"]) if missing else ""


class Archive:
    """One pack in the controller's cache: the archive, and beside it a file with its sha256."""

    def __init__(self, name: str, key: str) -> None:
        self.path = cache_dir() / "packs" / f"{name}-{key}.tar.gz"
        self.sum_path = self.path.with_name(self.path.name + ".sha256")

    def cached(self) -> bool:
        """Return whether both files are there."""
        return self.path.is_file() and self.sum_path.is_file()

    def marker(self) -> dict[str, Any]:
        """Return the marker inside; raise AnsibleActionFail when the archive is not what was saved."""
        expected = self.sum_path.read_text(encoding="utf-8").split()[0]
        actual = file_sha256(self.path)
        if actual != expected:
            raise AnsibleActionFail(
                f"{self.path} in the controller's cache is damaged: "
                f"its sha256 is {actual}, it was saved with {expected}.\n"
                f"What to do: rm {self.path} and run again; the pack is then built again."
            )
        with tarfile.open(self.path, "r:gz") as tar:
            member = tar.next()
            text = tar.extractfile(member) if member and member.name == MARKER else None
            loaded = json.load(text) if text else {}
        return loaded if isinstance(loaded, dict) else {}

    @contextlib.contextmanager
    def incoming(self) -> Any:
        """Give a path beside the archive to fetch to; it is gone afterwards."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".incoming-", dir=self.path.parent)
        os.close(handle)
        try:
            yield Path(name)
        finally:
            Path(name).unlink(missing_ok=True)

    def take(self, file: Path, sha256: str) -> None:
        """Make ``file`` the archive."""
        self.sum_path.unlink(missing_ok=True)
        file.chmod(0o644)
        file.replace(self.path)
        self.sum_path.write_text(f"{sha256}  {self.path.name}\n", encoding="utf-8")


class ActionModule(ActionBase):  # type: ignore[misc]
    """Install a pack on the task's host, elect the host that builds it, or save it from there."""

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        """Run the task for one host."""
        super().run(tmp, task_vars)
        self.vars = task_vars
        _, self.args = self.validate_argument_spec(
            argument_spec={
                "state": {"choices": ["present", "elected", "saved"], "default": "present"},
                "registered": {},
                "name": {},
                "path": {"type": "path"},
                "inputs": {"type": "dict"},
                "needs": {"type": "list", "elements": "path", "default": []},
                "version": {"default": ""},
                "builder": {"default": ""},
            },
            required_if=[
                ("state", "present", ("name", "path", "inputs")),
                ("state", "saved", ("name", "path", "inputs")),
                ("state", "elected", ("registered",)),
            ],
        )
        self.host = task_vars["inventory_hostname"]
        if self.args["state"] == "elected":
            return self._elected()
        self.key = ""
        state = self._step("check", needs=self.args["needs"])
        self.inputs = {**self.args["inputs"], "needs": self._needs(state["needs"])}
        self.key = pack_key(self.args["name"], self.inputs)
        self.archive = Archive(self.args["name"], self.key)
        result = self._save() if self.args["state"] == "saved" else self._present(state)
        cores = self.vars.get("ansible_facts", {}).get("processor_vcpus")
        known = {"host": self.host, "key": self.key, "cached": self.archive.cached(), "cores": cores}
        return {**known, **result}

    def _elected(self) -> dict[str, Any]:
        """Elect among the hosts of the batch. All of them ran state present before, so all elect alike."""
        name, hostvars = self.args["registered"], self.vars["hostvars"]
        own = hostvars[self.host][name]
        states = [hostvars[host].get(name, {}) for host in self.vars["ansible_play_batch"]]
        builder = elect(states, own["key"])
        return {
            "changed": False,
            "builder": builder,
            "build": builder == self.host and own["status"] == "missing",
            "save": builder == self.host,
        }

    def _needs(self, keys: dict[str, str | None]) -> list[str]:
        absent = sorted(path for path, key in keys.items() if key is None)
        if absent and not self._task.check_mode:
            raise AnsibleActionFail(
                f"{self.host}: {self.args['name']} is built on {', '.join(absent)}, which is not there.\n"
                "What to do: run the whole of site.yml, without --tags."
            )
        return [keys[path] or "absent" for path in self.args["needs"]]

    def _step(self, step: str, **more: Any) -> dict[str, Any]:
        args = {"step": step, "path": self.args["path"], "key": self.key, **more}
        result: dict[str, Any] = self._execute_module(
            module_name="hvlab_pack", module_args=args, task_vars=self.vars
        )
        if result.get("failed"):
            problem = str(result.get("msg"))
            remedy = "free space there" if "No space left" in problem else f"rm -r {self.args['path']} there"
            raise AnsibleActionFail(
                f"{self.host}: {step} {self.args['path']}: {problem}.\nWhat to do: {remedy} and run again.",
                result=result,
            )
        return result

    def _present(self, state: dict[str, Any]) -> dict[str, Any]:
        marker = state["marker"]
        if marker.get("key") == self.key and all(marker.get(of) == state[of] for of in ("files", "bytes")):
            return {"changed": False, "status": "installed"}
        if not self.archive.cached():
            return self._missing()
        self._room(state["free"], self.archive.marker().get("bytes", 0))
        if not self._task.check_mode:
            self._unpack()
        return {"changed": True, "status": "unpacked"}

    def _missing(self) -> dict[str, Any]:
        builder = self.args["builder"]
        if not builder:
            return {"changed": False, "status": "missing"}
        if self._task.check_mode:
            return {"changed": True, "status": "unpacked"}
        raise AnsibleActionFail(
            f"{self.host}: there is no pack of {self.args['name']}, because {builder} failed to build it.\n"
            f"What to do: correct the error of {builder} above, and run again."
        )

    def _room(self, free: int, unpacked: int) -> None:
        need = unpacked + self.archive.path.stat().st_size
        if free < need:
            raise AnsibleActionFail(
                f"{self.host}: {self.args['path']} needs {need // MIB} MiB, its file system has "
                f"{free // MIB} MiB free.\nWhat to do: free space there and run again."
            )

    def _unpack(self) -> None:
        remote = self._make_tmp_path()
        try:
            place = self._connection._shell.join_path(remote, "pack.tar.gz")
            try:
                self._transfer_file(str(self.archive.path), place)
            except AnsibleError as error:
                raise AnsibleActionFail(
                    f"{self.host}: could not copy {self.archive.path} to {place}: {error}.\n"
                    f"What to do: check the space on the file system of {remote}, and run again."
                ) from error
            self._fixup_perms2((remote, place))
            self._step("unpack", archive=place)
        finally:
            self._remove_tmp_path(remote)

    def _save(self) -> dict[str, Any]:
        if self._task.check_mode:
            return {"changed": True, "status": "saved"}
        marker = {
            "name": self.args["name"],
            "version": self.args["version"],
            "key": self.key,
            "inputs": self.inputs,
        }
        reader = self._get_remote_user() or "root"
        packed = self._step("save", marker=marker, reader=reader)
        with self.archive.incoming() as file:
            self._connection.fetch_file(packed["archive"], str(file))
            sha256 = file_sha256(file)
            if sha256 != packed["sha256"]:
                raise AnsibleActionFail(
                    f"{self.host}: {packed['archive']} arrived damaged on the controller "
                    f"(sha256 {sha256}, there {packed['sha256']}).\n"
                    f"What to do: check the space in {file.parent}, and run again."
                )
            self.archive.take(file, sha256)
        self._step("forget", archive=packed["archive"])
        return {"changed": True, "status": "saved"}
