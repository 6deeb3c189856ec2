"""The stage after a role: one host, its inventory, its answers, and the roles' checks.

A check raises with ``node.expect``; the error names the host, what was observed and what to do.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from hvlab.base.paths import project_dir
from hvlab.doctor import reading
from hvlab.lab.pin_variables import TORCH

ROOT = project_dir()
FACTS = "/etc/ansible/facts.d"
TIMED_OUT = 124

Question = dict[str, Any]
Asks = Callable[["RoleHost"], dict[str, Question]]


class WrongNodeError(AssertionError):
    """A node does not match the inventory."""

    def __init__(self, host: str, observed: str, remedy: str) -> None:
        super().__init__(f"{host}: {observed}\n  what to do: {remedy}")
        self.host, self.observed, self.remedy = host, observed, remedy


class UnreachableHostError(WrongNodeError):
    """A node does not answer."""


class NotApplicable(Exception):  # noqa: N818 - no error: the check is skipped
    """The inventory does not request what is checked here."""


def run(
    argv: list[str],
    *,
    user: str | None = None,
    env: dict[str, str] | None = None,
    timeout: int = 20,
    alone: bool = False,
    queue: str | None = None,
) -> Question:
    """Ask for the output of a command.

    ``timeout`` is in seconds; ``alone``: not beside other commands; ``queue``: not beside those of that name.
    """
    limits = {"timeout": timeout, "alone": alone, "queue": queue}
    return {"run": argv, "user": user, "env": env or {}, **limits}


def read(pattern: str) -> Question:
    """Ask for the text of files."""
    return {"read": pattern}


def stat(pattern: str) -> Question:
    """Ask for the mode and the owner of files."""
    return {"stat": pattern}


def is_local(connection: Mapping[str, Any]) -> bool:
    """Whether a host is the machine hvlab runs on, reached without ssh."""
    return str(connection.get("ansible_connection", "")).endswith("local")


@dataclass(frozen=True)
class RoleHost:
    """One host: its ``variables`` in the inventory, and its ``answers``; testinfra reaches it as ``host``.

    ``peers`` are the other hosts and their addresses, from the next one in the inventory round to the last.
    ``mute``: a login there does not run the command that it is given, so a launcher would wait for it.
    ``deep`` asks for checks that read every file; ``role`` is the one whose checks run.
    """

    name: str
    host: Any
    variables: Mapping[str, Any]
    peers: dict[str, str] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)
    silence: str = ""
    mute: bool = False
    deep: bool = False
    role: str = ""

    def __getitem__(self, question: str) -> Any:
        return self.answers[question]

    @property
    def user(self) -> str:
        """The user the ranks run as."""
        return str(self.variables["lab_user_name"])

    @property
    def alone(self) -> bool:
        """Whether the lab is the machine hvlab runs on, without ssh: nobody asks for its name, or logs in."""
        return not self.peers and is_local(self.variables)

    @cached_property
    def stack(self) -> dict[str, Any]:
        """The versions resolved for this host, as recorded on it; empty if it was never provisioned."""
        try:
            recorded = json.loads(self.answers["facts"][f"{FACTS}/hvlab_common.fact"])
        except (KeyError, ValueError):
            return {}
        return dict(recorded.get("stack") or {}) if isinstance(recorded, dict) else {}

    def fact(self, role: str) -> dict[str, Any]:
        """Return a role's record on this host."""
        path = f"{FACTS}/hvlab_{role}.fact"
        text = self.answers["facts"].get(path)
        self.expect(text is not None, f"there is no {path}", f"run `ansible-playbook site.yml --tags {role}`")
        try:
            recorded = json.loads(text)
        except ValueError as error:
            recorded = error
        self.expect(
            isinstance(recorded, dict),
            f"{path} is not a JSON object: {recorded}",
            f"remove it, and run role {role}",
        )
        return dict(recorded)

    def is_packed(self, path: str, pack: str = "") -> bool:
        """Whether a file is in a pack, on the host or in the folder that all hosts share."""
        shared = self.variables.get("lab_shared_packs") or "/opt/hvlab"
        places = (f"/opt/hvlab/{pack}/", f"{shared}/{pack}-") if pack else ("/opt/hvlab/", f"{shared}/")
        return path.startswith(places)

    def expect(self, condition: object, observed: str, remedy: str = "") -> None:
        """Fail unless ``condition`` holds; without a ``remedy``, the role that is checked fixes it."""
        __tracebackhide__ = True
        if not condition:
            raise WrongNodeError(self.name, observed, remedy or f"run role {self.role}")

    def output(self, question: str, remedy: str = "") -> str:
        """Return the output of a command that must succeed; without a ``remedy`` as in ``expect``."""
        __tracebackhide__ = True
        answer = self.answers[question]
        if answer["rc"] != 0:
            printed = f"{answer['out']}\n{answer['err']}"
            root = reading.root(printed.splitlines())
            text = (answer["err"] or answer["out"]).strip()[-600:]
            if root:
                text, remedy = f"{root.cause.title} ({root.lines[0][1]})", root.cause.remedy
            self.expect(False, f"{question} ended with code {answer['rc']}: {text}", remedy)
        return str(answer["out"])


def is_virtual(node: RoleHost) -> bool:
    """Whether the host shares the cores of this machine with others."""
    return "virtual" in node.variables.get("group_names", [])


def is_logged_in(answer: Mapping[str, Any], user: str) -> bool:
    """Whether a login ran ``id -un``; output of ~/.bashrc may precede the answer."""
    return bool(answer["rc"] == 0 and answer["out"].split()[-1:] == [user])


@dataclass(frozen=True)
class RoleCheck:
    """One check of a role's installation; ``case`` is its argument besides the hosts."""

    role: Role
    judge: Callable[..., str | None]
    case: str = ""

    @property
    def name(self) -> str:
        """Its name, as ``hvlab verify`` prints it; a function may begin with its role's."""
        name = self.judge.__name__.removeprefix(f"{self.role.name}_").replace("_", " ")
        return f"{name}[{self.case}]" if self.case else name

    def run(self, node: RoleHost, nodes: Mapping[str, RoleHost]) -> str:
        """Judge a host; return a remark if it is right.

        Raises WrongNodeError if it is not, and NotApplicable where it is not asked for.
        """
        if reason := self.role.skip(node):
            raise NotApplicable(reason)
        node = replace(node, role=self.role.name)
        given: dict[str, Any] = {"node": node, "nodes": nodes, "case": self.case}
        parameters = inspect.signature(self.judge).parameters
        if "fact" in parameters:
            given["fact"] = node.fact(self.role.name)
        return self.judge(**{name: given[name] for name in parameters}) or ""


class Role:
    """The checks of one role's installation, in order.

    ``asks`` are the questions to a host, put before its first check; ``asks_after`` what to ask once all
    hosts have answered, again and again. Where ``skip`` gives a reason, its checks are skipped. A role with
    ``without`` is skipped, for that reason, where it recorded nothing.
    """

    def __init__(
        self,
        name: str,
        asks: Asks = lambda _: {},
        *,
        asks_after: Callable[[RoleHost, Mapping[str, RoleHost]], dict[str, Question]] | None = None,
        skip: Callable[[RoleHost], str] = lambda _: "",
        without: str = "",
    ) -> None:
        self.name, self.asks, self.asks_after = name, asks, asks_after
        self.checks: list[RoleCheck] = []
        path = f"{FACTS}/hvlab_{name}.fact"
        self.skip = (lambda node: "" if path in node["facts"] else without) if without else skip

    def check(self, judge: Callable[..., str | None]) -> Callable[..., str | None]:
        """Add a check: a function of ``node``, ``fact`` (the role's record) and ``nodes``."""
        self.checks.append(RoleCheck(self, judge))
        return judge

    def check_each(self, *cases: str) -> Callable[[Callable[..., str | None]], Callable[..., str | None]]:
        """Add a check for each of these values of its argument ``case``."""

        def add(judge: Callable[..., str | None]) -> Callable[..., str | None]:
            self.checks += [RoleCheck(self, judge, case) for case in cases]
            return judge

        return add


def unless(variable: str, reason: str) -> Callable[[RoleHost], str]:
    """Return a ``skip`` for hosts where a variable of the inventory is false."""
    return lambda node: "" if node.variables[variable] else reason


def without_mpi(node: RoleHost) -> str:
    """Return why a host needs no MPI; empty if it does."""
    return "the lab needs no MPI (lab_horovod: torch)" if node.variables.get("lab_horovod") == TORCH else ""


def expect_request(node: RoleHost, fact: Mapping[str, Any]) -> None:
    """Expect that the role was run for the version and the method that the inventory asks for."""
    role = node.role
    requested, method = str(node.variables[f"{role}_version"]), node.variables[f"{role}_method"]
    node.expect(
        (fact.get("requested"), fact["method"]) == (requested, method),
        f"installed for {role}_version {fact.get('requested')} ({fact['method']}); "
        f"the inventory asks for {requested} ({method})",
    )


# Whether packages are held at their version, for :func:`held`.
HELD = {
    "held by apt": run(["apt-mark", "showhold"]),
    "held by dnf": run(["dnf", "-q", "-C", "versionlock", "list"]),
}


def package_holds(node: RoleHost) -> str:
    """Return the packages that the host's package manager holds; :data:`HELD` asks for them."""
    return node.output("held by apt" if node["held by apt"]["rc"] == 0 else "held by dnf")


def unfound(ldd: str) -> list[str]:
    """Return the lines in which ldd does not find a library."""
    return [line.strip() for line in ldd.splitlines() if "not found" in line]
