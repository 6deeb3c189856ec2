"""Decide the contents of Slurm's files, on the controller."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hvlab.ansible.plugin import HvlabAction
from hvlab.base.errors import Problem, report
from hvlab.stack.provision.slurm import checks
from hvlab.stack.provision.slurm.host import SlurmHost, SlurmRequest, SlurmSystem, registrations
from hvlab.stack.provision.slurm.plan import describe, plan


class ActionModule(HvlabAction):
    """See the module of the same name for its options and results; needs no connection."""

    _requires_connection = False

    def act(self) -> dict[str, Any]:
        """Return the decision, or fail with every problem."""
        self.request = SlurmRequest(**self.args["request"])
        decide = {
            "checked": self._check,
            "agreed": self._agree,
            "described": self._describe,
            "planned": self._plan,
            "associated": self._associate,
        }[self.args["state"]]
        decided, problems = decide()
        if problems:
            return {"failed": True, "msg": report(problems)}
        return {"changed": False, **decided}

    @property
    def _present(self) -> list[str]:
        return [name for name in self.request.hosts if name in self.vars["ansible_play_hosts"]]

    def _host(self, name: str | None = None) -> SlurmHost:
        hostvars = self.vars["hostvars"][name] if name else self.vars
        system = hostvars["slurm_system"] if name else self.args["system"]
        fields = [field.name for field in dataclasses.fields(SlurmSystem)]
        return SlurmHost(
            name=name or self.host,
            facts=hostvars["ansible_facts"],
            system=SlurmSystem(**{field: system[field] for field in fields if field in system}),
            hardware=self.args["text"] if self.args["state"] == "described" else "",
            available=(hostvars.get("__slurm_available") or {}).get("stdout", ""),
        )

    def _check(self) -> tuple[dict[str, Any], list[Problem]]:
        given = {"configured": self.args["configured"], "database": self.args["database"]}
        host = self._host()
        warnings = [text for text in [checks.holes(host)] if text]
        problems = checks.check_host(host, self.request, active=self.args["text"], **given)
        return {"warnings": warnings} if warnings else {}, problems

    def _agree(self) -> tuple[dict[str, Any], list[Problem]]:
        names, answers = self.vars["ansible_play_hosts"], self.args["answers"]
        asked = {name: self.vars["hostvars"][name].get("__slurm_own_uid") or {} for name in names}
        return {}, checks.check_cluster(
            [self._host(name) for name in names],
            self.request,
            key=Path(self.request.munge_key_file).is_file(),
            uids={name: answer.get("stdout", "") for name, answer in zip(names, answers, strict=True)},
            own_uids={name: answer["stdout"] for name, answer in asked.items() if "stdout" in answer},
        )

    def _describe(self) -> tuple[dict[str, Any], list[Problem]]:
        host = self._host()
        problems = checks.find_lost_hardware(host, self.request, self._read_record().get("nodes") or {})
        return {"node": describe(host, self.request)}, problems

    def _read_record(self) -> Mapping[str, Any]:
        controller = self.request.controller
        name = controller if controller in self.vars["ansible_play_hosts"] else self.host
        local = self.vars["hostvars"][name]["ansible_facts"].get("ansible_local") or {}
        return local.get("hvlab_slurm") or {}

    def _plan(self) -> tuple[dict[str, Any], list[Problem]]:
        present, asked, last = self._present, self.vars["ansible_play_hosts_all"], self._read_record()
        now = {
            name: answer["node"]
            for name, answer in zip(self.vars["ansible_play_hosts"], self.args["answers"], strict=True)
            if name in present
        }
        decided = dataclasses.asdict(
            plan(self._host(), self.request, last=last, now=now, uid=self.args["uid"])
        )
        absent = [name for name in self.request.hosts if name not in present]
        if not decided["changes"] or not absent:
            return decided, []
        if self.host == present[0]:
            decided["warnings"] = [
                f"slurm.conf changes without {', '.join(absent)}: down, or failed in this run. Jobs run on "
                "the other hosts. What to do: run it again when all are back, before jobs start there."
            ]
        recorded = last.get("nodes") or {}
        return decided, checks.check_absent(
            self.request, recorded, present=present, asked=asked, states=self.args["text"]
        )

    def _associate(self) -> tuple[dict[str, Any], list[Problem]]:
        return {"commands": registrations(self.request, self.args["text"])}, []
