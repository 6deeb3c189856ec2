"""Judge NVIDIA's driver on a host before it is touched, and bring the installed one into use."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.module_utils.parsing.convert_bool import boolean

from hvlab.ansible.plugin import HvlabAction
from hvlab.stack.provision.driver.host import SERVICES, DriverHost, DriverRequest, find_installed_version
from hvlab.stack.provision.driver.in_use import NEVER, LoadingStep, loading
from hvlab.stack.provision.driver.packages import (
    driver_packages,
    list_needed,
    list_requested,
    needs_dkms,
    packages_to_hold,
    with_signed_modules,
)
from hvlab.stack.provision.driver.plan import DriverPlan, plan
from hvlab.stack.provision.driver.system import (
    DriverNames,
    bare_kernels,
    find_names,
    kernels_to_build,
    module_kind,
)
from hvlab.stack.provision.names import signers

TEXTS = ("method", "version", "kernel", "load", "reboot", "in_use", "secure_boot")
SWITCHES = ("remove_old", "fabric", "imex", "drains", "opened")
# Names that the user may override.
PACKAGES = ("packages", "headers_packages")
OWN = ("components", "fabric_manager_package", "stream")

# Parts of the host's state that the tasks see as they are.
_STATE = ("services", "initramfs", "nouveau", "drained", "modules_loaded", "smi")


class ActionModule(HvlabAction):
    """See the module of the same name for its options and results."""

    def act(self) -> dict[str, Any]:
        """Return the plan, or the host's present state."""
        facts, state = self.vars["ansible_facts"], self.args["state"]
        bare = DriverHost(self.host, facts, {})
        self.request = with_signed_modules(bare, as_request(self.args["request"], facts))
        if state == "listed":
            return self._list_versions()
        if state in ("tried", "built", "unloaded"):
            return self._do(state)
        if state == "used":
            return self._use()
        host = self._ask_host()
        request = replace(self.request, reboot=NEVER) if self._local else self.request
        driver_plan = plan(host, request, repository_ready=self.args["ready"])
        for note in driver_plan.notes if driver_plan.changes else []:
            self._display.warning(note)
        if driver_plan.problems:
            lines = [f"{p.host}: {p.observed}.\n  What to do: {p.remedy}." for p in driver_plan.problems]
            return {"failed": True, "msg": "\n".join([*lines, "Nothing was changed."]), "changed": False}
        now = self._now(host, loading(host, self.request, local=self._local))
        return now | as_dict(driver_plan, self.request)

    def _list_versions(self) -> dict[str, Any]:
        facts = self.vars["ansible_facts"]
        names = packages_to_hold(DriverHost(self.host, facts, {}), self.request)
        return {"changed": False, "packages": names}

    def _do(self, state: str) -> dict[str, Any]:
        kernels = kernels_to_build(self._ask_host(), self.request)[1:] if state == "built" else []
        done = self._run(state=state, services=list(SERVICES), also=kernels, version=self.request.version)
        if done.get("failed"):
            problem = done.get("msg", done.get("module_stderr"))
            remedy = f"see {done['log']} there" if "log" in done else "see `dmesg` there"
            if state == "tried":
                remedy = "set nvidia_driver_version to one that supports this kernel, or boot another kernel"
            raise AnsibleActionFail(f"{self.host}: {problem}\n  What to do: {remedy}.")
        return done

    def _use(self) -> dict[str, Any]:
        host = self._ask_host()
        step = loading(host, self.request, local=self._local)
        changed = step.action in ("load", "reload")
        if changed and not self._task.check_mode:
            done = self._run(state="loaded", services=list(SERVICES))
            if done.get("in_use"):
                step = loading(host, self.request, stuck=done["msg"], local=self._local)
            elif done.get("failed"):
                raise AnsibleActionFail(f"{host.name}: {done['msg']}\n  What to do: see `dmesg` there.")
            else:
                host = self._ask_host()
                step = loading(host, self.request, local=self._local)
        return {"changed": changed} | self._now(host, step)

    @property
    def _local(self) -> bool:
        return bool(self._connection.transport == "local")

    def _ask_host(self) -> DriverHost:
        """Ask the host; package versions only where something is missing."""
        name, facts = self.host, self.vars["ansible_facts"]
        names: list[str] = []
        if self.args["state"] == "planned":
            bare = DriverHost(name, facts, {})
            packages = [*list_requested(bare, self.request), *list_needed(bare, self.request)]
            packages += self.request.headers_following
            packages += [
                {"name": name} for name in self.request.fabric_kernel_packages if self.request.fabric
            ]
            own = {package["name"] for package in self.request.packages}
            names = sorted(
                {p["name"] for p in packages if p["name"] in own or p["name"] not in bare.packages}
            )
            others = [
                *driver_packages(bare, self.request),
                *(["dkms"] if needs_dkms(bare, self.request) else []),
            ]
            names += [name for name in others if name not in names]
        done = self._run(
            state="inspected",
            packages=names,
            compiler_package=self.request.compiler_package if self.args["state"] == "planned" else "",
            services=list(SERVICES),
        )
        if done.get("failed") or "driver_state" not in done:
            raise AnsibleActionFail(f"{name}: {done.get('msg')} {done.get('module_stderr', '')}".strip())
        return DriverHost(name, facts, done["driver_state"])

    def _now(self, host: DriverHost, step: LoadingStep) -> dict[str, Any]:
        kernel, state = self.request.kernel, host.state
        built = [e for e in state["dkms"] if e["kernel"] == kernel]
        ready = {(e["name"], e["kernel"]) for e in state["dkms"] if e["state"] == "installed"}
        return {
            "driver": find_installed_version(host, kernel),
            "modules": [f"{e['name']}/{e['version']} {e['state']}" for e in built] or state["modules"],
            "unbuilt": any(
                (e["name"], kernel) not in ready
                for e in state["dkms"]
                for kernel in kernels_to_build(host, self.request)
            ),
            "bare_kernels": [
                f"{p.observed}.\n  What to do: {p.remedy}." for p in bare_kernels(host, self.request)
            ],
            "step": step.action,
            "loaded": step.loaded,
            "reason": step.reason,
            "problem": f"{step.problem.observed}.\n  What to do: {step.problem.remedy}."
            if step.problem
            else "",
            "pinned": state["pin"],
            "running": state["loaded"],
            **{name: state[name] for name in _STATE},
        }

    def _run(self, **arguments: Any) -> dict[str, Any]:
        return self._on_host(kernel=self.request.kernel, **arguments)


def as_request(options: dict[str, Any], facts: dict[str, Any]) -> DriverRequest:
    """Return the role's options as a request; empty ones take the system's names.

    A package may be a name alone.
    """
    values: dict[str, Any] = {name: str(options.get(name) or "") for name in TEXTS}
    values |= {name: boolean(options.get(name) or False) for name in SWITCHES}
    manager = str(options.get("fabric_manager", "auto")).lower()
    switches = int((facts.get("hvlab") or {}).get("nvswitches") or 0) > 0
    asked = DriverNames(
        facts=facts,
        links=values["imex"] or values["fabric"] or manager == "true" or (switches and manager == "auto"),
        **{name: values[name] for name in ("method", "version", "kernel", "opened")},
    )
    values |= find_names(asked)
    for name in PACKAGES:
        if options.get(name):
            values[name] = tuple(
                {"name": p, "version": None} if isinstance(p, str) else dict(p) for p in options[name]
            )
    for name in OWN:
        if options.get(name):
            values[name] = options[name] if isinstance(options[name], str) else tuple(options[name])
    checksums = options.get("checksums") or {}
    return DriverRequest(
        **values,
        fabric_manager=manager,
        imex_nodes=tuple(options.get("imex_nodes") or ()),
        checksum=str(checksums.get(values["method"]) or ""),
    )


def as_dict(plan: DriverPlan, request: DriverRequest) -> dict[str, Any]:
    """Return a plan for the tasks."""
    parts = {name: value for name, value in asdict(plan).items() if name not in ("problems", "notes")}
    return parts | {
        "changed": False,
        "changes": plan.changes,
        "initramfs_command": list(request.initramfs),
        "elrepo_fingerprint": signers("elrepo")["fingerprint"],
        "module_kind": module_kind(request.version, opened=request.opened),
    }
