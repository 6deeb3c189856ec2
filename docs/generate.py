"""The reference pages of the site, written from the code each time it is built."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import yaml

from hvlab.checks.node import xid
from hvlab.cli import cli
from hvlab.cli.options import WHOLE

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 100


def commands(
    command: click.Command, name: str, parent: click.Context | None = None
) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Every command of a command line, parents first."""
    settings = {**command.context_settings, "terminal_width": WIDTH, "max_content_width": WIDTH}
    # With the help of every option.
    context = click.Context(command, info_name=name.rpartition(" ")[2], parent=parent, **settings)
    context.meta[WHOLE] = True
    yield name, command, context
    if isinstance(command, click.Group):
        for sub in command.list_commands(context):
            if child := command.get_command(context, sub):
                yield from commands(child, f"{name} {sub}", context)


def cli_page() -> str:
    """The help of every command."""
    parts = ["# The command line\n"]
    for name, command, context in commands(cli, "hvlab"):
        parts.append(f"## {name}\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)


def roles_page() -> str:
    """Every role and its variables."""
    parts = [
        "# Roles and variables",
        "An inventory may set each of these for all hosts, a group or one host; versions and methods are set "
        "by their pins alone (`lab_cuda` for `cuda_version`). *wired*: set in `group_vars/all.yml`, from the "
        "versions chosen for the host or from another role.",
    ]
    wired = _yaml("group_vars/all.yml")
    for role in sorted(path.name for path in (ROOT / "roles").iterdir()):
        [specs] = _yaml(f"roles/{role}/meta/argument_specs.yml")["argument_specs"].values()
        defaults = _yaml(f"roles/{role}/defaults/main.yml")
        parts.append(f"## {role}\n\n{_text(specs['short_description'])}")
        parts += [_text(specs["description"])] if specs.get("description") else []
        rows = [_variable(name, option, defaults, wired) for name, option in specs.get("options", {}).items()]
        parts += [_table("variable | type | default | what", rows)] if rows else []
    return "\n\n".join(parts) + "\n"


def _yaml(path: str) -> dict[str, Any]:
    file = ROOT / path
    return yaml.safe_load(file.read_text("utf-8")) or {} if file.exists() else {}


def _variable(
    name: str, option: dict[str, Any], defaults: dict[str, Any], wired: dict[str, Any]
) -> tuple[str, ...]:
    kind = " ".join(map(str, option.get("choices") or [option.get("type", "str")]))
    default = "required" if option.get("required") else _default(defaults.get(name))
    return f"`{name}`", kind, "*wired*" if name in wired else default, _text(option.get("description", ""))


def _text(value: str | list[str]) -> str:
    text = " ".join(" ".join([value] if isinstance(value, str) else value).split())
    return re.sub(r"\b[CV]\(([^)]*)\)", r"`\1`", text.replace("<", "&lt;"))


def _default(value: object) -> str:
    text = value if isinstance(value, str) and value else json.dumps(value)
    return "`" + " ".join(text.split()) + "`"


def _table(head: str, rows: Sequence[tuple[str, ...]]) -> str:
    lines = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows]
    return "\n".join(f"| {line} |" for line in [head, "|".join("---" for _ in head.split("|")), *lines])


SEVERITIES = {"none": "no fault", "soft": "soft", "hard": "hard", "line": "as the message says"}


def xids_page() -> str:
    """How every Xid is judged."""
    about = (
        "How `hvlab health` judges the errors that NVIDIA's driver writes to the kernel log, after "
        "[NVIDIA's catalogue](https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html); "
        "[health-gpu.md](health-gpu.md#xids) says when they count. Any other code is soft."
    )
    rows = [
        (str(code), known.meaning, SEVERITIES[known.severity], xid.ACTIONS[known.action])
        for code, known in sorted(xid.XIDS.items())
    ]
    return f"# Xids\n\n{about}\n\n{_table('Xid | meaning | severity | what to do', rows)}\n"


FAULTS = ROOT / "tests/data/faults.json"
FAMILIES = {
    "inventory": "Inventories and options",
    "network": "Network",
    "processes": "Processes",
    "disks": "Disks",
    "clocks": "Clocks",
    "keys": "Keys",
    "logins": "Logins",
    "stores": "Stores of results",
    "provisioning": "Provisioning",
    "lab": "The virtual lab",
    "caches": "Packs and caches",
    "kills": "SIGKILL at random points",
}


def reliability_page() -> str:
    """The faults that were put into a lab, and what followed."""
    faults = json.loads(FAULTS.read_text("utf-8"))
    parts = [
        "# What hvlab survives",
        f"{len(faults)} faults, put one after another into a virtual lab of three hosts and the controller "
        "beside it (two cores for all). Each row: the fault, the command that meets it, its exit code, time "
        "and limit, its message, and the command that then works without further help. After that, all "
        "records of the store must be there and nothing may be left on hosts or controller: no process, "
        "temporary folder or mount. `make test-all MARK=faults` measures them again. Clocks are shifted by "
        "libfaketime, for hvlab and its children on the controller.",
        "Exit code 0: the fault is fixed or harmless. -9: the command itself was killed.",
    ]
    for family, title in FAMILIES.items():
        rows = [_fault(row) for row in faults if row["family"] == family]
        head = "fault | command | exit code | time | message | then | records kept | left"
        parts += [f"## {title}\n\n{_table(head, rows)}"] if rows else []
    return "\n\n".join(parts) + "\n"


def _fault(row: dict[str, Any]) -> tuple[str, ...]:
    cells = (
        row["what"],
        f"`{row['command']}`",
        str(row["code"]),
        f"{row['seconds']:.0f} s (at most {row['limit']:.0f} s)",
        row["message"] if row["code"] > 0 else "",
        f"`{row['then']}`, {row['then_seconds']:.0f} s",
        f"{row['kept']} of {row['records']}",
        "; ".join(row["left"]) or "nothing",
    )
    return tuple(cell.replace("<", "&lt;") for cell in cells)


PAGES = {
    "cli.md": cli_page,
    "reliability.md": reliability_page,
    "roles.md": roles_page,
    "xids.md": xids_page,
}
