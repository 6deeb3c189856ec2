"""The machine, and the known type that matches it."""

from __future__ import annotations

import fnmatch
from typing import Any, Dict, List, Mapping, Optional, Sequence

from hvlab.checks.node.answers import text
from hvlab.checks.node.finding import Finding, passed, skipped

_DMI = "/sys/class/dmi/id/"
QUESTIONS: Dict[str, Dict[str, Any]] = {
    "machine product": {"read": _DMI + "product_name"},
    "machine vendor": {"read": _DMI + "sys_vendor"},
}
CHECKS = {"machine type": "soft"}
LEARNED = ()
# Set where the expected values were chosen.
GIVEN = ("machine_type",)

# What a type is recognised by: the name in ``match:`` -> that of the reading.
CRITERIA = {
    "product": "machine_product",
    "vendor": "machine_vendor",
    "gpu_model": "gpu_model",
    "gpu_count": "gpu_count",
}

# What a node may have more than its type; the next larger type has twice as much.
_AT_MOST = 1.1

MachineType = Mapping[str, Any]


def readings(answers: Mapping[str, Any]) -> Dict[str, Any]:
    """Return ``machine_product`` and ``machine_vendor``, as the firmware (DMI) names them."""
    values = {f"machine_{name}": text(answers, f"machine {name}") for name in ("product", "vendor")}
    return {name: value for name, value in values.items() if value}


def findings(values: Mapping[str, Any], expected: Mapping[str, Any]) -> List[Finding]:
    """Tell which type the values come from; without one, only what is wrong on any machine is judged."""
    if "machine_type" in expected:
        return [passed("machine type", expected["machine_type"])]
    shown = " with ".join(str(values[name]) for name in ("machine_product", "gpu_model") if name in values)
    observed = f"no type is known for {shown or 'this machine'}: `hvlab health --learn HOST` writes one"
    return [skipped("machine type", observed)]


def types(own: Mapping[str, Any], known: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """Return the types of two sets of files, each the data of a file by its name."""
    return [
        {"name": name, "own": files is own, "match": data["match"], "expect": _values(data["expect"])}
        for files in (own, known)
        for name, data in sorted(files.items())
    ]


def _values(expect: Mapping[str, Any]) -> Dict[str, Any]:
    return {name: entry["value"] if isinstance(entry, dict) else entry for name, entry in expect.items()}


def choose(machine_types: Sequence[MachineType], values: Mapping[str, Any]) -> Optional[MachineType]:
    """Return the type that fits best, None where none does.

    Types are mappings with ``name``, ``match``, ``expect`` and ``own`` (a user's own goes first); of several
    the one with most criteria wins, then the first by name. Where GPUs are missing, so that no
    type has their number, it is the next larger one of that product and model, and of any machine with
    NVSwitches. A node with much more memory or CPUs than a type with its number of GPUs is a larger one.
    """
    fitting = [
        each
        for each in machine_types
        if each["match"] and _fits(each["match"], values) and not _has_outgrown(each, values)
    ]
    ranked = sorted(
        fitting,
        key=lambda each: (
            not each.get("own"),
            -len(each["match"]),
            _count_missing(each, values),
            each["name"],
        ),
    )
    return ranked[0] if ranked else None


def _fits(match: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    # A virtual machine with a part of the GPUs gets no switches.
    known = "product" in match or "vendor" in match or values.get("nvswitch_count")
    for criterion, pattern in match.items():
        value = values.get(CRITERIA[criterion])
        if criterion == "gpu_count":
            # GPUs may be missing only from a machine known by more: one GPU makes no board of eight.
            count = int(value or 0)
            if count > pattern or (count < pattern and not known):
                return False
        elif value is None or not _is_like(str(value), pattern):
            return False
    return True


def _has_outgrown(machine_type: MachineType, values: Mapping[str, Any]) -> bool:
    """Whether the node has more than this type, which differs from others by its number of GPUs."""
    expect = machine_type["expect"] if "gpu_count" in machine_type["match"] else {}
    sizes = [name for name in ("memory_gib", "cpu_count") if name in expect]
    return any(values.get(name, 0) > expect[name] * _AT_MOST for name in sizes)


def _is_like(value: str, patterns: Any) -> bool:
    patterns = [patterns] if isinstance(patterns, str) else patterns
    return any(fnmatch.fnmatchcase(value.lower(), str(pattern).lower()) for pattern in patterns)


def _count_missing(machine_type: MachineType, values: Mapping[str, Any]) -> int:
    count = machine_type["match"].get("gpu_count")
    return 0 if count is None else int(count) - int(values.get("gpu_count") or 0)


def find_expected(
    machine_types: Sequence[MachineType], values: Mapping[str, Any], name: Optional[str] = None
) -> Dict[str, Any]:
    """Return the values that a node should have: of the type ``name``, or of the one that fits; else none.

    Raises KeyError if no type has this name.
    """
    chosen = choose(machine_types, values)
    if name:
        chosen = {each["name"]: each for each in reversed(machine_types)}[name]
    return {**chosen["expect"], "machine_type": chosen["name"]} if chosen else {}
