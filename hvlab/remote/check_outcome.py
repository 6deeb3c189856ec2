"""How one check of one host ended: what `verify` and `health` have in common."""

from __future__ import annotations

from dataclasses import dataclass


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
