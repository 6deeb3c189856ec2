# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Fetch everything roles will build from, in parallel, by the actions that the roles use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from ansible.errors import AnsibleError
from ansible.template import Templar

from hvlab.ansible.action import hvlab_source, hvlab_wheels
from hvlab.ansible.plugin import HvlabAction
from hvlab.base.paths import cache_dir, project_dir
from hvlab.stack.provision import packs
from hvlab.stack.provision.packs import Archive, pack_key

AT_A_TIME = 4
ACTIONS: dict[str, type[HvlabAction]] = {
    "source": hvlab_source.ActionModule,
    "wheels": hvlab_wheels.ActionModule,
}


class Item(NamedTuple):
    """Something to fetch for hosts like ``host``: the action, and the pack built from it."""

    host: str
    kind: str
    args: Mapping[str, Any]
    pack: Mapping[str, Any]

    @property
    def title(self) -> str:
        """Its name in messages."""
        name, args = self.args["name"], self.args
        if self.kind == "source":
            return f"{name} {args['version']}"
        return f"wheels of {name} for Python {args['python']} on {args['architecture']}"


class ActionModule(HvlabAction):
    """Run once for all hosts, after their versions were chosen."""

    def act(self) -> dict[str, Any]:
        """Return the files of everything needed, or fail with a list of the missing."""
        if self._task.check_mode:
            return {"changed": False, "skipped": True}
        hosts = self._hosts()
        items = [item for host in hosts for item in self._items(host)]
        unique = {f"{item.kind} {sorted(item.args.items(), key=str)}": item for item in reversed(items)}
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            outcomes = dict(zip(unique, pool.map(self._fetch, unique.values()), strict=True))
        problems = list(dict.fromkeys(problem for problem, _ in outcomes.values() if problem))
        if problems:
            head = f"{len(problems)} of {len(unique)} things cannot be fetched; nothing was built yet:"
            return {"failed": True, "msg": "\n".join([head, *problems])}
        needed = {unique[key].title: files for key, (_, files) in outcomes.items()}
        for stack in hosts.values():
            packs.note(stack, needed)
        if self.args["to"]:
            packs.carry(needed, Path(self.args["to"]))
        built = {item.pack["name"]: item.pack.get("path") for item in unique.values() if item.pack}
        new = [name for name, path in built.items() if not self._has_any(name, path)]
        return {"changed": False, "fetched": needed, "new": new}

    def _hosts(self) -> dict[str, Mapping[str, Any]]:
        """Return the stacks of the play's hosts, one host per distinct stack."""
        alike: dict[str, str] = {}
        hostvars = self.vars["hostvars"]
        for host in self.vars["ansible_play_hosts"]:
            alike.setdefault(packs.stack_key(hostvars[host]["__stack"]), host)
        return {host: hostvars[host]["__stack"] for host in alike.values()}

    def _items(self, host: str) -> Iterator[Item]:
        first = host == self.vars["ansible_play_hosts"][0]
        gpu = host in self.vars["groups"].get("gpu", ())
        first_gpu = next(
            (name for name in self.vars["ansible_play_hosts"] if name in self.vars["groups"].get("gpu", ())),
            "",
        )
        for role in [*self.args["roles"], *(self.args["gpu_roles"] if gpu else [])]:
            source = host == first_gpu if role in self.args["gpu_roles"] else first
            yield from (item for item in self._list_role_items(host, role) if item.kind == "wheels" or source)

    def _list_role_items(self, host: str, role: str) -> Iterator[Item]:
        folder = project_dir() / "roles" / role
        defaults, internal = (
            self._loader.load_from_file(str(folder / part / "main.yml"), trusted_as_template=True)
            for part in ("defaults", "vars")
        )
        magic = {name: self.vars[name] for name in ("groups", "hostvars", "ansible_play_hosts")}
        variables = (
            defaults | self.vars["hostvars"].raw_get(host) | magic | {"role_path": str(folder)} | internal
        )
        for entry in variables[f"__{role}_fetch"]:
            kind = next(kind for kind in ACTIONS if kind in entry)
            for own in self._expand(entry, variables):
                templar = Templar(loader=self._loader, variables=variables | own)
                if templar.template(entry.get("when", True)):
                    yield Item(
                        host, kind, templar.template(entry[kind]), templar.template(entry.get("pack", {}))
                    )

    def _expand(self, entry: Mapping[str, Any], variables: dict[str, Any]) -> list[dict[str, Any]]:
        if "each" not in entry:
            return [{}]
        templar = Templar(loader=self._loader, variables=variables)
        return [{name: value} for name, values in entry["each"].items() for value in templar.template(values)]

    def _fetch(self, item: Item) -> tuple[str, list[str]]:
        """Return the problem, and the alternative files in the cache."""
        pack, inputs = item.pack, item.pack.get("inputs")
        there = [f"packs/{pack['name']}-*.tar.gz"] if pack else []
        if inputs is not None:
            key = pack_key(pack["name"], {**inputs, "needs": []})
            there = [f"packs/{pack['name']}-{key}.tar.gz"]
            if Archive(pack["name"], key).cached() or self._is_installed(pack["path"], key):
                return "", there
        task = self._task.copy()
        task.args = dict(item.args)
        own = (
            task,
            self._connection,
            self._play_context,
            self._loader,
            self._templar,
            self._shared_loader_obj,
        )
        try:
            path = Path(
                ACTIONS[item.kind](*own).run(None, self.vars | {"inventory_hostname": item.host})["path"]
            )
        except AnsibleError as error:
            if inputs is not None or not self._has_any(pack.get("name"), pack.get("path")):
                return f"{error}", []
            self._display.warning(
                f"{item.title} is missing, and is needed where {pack['name']} is built again"
            )
            return "", there
        inside = path.is_relative_to(cache_dir())
        return "", [*([str(path.relative_to(cache_dir()))] if inside else []), *there]

    def _has_any(self, name: str | None, path: str | None) -> bool:
        return any(cache_dir().glob(f"packs/{name}-*.tar.gz")) or self._is_installed(path)

    def _is_installed(self, path: str | None, key: str = "") -> bool:
        """Whether a host of the play has that pack, whole; with any key if none is given."""
        for host in self.vars["ansible_play_hosts"]:
            managed = self.vars["hostvars"][host].get("ansible_facts", {}).get("hvlab_managed", {})
            pack = managed.get("packs", {}).get(path)
            if pack and pack["whole"] and key in ("", pack["key"]):
                return True
        return False
