"""What ``hvlab clean --on-hosts`` shows, and removes: what lies unused on a lab's hosts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pydantic import ByteSize

from hvlab.base.cache import DAY_S, Kept
from hvlab.base.errors import LEAVE_OUT, CheckError, HvlabError, UnreachableError, unusable
from hvlab.lab.inventory import Lab
from hvlab.results import tables
from hvlab.results.lock import measuring

if TYPE_CHECKING:
    from hvlab.remote.unused import HostsAnswer

_COLUMNS = ("host", "what", "path", "size", "days unused", "goes")


class CleanedPlace(Protocol):
    """Where something lies that may go; ``problem`` is what went wrong."""

    problem: HvlabError | None

    def listed(self) -> list[Kept]:
        """Return all that lies there."""

    def remove(self, chosen: Sequence[Kept]) -> list[Kept]:
        """Remove what is chosen; return what went."""

    def table(self, each: Sequence[Kept], chosen: Sequence[Kept]) -> str:
        """Return what is shown of it."""


class OnHosts:
    """The hosts of a lab, whose results lie in a folder of this machine."""

    def __init__(self, lab: Lab, results: Path) -> None:
        self._lab, self._results = lab, results
        self.problem: HvlabError | None = None

    def listed(self) -> list[Kept]:
        """Ask the hosts; who does not answer is the ``problem``."""
        from hvlab.remote import unused  # noqa: PLC0415 - it loads slowly, and this machine needs none of it

        return self._answered(unused.listed(self._lab))

    def remove(self, chosen: Sequence[Kept]) -> list[Kept]:
        """Remove what is chosen while nothing else measures the lab; return what went."""
        from hvlab.remote import unused  # noqa: PLC0415 - as above
        from hvlab.searches.bisect import install  # noqa: PLC0415 - as above

        with measuring(self._results, self._lab.name):
            stacks = [one for one in chosen if one.kind == "stacks"]
            gone = self._answered(unused.remove(self._lab, [one for one in chosen if one not in stacks]))
            having = {one.host for one in stacks}
            if hosts := tuple(host for host in self._lab.hosts if host.name in having):
                install.remove(replace(self._lab, hosts=hosts))
        return [*gone, *stacks]

    def table(self, each: Sequence[Kept], chosen: Sequence[Kept]) -> str:
        """Return a row for each folder."""
        now = time.time()
        rows = [
            {
                "host": one.host,
                "what": one.kind,
                "path": str(one.paths[0]),
                "size": size_of([one]),
                "days unused": "in use" if one.busy else int((now - one.used_at) / DAY_S),
                "goes": "yes" if one in chosen else None,
            }
            for one in each
        ]
        return tables.render(rows, _COLUMNS, "table")

    def _answered(self, answer: HostsAnswer) -> list[Kept]:
        if answer.failures:
            lines = "\n".join(f"  {each.host}: {each.message.strip()}" for each in answer.failures)
            if gone := [each.host for each in answer.failures if each.unreachable]:
                words = unusable(gone, len(self._lab.hosts))
                self.problem = UnreachableError(f"{words}:\n{lines}", remedy=LEAVE_OUT)
            else:
                self.problem = CheckError(
                    f"not all hosts could be asked:\n{lines}", remedy="correct that on the hosts"
                )
        return list(answer.kept)


def size_of(each: Sequence[Kept]) -> str:
    """Return the size of all of them, for people."""
    return ByteSize(sum(one.size for one in each)).human_readable(separator=" ")
