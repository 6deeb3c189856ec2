# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""The controller's part of hvlab_pack: the key, the cache, the host that builds, and the transfers."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.errors import AnsibleActionFail, AnsibleError

from hvlab.ansible.action.hvlab_files import expire_states
from hvlab.ansible.plugin import HvlabAction
from hvlab.base import answers, cache
from hvlab.base.files import file_sha256
from hvlab.stack.provision.packs import (
    FORWARDING_BYTES,
    FORWARDING_HOSTS,
    Archive,
    Forwarding,
    PackSource,
    elect,
    first_of_the_run,
    incoming,
    limit_size,
    pack_key,
)

MIB = 1 << 20


class ActionModule(HvlabAction):
    """Install a pack on the task's host, elect the host that builds it, or save it from there."""

    def act(self) -> dict[str, Any]:
        """Run the task for one host."""
        if self.args["state"] == "elected":
            return self._elect()
        self.key = ""
        self.peer = self.args["peer"] or {}
        self.place = self.args["path"]
        known = self._find_known()
        state = known or self._check_host()
        self._request(self._needs(state["needs"]))
        result = self._save() if self.args["state"] == "saved" else self._present(state)
        if self.archive.cached():
            cache.use(self.archive.sum_path)
        cores = self.vars.get("ansible_facts", {}).get("processor_vcpus")
        known = {"host": self.host, "key": self.key, "cached": self.archive.cached(), "cores": cores}
        return {**known, "work": self.work, **result}

    def _elect(self) -> dict[str, Any]:
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

    def _request(self, needs: list[str]) -> None:
        self.inputs = {**self.args["inputs"], "needs": needs}
        if self.args["shared"] and needs:
            # Linkers record the targets of the links to those packs.
            self.inputs["shared"] = self.args["shared"]
        self.key = pack_key(self.args["name"], self.inputs)
        self.archive = Archive(self.args["name"], self.key)
        self.work = f"{self.args['builds']}/{self.args['name']}-{self.key}"

    def _needs(self, keys: dict[str, str | None]) -> list[str]:
        absent = sorted(path for path, key in keys.items() if key is None)
        if absent and not self._task.check_mode:
            raise self._failure(
                f"{self.args['name']} is built on {', '.join(absent)}, which does not exist",
                "run the whole of site.yml, without --tags",
            )
        return [keys[path] or "absent" for path in self.args["needs"]]

    def _find_known(self) -> dict[str, Any] | None:
        """Return the pack shown by the facts, if whole, with the keys of all packs it is built on.

        It may be another pack than the requested one: then `_present` looks again.
        """
        managed = self.vars.get("ansible_facts", {}).get("hvlab_managed", {})
        packs, files = managed.get("packs", {}), managed.get("files", {})
        own, needs = packs.get(self.args["path"]), self.args["needs"]
        if self.args["state"] != "present" or not own or not own["whole"] or not set(needs) <= set(packs):
            return None
        return {
            "known": own["key"],
            "leftovers": own["leftovers"],
            "building": [path for path, now in files.items() if now["kind"] == "directory"],
            "needs": {path: packs[path]["key"] for path in needs},
        }

    def _check_host(self) -> dict[str, Any]:
        return self._step(
            "check",
            needs=self.args["needs"],
            user=self.peer.get("user") or "",
            builds=self.args["builds"],
            room=self.args["shared"] or self.args["path"],
        )

    def _step(self, step: str, **more: Any) -> dict[str, Any]:
        result = self._try(step, **more)
        if result.get("failed"):
            problem = str(result.get("msg"))
            place = more.get("path") or more.get("shared") or self.args["path"]
            remedy = f"rm -r {place} there"
            if "No space left" in problem:
                remedy = "free space there"
            elif place != self.args["path"]:
                remedy = f"let root of one host write to {self.args['shared']}, name that host with --limit,"
            raise AnsibleActionFail(
                f"{self.host}: {step} {place}: {problem}.\nWhat to do: {remedy} and run again.", result=result
            )
        return result

    def _try(self, step: str, **more: Any) -> dict[str, Any]:
        return self._on_host(**{"step": step, "path": self.args["path"], "key": self.key, **more})

    def _present(self, state: dict[str, Any]) -> dict[str, Any]:
        if state.get("known"):
            if state["known"] == self.key:
                return self._keep(state)
            state = self._check_host()
        if state["key"] == self.key and state["whole"]:
            return self._keep(state)
        if self.args["shared"]:
            self.place = str(Path(self.args["shared"], self.archive.path.name.removesuffix(".tar.gz")))
            if not self._task.check_mode and self._is_linked():
                return self._bring_if_missing(state, {"source": "shared folder"})
        marker = self._read_cached()
        if marker is None:
            return self._report_missing(linked=state["linked"])
        unpacked = marker.get("bytes", 0)
        if self.args["shared"]:
            brought = {} if self._task.check_mode else self._share(state["free"], unpacked)
        else:
            self._check_room(state["free"], unpacked)
            brought = {} if self._task.check_mode else self._bring(trusted=state["trusted"])
        return self._bring_if_missing(state, brought)

    def _bring_if_missing(self, state: dict[str, Any], brought: dict[str, Any]) -> dict[str, Any]:
        if self.work in state["building"] and not self._task.check_mode:
            self._step("clear", work=self.work)
        if state["key"] == self.key and state["wrong"]:
            brought["wrong"] = state["wrong"]
        return {"changed": True, "status": "unpacked", "ansible_facts": expire_states(self.vars), **brought}

    def _keep(self, state: dict[str, Any]) -> dict[str, Any]:
        """Keep a pack; remove leftovers of killed runs beside it."""
        built = self.archive.cached() and self.work in state["building"]
        left = bool(state["leftovers"]) or built
        if left and not self._task.check_mode:
            self._step("clear", **({"work": self.work} if built else {}))
        return {"changed": left, "status": "installed"}

    def _read_cached(self) -> dict[str, Any] | None:
        """Return the marker of the pack in the cache; None without one. A damaged pack is discarded.

        One process of the run sums the archive; the receiving hosts check the sum again.
        """
        name, check = self.archive.path.name, self._task.check_mode
        once = contextlib.nullcontext(True) if check else first_of_the_run(_run_folder(f"{name}.sum"))
        with once as first:
            marker = self.archive.marker(summed=first) if self.archive.cached() else None
            if marker is None and self.archive.path.exists() and not check:
                self._display.warning(f"{name} in the controller's cache is damaged: it is made again")
                self.archive.discard()
        return marker

    def _report_missing(self, *, linked: bool) -> dict[str, Any]:
        builder, check = self.args["builder"], self._task.check_mode
        if linked and not check:
            # Nothing is built in the folder that all hosts share.
            self._step("unlink")
        if not builder:
            return {"changed": linked, "status": "missing"}
        if check:
            return {"changed": True, "status": "unpacked"}
        raise self._failure(
            f"there is no pack of {self.args['name']}, because {builder} failed to build it",
            f"correct the error of {builder} above, and run again",
        )

    def _check_room(self, free: int, unpacked: int) -> None:
        need = unpacked + self.archive.path.stat().st_size
        if free < need:
            raise self._failure(
                f"{self.place} needs {need // MIB} MiB, its file system has {free // MIB} MiB free",
                "free space there and run again",
            )

    def _is_linked(self) -> bool:
        return bool(self._step("link", shared=self.place)["linked"])

    def _share(self, free: int, unpacked: int) -> dict[str, Any]:
        """Link to the pack in the folder that all hosts share; the first host of the run unpacks it there."""
        shared, brought = self.args["shared"], {"source": "shared folder"}
        with first_of_the_run(_run_folder(self.archive.path.name)) as first:
            if first:
                self._check_room(free, unpacked)
                brought = self._bring(trusted=False)
        if not self._is_linked():
            raise self._failure(
                f"{self.place}, which another host unpacked, does not exist",
                f"see that {shared} is the same folder on all hosts (lab_shared_packs)",
            )
        return brought

    def _bring(self, *, trusted: bool) -> dict[str, Any]:
        """Bring the archive to the host and unpack it there; return its source."""
        self.warnings: list[str] = []
        many = len(self.vars["ansible_play_batch"]) >= FORWARDING_HOSTS
        large = self.archive.path.stat().st_size >= FORWARDING_BYTES
        if self.args["mirror"] and (place := self._from_mirror()):
            self._unpack(place)
            source = "mirror"
        elif trusted and self.peer.get("address") and many and large:
            source = self._forward()
        else:
            with self._copy() as copy:
                self._step("unpack", path=self.place, archive=copy)
            source = "controller"
        return {"source": source, "warnings": self.warnings}

    def _unpack(self, place: str) -> None:
        try:
            self._step("unpack", path=self.place, archive=place)
        finally:
            self._step("forget", archive=place)

    def _from_mirror(self) -> str:
        mirror, name = self.args["mirror"], self.archive.path.name
        place = f"{mirror.rstrip('/')}/{name}"
        where = {"url": place} if mirror.startswith(("http://", "https://")) else {"archive": place}
        received, result = self._receive(**where)
        if not received:
            self.warnings.append(
                f"{self.host}: {place} cannot be used: {result.get('msg')}. The pack came another way.\n"
                f"What to do: put the controller's {self.archive.path} there."
            )
        return received

    def _forward(self) -> str:
        """Get the archive from another host, or as the first one from the controller; then serve others."""
        forwarding = Forwarding(_run_folder(self.archive.path.name), self.host)
        place = ""
        try:
            with forwarding.source() as source:
                if source:
                    place = self._from_peer(source)
                    forwarding.record(source, worked=bool(place))
                serves = bool(place) or source is None
                place = place or self._from_controller()
                if serves:
                    forwarding.offer(place, self.peer)
            self._step("unpack", archive=place)
        finally:
            forwarding.withdraw()
            if place:
                self._step("forget", archive=place)
        return source.host if source and serves else "controller"

    def _from_peer(self, source: PackSource) -> str:
        user = self.peer["user"]
        received, result = self._receive(archive=source.archive, peer=source.peer | {"user": user}, user=user)
        if not received:
            self.warnings.append(
                f"{self.host}: the pack {self.archive.path.name} did not come from {source.host}: "
                f"{result.get('msg')}. It came from the controller instead.\n"
                "What to do: `hvlab verify` checks ssh between the hosts. If the sha256 was wrong, check "
                f"disk, memory and network of {source.host}."
            )
        return received

    def _from_controller(self) -> str:
        with self._copy() as copy:
            received, result = self._receive(archive=copy, user=self.peer["user"])
        if not received:
            raise self._failure(
                f"the pack {self.archive.path.name} did not come from the controller: {result.get('msg')}",
                "check the space on its disks, and run again",
                result=result,
            )
        return received

    def _receive(self, **source: Any) -> tuple[str, dict[str, Any]]:
        """Let the host's root read the archive from a source, and keep it if its sum is right.

        Returns its path on the host (empty on failure), and the module's result.
        """
        size, place = self.archive.path.stat().st_size, self._new_place()
        result = self._try("receive", place=place, size=size, sha256=self.archive.sha256(), **source)
        return "" if result.get("failed") else place, result

    def _new_place(self) -> str:
        """Choose where a host puts an archive, beside the pack; a later run knows it as a leftover.

        The host must not choose it: the path becomes part of commands, for sftp here and ssh elsewhere.
        """
        folder, _, name = self.args["path"].rpartition("/")
        return f"{folder}/.{name}.pack-{secrets.token_hex(8)}/pack.tar.gz"

    @contextlib.contextmanager
    def _copy(self) -> Iterator[str]:
        """Copy the archive from the controller to the host; give its path, removed after the block."""
        remote = self._make_tmp_path()
        try:
            place = self._connection._shell.join_path(remote, "pack.tar.gz")
            try:
                self._transfer_file(str(self.archive.path), place)
            except AnsibleError as error:
                raise self._failure(
                    f"could not copy {self.archive.path} to {place}: {error}",
                    f"check the space on the file system of {remote}, and run again",
                ) from None
            self._fixup_perms2((remote, place))
            yield place
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
        place = self._new_place()
        packed = self._step("save", marker=marker, reader=reader, archive=place)
        try:
            self._fetch(place, packed["sha256"])
        finally:
            self._step("forget", archive=place)
        self._step("clear", work=self.work)
        return {"changed": True, "status": "saved", "ansible_facts": expire_states(self.vars)}

    def _fetch(self, archive: str, sha256: str) -> None:
        with incoming(self.archive.path.parent) as file:
            try:
                with limit_size(file, self.host):
                    self._connection.fetch_file(archive, str(file))
            except answers.AnswerError as error:
                raise AnsibleActionFail(f"{error}.\nWhat to do: {error.remedy}, and run again.") from None
            arrived = file_sha256(file)
            if arrived != sha256:
                raise self._failure(
                    f"{archive} arrived damaged on the controller (sha256 {arrived}, there {sha256})",
                    f"check the space in {file.parent}, and run again",
                )
            self.archive.take(file, arrived)
        cache.keep_limit(self._display.display)


def _run_folder(archive: str) -> Path:
    return Path(constants.DEFAULT_LOCAL_TMP, "hvlab-packs", archive)
