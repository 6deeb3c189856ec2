"""The variables that hvlab itself reads, evaluated by Ansible's own templating.

All others stay as they are written: they may call lookups, or need facts that only a play has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from hvlab.lab.inventory_rules import LAB_VARIABLES

READ = LAB_VARIABLES | {
    *("ansible_host", "ansible_port", "ansible_user", "ansible_connection", "ansible_python_interpreter"),
    *("ansible_ssh_common_args", "ansible_ssh_extra_args", "ansible_ssh_private_key_file"),
    *("lab_user_name", "lab_user_home"),
    *("horovod_variants", "horovod_prefix", "openmpi_parameters", "openmpi_prefix", "workloads_dir"),
}
_FACTS = ("ansible_facts", "ansible_local")


def evaluated(
    variables: Mapping[str, Any], loader: DataLoader, below: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a host's variables, those that hvlab reads evaluated; and the reason for each that cannot be.

    ``below`` holds the project's own variables, which the host's outrank. Facts play no part, so that
    a chosen version is never mistaken for a pin.
    """
    everything = {name: value for name, value in {**(below or {}), **variables}.items() if name not in _FACTS}
    templar = Templar(loader=loader, variables=everything)
    values, failures = dict(variables), {}
    for name, value in everything.items():
        if name not in READ:
            continue
        try:
            values[name] = templar.template(value)
        except AnsibleError as error:
            failures[name] = str(error)
    return values, failures
