"""What an export is made from: one run with all its records. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hvlab.results.store import Record, Run


@dataclass(frozen=True)
class Measured:
    """A run and its records; ``seconds`` says how long each case ran, where that is known."""

    run: Run
    records: Sequence[Record]
    seconds: Mapping[str, float] = field(default_factory=dict)

    def cases(self) -> dict[str, list[Record]]:
        """Return the records of each case, in the order they were measured."""
        found: dict[str, list[Record]] = {}
        for record in self.records:
            found.setdefault(record.case_id, []).append(record)
        return found


def status(records: Sequence[Record]) -> str:
    """Return how a case ended: failed, skipped or ok; one record that failed is enough."""
    found = {record.status for record in records}
    return next(word for word in ("failed", "skipped", "ok") if word in found or word == "ok")
