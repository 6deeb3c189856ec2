"""Judge NVIDIA's driver on a host before it is touched, and bring the installed one into use."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from hvlab.ansible.modules.hvlab_driver import DOCUMENTATION
from hvlab.provision.arguments import arguments
from hvlab.provision.driver.host import SERVICES, Host, Wish, installed_version
from hvlab.provision.driver.loading import Step, loading
from hvlab.provision.driver.packages import driver_packages, needed_packages, needs_dkms, wanted_packages
from hvlab.provision.driver.plan import Plan, plan

LISTS = ("build_packages", "methods", "old", "keep", "components")
PACKAGES = ("packages", "headers_packages")
TEXTS = (
    *("method", "version", "kernel", "load", "reboot", "secure_boot"),
    *("fabric_manager", "fabric_manager_package", "checksum", "stream"),
)


class ActionModule(ActionBase):  # type: ignore[misc]
    """See the module of the same name for what it takes and gives."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the plan, or what the host is like now."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        self.vars = task_vars or {}
        self.args = arguments(self, DOCUMENTATION)
        self.wish, state = as_wish(self.args["wish"]), self.args["state"]
        if state in ("built", "unloaded"):
            return result | self._do(state)
        if state == "used":
            return result | self._use()
        host = self._look()
        found = plan(host, self.wish, repository_ready=self.args["ready"])
        for note in found.notes if found.changes else []:
            self._display.warning(note)
        if found.problems:
            told = [f"{p.host}: {p.seen}.\n  What to do: {p.remedy}." for p in found.problems]
            return result | {
                "failed": True,
                "msg": "\n".join([*told, "Nothing was changed."]),
                "changed": False,
            }
        return result | self._now(host, loading(host, self.wish, local=self._local)) | as_dict(found)

    def _do(self, state: str) -> dict[str, Any]:
        done = self._module(state=state, services=list(SERVICES))
        if done.get("failed"):
            seen = done.get("msg", done.get("module_stderr"))
            remedy = f"see {done['log']} there" if "log" in done else "see `dmesg` there"
            raise AnsibleActionFail(f"{self.vars['inventory_hostname']}: {seen}\n  What to do: {remedy}.")
        return done

    def _use(self) -> dict[str, Any]:
        host = self._look()
        step = loading(host, self.wish, local=self._local)
        changed = step.action in ("load", "reload")
        if changed and not self._task.check_mode:
            done = self._module(state="loaded", services=list(SERVICES))
            if done.get("in_use"):
                step = loading(host, self.wish, stuck=done["msg"], local=self._local)
            elif done.get("failed"):
                raise AnsibleActionFail(f"{host.name}: {done['msg']}\n  What to do: see `dmesg` there.")
            else:
                host = self._look()
                step = loading(host, self.wish, local=self._local)
        return {"changed": changed} | self._now(host, step)

    @property
    def _local(self) -> bool:
        return bool(self._connection.transport == "local")

    def _look(self) -> Host:
        """Ask the host; package versions only where something is missing."""
        name, facts = self.vars["inventory_hostname"], self.vars["ansible_facts"]
        names: list[str] = []
        if self.args["state"] == "planned":
            bare = Host(name, facts, {})
            wanted = [*wanted_packages(bare, self.wish), *needed_packages(bare, self.wish)]
            own = {package["name"] for package in self.wish.packages}
            names = sorted({p["name"] for p in wanted if p["name"] in own or p["name"] not in bare.packages})
            others = [*driver_packages(bare, self.wish), *(["dkms"] if needs_dkms(bare, self.wish) else [])]
            names += [name for name in others if name not in names]
        done = self._module(state="seen", packages=names, services=list(SERVICES))
        if done.get("failed") or "seen" not in done:
            raise AnsibleActionFail(f"{name}: {done.get('msg')} {done.get('module_stderr', '')}".strip())
        return Host(name, facts, done["seen"])

    def _now(self, host: Host, step: Step) -> dict[str, Any]:
        kernel, seen = self.wish.kernel, host.seen
        built = [e for e in seen["dkms"] if e["kernel"] == kernel]
        return {
            "driver": installed_version(host, kernel),
            "modules": [f"{e['name']}/{e['version']} {e['state']}" for e in built] or seen["modules"],
            "unbuilt": bool(
                {e["name"] for e in seen["dkms"]} - {e["name"] for e in built if e["state"] == "installed"}
            ),
            "step": step.action,
            "loaded": step.loaded,
            "reason": step.reason,
            "problem": f"{step.problem.seen}.\n  What to do: {step.problem.remedy}." if step.problem else "",
            "services": seen["services"],
            "initramfs": seen["initramfs"],
            "blacklist": seen["blacklist"],
            "pinned": seen["pin"],
            "nouveau": seen["nouveau"],
            "running": seen["loaded"],
            "smi": seen["smi"],
        }

    def _module(self, **arguments: Any) -> dict[str, Any]:
        done: dict[str, Any] = self._execute_module(
            module_name="hvlab_driver",
            module_args={"kernel": self.wish.kernel, **arguments},
            task_vars=self.vars,
        )
        return done


def as_wish(given: dict[str, Any]) -> Wish:
    """Return the role's variables as a wish; a package may be a name alone."""
    values: dict[str, Any] = {name: str(given.get(name) or "") for name in TEXTS if name in given}
    values["fabric_manager"] = str(given.get("fabric_manager", "auto")).lower()
    values |= {name: bool(given.get(name)) for name in ("remove_old", "fabric")}
    values.update({name: tuple(given.get(name) or ()) for name in LISTS if name in given})
    for name in PACKAGES:
        packages = [
            {"name": p, "version": None} if isinstance(p, str) else dict(p) for p in given.get(name) or ()
        ]
        values[name] = tuple(packages)
    return Wish(**values)


def as_dict(found: Plan) -> dict[str, Any]:
    """Return what the tasks use of a plan."""
    return {
        "changed": False,
        "changes": found.changes,
        "prepare": [dict(package) for package in found.prepare],
        "install": [dict(package) for package in found.install],
        "along": [dict(package) for package in found.along],
        "wanted": [dict(package) for package in found.wanted],
        "remove": found.remove,
        "may_go": found.may_go,
        "run_uninstaller": found.run_uninstaller,
        "runfile": found.runfile,
        "sources": found.sources,
        "stream": found.stream,
        "pin": found.pin,
        "fabric_manager": found.fabric_manager,
    }
