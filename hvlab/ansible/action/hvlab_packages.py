"""Install, pin, hold or remove packages; no round trip where the facts say that nothing is to be done."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from hvlab.errors import UsageError
from hvlab.provision.managers import Apt, Manager, Rpm
from hvlab.provision.packages import Transaction, Wanted, as_wanted, complaint, matching, remedy

HELD_OWN = "/etc/hvlab/held.json"


class ActionModule(ActionBase):  # type: ignore[misc]
    """Arguments.

    `name`: packages, each a name or {name, version}, where a version is exact or ends in `*`;
    `state`: present, absent (which purges), or possible, which has the package manager say that they could be
    installed, and changes nothing but the module streams;
    `hold`: keep the packages at their version; without it holds stay as they are;
    `replaces`: patterns of names of installed packages that go once everything is known to be right;
    `modules`: dnf's module streams to enable before, as `name:stream`;
    `allow_removal`: patterns of other packages that may go along. Installing lets no others go;
    for absent the default is that all may which need the removed ones;
    `remedy`: what to tell who has to allow it.
    """

    _supports_check_mode = True
    _VALID_ARGS = frozenset({"name", "state", "hold", "replaces", "modules", "allow_removal", "remedy"})

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the packages that were, or in check mode would be, installed, removed or held."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        self.vars = task_vars or {}
        self.host = self.vars.get("inventory_hostname", "?")
        facts, args = self.vars["ansible_facts"], self._task.args
        self.installed: dict[str, str] = dict(facts["hvlab"].get("packages") or {})
        self.held = set(facts["hvlab"].get("held") or [])
        self.own = set(facts["hvlab"].get("held_own") or [])
        self.manager = self._manager(facts)
        self.refreshed: dict[str, Any] = {"rc": 0, "stdout": "", "stderr": ""}
        try:
            wanted = as_wanted(args["name"])
        except UsageError as error:
            raise AnsibleActionFail(f"{self.host}: {error}") from error
        if args.get("state", "present") == "absent":
            work = Work(remove=[one.name for one in wanted if one.name in self.installed])
            allowed = args.get("allow_removal", ["*"])
        else:
            work = self._present(wanted)
            allowed = args.get("allow_removal", [])
        if not work:
            return result | {"changed": False, "packages": []}
        self._check_held({one.name for one in work.install} | set(work.remove))
        if args.get("state") == "possible":
            return result | self._possible(work, allowed)
        result |= {"changed": True, "packages": work.names, "diff": work.diff(self.installed)}
        if self._task.check_mode:
            # What comes may come from a repository that is not there yet; what goes can be asked for.
            if not work.install:
                self._judge(work, allowed)
            return result
        self._enable(work.modules)
        if work.install or work.remove:
            before = self.installed
            self._change(work, allowed)
            result["removed"] = sorted(set(before) - set(self.installed))
            result["changed"] = bool(before != self.installed or work.hold or work.modules)
        self._hold(work, set(result.get("removed", [])))
        return result | {"ansible_facts": {"hvlab": self._seen(facts["hvlab"], work)}}

    def _manager(self, facts: dict[str, Any]) -> Manager:
        known: dict[str, Manager] = {"apt": Apt(), "dnf": Rpm("dnf"), "dnf5": Rpm("dnf5"), "yum": Rpm("yum")}
        name = facts["pkg_mgr"]
        if name not in known:
            raise AnsibleActionFail(
                f"{self.host}: packages are managed by {name}; known are {', '.join(known)}"
            )
        return known[name]

    def _present(self, wanted: list[Wanted]) -> Work:
        args, names = self._task.args, [one.name for one in wanted]
        install = [one for one in wanted if not one.is_met(self.installed)]
        hold = [name for name in names if name not in self.held] if args.get("hold") else []
        again = [one.name for one in install if one.name in self.own and one.name in self.installed]
        plugin = self.manager.lock_plugin
        if hold and plugin and plugin not in self.installed:
            install.append(Wanted(plugin))
        streams = self.vars["ansible_facts"]["hvlab"].get("module_streams") or {}
        enabled = {f"{name}:{stream}" for name, stream in streams.items()}
        modules = [one for one in args.get("modules", []) if one not in enabled]
        remove = matching(args.get("replaces", []), self.installed, but=names)
        return Work(install, remove, list(dict.fromkeys(hold + again)), modules)

    def _possible(self, work: Work, allowed: Iterable[str]) -> dict[str, Any]:
        """Refuse what cannot be installed; in check mode the repository may not be there yet."""
        told = {"changed": bool(work.modules), "packages": []}
        if self._task.check_mode:
            return told
        self._enable(work.modules)
        if work.install or work.remove:
            self._refresh(work)
            self._judge(work, allowed)
        return told | {"ansible_facts": {"hvlab": self._seen(self.vars["ansible_facts"]["hvlab"], work)}}

    def _check_held(self, names: set[str]) -> None:
        """Refuse to touch what somebody else holds."""
        stuck = sorted(names & (self.held - self.own) & set(self.installed))
        if stuck:
            there = ", ".join(f"{name} {self.installed[name]}" for name in stuck)
            raise AnsibleActionFail(
                f"{self.host}: {there} {'are' if len(stuck) > 1 else 'is'} held there and would be changed "
                f"or removed. Let go with `{self.manager.release(stuck)}`, or ask for the version there is."
            )

    def _enable(self, modules: list[str]) -> None:
        for module in modules:
            if not isinstance(self.manager, Rpm):
                raise AnsibleActionFail(f"{self.host}: module streams ({module}) are dnf's; it has apt")
            for argv in self.manager.enable(module):
                done = self._command(argv)
                if done["rc"]:
                    raise self._failure(f"module stream {module} cannot be enabled", done)

    def _change(self, work: Work, allowed: Iterable[str]) -> None:
        """Judge, do and check."""
        self._refresh(work)
        self._judge(work, allowed)
        for argv in self.manager.perform(work.install, work.remove):
            done = self._command(argv)
            if done["rc"]:
                now = self._query()
                gone = sorted(set(self.installed) - set(now))
                seen = (
                    "nothing was changed"
                    if now == self.installed
                    else f"gone already: {', '.join(gone) or 'none'}"
                )
                raise self._failure(f"the package manager failed {self._what(work)} ({seen})", done)
        self.installed = self._query()
        # A name without version may be one that other packages provide.
        lacking = [str(one) for one in work.install if one.version and not one.is_met(self.installed)]
        left = [name for name in work.remove if name in self.installed]
        if lacking or left:
            seen = f"without {', '.join(lacking)}" if lacking else f"with {', '.join(left)}"
            raise AnsibleActionFail(
                f"{self.host}: the package manager says all went well, but leaves it {seen}"
            )

    def _judge(self, work: Work, allowed: Iterable[str]) -> None:
        """Refuse what cannot be had, what would take others along, and what somebody holds."""
        self.manager.unlocked = bool(self.own & {*(one.name for one in work.install), *work.remove})
        removed = self._simulate(work).removed
        others = sorted(name for name in removed - set(work.remove) if not matching(allowed, [name], but=[]))
        if others:
            raise self._would_go(work, others)

    def _refresh(self, work: Work) -> None:
        if work.install and isinstance(self.manager, Apt):
            arguments = {"update_cache": True, "cache_valid_time": 3600, "lock_timeout": 300}
            done = self._execute_module(
                module_name="ansible.builtin.apt", module_args=arguments, task_vars=self.vars
            )
            if done.get("failed"):
                self.refreshed["stderr"] = str(done.get("msg", ""))

    def _simulate(self, work: Work) -> Transaction:
        """Return what would happen; a refusal counts once the lists, which may be old, were read anew."""
        done = self._ask(work)
        if isinstance(done, Transaction):
            self._check_held(set(done.touched))
            return done
        if work.install:
            refreshed = self._command(self.manager.refresh)
            if refreshed["rc"] or not self.refreshed["stderr"]:
                self.refreshed = refreshed
            done = self._ask(work)
            if isinstance(done, Transaction):
                self._check_held(set(done.touched))
                return done
        raise self._refusal(work, done)

    def _ask(self, work: Work) -> Transaction | dict[str, Any]:
        found = Transaction()
        for argv in self.manager.simulate(work.install, work.remove):
            done = self._command(argv)
            answer = self.manager.judge(done["rc"], f"{done['stdout']}\n{done['stderr']}")
            if answer is None:
                return done
            found |= answer
        if work.install and work.remove and not self.manager.swaps:
            done = self._list(work.install)
            if self._lacking(work.install, done["stdout"]):
                return done
        return found

    def _list(self, packages: list[Wanted]) -> dict[str, Any]:
        return self._command(self.manager.list_versions([one.name for one in packages]))

    def _lacking(self, packages: list[Wanted], listing: str) -> list[str]:
        """Return a line for each package that no repository has in the wanted version."""
        lacking = []
        for one in packages:
            there = self.manager.versions(listing, one.name)
            if not any(one.is_met({one.name: text}) for version in there for text in both(version)):
                have = ", ".join(there) or "none of it"
                lacking.append(f"\n  {one} cannot be had; the repositories have {have}")
        return lacking

    def _refusal(self, work: Work, done: dict[str, Any]) -> AnsibleActionFail:
        """Say which of the wanted packages cannot be had, and what there is of them."""
        pinned = [one for one in work.install if one.version] or work.install
        listing = self._list(pinned)["stdout"] if pinned else ""
        lacking = self._lacking(pinned, listing) if listing else []
        seen = f"nothing was changed, because the package manager refuses {self._what(work)}"
        return self._failure(seen + "".join(lacking), done, self.refreshed)

    def _would_go(self, work: Work, others: list[str]) -> AnsibleActionFail:
        what = ", ".join(work.remove) if not work.install else ", ".join(map(str, work.install))
        verb = "cannot be removed" if not work.install else "cannot be installed"
        told = self._task.args.get("remedy", "list what may go in `replaces` or `allow_removal` of the task")
        return AnsibleActionFail(
            f"{self.host}: {what} {verb}: {', '.join(others)} would go with it, and nothing was changed. "
            f"Remove {'them' if len(others) > 1 else 'it'} yourself, or {told}."
        )

    def _what(self, work: Work) -> str:
        parts = [f"to install {', '.join(map(str, work.install))}"] if work.install else []
        parts += [f"to remove {', '.join(work.remove)}"] if work.remove else []
        return " and ".join(parts)

    def _hold(self, work: Work, removed: set[str]) -> None:
        """Hold what shall be held, and write down that it is ours: only that may be changed later."""
        gone = removed & self.own
        stale = sorted((set(work.hold) & self.own) | gone)
        if stale and (argv := self.manager.forget(stale)):
            self._command(argv)
        if work.hold:
            done = self._command(self.manager.hold(work.hold))
            if done["rc"]:
                raise self._failure(f"{', '.join(work.hold)} cannot be held", done)
        before = set(self.own)
        self.own = (self.own | set(work.hold)) - gone
        self.held = (self.held | set(work.hold)) - gone
        if self.own != before:
            files = [{"path": HELD_OWN, "content": json.dumps(sorted(self.own)) + "\n", "mode": "0644"}]
            self._execute_module(module_name="hvlab_files", module_args={"files": files}, task_vars=self.vars)

    def _query(self) -> dict[str, str]:
        done = self._command(self.manager.query)
        if done["rc"]:
            raise self._failure("the installed packages cannot be listed", done)
        return self.manager.installed(done["stdout"])

    def _seen(self, seen: dict[str, Any], work: Work) -> dict[str, Any]:
        """Return the facts as they are now, for the tasks that come after this one."""
        streams = dict(seen.get("module_streams") or {})
        streams |= dict(one.split(":", 1) for one in work.modules)
        now = {"packages": self.installed, "held": sorted(self.held), "held_own": sorted(self.own)}
        return {**seen, **now, "module_streams": streams}

    def _command(self, argv: list[str]) -> dict[str, Any]:
        check_mode, self._task.check_mode = self._task.check_mode, False
        try:
            done: dict[str, Any] = self._execute_module(
                module_name="ansible.builtin.command",
                module_args={
                    "argv": ["env", *self.manager.environment, *argv],
                    "expand_argument_vars": False,
                },
                task_vars=self.vars,
            )
        finally:
            self._task.check_mode = check_mode
        if "rc" not in done:
            raise AnsibleActionFail(f"{self.host}: {argv[0]} cannot be run: {done.get('msg', done)}")
        return {"stdout": "", "stderr": "", **done}

    def _failure(self, seen: str, *outputs: dict[str, Any]) -> AnsibleActionFail:
        text = "\n".join(f"{done['stdout']}\n{done['stderr']}" for done in outputs)
        said = complaint(text)
        told = f"\nThe package manager says:\n{said}" if said else ""
        return AnsibleActionFail(f"{self.host}: {seen}.{told}\nWhat to do: {remedy(text)}.")


def both(version: str) -> tuple[str, str]:
    """Return a version with its epoch, as repositories name it, and without, as rpm's facts have it."""
    return version, version.partition(":")[2] or version


class Work:
    """What is to be done on a host."""

    def __init__(
        self,
        install: list[Wanted] | None = None,
        remove: list[str] | None = None,
        hold: list[str] | None = None,
        modules: list[str] | None = None,
    ) -> None:
        self.install, self.remove = install or [], remove or []
        self.hold, self.modules = hold or [], modules or []

    def __bool__(self) -> bool:
        return bool(self.install or self.remove or self.hold or self.modules)

    @property
    def names(self) -> list[str]:
        """Return the names of all packages that this changes."""
        return list(dict.fromkeys([*(one.name for one in self.install), *self.remove, *self.hold]))

    def diff(self, installed: dict[str, str]) -> dict[str, str]:
        """Return the change for `--diff`."""
        touched = [one.name for one in self.install] + self.remove
        before = [f"{name} {installed[name]}" for name in touched if name in installed]
        after = [*map(str, self.install), *(f"{name} held" for name in self.hold), *self.modules]
        return {
            "before": "".join(f"{line}\n" for line in before),
            "after": "".join(f"{line}\n" for line in after),
        }
