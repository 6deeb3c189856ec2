"""Expected values for each machine type: data files, the package's own and the user's.

A file is named after its type and holds ``match`` (how such a machine is recognised), ``expect`` (values
by name, each plain or ``{value, source}``) and ``source``. :mod:`hvlab.checks.node.machine` chooses one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hvlab.base.errors import Problem, UsageError, report, unknown
from hvlab.base.yaml_files import read_yaml
from hvlab.checks.node import machine, subjects

FOLDER = Path(__file__).parent / "machines"
_KEYS = ("match", "expect", "source")
# The kind of a value, by the ending of its name.
_KINDS: tuple[tuple[tuple[str, ...], tuple[type, ...], str], ...] = (
    (("_count", "_width", "_generation"), (int,), "a whole number"),
    (("_gib", "_mib", "_gbit", "_gbyte_s", "_w", "_mhz"), (int, float), "a number"),
    (("_model", "_mode", "_governor", "_state"), (str,), "a text"),
    (("_interfaces",), (list,), "a list of names"),
)


def own_folder(inventory: Path) -> Path:
    """Return the folder of an inventory's machine types: ``health`` beside or inside it."""
    return (inventory if inventory.is_dir() else inventory.parent) / "health"


def load(inventory: Path | None) -> list[dict[str, Any]]:
    """Return the known types, those beside an inventory first, as :func:`machine.choose` takes them.

    Raises UsageError with every mistake in the files.
    """
    wrong: list[Problem] = []
    own = _read(own_folder(inventory), wrong) if inventory else {}
    known = _read(FOLDER, wrong)
    if wrong:
        raise UsageError(f"machine types cannot be used:\n{report(wrong, indent='  ')}")
    return machine.types(own, known)


def _read(folder: Path, wrong: list[Problem]) -> dict[str, Any]:
    """Return the data of every file by its name; mistakes are added to ``wrong``."""
    types = {}
    for path in sorted(folder.glob("*.yml")):
        try:
            types[path.stem] = read_yaml(path)
        except ValueError as error:
            wrong.append(Problem(str(path), f"it cannot be read: {error}", "correct it, or remove it"))
        else:
            wrong += problems(path, types[path.stem])
    return types


def problems(path: Path, data: Any) -> list[Problem]:
    """Return every mistake in the data of one file."""
    shape = "write `match:` and `expect:`, each a mapping, as in a file of `hvlab health --learn HOST`"
    if not isinstance(data, dict) or not all(isinstance(data.get(key), dict) for key in ("match", "expect")):
        return [Problem(str(path), "it has no mappings `match` and `expect`", shape)]
    wrong = [
        *_unknown(path, "key", data, _KEYS),
        *_unknown(path, "criterion", data["match"], machine.CRITERIA),
    ]
    wrong += _unknown(path, "value", data["expect"], subjects.known())
    for name, pattern in data["match"].items():
        right = isinstance(pattern, str) or (
            isinstance(pattern, list) and all(isinstance(one, str) for one in pattern)
        )
        if name == "gpu_count":
            right = isinstance(pattern, int) and not isinstance(pattern, bool)
        if not right:
            wrong.append(
                Problem(str(path), f"match: {name} is {pattern!r}", "write a name, with * for any part of it")
            )
    for name, entry in data["expect"].items():
        if isinstance(entry, dict) and set(entry) != {"value", "source"}:
            observed = f"expect: {name} has {', '.join(map(str, entry)) or 'nothing'}"
            wrong.append(Problem(str(path), observed, "write a value alone, or {value: ..., source: ...}"))
            continue
        wrong += _kind(path, name, entry["value"] if isinstance(entry, dict) else entry)
    return wrong


def _unknown(path: Path, what: str, names: Iterable[Any], known: Iterable[str]) -> list[Problem]:
    errors = [unknown(what, str(name), known) for name in names if name not in set(known)]
    return [Problem(str(path), str(error), error.remedy or "") for error in errors]


def _kind(path: Path, name: Any, value: Any) -> list[Problem]:
    for endings, kinds, words in _KINDS:
        if str(name).endswith(endings) and (isinstance(value, bool) or not isinstance(value, kinds)):
            return [Problem(str(path), f"expect: {name} is {value!r}", f"write {words}")]
    return []


def check_names(types: Iterable[Mapping[str, Any]], names: Iterable[str | None]) -> None:
    """Raise UsageError if an inventory names an unknown machine type."""
    known = [each["name"] for each in types]
    for name in names:
        if name and name not in known:
            raise unknown("machine type", name, known)
