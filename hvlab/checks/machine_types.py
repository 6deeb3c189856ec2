"""Machine types: data files with the expected values of each, the package's own and the user's.

A file is named after its type and holds ``match`` (how such a machine is recognised), ``expect`` (values
by name, each plain or ``{value, source}``) and ``source``. :mod:`hvlab.checks.node.machine` chooses one.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from hvlab.base import files
from hvlab.base.errors import Problem, UsageError, explain_unknown, report
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
        *_check_names(path, "key", data, _KEYS),
        *_check_names(path, "criterion", data["match"], machine.CRITERIA),
    ]
    wrong += _check_names(path, "value", data["expect"], subjects.list_known())
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


def _check_names(path: Path, what: str, names: Iterable[Any], known: Iterable[str]) -> list[Problem]:
    errors = [explain_unknown(what, str(name), known) for name in names if name not in set(known)]
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
            raise explain_unknown("machine type", name, known)


_HEAD = """\
# Machines of this type, as host {host} taught `hvlab health --learn {host}` on {day}.
# Correct values that do not hold for all of them; remove those that may differ. A host gets the type matching
# best; `lab_machine_type: {name}` in the inventory says it without a match.
"""
_NO_MATCH = "# No GPUs distinguish these machines from others: set lab_machine_type, or write a match.\n"


def type_name(host: str, readings: Mapping[str, Any]) -> str:
    """Return a file name for the type of a host: its product and GPUs, or else the host's own name."""
    gpus = f"{readings['gpu_count']}x {readings['gpu_model']}" if readings.get("gpu_model") else ""
    words = " ".join(filter(None, [readings.get("machine_product", ""), gpus])) or host
    plain = (re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") for text in (words, host))
    return next(filter(None, plain), "machine")


def text(host: str, readings: Mapping[str, Any], day: str) -> str:
    """Return the file that describes machines like this host."""
    name = type_name(host, readings)
    # The firmware's name alone may fit other machines, too: all virtual machines of a cloud share it.
    known = {
        criterion: readings[reading]
        for criterion, reading in machine.CRITERIA.items()
        if readings.get(reading) and readings.get("gpu_model")
    }
    match = {name: glob.escape(value) if isinstance(value, str) else value for name, value in known.items()}
    lines = [_HEAD.format(host=host, day=day, name=name)]
    lines.append("match:\n" + _mapping(match) if match else _NO_MATCH + "match: {}\n")
    lines.append("expect:\n")
    for subject in subjects.list_all():
        learned = {
            reading: readings[reading] for reading in subject.LEARNED if readings.get(reading) is not None
        }
        lines += _with_margin(learned, getattr(subject, "MARGIN", {}))
    return "".join(lines)


def _mapping(values: Mapping[str, Any]) -> str:
    dumped = yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True, width=1000)
    return "".join(f"  {line}\n" for line in dumped.splitlines())


def _with_margin(learned: Mapping[str, Any], margin: Mapping[str, float]) -> Sequence[str]:
    lines = []
    for name, value in learned.items():
        if name in margin:
            lines.append(f"  # {margin[name]:.0%} of the {value:g} that this host reached\n")
            lines.append(_mapping({name: round(value * margin[name], 1)}))
        else:
            lines.append(_mapping({name: value}))
    return lines


def write(inventory: Path, host: str, readings: Mapping[str, Any], *, day: str, force: bool) -> Path:
    """Write the type of a host beside the inventory and return its file.

    Raises UsageError if it exists, unless ``force``.
    """
    folder = own_folder(inventory)
    path = folder / f"{type_name(host, readings)}.yml"
    if path.exists() and not force:
        raise UsageError(f"there is already a {path}", remedy="compare them, then replace it with --force")
    folder.mkdir(parents=True, exist_ok=True)
    files.write_file(path, text(host, readings, day))
    return path
