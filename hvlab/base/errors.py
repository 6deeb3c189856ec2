"""One tree of errors. Each says which host, what was seen, what to do; the CLI makes it an exit code."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from dataclasses import dataclass


class HvlabError(Exception):
    """Base of all errors that are meant for the reader.

    ``remedy`` is what to do about it, printed on a line of its own.
    """

    exit_code = 1

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message)
        self.remedy = remedy


class CheckError(HvlabError):
    """A measurement or check failed (exit code 1)."""


class UsageError(HvlabError):
    """A wrong option or a wrong configuration (exit code 2)."""

    exit_code = 2


class InventoryError(UsageError):
    """The inventory cannot be used; the message holds every problem found."""


class NoInventoryError(InventoryError):
    """There is no inventory at that place."""


class UnreachableError(HvlabError):
    """A host does not answer, or refuses us (exit code 3)."""

    exit_code = 3


class InterruptedRunError(HvlabError):
    """The person pressed Ctrl-C, or the process got SIGTERM (exit code 130)."""

    exit_code = 130


# Maximum number of hosts listed in a message.
_SHOWN = 3


def some(names: Iterable[str]) -> str:
    """Return names for the reader: some of them, and how many more."""
    every = list(names)
    more = len(every) - _SHOWN
    return ", ".join(every) if more <= 1 else f"{', '.join(every[:_SHOWN])} and {more} more"


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: on which host (or in which file), what was seen there, what to do."""

    host: str
    observed: str
    remedy: str


def report(problems: Iterable[Problem], *, indent: str = "") -> str:
    """Return problems as text, two lines each; hosts that share one share its lines."""
    hosts: dict[tuple[str, str], list[str]] = {}
    for problem in problems:
        hosts.setdefault((problem.observed, problem.remedy), []).append(problem.host)
    lines = []
    for (observed, remedy), names in hosts.items():
        lines += [f"{indent}{', '.join(dict.fromkeys(names))}: {observed}", f"{indent}  what to do: {remedy}"]
    return "\n".join(lines)


# What to do about hosts that do not answer.
LEAVE_OUT = "bring them back, or leave them out with -l"
# What ssh says where it gets no login, and what to do about it.
_LOGINS = {
    "Could not resolve hostname": "correct the name, or describe it in ~/.ssh/config",
    "Connection refused": "start sshd there, or name its port in ~/.ssh/config",
    "Permission denied": "make `ssh HOST true` work without a password, by a key or ssh-agent",
    "Too many authentication failures": "name its key in ~/.ssh/config, with IdentitiesOnly yes",
    "Host key verification failed": "log in once with ssh, and compare the fingerprint",
}


def advise_unreachable(reason: str, *, virtual: bool = False) -> str:
    """Return what to do about a host that does not answer, for that reason."""
    known = (remedy for words, remedy in _LOGINS.items() if words in reason)
    otherwise = "see `hvlab lab status`" if virtual else "look at its power and its network"
    return next(known, otherwise)


def unusable(hosts: Collection[str], every: int) -> str:
    """Return the words for hosts that do not answer, or refuse us, out of how many."""
    return f"{len(hosts)} of {every} host{'s' * (every != 1)} cannot be used"


def explain_unknown(what: str, name: str, known: Iterable[str]) -> UsageError:
    """Return the error for an unknown name, suggesting the nearest known one."""
    names = list(known)
    remedy = f"{did_you_mean(name, names)}there are {', '.join(names) or 'none'}"
    return UsageError(f"unknown {what} {name!r}", remedy=remedy)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the question for the nearest known name, to begin a remedy with; empty if none is near."""
    near = difflib.get_close_matches(name.lower(), list(known), n=1)
    return f"did you mean {near[0]}? " if near else ""
