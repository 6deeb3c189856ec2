"""Add a package source; decides what to write from the present files and the key's own fingerprint."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from hvlab.ansible.action.hvlab_files import record_of
from hvlab.ansible.plugin import HvlabAction
from hvlab.base.errors import CheckError, HvlabError
from hvlab.stack.provision import repository

Files = dict[str, bytes]


class ActionModule(HvlabAction):
    """See the module of the same name for its options and results."""

    def act(self) -> dict[str, Any]:
        """Return the files that were, or in check mode would be, changed."""
        try:
            return self._add()
        except HvlabError as error:
            raise self._failure(f"{error}.\nNothing was changed", error.remedy or "") from None

    def _add(self) -> dict[str, Any]:
        if self.args["priority"] is not None and not self.args["label"]:
            raise CheckError("a priority without a label", remedy="set label to that of its Release file")
        self.fingerprint = repository.fingerprint(self.args["fingerprint"])
        self.source = source = repository.repository(self.vars["ansible_facts"]["pkg_mgr"], self.args)
        files = self._step(
            "look", paths=[*source.files, source.key_path], others=[*source.others], read=[*source.read]
        )
        before = {path: base64.b64decode(text) for path, text in files["files"].items() if text is not None}
        if kept := self._find_kept(before):
            return {"changed": False, "paths": [], "fingerprint": self.fingerprint, "file": kept}
        key, name = self._key(before.get(source.key_path))
        after = self._without_others(before) | {source.key_path: key}
        after |= {path: text.encode() for path, text in source.files.items()}
        paths = [path for path in after if after[path] != before.get(path, b"")]
        refresh = self.args["enabled"] and (bool(paths) or not files["refreshed"])
        if (paths or refresh) and not self._task.check_mode:
            self._apply({path: after[path] for path in paths}, refresh=refresh)
        diff = [
            {
                "before_header": path,
                "after_header": path,
                "before": before.get(path, b"").decode("utf-8", "replace"),
                "after": after[path].decode("utf-8", "replace"),
            }
            for path in paths
            if path != source.key_path
        ]
        return {"changed": bool(paths or refresh), "paths": paths, "fingerprint": name, "diff": diff}

    def _find_kept(self, before: Files) -> str:
        """Return another's file that already has this source with the right key; empty without one.

        A second entry with another key file would stop apt. Cloud images and DGX OS come with one; NVIDIA's
        guide adds one to dnf, whose key is a URL.
        """
        own, every = [self.source.url], [self.source.url, *self.args["conflicts"]]
        live = {path: text.decode("utf-8", "surrogateescape") for path, text in before.items()}
        others = {
            path: text
            for path, text in live.items()
            if path not in (*self.source.files, self.source.key_path)
        }
        listing = [path for path, text in others.items() if repository.switch_off(path, text, every) != text]
        if len(listing) != 1 or self.args["replace"] or not self.fingerprint or self.source.path in before:
            return ""
        path, text = listing[0], others[listing[0]]
        off, keys = repository.switch_off(path, text, own), repository.list_own_keys(path, text)
        if off == text or repository.switch_off(path, off, every) != off or len(set(keys)) != 1:
            return ""
        [key] = set(keys)
        if key == self.args["key"]:
            data, _ = self._new_key()
        else:
            files = self._step("look", paths=[key], others=[], read=[])["files"] if key[0] == "/" else {}
            data = base64.b64decode(files.get(key) or "")
        try:
            repository.choose(repository.keys(data, key), self.fingerprint, key)
        except CheckError:
            return ""
        return path

    def _key(self, present: bytes | None) -> tuple[bytes, str]:
        """Return the key's file and fingerprint: the present one if it is right, else a new one."""
        if present and self.fingerprint:
            try:
                present_keys = repository.keys(present, self.source.key_path)
                if len(present_keys) == 1:
                    name = repository.choose(present_keys, self.fingerprint, self.source.key_path).fingerprint
                    return present, name.upper()
            except CheckError:
                pass
        data, origin = self._new_key()
        key = repository.choose(repository.keys(data, origin), self.fingerprint, origin)
        return self.source.key_file(key), key.fingerprint.upper()

    def _new_key(self) -> tuple[bytes, str]:
        """Return the key that the task names, and what to call it in a message."""
        key = self.args["key"]
        if "BEGIN PGP" in key:
            return key.encode(), "the key in the task"
        if "://" not in key:
            try:
                return Path(key).expanduser().read_bytes(), key
            except OSError as error:
                raise CheckError(
                    f"the key {key} on the controller cannot be read: {error.strerror}",
                    remedy="give a URL, or the path of a public key on the controller",
                ) from None
        answer = self._step("fetch", url=key)
        if "problem" in answer:
            address = "check the address of the key"
            remedy = address if answer["answered"] else self.source.remedy(answer["problem"])
            raise CheckError(answer["problem"], remedy=remedy)
        return base64.b64decode(answer["content"]), key

    def _without_others(self, before: Files) -> Files:
        """Return the other files that hold a conflicting entry, with their new text."""
        changed = {}
        for path, data in before.items():
            if path in (*self.source.files, self.source.key_path):
                continue
            text = data.decode("utf-8", "surrogateescape")
            without = repository.switch_off(path, text, [self.source.url, *self.args["conflicts"]])
            if without != text:
                changed[path] = without.encode("utf-8", "surrogateescape")
        if changed and not self.args["replace"]:
            raise CheckError(
                f"{', '.join(changed)} already leads to this source or its predecessor; two entries with "
                "different keys stop the package manager",
                remedy="remove that entry, or let it be switched off (replace, in a role its variable "
                "replace_old)",
            )
        return changed

    def _apply(self, files: Files, *, refresh: bool) -> None:
        trusts = self.source.key_path in files
        done = self._step(
            "apply",
            files={path: base64.b64encode(data).decode() if data else None for path, data in files.items()},
            refresh=[*self.source.refresh] if refresh else [],
            trouble=repository.TROUBLE.pattern,
            trust=[*self.source.trust] if trusts else [],
            read=[*self.source.read],
            label=self.source.label,
            record=record_of(self.vars),
        )
        if done["refused"]:
            raise self.source.refusal(done["output"])

    def _step(self, step: str, **arguments: Any) -> dict[str, Any]:
        done = self._on_host(step=step, **arguments)
        if done.get("failed"):
            output = done.get("module_stderr") or done.get("msg")
            raise CheckError(f"the package sources: {output}", remedy="correct that there, and run again")
        return done
