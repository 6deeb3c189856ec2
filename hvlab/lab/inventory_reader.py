"""A program of its own: ``ansible-inventory --list`` with the values that hvlab reads evaluated.

``inventory`` runs it with ansible-inventory's options, then ``--`` and the project's files of variables.
"""

from __future__ import annotations

import sys
from typing import Any

from ansible.cli.inventory import InventoryCLI
from ansible.vars.hostvars import HostVars

from hvlab.lab.inventory_values import evaluated


class InventoryReader(InventoryCLI):  # type: ignore[misc]
    """Adds to ``_meta`` the hosts that match ``--limit``, and per host the variables that fail, with why."""

    project_files: tuple[str, ...] = ()

    def json_inventory(self, top: Any) -> dict[str, Any]:
        """Return every host of the inventory, whatever the limit."""
        # Makes `hostvars` known to templates.
        HostVars(self.inventory, self.vm, self.loader)
        self.below: dict[str, Any] = {}
        for path in self.project_files:
            self.below |= self.loader.load_from_file(path, trusted_as_template=True) or {}
        self.failures: dict[str, dict[str, str]] = {}
        chosen = [host.name for host in self.inventory.get_hosts()]
        self.inventory.subset(None)
        listing: dict[str, Any] = super().json_inventory(top)
        listing["_meta"] |= {"chosen": chosen, "failures": self.failures}
        return listing

    def _get_host_variables(self, host: Any) -> dict[str, Any]:
        values, failures = evaluated(self.vm.get_vars(host=host, stage="all"), self.loader, self.below)
        if failures:
            self.failures[host.name] = failures
        known: dict[str, Any] = self._remove_internal(values)
        return known


if __name__ == "__main__":
    split = sys.argv.index("--")
    InventoryReader.project_files = tuple(sys.argv[split + 1 :])
    InventoryReader.cli_executor(["ansible-inventory", *sys.argv[1:split]])
