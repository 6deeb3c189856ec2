"""Print, instead of each task, what a playbook in check mode would change on which hosts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ansible.plugins.callback import CallbackBase

from hvlab.base.answers import clean
from hvlab.base.errors import some
from hvlab.base.groups import grouped
from hvlab.results import tables

DOCUMENTATION = """
name: hvlab_changes
type: stdout
short_description: What a playbook in check mode would change, host by host
description:
  - Prints at the end one table for hosts that are alike, of packages with versions, files, users, services,
    packs and reboots, and obstacles. C(hvlab provision --dry-run) uses it.
  - Of tasks that are skipped in check mode alone, only services and included files are listed.
requirements:
  - set as C(stdout_callback)
"""

COLUMNS = ("what", "name", "change")
# In hvlab's own folders, only direct children are shown.
OWN = re.compile(r"^(/(?:opt|var/cache)/hvlab/[^/]+)/.*")
# A task skipped for this condition alone.
CHECK_MODE = "not ansible_check_mode"

Row = tuple[str, str, str]


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Keeps the changes of each host."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "hvlab_changes"

    def __init__(self) -> None:
        super().__init__()
        self._rows: dict[str, list[Row]] = {}

    def _add(self, result: Any, rows: Iterator[Row]) -> None:
        known = self._rows.setdefault(result._host.get_name(), [])
        known.extend(row for row in rows if row not in known)

    def v2_runner_on_ok(self, result: Any) -> None:
        """Note what a task would change."""
        task = result._task
        for one in result._result.get("results") or [result._result]:
            self._add(result, changes(task.action, one, task.args, task.get_name()))

    def v2_runner_on_skipped(self, result: Any) -> None:
        """Note a service, or tasks of another file, that are left alone in check mode only."""
        name, args = result._task.action.rpartition(".")[2], result._task.args
        if result._result.get("false_condition") != CHECK_MODE:
            return
        if name == "systemd_service":
            self._add(result, iter([("service", str(args.get("name")), str(args.get("state", "")))]))
        elif name in ("include_tasks", "include_role"):
            self._add(result, iter([("step", result._task.get_name(), "")]))

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """Note an obstacle."""
        text = clean(str(result._result.get("msg") or result._result.get("stderr") or "failed"))
        if not ignore_errors:
            self._add(result, iter([("in the way", " ".join(text.split()), "")]))

    v2_runner_on_unreachable = v2_runner_on_failed

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Print the tables."""
        for host in stats.processed:
            self._rows.setdefault(host, [])
        for text in format_table(self._rows):
            self._display.display(text)


def changes(action: str, result: Mapping[str, Any], args: Mapping[str, Any], task: str) -> Iterator[Row]:
    """Yield the changes in a task's result: kind, name, and details. Pure."""
    name = action.rpartition(".")[2]
    if name == "hvlab_driver" and (result.get("reboots") or result.get("step") == "reboot"):
        yield "reboot", str(result.get("reason") or "for the NVIDIA driver"), ""
    yield from (("drain", words, "ends first") for words in result.get("waits", []))
    if not result.get("changed"):
        return
    if name == "hvlab_packages":
        comes, removed = result.get("comes", {}), result.get("removed", [])
        yield from (("package", package, version or "newest") for package, version in comes.items())
        yield from (("package", package, "removed") for package in removed)
        held = [package for package in result.get("packages", []) if package not in {*comes, *removed}]
        yield from (("package", package, "held") for package in held)
    elif result.get("paths"):
        prepared = "".join(diff.get("prepared", "") for diff in result.get("diff", []))
        gone = set(re.findall(r"^(.*): \w+ -> absent ", prepared, re.MULTILINE))
        for path in result["paths"]:
            yield "file", OWN.sub(r"\1", path), "removed" if path in gone else "written"
    elif name in ("copy", "template", "file", "get_url"):
        place = result.get("dest") or result.get("path") or args.get("dest") or args.get("path")
        yield "file", OWN.sub(r"\1", str(place)), "removed" if result.get("state") == "absent" else "written"
    elif name == "user":
        yield "user", str(result.get("name") or args.get("name")), "changed" if result.get("uid") else "made"
    elif name == "systemd_service":
        yield "service", str(result.get("name")), str(result.get("state") or "enabled")
    elif name == "reboot":
        yield "reboot", task, ""
    else:
        yield "step", task, ""


def format_table(rows: Mapping[str, list[Row]]) -> Iterator[str]:
    """Yield a table for hosts that are alike. Pure."""
    alike = grouped((tuple(sorted(own)), host) for host, own in sorted(rows.items()))
    for same, hosts in alike.items():
        lines = [dict(zip(COLUMNS, row, strict=True)) for row in same]
        table = tables.render(lines, COLUMNS, "table") if lines else "nothing would change"
        yield f"\n{some(hosts)}\n{table}"
