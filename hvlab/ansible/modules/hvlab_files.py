#!/usr/bin/python
# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Bring several small files, folders and links into their desired state in one round trip."""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
import shutil
import tempfile
from typing import Any, Callable, ContextManager

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.text.converters import to_bytes
from ansible.module_utils.hvlab_managed import (
    SECRET_MODE,
    acting_as,
    add_to_record,
    alternative,
    check_writable,
    current,
    explain,
    replace,
    with_block,
    write,
    writer,
)
from ansible.module_utils.hvlab_managed import record as read_record


def is_older(path: str, than: str) -> bool:
    """Whether ``path`` is older than ``than``; False if either is missing."""
    try:
        return os.stat(path).st_mtime < os.stat(than).st_mtime
    except OSError:
        return False


class Change:
    """One desired state compared with the present one."""

    def __init__(self, module: AnsibleModule, item: dict[str, Any]) -> None:
        self.module, self.item = module, item
        self.path: str = item["path"]
        self.state = item["state"]
        self.owner = self._owner(item["owner"]) if item["owner"] else (0, 0)
        acting = writer(self.path, self.owner[0])
        with acting_as(acting, self.owner[1]):
            self.path = self._follow()
        if acting == os.geteuid():
            acting = writer(self.path, self.owner[0])
        self.rights: Callable[[], ContextManager[None]] = functools.partial(acting_as, acting, self.owner[1])
        with self.rights():
            self._compare()

    def _follow(self) -> str:
        """Return where a link leads that stands for a folder, or for a file with other people's lines."""
        folder, path = self.state == "directory", self.path
        if not os.path.islink(path) or not (folder or self.item["block"] is not None):
            return path
        led = os.path.realpath(path)
        if not (os.path.isdir(led) if folder else os.path.isfile(led)):
            there = "{}: is a link to {}, where no {} is; nothing was written".format(
                path, led, "folder" if folder else "file"
            )
            self.module.fail_json(
                msg="{}.\nWhat to do: make it (is its file system mounted?), or remove the link".format(there)
            )
        return led

    def _compare(self) -> None:
        item = self.item
        self.before = current(self.path)
        self.kind, self.old = self.before["kind"], self.before["text"]
        mode, uid, gid = (self.before[name] for name in ("mode", "uid", "gid"))
        usual = 0o755 if self.state == "directory" else 0o644
        default = mode if self.kind == self.state else usual
        if item["secret"] is not None:
            default = SECRET_MODE
        self.mode: int = int(item["mode"], 8) if item["mode"] else default
        self.uid, self.gid = self.owner if item["owner"] else (uid or 0, gid or 0)
        self.new = self._desired_text()
        same_place = self.state == "absent" or (self.kind == self.state and self.new == self.old)
        same_rights = self.state in ("absent", "link") or (self.mode, self.uid, self.gid) == (mode, uid, gid)
        self.changed = self.kind is not None if self.state == "absent" else not (same_place and same_rights)
        self.unloaded = is_older(item["loaded"], self.path) if item["loaded"] else False

    def _owner(self, name: str) -> tuple[int, int]:
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            if not self.module.check_mode:
                self.module.fail_json(msg="{}: there is no user {!r}".format(self.path, name))
            return -1, -1
        return user.pw_uid, user.pw_gid

    def _desired_text(self) -> str:
        if self.state == "link":
            return str(self.item["src"])
        if self.item["block"] is not None:
            try:
                block = (self.item[name] for name in ("block", "drop", "above"))
                return str(with_block(self.old, *block))
            except ValueError as error:
                advice = "write that line where hvlab's lines end, then run again; nothing was written"
                self.module.fail_json(msg="{}: {}: {}".format(self.path, error, advice))
        if self.item["secret"] is not None:
            return str(self.item["secret"])
        return str(self.item["content"] or "")

    def validate(self, every: list[Change]) -> None:
        """Let the tool that reads the file judge the new text; end the module when it refuses."""
        if not (self.changed and self.state == "file" and self.item["validate"]):
            return
        folder, name = os.path.split(self.path)
        with tempfile.TemporaryDirectory() as tried:
            for change in every:
                if change.state == "file" and os.path.dirname(change.path) == folder:
                    with open(os.path.join(tried, os.path.basename(change.path)), "wb") as file:
                        file.write(to_bytes(change.new, errors="surrogateescape"))
            words = self.item["validate"]
            path = os.path.join(tried, name)
            status, out, err = self.module.run_command(
                [word.replace("%s", path).replace("%d", tried) for word in words]
            )
        if status != 0:
            said = (err or out).replace(tried, folder).strip()
            # The name that a script goes by: sh -c SCRIPT NAME.
            tool = words[3] if words[:2] == ["sh", "-c"] else words[0]
            self.module.fail_json(
                msg="{}: refused by {}: {}; nothing was written.\nWhat to do: correct that in the "
                "inventory, then run this again".format(self.path, tool, said)
            )

    def apply(self) -> None:
        """Apply the desired state."""
        os.makedirs(os.path.dirname(self.path), mode=0o755, exist_ok=True)
        if self.state == "absent" or (self.kind == "directory" and self.state != "directory"):
            self._remove()
        if self.state == "directory":
            self._make_directory()
        elif self.state == "link":
            self._link()
        elif self.state == "file":
            write(self.path, self.new, self.mode, self.uid, self.gid)

    def _link(self) -> None:
        name = alternative(self.path)
        if not name:
            replace(self.path, functools.partial(os.symlink, self.new))
            return
        choose = ["update-alternatives", "--set", name, self.new]
        if self.module.run_command(choose)[0]:
            # Not one of its choices yet; the others keep their ranks.
            self.module.run_command(["update-alternatives", "--install", self.path, name, self.new, "1"])
            status, out, err = self.module.run_command(choose)
            if status:
                observed = "update-alternatives keeps it, and refuses {}: {}".format(
                    self.new, (err or out).strip()
                )
                remedy = "see `update-alternatives --display {}` there".format(name)
                self.module.fail_json(msg="{}: {}; {}".format(self.path, observed, remedy))

    def _remove(self) -> None:
        if self.kind == "directory":
            shutil.rmtree(self.path)
        else:
            os.unlink(self.path)

    def _make_directory(self) -> None:
        if self.kind not in (None, "directory"):
            os.unlink(self.path)
        if self.kind != "directory":
            # A host that shares this file system may have made it meanwhile.
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.path, 0o700)
        handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        os.fchown(handle, self.uid, self.gid)
        os.fchmod(handle, self.mode)
        os.close(handle)

    def diff(self) -> dict[str, str]:
        """Return the change for ``--diff``; secrets are left out."""
        if self.item["secret"] is not None:
            return {"prepared": "{}: changed, the text is not shown\n".format(self.path)}
        if self.state == "file" and self.new != self.old:
            return {
                "before": self.old,
                "after": self.new,
                "before_header": self.path,
                "after_header": self.path,
            }
        return {"prepared": "{}: {} -> {} {:04o}\n".format(self.path, self.kind, self.state, self.mode)}


def read_replaced(record: str, changes: list[Change]) -> dict[str, Any]:
    """Return foreign content that is about to be replaced, by path, for C(hvlab_remove).

    Also folders and links that are right already: they were there before.
    """
    known = read_record(record)
    return {
        change.path: dict(change.before, drop=change.item["drop"])
        for change in changes
        if (change.kind in ("file", "link") or change.kind == change.state == "directory")
        and known.get(change.path) is None
        and (change.changed or (change.kind == change.state != "file" and not alternative(change.path)))
    }


def paths_of(changes: list[Change]) -> dict[str, bool | None]:
    """Return paths for the record: also those read for ``loaded``, and folders that have to be made."""
    paths: dict[str, bool | None] = {}
    for change in changes:
        item, folder = change.item, os.path.dirname(change.path)
        if item["loaded"]:
            paths[item["loaded"]] = False
        while change.state != "absent" and not os.path.lexists(folder):
            paths[folder] = False
            folder = os.path.dirname(folder)
        paths[change.path] = None if change.state == "absent" else item["block"] is not None
    return paths


def main() -> None:
    """Run as an Ansible module."""
    # Whatever root's umask, the lab's users can read what is installed.
    os.umask(0o022)
    text = {"type": "str"}
    item = {
        "path": {"type": "path", "required": True},
        "state": {"type": "str", "choices": ["file", "directory", "link", "absent"], "default": "file"},
        "content": text,
        "block": text,
        "drop": text,
        "above": text,
        "src": text,
        "secret": {"type": "str", "no_log": True},
        "mode": text,
        "owner": text,
        "loaded": {"type": "path"},
        "validate": {"type": "list", "elements": "str"},
    }
    module = AnsibleModule(
        argument_spec={
            "files": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": item,
                "mutually_exclusive": [("content", "secret", "block")],
                "required_if": [
                    ("state", "link", ["src"]),
                    ("state", "file", ["content", "secret", "block"], True),
                ],
            },
            "record": {"type": "path"},
        },
        supports_check_mode=True,
    )
    try:
        changes = [Change(module, item) for item in module.params["files"]]
    except OSError as error:
        module.fail_json(msg="{}; nothing was written".format(error))
    unloaded = [change.path for change in changes if change.unloaded and not change.changed]
    every, changes = changes, [change for change in changes if change.changed]
    record = module.params["record"]
    path = record
    try:
        for change in changes:
            path = change.path
            with change.rights():
                check_writable(path)
        if not module.check_mode:
            for change in changes:
                change.validate(every)
            path = record
            if record:
                add_to_record(record + ".before", read_replaced(record, every))
                add_to_record(record, paths_of(every))
            for change in changes:
                path = change.path
                with change.rights():
                    change.apply()
    except OSError as error:
        module.fail_json(msg=explain(path, error))
    module.exit_json(
        changed=bool(changes or unloaded),
        paths=[*(change.path for change in changes), *unloaded],
        diff=[change.diff() for change in changes],
    )


if __name__ == "__main__":
    main()
