"""The host answers. The other checks skip a host that does not."""

from __future__ import annotations

from hvlab.doctor import reading
from tests.node.lab import Node, UnreachableHostError

_START = "start it (`hvlab lab up` for a virtual one); check ansible_host, ansible_user and the ssh key"


def test_answers(node: Node) -> None:
    if node.silence:
        known = reading.cause_of(node.silence)
        raise UnreachableHostError(
            node.name,
            f"does not answer at {node.variables.get('ansible_host', node.name)}: {node.silence}",
            known.cause.remedy if known and known.cause.id == "no-python" else _START,
        )
