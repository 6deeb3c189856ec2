"""Choose the versions of all hosts of the play, on the controller: what `hvlab plan` prints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hvlab.ansible.plugin import HvlabAction
from hvlab.base.errors import HvlabError
from hvlab.lab.inventory_reader import evaluate
from hvlab.stack.resolver import HostRequest, Infeasible, Resolution, lock, plan
from hvlab.stack.resolver.facts import from_ansible
from hvlab.stack.resolver.lab import request


class ActionModule(HvlabAction):
    """Run once for all hosts, after their facts were gathered; needs no connection."""

    _requires_connection = False

    def act(self) -> dict[str, Any]:
        """Return ``stacks`` (host -> stack), or fail with the reason why none exists."""
        variables, others = self.vars, list_left_out(self.vars)
        path = lock_path(variables)
        try:
            locked = lock.read(path) if path else None
            hosts = lab(variables, self._loader)
            answer = plan(locked.pin(hosts) if locked and others else hosts)
            if (
                path
                and self.args["write_lock"]
                and isinstance(answer, Resolution)
                and not self._task.check_mode
            ):
                lock.write(path, answer.hosts, hosts)
        except HvlabError as error:
            remedy = f"\nwhat to do: {error.remedy}" if error.remedy else ""
            return {"failed": True, "msg": f"{error}{remedy}"}
        if isinstance(answer, Infeasible):
            return {"failed": True, "msg": lock.explain_infeasible(answer), "refusal": answer.as_json()}
        known = f"those in {path} are kept" if locked else "they may differ there"
        warning = f"{', '.join(others)} left out: the versions are chosen for the others, and {known}"
        return {
            "stacks": answer.hosts,
            "notes": answer.notes,
            "warnings": [
                *([warning] if others else []),
                *(locked.differences(answer.hosts) if locked else []),
            ],
        }


def lock_path(variables: Mapping[str, Any]) -> Path | None:
    """Return the path of the lock of the play's inventory; None if that is no file."""
    host = variables["hostvars"][variables["ansible_play_hosts"][0]]
    file = host.get("inventory_file")
    return lock.path_of(Path(file)) if file else None


def list_left_out(variables: Mapping[str, Any]) -> list[str]:
    """Return the hosts of the inventory that are not in the play: `--limit`, or they failed before."""
    chosen = set(variables["ansible_play_hosts"])
    return [name for name in variables["groups"]["all"] if name not in chosen]


def lab(variables: Mapping[str, Any], loader: Any) -> list[HostRequest]:
    """Return the hosts of the play with their requests in the inventory."""
    hostvars = variables["hostvars"]
    gpus = set(variables["groups"].get("gpu", ()))
    return [
        request(
            from_ansible(name, hostvars[name].get("ansible_facts", {})),
            evaluate(hostvars.raw_get(name), loader)[0],
            gpu=name in gpus,
        )
        for name in variables["ansible_play_hosts"]
    ]
