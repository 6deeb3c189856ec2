"""Check all hosts from their facts, on the controller, before anything is changed."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hvlab.ansible.plugin import HvlabAction
from hvlab.base.answers import mismatch
from hvlab.base.errors import Problem, report
from hvlab.base.paths import trust_dir
from hvlab.checks.before import HostLimits, PreflightHost, address_of, lab_hosts
from hvlab.checks.preflight import check, report_missing
from hvlab.checks.ssh import check_owner, check_possession
from hvlab.lab.facts_shape import Facts
from hvlab.lab.inventory import Host
from hvlab.remote.trust import Trust, revoke_former

_REMEDY = (
    "look at its Python and at /etc/ansible/facts.d there; a host that sends other facts may be taken over"
)

_SSH_OPTIONS = ("ansible_ssh_common_args", "ansible_ssh_extra_args")


class ActionModule(HvlabAction):
    """Run once for all hosts; needs no connection."""

    _requires_connection = False

    def act(self) -> dict[str, Any]:
        """Return the lab's hosts, or fail with every problem."""
        result: dict[str, Any] = {}
        limits = HostLimits(**self.args)
        hostvars, groups = self.vars["hostvars"], self.vars["groups"]
        present = self.vars["ansible_play_hosts"]

        # Facts of an unexpected shape are not used at all.
        malformed = {name: mismatch(hostvars[name].get("ansible_facts", {}), Facts) for name in present}
        checked = [as_host(name, hostvars[name]) for name in present if not malformed[name]]
        reached = {name: str(hostvars[name].get("ansible_host") or name) for name in groups["all"]}
        hosts = lab_hosts(checked, reached)
        lab = str(hostvars[present[0]].get("lab_name", "lab"))
        errors, warnings = check(checked, hosts, limits, reached)
        problems = [
            *report_missing(self.vars["ansible_play_hosts_all"], present),
            *(Problem(name, f"its facts: {wrong}", _REMEDY) for name, wrong in malformed.items() if wrong),
            *check_owner(checked, Trust(lab, trust_dir(lab))),
            *check_possession(list_stated_keys(checked, hostvars)),
            *errors,
        ]
        if warnings:
            result["warnings"] = [f"preflight:\n{report(warnings)}"]
        if not problems:
            if not self._task.check_mode:
                shown = {
                    one.name: str(one.own["ssh_host_key"]) for one in checked if one.own.get("ssh_host_key")
                }
                for name in revoke_former(Trust(lab, trust_dir(lab)), shown):
                    result.setdefault("warnings", []).append(
                        f"{name} has a new host key: the former is revoked"
                    )
            return result | {"hosts": hosts}
        count = len({(problem.observed, problem.remedy) for problem in problems})
        head = f"preflight found {count} problem{'s' if count > 1 else ''}; nothing was changed."
        return result | {"failed": True, "msg": head, "problems": report(problems)}


def list_stated_keys(
    checked: Iterable[PreflightHost], hostvars: Mapping[str, Any]
) -> Iterator[tuple[Host, str]]:
    """Yield the hosts reached by ssh, named as ssh looks up their keys, and the key that each states."""
    for one in checked:
        variables, key = hostvars[one.name], one.own.get("ssh_host_key")
        by_ssh = str(variables.get("ansible_connection", "ssh")).rpartition(".")[2] in ("ssh", "smart")
        if key and by_ssh:
            options = {name: variables.get(name) for name in _SSH_OPTIONS}
            target = str(variables.get("ansible_host") or one.name)
            yield Host(one.name, target, one.port, None, 1, frozenset(), options), key


def as_host(name: str, variables: Mapping[str, Any]) -> PreflightHost:
    """Return a host from its templated variables."""
    return PreflightHost(
        name=name,
        facts=variables.get("ansible_facts", {}),
        address=address_of(variables.get("ansible_host") or name),
        network=str(ipaddress.ip_network(str(variables["lab_network"]), strict=False)),
        interface=str(variables["lab_interface"]),
        port=int(variables.get("ansible_port") or 22),
        alone=len(variables["groups"]["all"]) == 1
        and str(variables.get("ansible_connection", "ssh")).endswith("local"),
        gpu=name in variables["groups"].get("gpu", ()),
    )
