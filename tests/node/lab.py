"""What the checks compare: the inventory, and what each node answered.

A check asserts with ``node.expect``; its message names the host, what was seen and what to do.
"""

from __future__ import annotations

import getpass
import json
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import testinfra
import yaml
from ansible.inventory.manager import InventoryManager
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible.vars.manager import VariableManager
from testinfra.utils.ansible_runner import AnsibleRunner

from hvlab.checks.node import probe
from hvlab.doctor import reading

ROOT = Path(__file__).resolve().parent.parent.parent
PROBE = Path(probe.__file__).read_text(encoding="utf-8")
FACTS = "/etc/ansible/facts.d"
AT_ONCE = 32
TIMED_OUT = 124
UNANSWERED = {"rc": 255, "out": "", "err": "the host did not answer this question"}
CONNECTION = [
    *(
        "ansible_host",
        "ansible_port",
        "ansible_user",
        "ansible_connection",
        "ansible_become",
        "ansible_become_user",
    ),
    *("ansible_private_key_file", "ansible_ssh_private_key_file"),
    *("ansible_ssh_common_args", "ansible_ssh_extra_args"),
]

Question = dict[str, Any]


class WrongNodeError(AssertionError):
    """A node does not match the inventory."""

    def __init__(self, host: str, observed: str, remedy: str) -> None:
        super().__init__(f"{host}: {observed}\n  what to do: {remedy}")
        self.host, self.observed, self.remedy = host, observed, remedy


class UnreachableHostError(WrongNodeError):
    """A node does not answer."""


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


class HostVariables(Mapping[str, Any]):
    """The variables of one host with every template filled in: inventory over role defaults."""

    def __init__(self, loader: DataLoader, variables: dict[str, Any], defaults: dict[str, Any]) -> None:
        self._values = {**defaults, **variables}
        self._switches = {name for name, default in defaults.items() if isinstance(default, bool)}
        self._templar = Templar(loader=loader, variables=self._values)
        # Filling in a template takes milliseconds, and checks of launches ask all hosts for each host.
        self._filled: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._filled:
            value = self._templar.template(self._values[name])
            # An inventory in INI, and -e, give text, which roles take as well.
            self._filled[name] = boolean(value, strict=False) if name in self._switches else value
        return self._filled[name]

    def raw(self, name: str) -> Any:
        """Return a value as it is written, templates and all."""
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def is_local(connection: Mapping[str, Any]) -> bool:
    """Whether a host is the machine hvlab runs on, reached without ssh."""
    return str(connection.get("ansible_connection", "")).endswith("local")


def becomes_root(connection: Mapping[str, Any]) -> bool:
    """Whether a play with ``become: true`` goes through sudo: Ansible leaves it out for root itself."""
    own = getpass.getuser() if is_local(connection) else None
    return bool(connection.get("ansible_user", own) != "root")


class Inventory:
    """An Ansible inventory, read by Ansible itself."""

    def __init__(self, source: str) -> None:
        self._loader = DataLoader()
        self._loader.set_basedir(str(ROOT))
        self._manager = InventoryManager(loader=self._loader, sources=[source])
        self._variable_manager = VariableManager(loader=self._loader, inventory=self._manager)
        # The wiring beside site.yml counts.
        self._variable_manager.safe_basedir = True
        self.source = source

    @cached_property
    def _defaults(self) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for path in sorted(ROOT.glob("roles/*/defaults/main.yml")):
            merged.update(self._loader.load_from_file(str(path)) or {})
        return merged

    def names(self, pattern: str = "all") -> list[str]:
        """Return the hosts of an Ansible pattern, in the order of the inventory."""
        return [str(host) for host in self._manager.list_hosts(pattern)]

    def variables(self, name: str, stack: dict[str, Any] | None = None) -> HostVariables:
        """Return the variables of a host; ``stack`` is what was resolved for it, which some of them need."""
        host = self._manager.get_host(name)
        facts = {"__preflight_stacks": {"stacks": {name: stack}}} if stack else {}
        return HostVariables(
            self._loader, {**self._variable_manager.get_vars(host=host), **facts}, self._defaults
        )

    def hand_to_testinfra(self) -> None:
        """Give testinfra the hosts with their templates filled in; it reads only plain values itself."""
        hostvars = {}
        for name in self.names():
            variables = self.variables(name)
            connection = {key: variables[key] for key in CONNECTION if key in variables}
            hostvars[name] = {"ansible_become": becomes_root(connection), **connection}
        AnsibleRunner.get_runner(self.source).inventory = {
            "_meta": {"hostvars": hostvars},
            "all": {"hosts": self.names()},
        }


@dataclass(frozen=True)
class Node:
    """One host: its ``variables`` in the inventory, and its ``answers``.

    ``peers`` are the other hosts and their addresses, from the next one in the inventory round to the last.
    ``mute``: a login there does not run the command that it is given, so a launcher would wait for it.
    ``deep`` asks for checks that read every file.
    """

    name: str
    host: testinfra.host.Host
    variables: HostVariables
    peers: dict[str, str] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)
    silence: str = ""
    mute: bool = False
    deep: bool = False

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
        """What was resolved for this host and recorded on it; empty where it was never provisioned."""
        try:
            recorded = json.loads(self.answers["facts"][f"{FACTS}/hvlab_common.fact"])
        except (KeyError, ValueError):
            return {}
        return dict(recorded.get("stack") or {}) if isinstance(recorded, dict) else {}

    def fact(self, role: str) -> dict[str, Any]:
        """Return what a role recorded on this host."""
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

    def packed(self, path: str, pack: str = "") -> bool:
        """Return whether a file is in a pack, on the host or in the folder that all hosts share."""
        shared = self.variables.get("lab_shared_packs") or "/opt/hvlab"
        places = (f"/opt/hvlab/{pack}/", f"{shared}/{pack}-") if pack else ("/opt/hvlab/", f"{shared}/")
        return path.startswith(places)

    def expect(self, condition: object, observed: str, remedy: str) -> None:
        """Fail unless ``condition`` holds, naming the host, what was ``observed`` and a ``remedy``."""
        __tracebackhide__ = True
        if not condition:
            raise WrongNodeError(self.name, observed, remedy)

    def output(self, question: str, remedy: str) -> str:
        """Return the output of a command that has to succeed."""
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


def ask(node: Node, questions: dict[str, Question]) -> Node:
    """Ask one host everything, in one round trip, and return it with these and its earlier answers."""
    questions = {"facts": read(f"{FACTS}/*.fact"), **questions}
    python = node.variables.get("ansible_python_interpreter", "/usr/bin/python3")
    try:
        completed = node.host.run("%s -c %s %s", python, PROBE, json.dumps(questions))
        answers, silence = json.loads(completed.stdout) if completed.rc == 0 else {}, completed.stderr.strip()
    except (RuntimeError, ValueError) as error:
        result = error.args[0] if error.args else error
        answers, silence = {}, str(getattr(result, "stderr", result)).strip()
    if not isinstance(answers, dict):
        answers, silence = {}, f"it sent a {type(answers).__name__} in place of its answers"
    silence = "" if answers else silence or "no answer"
    # What is not answered is not asked again and again.
    answers = {**{name: UNANSWERED for name in questions if answers}, **answers}
    return replace(node, answers={**node.answers, **answers}, silence=silence)


def logs_in(answer: Mapping[str, Any], user: str) -> bool:
    """Whether a login ran ``id -un``. Before its answer may stand what ~/.bashrc prints at each login."""
    return bool(answer["rc"] == 0 and answer["out"].split()[-1:] == [user])


def with_mute(nodes: Mapping[str, Node]) -> dict[str, Node]:
    """Mark each host where a login of another one ended well, or not in time, and did not run its command."""
    mute = {
        question.removeprefix("ssh ")
        for node in nodes.values()
        for question, answer in node.answers.items()
        if question.startswith("ssh ")
        and answer.get("rc") in (0, TIMED_OUT)
        and not logs_in(answer, node.user)
    }
    return {name: replace(node, mute=name in mute) for name, node in nodes.items()}


def is_virtual(node: Node) -> bool:
    """Whether the host shares the cores of this machine with others."""
    return "virtual" in node.variables.get("group_names", [])


def ask_all(nodes: Iterable[tuple[Node, dict[str, Question]]], *, at_once: int = AT_ONCE) -> dict[str, Node]:
    """Ask every host its own questions, so many hosts at the same time."""
    pairs = list(nodes)
    with ThreadPoolExecutor(max_workers=at_once) as pool:
        return {node.name: node for node in pool.map(lambda pair: ask(*pair), pairs)}


def roles() -> list[str]:
    """Return the names of all roles in the tree."""
    return sorted(path.name for path in (ROOT / "roles").iterdir() if path.is_dir())


def applied_roles() -> list[str]:
    """Return the roles that some playbook names."""
    names = set()
    for path in (ROOT / "playbooks").glob("*.yml"):
        for play in yaml.safe_load(path.read_text(encoding="utf-8")) or []:
            for role in play.get("roles", []):
                names.add(role["role"] if isinstance(role, dict) else role)
            for task in play.get("tasks", []):
                if "ansible.builtin.import_role" in task:
                    names.add(task["ansible.builtin.import_role"]["name"])
    return sorted(names)
