"""The hosts of a lab, the answers of one, and a fault that they show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from hvlab.base import answers
from hvlab.base.answers import AnswerError


@dataclass(frozen=True)
class Member:
    """A host: ``addresses`` are those of the inventory; ranks use the first."""

    name: str
    addresses: tuple[str, ...]
    port: int
    slots: int
    gpu: bool
    interface: str
    local: bool = False


@dataclass(frozen=True)
class Site:
    """All hosts; ``port`` is one on which they try to reach one another, ``user`` is who runs the ranks.

    ``names_managed`` says whether hvlab writes the hosts' names; ``horovod`` is the folder of its variants.
    """

    hosts: tuple[Member, ...]
    user: str
    port: int
    names_managed: bool = True
    horovod: str = "/opt/hvlab/horovod"

    def next(self, name: str) -> list[Member]:
        """Return the hosts that a host tries to reach: some that follow it, in a ring."""
        at = [host.name for host in self.hosts].index(name)
        return [*self.hosts[at + 1 :], *self.hosts[:at]][:TRIED]


# Peers that each host tries: more would flood a network of 64 hosts.
TRIED = 3


@dataclass(frozen=True)
class HostFault:
    """A known cause by its id, the host that shows it, and the observation.

    ``role`` is the tag of the role whose run on this host fixes it; empty if none does so safely.
    """

    id: str
    host: str
    observed: str
    role: str = ""


class HostReplies:
    """The answers of a host by question, see ``hvlab/checks/node/probe.py``."""

    def __init__(self, replies: Mapping[str, Any]) -> None:
        self._replies = replies

    def output(self, name: str) -> str:
        """Return the output of a successful command; empty after a failure."""
        return str(self._of(name).get("out", "")) if self._of(name).get("rc") == 0 else ""

    def failed(self, name: str) -> str | None:
        """Return the output of a failed command; None if it succeeded, timed out or does not exist."""
        own = self._of(name)
        if own.get("rc") in (None, 0, 124, 127, 137):
            return None
        return f"{own.get('err', '')}\n{own.get('out', '')}".strip()

    def error(self, name: str) -> str:
        """Return the stderr of a command."""
        return str(self._of(name).get("err", ""))

    def files(self, name: str) -> dict[str, str]:
        """Return path -> text of a question that reads files."""
        return {path: text.strip() for path, text in self._of(name).items() if isinstance(text, str)}

    def paths(self, name: str) -> list[str]:
        """Return the paths that a question found."""
        return list(self._of(name))

    def parse(self, name: str, shape: Any) -> Any:
        """Return a command's JSON as this shape, with texts cleaned; None if it has another shape."""
        try:
            document = answers.load(self.output(name), name, shape)
        except AnswerError:
            return None
        return TypeAdapter(shape).validate_python(document)

    def table(self, name: str) -> dict[str, str]:
        """Return the lines ``key value`` that a command printed."""
        rows = (line.partition(" ") for line in self.output(name).splitlines())
        return {key: value.strip() for key, _, value in rows if key}

    def _of(self, name: str) -> Mapping[str, Any]:
        own = self._replies.get(name)
        return own if isinstance(own, Mapping) else {}
