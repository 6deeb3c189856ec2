"""The inventory as Ansible reads it; as a program, ``ansible-inventory --list`` with templates filled in.

``inventory`` runs the program, for Ansible keeps its settings per process.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

from ansible import constants
from ansible.cli import CLI
from ansible.cli.inventory import InventoryCLI
from ansible.errors import AnsibleError
from ansible.inventory.manager import InventoryManager
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.parsing.dataloader import DataLoader
from ansible.parsing.vault import VaultSecretsContext
from ansible.plugins.loader import init_plugin_loader
from ansible.template import Templar
from ansible.utils.collection_loader import AnsibleCollectionConfig
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager

from hvlab.base.paths import project_dir
from hvlab.lab.inventory_rules import LAB_VARIABLES

# The variables that hvlab itself reads. All others may call lookups, or need facts that only a play has.
READ = LAB_VARIABLES | {
    *("ansible_host", "ansible_port", "ansible_user", "ansible_connection", "ansible_python_interpreter"),
    *("ansible_ssh_common_args", "ansible_ssh_extra_args", "ansible_ssh_private_key_file"),
    *("lab_user_name", "lab_user_home"),
    *("horovod_variants", "horovod_prefix", "openmpi_parameters", "openmpi_prefix", "workloads_dir"),
}
_FACTS = ("ansible_facts", "ansible_local")


class Variables(Mapping[str, Any]):
    """The variables of one host over ``defaults``, each evaluated when it is read.

    Facts play no part, so that a chosen version is never mistaken for a pin.
    """

    def __init__(
        self, loader: DataLoader, own: Mapping[str, Any], defaults: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        self._values = {name: value for name, value in {**defaults, **own}.items() if name not in _FACTS}
        self._switches = {name for name, default in defaults.items() if isinstance(default, bool)}
        self._templar = Templar(loader=loader, variables=self._values)
        # A template takes milliseconds, and checks of launches read those of all hosts for each host.
        self._evaluated: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._evaluated:
            value = self._templar.template(self._values[name])
            # An inventory in INI, and -e, give text, which roles take as well.
            self._evaluated[name] = boolean(value, strict=False) if name in self._switches else value
        return self._evaluated[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def evaluate(variables: Mapping[str, Any], loader: DataLoader) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a host's variables, those of ``READ`` evaluated, and the reason for each that cannot be."""
    values, failures, own = dict(variables), {}, Variables(loader, variables)
    for name in READ.intersection(own):
        try:
            values[name] = own[name]
        except AnsibleError as error:
            failures[name] = str(error)
    return values, failures


class Inventory:
    """An inventory that this process reads, the project's own variables below it."""

    def __init__(self, source: str) -> None:
        self._loader = DataLoader()
        self._loader.set_basedir(str(project_dir()))
        first = VaultSecretsContext.current(optional=True) is None
        identities = constants.DEFAULT_VAULT_IDENTITY_LIST
        CLI.setup_vault_secrets(self._loader, identities, auto_prompt=False, initialize_context=first)
        if not AnsibleCollectionConfig.collection_finder:
            init_plugin_loader()
        self._manager = InventoryManager(loader=self._loader, sources=[source])
        self._vars = VariableManager(loader=self._loader, inventory=self._manager)
        # The wiring beside site.yml counts.
        self._vars.safe_basedir = True
        # Makes `hostvars` known to templates.
        HostVars(self._manager, self._vars, self._loader)

    def names(self, pattern: str = "all") -> list[str]:
        """Return the hosts of an Ansible pattern, in the order of the inventory."""
        return [host.name for host in self._manager.get_hosts(pattern)]

    def variables(self, name: str, stack: Mapping[str, Any] | None = None) -> Variables:
        """Return a host's variables as roles see them; ``stack`` has its resolved versions."""
        facts = {"__preflight_stacks": {"stacks": {name: stack}}} if stack else {}
        own = self._vars.get_vars(host=self._manager.get_host(name), stage="all")
        return Variables(self._loader, own | facts, self._defaults)

    @cached_property
    def _defaults(self) -> dict[str, Any]:
        files = sorted(project_dir().glob("roles/*/defaults/main.yml"))
        loaded = [self._loader.load_from_file(str(file), trusted_as_template=True) for file in files]
        return {name: value for defaults in loaded for name, value in (defaults or {}).items()}


class InventoryReader(InventoryCLI):  # type: ignore[misc]
    """Adds to ``_meta`` the hosts that match ``--limit``, and the failed variables of each host."""

    def json_inventory(self, top: Any) -> dict[str, Any]:
        """Return every host of the inventory, whatever the limit."""
        HostVars(self.inventory, self.vm, self.loader)
        self.failures: dict[str, dict[str, str]] = {}
        chosen = [host.name for host in self.inventory.get_hosts()]
        self.inventory.subset(None)
        listing: dict[str, Any] = super().json_inventory(top)
        listing["_meta"] |= {"chosen": chosen, "failures": self.failures}
        return listing

    def _get_host_variables(self, host: Any) -> dict[str, Any]:
        values, failures = evaluate(self.vm.get_vars(host=host, stage="all"), self.loader)
        if failures:
            self.failures[host.name] = failures
        known: dict[str, Any] = self._remove_internal(values)
        return known


if __name__ == "__main__":
    InventoryReader.cli_executor(sys.argv)
