"""Install, pin, hold or remove packages; no round trip if the facts show that nothing has to change."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleActionFail

from hvlab.ansible.action.hvlab_files import expire_states
from hvlab.ansible.plugin import HvlabAction
from hvlab.base.errors import UsageError
from hvlab.stack.provision.packages import (
    MANAGERS,
    Apt,
    PackageChanges,
    PackageSpec,
    Rpm,
    Transaction,
    as_packages,
    complaint,
    matching,
    parse_installed,
    remedy,
)

HELD_OWN = "/etc/hvlab/held.json"
INSTALLED_OWN = "/etc/hvlab/installed.json"
# Maximum age of apt's lists; apt's own timer refreshes them as often.
LISTS_S = 24 * 3600
LOCK_S, LOCK_POLL_S = 300, 5
_NOT_FETCHED = re.compile(r"^E: (Failed|Unable) to fetch", re.MULTILINE)


class ActionModule(HvlabAction):
    """See the module of the same name for its options and results."""

    def act(self) -> dict[str, Any]:
        """Return the packages that were, or in check mode would be, installed, removed or held."""
        facts = self.vars["ansible_facts"]
        self.facts: dict[str, Any] = facts["hvlab"]
        self.installed: dict[str, str] = dict(self.facts.get("packages") or {})
        self.held = set(self.facts.get("held") or [])
        self.own = set(self.facts.get("held_own") or [])
        self.came: dict[str, bool] = dict(self.facts.get("installed_own") or {})
        if facts["pkg_mgr"] not in MANAGERS:
            known = ", ".join(MANAGERS)
            raise self._failure(f"packages are managed by {facts['pkg_mgr']}; known are {known}")
        self.manager = MANAGERS[facts["pkg_mgr"]]()
        self.refreshed: dict[str, Any] = {"rc": 0, "stdout": "", "stderr": ""}
        self.read = False
        work = self._work()
        if not work:
            return {"changed": False, "packages": []}
        self._check_held({one.name for one in work.install} | set(work.remove))
        if self.args["state"] in ("possible", "fetched"):
            return self._prepare(work)
        result = {"changed": True, "packages": work.names, "diff": work.diff(self.installed)}
        if self._task.check_mode:
            # New packages may come from a repository not yet set up; removals can be simulated.
            if not work.install:
                self._judge(work)
            return result | self._plan(work)
        self._enable(work.modules)
        before, own, came = self.installed, self.own, self.came
        if work.install or work.remove:
            self._change(work)
        removed = sorted(set(before) - set(self.installed))
        along = [name for name in sorted(own) if self.installed.get(name) not in (before.get(name), None)]
        self._note({one.name for one in as_packages(self.args["name"])}, set(self.installed) - set(before))
        self._hold(list(dict.fromkeys([*work.hold, *along])), removed)
        self._record({HELD_OWN: (sorted(own), sorted(self.own)), INSTALLED_OWN: (came, self.came)})
        return result | {
            "changed": bool(before != self.installed or work.hold or work.modules),
            "removed": removed,
            "ansible_facts": {"hvlab": self._new_facts(work), **expire_states(self.vars)},
        }

    def _plan(self, work: PackageChanges) -> dict[str, Any]:
        """Return the expected installs and removals; the request itself if it cannot be simulated yet."""
        asked = {one.name: one.version or "" for one in work.install}
        answer = self._ask(work) if work.install else Transaction()
        if not isinstance(answer, Transaction):
            return {"comes": asked, "removed": work.remove}
        return {"comes": asked | dict(answer.comes), "removed": sorted({*work.remove, *answer.removed})}

    def _work(self) -> PackageChanges:
        args = self.args
        try:
            packages = as_packages(args["name"])
        except UsageError as error:
            raise self._failure(error) from None
        names = [one.name for one in packages]
        if args["state"] == "absent":
            remove = [name for name in names if name in self.installed]
            return PackageChanges(remove=remove + self._unused(remove))
        install = [one for one in packages if not one.is_met(self.installed)]
        hold = [name for name in names if name not in self.held] if args["hold"] else []
        again = [one.name for one in install if one.name in self.own and one.name in self.installed]
        plugin = self.manager.lock_plugin
        if hold and plugin and plugin not in self.installed:
            install.append(PackageSpec(plugin))
        streams = {f"{name}:{stream}" for name, stream in (self.facts.get("module_streams") or {}).items()}
        return PackageChanges(
            install=install,
            remove=matching(args["replaces"], self.installed, but=names),
            hold=list(dict.fromkeys(hold + again)),
            modules=[one for one in args["modules"] if one not in streams],
        )

    def _unused(self, names: Sequence[str]) -> list[str]:
        """Return the dependencies of these that hvlab installed and nothing else needs."""
        if not self.args["unused"] or not names:
            return []
        work = PackageChanges(remove=names)
        self.manager.unlocked = bool(self.own & set(names))
        goes = self._simulate(work, self.manager.unused(names)).removed
        return sorted((goes - self._simulate(work).removed) & set(self.came))

    def _prepare(self, work: PackageChanges) -> dict[str, Any]:
        """Refuse packages that cannot be installed; in check mode the repository may not exist yet."""
        result = {"changed": bool(work.modules), "packages": []}
        if self._task.check_mode:
            return result
        self._enable(work.modules)
        if work.install or work.remove:
            self._refresh(work)
            self._judge(work)
            if self.args["state"] == "fetched":
                self._fetch(work)
        return result | {"ansible_facts": {"hvlab": self._new_facts(work)}}

    def _fetch(self, work: PackageChanges) -> None:
        for argv in self.manager.fetch(work.install, work.remove):
            done = self._command(argv)
            if done["rc"]:
                raise self._refusal(f"nothing was changed, because {work} cannot be fetched", done)

    def _check_held(self, names: Iterable[str]) -> None:
        stuck = sorted(set(names) & (self.held - self.own) & set(self.installed))
        if stuck:
            versions = ", ".join(f"{name} {self.installed[name]}" for name in stuck)
            raise self._failure(
                f"{versions} {'are' if len(stuck) > 1 else 'is'} held there and would be changed or removed",
                f"run `{self.manager.release(stuck)}` there, or request the installed version",
            )

    def _enable(self, modules: Iterable[str]) -> None:
        for module in modules:
            if not isinstance(self.manager, Rpm):
                raise self._failure(f"module streams ({module}) need dnf; this host has apt")
            for argv in self.manager.enable(module):
                done = self._command(argv)
                if done["rc"]:
                    raise self._refusal(f"module stream {module} cannot be enabled", done)

    def _change(self, work: PackageChanges) -> None:
        self._refresh(work)
        self._judge(work)
        done = self._perform(work)
        if done["rc"] and not self.read and _NOT_FETCHED.search(done["stderr"]):
            # The mirror may have replaced what the lists name.
            self._read_lists()
            self._judge(work)
            done = self._perform(work)
        if done["rc"]:
            now = self._query()
            gone = ", ".join(sorted(set(self.installed) - set(now))) or "none"
            state = "nothing was changed" if now == self.installed else f"gone already: {gone}"
            raise self._refusal(f"the package manager failed {work} ({state})", done)
        self.installed = self._query()
        # A name without version may be one that other packages provide.
        missing = [str(one) for one in work.install if one.version and not one.is_met(self.installed)]
        left = [name for name in work.remove if name in self.installed]
        if missing or left:
            state = f"without {', '.join(missing)}" if missing else f"with {', '.join(left)}"
            raise self._failure(f"the package manager reported success, but leaves it {state}")

    def _judge(self, work: PackageChanges) -> None:
        """Refuse unavailable packages, changes that would remove others, and packages that somebody holds."""
        self.manager.unlocked = bool(self.own & {*(one.name for one in work.install), *work.remove})
        transaction = self._simulate(work)
        self._check_held(transaction.touched)
        patterns = self.args["allow_removal"]
        if patterns is None:
            patterns = ["*"] if self.args["state"] == "absent" else []
        others = transaction.removed - set(work.remove)
        others = others - set(matching(patterns, others, but=[]))
        if others:
            what = ", ".join(map(str, work.install)) or ", ".join(work.remove)
            verb = "installed" if work.install else "removed"
            raise self._failure(
                f"{what} cannot be {verb}: {', '.join(sorted(others))} would be removed "
                "with it. Nothing was changed",
                f"remove {'them' if len(others) > 1 else 'it'} yourself, or {self.args['remedy']}",
            )
        self._check_room(dict(transaction.comes))

    def _check_room(self, comes: Mapping[str, str]) -> None:
        """Refuse new packages that do not fit below /usr; dnf sees that itself, apt breaks off midway."""
        free = (self.facts.get("disk_free_mb") or {}).get("/usr")
        new = {name: version for name, version in comes.items() if name not in self.installed}
        if free is None or not new or not isinstance(self.manager, Apt):
            return
        sizes = re.findall(r"(?m)^Installed-Size: (\d+)", self._command(self.manager.show(new))["stdout"])
        need = sum(map(int, sizes)) // 1024
        if need > free:
            raise self._failure(
                f"{len(new)} new packages take {need} MiB, and /usr has {free} MiB free. Nothing was changed",
                "free space there, and run this again",
            )

    def _perform(self, work: PackageChanges) -> dict[str, Any]:
        done: dict[str, Any] = {"rc": 0}
        for argv in self.manager.perform(work.install, work.remove):
            done = self._command(argv)
            if done["rc"]:
                break
        return done

    def _refresh(self, work: PackageChanges) -> None:
        """Refresh apt's lists if they are old; a failure is reported only if a package is missing."""
        age = self.facts.get("lists_age")
        recent = age is not None and age < LISTS_S
        if work.install and isinstance(self.manager, Apt) and not recent:
            options = {"update_cache": True, "lock_timeout": LOCK_S}
            done = self._execute_module(
                module_name="ansible.builtin.apt", module_args=options, task_vars=self.vars
            )
            self.read = True
            if done.get("failed"):
                self.refreshed["stderr"] = str(done.get("msg", ""))

    def _read_lists(self) -> None:
        """Refresh the lists, after another program that reads them: apt waits for dpkg's lock alone."""
        self.read, until = True, time.monotonic() + LOCK_S
        refreshed = self._command(self.manager.refresh)
        while "Could not get lock" in refreshed["stderr"] and time.monotonic() < until:
            time.sleep(LOCK_POLL_S)
            refreshed = self._command(self.manager.refresh)
        if refreshed["rc"] or not self.refreshed["stderr"]:
            self.refreshed = refreshed

    def _simulate(self, work: PackageChanges, *calls: Sequence[str]) -> Transaction:
        """Simulate; a refusal counts only after refreshing the lists, which may be old."""
        answer = self._ask(work, *calls)
        if not isinstance(answer, Transaction) and work.install:
            self._read_lists()
            answer = self._ask(work)
        if isinstance(answer, Transaction):
            return answer
        # Say which packages are not available, and which versions are.
        pinned = [one for one in work.install if one.version] or work.install
        problem = f"nothing was changed, because the package manager refuses {work}"
        if pinned:
            listing, missing = self._unavailable(pinned)
            problem += "".join(missing) if listing["stdout"] else ""
        raise self._refusal(problem, answer, self.refreshed)

    def _ask(self, work: PackageChanges, *calls: Sequence[str]) -> Transaction | dict[str, Any]:
        """Return the simulated changes, or the result of the command that refused."""
        total = Transaction()
        for argv in calls or self.manager.simulate(work.install, work.remove):
            done = self._command(argv)
            answer = self.manager.judge(done["rc"], f"{done['stdout']}\n{done['stderr']}")
            if answer is None:
                return done
            total |= answer
        if work.install and work.remove and not self.manager.swaps:
            listing, missing = self._unavailable(work.install)
            if missing:
                return listing
        return total

    def _unavailable(self, packages: Sequence[PackageSpec]) -> tuple[dict[str, Any], list[str]]:
        """Return the listing of versions, and a line for each package that no repository has."""
        done = self._command(self.manager.list_versions([one.name for one in packages]))
        lines = []
        for one in packages:
            versions = self.manager.versions(done["stdout"], one.name)
            if not one.is_among(versions):
                available = ", ".join(versions) or "no version of it"
                lines.append(f"\n  {one} is not available; the repositories have {available}")
        return done, lines

    def _hold(self, names: Sequence[str], removed: Iterable[str]) -> None:
        """Hold packages, and record that the hold is ours: only that may be changed later."""
        gone = self.own & set(removed)
        stale = sorted((set(names) & self.own) | gone)
        if stale and (argv := self.manager.forget(stale)):
            self._command(argv)
        if names:
            done = self._command(self.manager.hold(names))
            if done["rc"]:
                raise self._refusal(f"{', '.join(names)} cannot be held", done)
        self.own = (self.own | set(names)) - gone
        self.held = (self.held | set(names)) - gone

    def _note(self, asked: set[str], new: set[str]) -> None:
        """Note new packages as hvlab's own where the task wants it, and forget those that are gone."""
        self.came = {name: self.came[name] for name in sorted(self.came) if name in self.installed}
        if self.args["recorded"]:
            # Which package a file holds, its name need not say.
            from_file = any("/" in name for name in asked)
            self.came |= {name: from_file or name in asked for name in sorted(new)}
            self.came |= dict.fromkeys(asked & set(self.came), True)

    def _record(self, lists: Mapping[str, tuple[object, object]]) -> None:
        files = [
            {"path": path, "content": json.dumps(now) + "\n", "mode": "0644"}
            for path, (before, now) in lists.items()
            if now != before
        ]
        if files:
            self._execute_module(module_name="hvlab_files", module_args={"files": files}, task_vars=self.vars)

    def _query(self) -> dict[str, str]:
        done = self._command(self.manager.query)
        if done["rc"]:
            raise self._refusal("the installed packages cannot be listed", done)
        return parse_installed(done["stdout"])

    def _new_facts(self, work: PackageChanges) -> dict[str, Any]:
        return self.facts | {
            "packages": self.installed,
            "held": sorted(self.held),
            "held_own": sorted(self.own),
            "installed_own": self.came,
            "lists_age": 0 if self.read and not self.refreshed["stderr"] else self.facts.get("lists_age"),
            "module_streams": (self.facts.get("module_streams") or {})
            | dict(one.split(":", 1) for one in work.modules),
        }

    def _command(self, argv: Sequence[str]) -> dict[str, Any]:
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
            raise self._failure(f"{argv[0]} cannot be run: {done.get('msg', done)}")
        return {"stdout": "", "stderr": "", **done}

    def _refusal(self, problem: str, *outputs: dict[str, Any]) -> AnsibleActionFail:
        text = "\n".join(f"{done['stdout']}\n{done['stderr']}" for done in outputs)
        errors = complaint(text)
        quote = f"\nThe package manager says:\n{errors}" if errors else ""
        advice = remedy(text, self.args["remedy"])
        return AnsibleActionFail(f"{self.host}: {problem}.{quote}\nWhat to do: {advice}.")
