"""Which operations all ranks are ready for, by name: Horovod's negotiation, without its thread.

Needs no torch. torch.distributed wants every rank to issue the same operations in the same order; Horovod's
scripts may submit them in any. So an operation waits here until a rank needs it. Then the ranks exchange one
message each, with all that they have submitted, and issue what all have, in the order of the first rank. A
rank that needs something else exchanges another. If every rank waits, and nothing is common to all, no rank
can ever go on: that is an error on all of them, where Horovod stands still.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

# What ranks that have left by join() take part in, with zeros.
JOINABLE = ("allreduce", "step", "barrier")


@dataclass(frozen=True)
class Request:
    """``same`` has to be equal on all ranks; ``own`` is each rank's."""

    kind: str
    same: Any = None
    own: Any = None


@dataclass
class Message:
    """What a rank has submitted, by name; what it waits for; when it joined; whether it leaves the ranks."""

    requests: dict[str, Request] = field(default_factory=dict)
    waits: str = ""
    joined: float = 0.0
    leaves: bool = False

    def encode(self) -> bytes:
        """Return the message as JSON."""
        rows = [[name, one.kind, one.same, one.own] for name, one in self.requests.items()]
        return json.dumps([self.waits, self.joined, self.leaves, rows], separators=(",", ":")).encode()

    @classmethod
    def decode(cls, text: bytes) -> Message:
        """Return the message that ``encode`` made."""
        waits, joined, leaves, rows = json.loads(text)
        return cls({name: Request(*rest) for name, *rest in rows}, waits, joined, leaves)


@dataclass(frozen=True)
class Ready:
    """An operation that every rank issues now, or fails with; ``owns`` has None for ranks that joined."""

    name: str
    request: Request
    owns: list[Any]
    error: str


@dataclass(frozen=True)
class Agreement:
    """What follows from the messages of all ranks.

    ``stuck`` is the error of ranks that wait, ``last`` the rank that joined last once all have, and ``over``
    says that all ranks leave.
    """

    ready: list[Ready]
    stuck: str = ""
    last: int = -1
    over: bool = False


def agree(messages: list[Message], ranks: list[int]) -> Agreement:
    """Return the next operations, the same on every rank."""
    active = [number for number, message in enumerate(messages) if not message.joined]
    if not active:
        return Agreement([], last=max(zip([one.joined for one in messages], ranks, strict=True))[1])
    first = messages[active[0]]
    common = [name for name in first.requests if all(name in messages[number].requests for number in active)]
    waits = {
        rank: one.waits or "hvd.join()" * bool(one.joined) for rank, one in zip(ranks, messages, strict=True)
    }
    waiting = ", ".join(f"rank {rank} for {name}" for rank, name in waits.items() if name)
    leaving = [rank for rank, one in zip(ranks, messages, strict=True) if one.leaves]
    if not common and all(messages[number].waits for number in active):
        return Agreement([], stuck=f"ranks wait for different operations: {waiting}; {REMEDY}")
    if not common and waiting and leaving:
        left = ", ".join(map(str, leaving))
        return Agreement([], stuck=f"rank {left} has left, and others wait: {waiting}; {LEFT_REMEDY}")
    ready = [_ready(name, messages, active, ranks) for name in common]
    return Agreement(ready, over=leaving == ranks)


REMEDY = "what to do: call the same operations with the same names on all ranks before waiting for one"
LEFT_REMEDY = "what to do: see why its script ended first; hvd.join() is for ranks with less data"


# Maximum number of ranks named that submit the same.
_MOST = 8


def _difference(one: Any, other: Any) -> tuple[Any, Any]:
    """Return the innermost parts that differ, such as two shapes; numbers alone say nothing."""
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        parts = [pair for pair in zip(one, other, strict=True) if pair[0] != pair[1]]
        if len(parts) == 1 and not isinstance(parts[0][0], int | float):
            return _difference(*parts[0])
    return one, other


def _disagreement(name: str, asked: dict[int, Any]) -> str:
    """Return which ranks submit what, the most frequent first; empty if all submit the same."""
    first = next(iter(asked.values()))
    if all(value == first for value in asked.values()):
        return ""
    groups: dict[str, list[int]] = {}
    for rank, value in asked.items():
        groups.setdefault(json.dumps(value), []).append(rank)
    most, *others = sorted(groups, key=lambda value: -len(groups[value]))
    words = []
    for value in (most, *others):
        own, _ = _difference(json.loads(value), json.loads(others[0] if value == most else most))
        ranks = groups[value]
        shown = ", ".join(map(str, ranks[:_MOST])) + " ..." * (len(ranks) > _MOST)
        verb = f" submit{'s' * (len(ranks) == 1)}" * (value == most)
        words.append(f"rank{'s' * (len(ranks) > 1)} {shown}{verb} {own}")
    return f"{name}: {', '.join(words)}; what to do: the same type, shape and options on all ranks"


def _ready(name: str, messages: list[Message], active: list[int], ranks: list[int]) -> Ready:
    requests = {number: messages[number].requests[name] for number in active}
    first = requests[active[0]]
    owns = [requests[number].own if number in requests else None for number in range(len(messages))]
    error = _disagreement(name, {ranks[number]: request.same for number, request in requests.items()})
    if len(active) < len(messages) and first.kind not in JOINABLE:
        error = (
            f"{name}: a rank has joined; what to do: after hvd.join() other ranks may call allreduce alone"
        )
    return Ready(name, first, owns, error)
