"""At the end of a playbook, explain the failures that doctor recognises, with remedies."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from ansible.plugins.callback import CallbackBase

from hvlab.base.answers import clean
from hvlab.doctor import reading

DOCUMENTATION = """
name: hvlab_doctor
type: notification
short_description: The causes of failures, and their remedies
description:
  - Reads, at the end of a playbook, what the last failed task of each host printed, and names the cause
    nearest to the root that C(hvlab doctor) knows, the line that shows it, why it breaks and what to do.
  - Ignores failures that were ignored or rescued, and messages that already say what to do.
  - Prints nothing under ansible-runner; hvlab reads the failures itself then.
requirements:
  - enabled in C(callbacks_enabled)
"""


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Keeps the last failure of each host."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "hvlab_doctor"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self.disabled = "AWX_ISOLATED_DATA_DIR" in os.environ
        self._failures: dict[str, str] = {}

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """Note what a host's task printed."""
        if not ignore_errors:
            self._failures[result._host.get_name()] = "\n".join(find_failures(result._result))

    v2_runner_on_unreachable = v2_runner_on_failed

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Name the causes; none for a host whose failures were all rescued."""
        ended = {**stats.failures, **stats.dark}
        failures = {host: text for host, text in self._failures.items() if ended.get(host)}
        for line in findings(failures):
            self._display.display(line)


def find_failures(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the failure texts of a task's result, loop items included. Pure."""
    for part in ("msg", "stderr", "stdout", "module_stderr", "module_stdout", "exception"):
        if isinstance(result.get(part), str):
            yield clean(result[part])
    for item in result.get("results") or ():
        if isinstance(item, Mapping) and item.get("failed"):
            yield from find_failures(item)


def findings(failures: Mapping[str, str]) -> list[str]:
    """Return lines that name the causes of failures by host; hosts with the same one stand together. Pure."""
    hosts: dict[tuple[str, ...], list[str]] = {}
    for host, text in sorted(failures.items()):
        root = reading.cause_of(text)
        if root:
            line, cause = root.lines[0][1], root.cause
            finding = (
                cause.title,
                f"  observed: {line}",
                f"  why: {cause.why}",
                f"  what to do: {cause.remedy}",
            )
            hosts.setdefault(finding, []).append(host)
    return [
        line
        for (title, *more), names in hosts.items()
        for line in ("", f"{', '.join(names)}: {title}", *more)
    ]
