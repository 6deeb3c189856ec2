# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Write small files, folders and links; no round trip if the host's facts show that they are right."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from typing import Any

from ansible.template import trust_as_template

from hvlab.ansible.module_utils.hvlab_managed import RECORD, SECRET_MODE, with_block
from hvlab.ansible.plugin import HvlabAction


class ActionModule(HvlabAction):
    """See the module of the same name for its options and results."""

    def act(self) -> dict[str, Any]:
        """Return the module's result, unchanged where the facts show that nothing is left to do."""
        files = self.args["files"]
        given = [{key: value for key, value in item.items() if value is not None} for item in files]
        return bring(self, given, self.vars)


def bring(action: HvlabAction, files: list[dict[str, Any]], task_vars: Mapping[str, Any]) -> dict[str, Any]:
    """Let module hvlab_files bring ``files`` into their desired state, unless the facts show it already."""
    files = [_with_text(action, item) for item in files]
    managed = task_vars.get("ansible_facts", {}).get("hvlab_managed") or {}
    if are_as_desired(files, managed.get("files", {})):
        return {"changed": False, "paths": [], "diff": []}
    arguments = {"files": files, "record": record_of(task_vars)}
    done: dict[str, Any] = action._execute_module(
        module_name="hvlab_files", module_args=arguments, task_vars=task_vars
    )
    return done | ({"ansible_facts": expire_states(task_vars)} if done.get("changed") else {})


def record_of(task_vars: Mapping[str, Any]) -> str:
    """Return the path of the host's record of files, the usual one in a playbook without role preflight."""
    managed = task_vars.get("ansible_facts", {}).get("hvlab_managed") or {}
    return str(managed.get("record", RECORD))


def _with_text(action: HvlabAction, item: dict[str, Any]) -> dict[str, Any]:
    """Render an item's template; ``lookup('template')`` would copy the variables of all hosts each time."""
    for option, text in (("template", "content"), ("block_template", "block")):
        if option in item:
            item = {"path": "/" + item[option].removesuffix(".j2"), **item}
            source = action._find_needle("templates", item.pop(option))
            if item.get("state") != "absent":
                template = trust_as_template(action._loader.get_text_file_contents(source))
                item[text] = action._templar.template(template, escape_backslashes=False)
    return item


def expire_states(task_vars: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts without the states of files and packs: after a change on the host, tasks look again."""
    managed = task_vars.get("ansible_facts", {}).get("hvlab_managed")
    if not managed:
        return {}
    return {"hvlab_managed": {key: managed[key] for key in ("record", "paths")}}


def are_as_desired(files: Iterable[Mapping[str, Any]], states: Mapping[str, Any]) -> bool:
    """Whether ``states`` (path: state) shows every file as desired."""
    return all(
        item.get("path") in states
        and _is_as_desired(item, states[item["path"]])
        and _needs_load(item, states)
        for item in files
    )


def _needs_load(item: Mapping[str, Any], states: Mapping[str, Any]) -> bool:
    """Whether the path written at each load of a file is newer than the file, or missing."""
    path = item.get("loaded")
    if not path:
        return True
    if path not in states:
        return False
    return bool(states[path].get("mtime", math.inf) >= states[item["path"]].get("mtime", 0))


def _is_as_desired(item: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    state = item.get("state") or "file"
    if state == "absent":
        return now["kind"] is None
    if now["kind"] != state:
        return False
    if state == "link":
        return bool(now["target"] == item["src"])
    usual = SECRET_MODE if item.get("secret") is not None else now["mode"]
    rights = now["mode"] == (int(item["mode"], 8) if item.get("mode") else usual)
    owned = not item.get("owner") or item["owner"] == now["owner"]
    return rights and owned and (state == "directory" or _has_text(item, now))


def _has_text(item: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    if item.get("block") is not None:
        text = now.get("text")
        drop, above = item.get("drop"), item.get("above")
        try:
            return text is not None and with_block(text, item["block"], drop, above) == text
        except ValueError:
            return False
    text = item["secret"] if item.get("secret") is not None else item.get("content")
    if text is None:
        return False
    digest = hashlib.sha256(str(text).encode("utf-8", "surrogateescape")).hexdigest()
    return bool(digest == now["sha256"])
