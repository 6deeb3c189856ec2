"""Runs the checks of tests/node against an inventory; without one, compares the ranks' Python of hosts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hvlab import workloads
from hvlab.base import answers, process
from hvlab.base.answers.shapes import HostAnswer
from hvlab.base.errors import CheckError, HvlabError, UnreachableError, advise_unreachable, some, unusable
from hvlab.base.paths import project_dir
from hvlab.base.temporary import temporary_folder
from hvlab.lab.inventory import Lab, kept_variables
from hvlab.remote import direct
from hvlab.remote.here import InstalledAnswer

# How the reason of a check begins that a plain user cannot make.
NEEDS_ROOT = "needs root"
_CHECKS_RAN = (0, 1)
# Importing TensorFlow alone may take minutes on a cold file system.
_INSTALLED_S = 400
_SAME_EVERYWHERE = "name the ranks' Python, the same on every host: --python ~/envs/horovod/bin/python"


class _Reported(HostAnswer):
    host: str
    check: str
    outcome: str
    observed: str
    remedy: str
    role: str


@dataclass(frozen=True, kw_only=True)
class CheckOutcome:
    """One check of one host.

    ``outcome`` is ``passed``, ``failed``, ``skipped``, ``unreachable`` (the host did not answer) or ``error``
    (it could not be asked, or the check itself broke).
    """

    host: str
    check: str
    outcome: str
    observed: str
    remedy: str

    @property
    def wrong(self) -> bool:
        """Whether it needs attention."""
        return self.outcome not in ("passed", "skipped")

    @property
    def title(self) -> str:
        """Return the host, the check and how it ended, in one line."""
        return f"{self.host}  {self.check} ({self.outcome})"


@dataclass(frozen=True, kw_only=True)
class Check(CheckOutcome):
    """One check of one host, of what ``role`` installed.

    Where it passed, ``remedy`` is empty, and ``observed`` too unless the check looked at a part only.
    """

    role: str

    @property
    def title(self) -> str:
        """Return the host, the check and how it ended, in one line."""
        return f"{self.host}  {self.role}: {self.check} ({self.outcome})"


def command(
    inventory: Path, report: str, *, limit: str | None = None, junit: Path | None = None, deep: bool = False
) -> list[str]:
    """Return the argv of pytest; one line of JSON per finished check goes to the file ``report``."""
    argv = [sys.executable, "-m", "pytest", str(project_dir() / "tests" / "node"), "--tb=short", "--color=no"]
    argv += [f"--rootdir={project_dir()}", "-p", "no:cacheprovider"]
    argv += [f"--hosts=ansible://{limit or 'all'}", f"--ansible-inventory={inventory.absolute()}"]
    argv += [f"--hvlab-report={report}", *(["--hvlab-deep"] if deep else [])]
    return [*argv, f"--junitxml={junit.absolute()}"] if junit else argv


def run(
    inventory: Path,
    *,
    limit: str | None = None,
    junit: Path | None = None,
    deep: bool = False,
    on_check: Callable[[Check], None] | None = None,
) -> list[Check]:
    """Check every host and return all outcomes; ``on_check`` gets each one as it comes.

    ``deep`` reads every file of the packs, also where no time moved.
    Raises CheckError when the checks could not run at all.
    """
    checks = []
    reader, writer = os.pipe()
    argv = command(inventory, f"/dev/fd/{writer}", limit=limit, junit=junit, deep=deep)
    with tempfile.TemporaryFile("w+", encoding="utf-8") as log, os.fdopen(reader, encoding="utf-8") as lines:
        with (
            temporary_folder() as folder,
            subprocess.Popen(
                process.bound(argv),
                cwd=project_dir(),
                env=kept_variables(os.environ) | {"ANSIBLE_LOCAL_TEMP": str(folder), "TMPDIR": str(folder)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[writer],
            ) as pytest,
        ):
            os.close(writer)
            try:
                for line in lines:
                    checks.append(Check(**answers.load(line, "a check", _Reported)))
                    if on_check:
                        on_check(checks[-1])
            except BaseException:
                process.kill(pytest.pid)
                raise
        log.seek(0)
        output = log.read()
    if pytest.returncode not in _CHECKS_RAN or not checks:
        last = "\n".join(f"  {line}" for line in output.splitlines()[-15:])
        raise CheckError(f"the checks could not run (pytest ended with code {pytest.returncode}):\n{last}")
    return checks


def compare(lab: Lab, python: str) -> list[Check]:
    """Check the ranks' Python of hosts without an inventory: has it a framework, and the same everywhere?"""
    silent = direct.silent_hosts(lab)
    asked = replace(lab, hosts=tuple(host for host in lab.hosts if host.name not in silent))
    program = (workloads.PROGRAMS / "installed.py").read_text("utf-8")
    texts, failures = direct.run(asked, program, python=python, seconds=_INSTALLED_S)
    reasons = {**silent, **{failure.host: failure.message for failure in failures}}
    lost = {*silent, *(failure.host for failure in failures if failure.unreachable)}
    versions = {host: _versions(answers.load(text, host, InstalledAnswer)) for host, text in texts.items()}
    usual = Counter(versions.values()).most_common(1)[0][0] if versions else ""

    def judge(host: str) -> Iterator[tuple[str, str, str]]:
        if host not in versions:
            yield "answers", "unreachable" if host in lost else "failed", reasons.get(host, "no answer")
            return
        own = versions[host]
        if re.search("torch|tensorflow|Horovod", own):
            yield "has a framework", "passed", own
        else:
            yield "has a framework", "failed", f"{python or 'python3'} has neither torch nor Horovod"
        if own == usual:
            yield "is the same everywhere", "passed", own
        else:
            observed = f"{own or 'nothing'}; most hosts have {usual or 'nothing'}"
            yield "is the same everywhere", "failed", observed
        yield "all checks of roles", "skipped", f"{NEEDS_ROOT}, and an inventory to compare with"

    def advise(outcome: str, observed: str) -> str:
        if outcome == "unreachable":
            return advise_unreachable(observed)
        return _SAME_EVERYWHERE if outcome == "failed" else ""

    return [
        Check(
            host=host.name,
            role="python_env",
            check=check,
            outcome=outcome,
            observed=observed,
            remedy=advise(outcome, observed),
        )
        for host in lab.hosts
        for check, outcome, observed in judge(host.name)
    ]


def _versions(answer: Mapping[str, Any]) -> str:
    recorded = answer["recorded"]
    frameworks = recorded["hvlab_python_env"]["environments"].values()
    words = [f"{each['framework']} {each['version']}" for each in frameworks]
    horovod = recorded["hvlab_horovod"]
    if horovod["version"]:
        operations = [name for build in horovod["variants"].values() for name in build["operations"]]
        words.append(f"Horovod {horovod['version']} ({', '.join(operations)})")
    if openmpi := recorded.get("hvlab_openmpi"):
        words.append(f"Open MPI {openmpi['version']}")
    return ", ".join(words)


def verdict(checks: list[Check], *, listed: bool = False) -> HvlabError | None:
    """Return the error that names the hosts that fail, or None where every host is as it should be.

    ``listed`` says that there is no inventory.
    """
    silent = sorted({check.host for check in checks if check.outcome == "unreachable"})
    if silent:
        every = len({check.host for check in checks})
        return UnreachableError(
            f"{unusable(silent, every)}: {some(silent)}",
            remedy="see above" if listed else "see above; `hvlab lab status` shows virtual hosts",
        )
    wrong = sorted({check.host for check in checks if check.wrong})
    if wrong:
        if listed:
            return CheckError(f"not ready for ranks: {some(wrong)}", remedy="see above")
        return CheckError(
            f"does not match the inventory: {some(wrong)}", remedy="see above, or run `hvlab provision`"
        )
    return None
