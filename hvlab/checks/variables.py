"""The variables of hosts as roles see them, read by Ansible itself: inventory over role defaults."""

from __future__ import annotations

import getpass
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from ansible.inventory.manager import InventoryManager
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible.vars.manager import VariableManager
from testinfra.utils.ansible_runner import AnsibleRunner

from hvlab.checks.provisioned import ROOT, is_local

_CONNECTION = [
    *(
        "ansible_host",
        "ansible_port",
        "ansible_user",
        "ansible_connection",
        "ansible_become",
        "ansible_become_user",
    ),
    *("ansible_private_key_file", "ansible_ssh_private_key_file"),
    *("ansible_ssh_common_args", "ansible_ssh_extra_args"),
]


class HostVariables(Mapping[str, Any]):
    """The variables of one host with every template filled in: inventory over role defaults."""

    def __init__(self, loader: DataLoader, variables: dict[str, Any], defaults: dict[str, Any]) -> None:
        self._values = {**defaults, **variables}
        self._switches = {name for name, default in defaults.items() if isinstance(default, bool)}
        self._templar = Templar(loader=loader, variables=self._values)
        # Filling in a template takes milliseconds, and checks of launches ask all hosts for each host.
        self._filled: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._filled:
            value = self._templar.template(self._values[name])
            # An inventory in INI, and -e, give text, which roles take as well.
            self._filled[name] = boolean(value, strict=False) if name in self._switches else value
        return self._filled[name]

    def raw(self, name: str) -> Any:
        """Return a value as it is written, templates and all."""
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def becomes_root(connection: Mapping[str, Any]) -> bool:
    """Whether a play with ``become: true`` goes through sudo: Ansible leaves it out for root itself."""
    own = getpass.getuser() if is_local(connection) else None
    return bool(connection.get("ansible_user", own) != "root")


class Inventory:
    """An Ansible inventory, read by Ansible itself."""

    def __init__(self, source: str) -> None:
        self._loader = DataLoader()
        self._loader.set_basedir(str(ROOT))
        self._manager = InventoryManager(loader=self._loader, sources=[source])
        self._variable_manager = VariableManager(loader=self._loader, inventory=self._manager)
        # The wiring beside site.yml counts.
        self._variable_manager.safe_basedir = True
        self.source = source

    @cached_property
    def _defaults(self) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for path in sorted(ROOT.glob("roles/*/defaults/main.yml")):
            merged.update(self._loader.load_from_file(str(path)) or {})
        return merged

    def names(self, pattern: str = "all") -> list[str]:
        """Return the hosts of an Ansible pattern, in the order of the inventory."""
        return [str(host) for host in self._manager.list_hosts(pattern)]

    def variables(self, name: str, stack: dict[str, Any] | None = None) -> HostVariables:
        """Return the variables of a host; ``stack`` is what was resolved for it, which some of them need."""
        host = self._manager.get_host(name)
        facts = {"__preflight_stacks": {"stacks": {name: stack}}} if stack else {}
        return HostVariables(
            self._loader, {**self._variable_manager.get_vars(host=host), **facts}, self._defaults
        )

    def hand_to_testinfra(self) -> None:
        """Give testinfra the hosts with their templates filled in; it reads only plain values itself."""
        hostvars = {}
        for name in self.names():
            variables = self.variables(name)
            connection = {key: variables[key] for key in _CONNECTION if key in variables}
            hostvars[name] = {"ansible_become": becomes_root(connection), **connection}
        AnsibleRunner.get_runner(self.source).inventory = {
            "_meta": {"hostvars": hostvars},
            "all": {"hosts": self.names()},
        }
