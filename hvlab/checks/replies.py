"""What one host answered; what it did not answer is empty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hvlab.base import answers
from hvlab.base.answers import AnswerError


class HostReplies:
    """The answers of a host by question, see ``hvlab/checks/node/probe.py``."""

    def __init__(self, replies: Mapping[str, Any]) -> None:
        self._replies = replies

    def output(self, name: str) -> str:
        """Return what a command that succeeded printed; empty where it failed."""
        return str(self._of(name).get("out", "")) if self._of(name).get("rc") == 0 else ""

    def failed(self, name: str) -> str | None:
        """Return what a command that is there but failed printed; None where it succeeded or is not there."""
        own = self._of(name)
        if own.get("rc") in (None, 0, 124, 127, 137):
            return None
        return f"{own.get('err', '')}\n{own.get('out', '')}".strip()

    def error(self, name: str) -> str:
        """Return what a command wrote to stderr."""
        return str(self._of(name).get("err", ""))

    def files(self, name: str) -> dict[str, str]:
        """Return path -> text of a question that reads files."""
        return {path: text.strip() for path, text in self._of(name).items() if isinstance(text, str)}

    def paths(self, name: str) -> list[str]:
        """Return the paths that a question found."""
        return list(self._of(name))

    def document(self, name: str, shape: Any) -> Any:
        """Return the JSON that a command printed; None where there is none of this shape."""
        try:
            return answers.load(self.output(name), name, shape)
        except AnswerError:
            return None

    def table(self, name: str) -> dict[str, str]:
        """Return the lines ``key value`` that a command printed."""
        rows = (line.partition(" ") for line in self.output(name).splitlines())
        return {key: value.strip() for key, _, value in rows if key}

    def _of(self, name: str) -> Mapping[str, Any]:
        own = self._replies.get(name)
        return own if isinstance(own, Mapping) else {}
