"""How a search of host settings ended. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hvlab.searches.tune.host_space import HostSurvey
from hvlab.searches.tune.result import TuneResult

_SYSCTL = "/proc/sys/"


@dataclass(frozen=True, kw_only=True)
class HostTuneResult(TuneResult):
    """A search of host settings, with what the hosts had, and what was ``refused`` while it was tried."""

    survey: HostSurvey
    refused: tuple[str, ...]

    @property
    def _today(self) -> str:
        return "What the hosts have is"

    @property
    def _beside(self) -> str:
        return "The hosts have again what they had before."

    @property
    def keeping(self) -> list[str]:
        """Return the lines that keep the settings over a restart of the hosts; none where none are proved."""
        if not (self.proved and self.search.best):
            return []
        best = self.space.changes(self.search.best)
        written = {
            path: value
            for setting in self.survey.settings
            if setting.name in best
            for path, value in setting.levels[str(best[setting.name])].items()
        }
        return lines(written, self.survey.interfaces.values())

    @property
    def _notes(self) -> list[str]:
        return [*self.survey.left_out, *self.refused]

    def markdown(self) -> str:
        """Return the section of a report: the answer, what was tried, how to keep it, what was left out."""
        text = super().markdown()
        if self.keeping:
            head = "None of this is kept. These lines make it last, on every host:"
            text += "\n".join(["", head, "", "```sh", *self.keeping, "```", ""])
        if self._notes:
            text += "\n".join(["", *(f"- {note}" for note in self._notes), ""])
        return text

    def as_json(self) -> dict[str, Any]:
        """Return all of it, JSON-ready."""
        return {
            **super().as_json(),
            "run": None,
            "settings": None,
            "keep": self.keeping,
            "left_out": self._notes,
        }


def lines(written: Mapping[str, str], interfaces: Iterable[str]) -> list[str]:
    """Return what keeps these values over a restart: lines of a file in sysctl.d, then commands."""
    sysctl = {
        path.removeprefix(_SYSCTL): value for path, value in written.items() if path.startswith(_SYSCTL)
    }
    commands = [
        f"ip link set dev {interface} mtu {value}"
        for path, value in written.items()
        if path.endswith("/mtu")
        for interface in sorted(set(interfaces))
    ]
    commands += [
        f"echo {value} | tee {path}" for path, value in written.items() if path.endswith("/scaling_governor")
    ]
    return [
        *["# /etc/sysctl.d/90-hvlab.conf"] * bool(sysctl),
        *(f"{name.replace('/', '.')} = {value}" for name, value in sysctl.items()),
        *["# at each start of a host"] * bool(commands),
        *commands,
    ]
