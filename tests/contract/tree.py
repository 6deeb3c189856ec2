"""The tree as data, for the tests of this folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
NOT_OURS = {
    ".git", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".ansible", ".hypothesis",
    "build", "dist", "__pycache__",
}  # fmt: skip
CALLED = {"pack"}  # Imported by other roles, which set its variables.
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir() if path.is_dir())

Task = dict[str, Any]


def files() -> Iterator[Path]:
    """Every file of ours."""
    todo = [ROOT]
    while todo:
        for path in sorted(todo.pop().iterdir()):
            if path.name in NOT_OURS or path.name.endswith(".egg-info") or path == ROOT / "results":
                continue
            if path.is_dir():
                todo.append(path)
            else:
                yield path


def block(page: str, heading: str = "") -> str:
    """The lines to type (```sh) of a page, or of a section of it."""
    text = (ROOT / page).read_text(encoding="utf-8")
    if heading:
        text = re.split(r"^## ", text.partition(f"\n## {heading}\n")[2], flags=re.MULTILINE)[0]
    return "".join(re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL))


def load(path: Path) -> Any:
    """Read one YAML file, Ansible's own tags as plain text; None without one."""
    if not path.exists():
        return None
    return yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506 - a safe loader


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """Knows ``!unsafe`` and ``!vault``."""


for tag in ("!unsafe", "!vault"):
    _Loader.add_constructor(tag, lambda loader, node: loader.construct_scalar(node))


def defaults(role: str) -> dict[str, Any]:
    """A role's default values."""
    return load(ROOT / "roles" / role / "defaults/main.yml") or {}


def specs(role: str) -> dict[str, Any]:
    """A role's only entry point of meta/argument_specs.yml."""
    specs = (load(ROOT / "roles" / role / "meta/argument_specs.yml") or {}).get("argument_specs", {})
    [only] = specs.values()
    return only


def options(role: str) -> dict[str, dict[str, Any]]:
    """A role's options, as its argument specs list them."""
    return specs(role).get("options") or {}


def flatten(tasks: Any) -> Iterator[Task]:
    """Every task, those inside blocks included."""
    for task in tasks or []:
        yield task
        for part in ("block", "rescue", "always"):
            yield from flatten(task.get(part))


def texts(value: Any) -> Iterator[str]:
    """Every string inside a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from texts(each)


def tasks() -> Iterator[tuple[str, Task]]:
    """Every task and handler of every role and playbook, with the place it stands in."""
    lists = ("roles/*/tasks/**/*.yml", "roles/*/handlers/*.yml", "playbooks/tasks/*.yml")
    for path in (path for pattern in lists for path in sorted(ROOT.glob(pattern))):
        for task in flatten(load(path)):
            yield str(path.relative_to(ROOT)), task
    for path in playbooks():
        for play in load(path) or []:
            for part in ("pre_tasks", "tasks", "post_tasks", "handlers"):
                for task in flatten(play.get(part)):
                    yield str(path.relative_to(ROOT)), task


def playbooks() -> list[Path]:
    """The playbooks."""
    return [ROOT / "site.yml", *sorted((ROOT / "playbooks").glob("*.yml"))]
