"""Two sides of one run: what is switched between A and B, and which cases belong together. Pure."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from hvlab.base.errors import UsageError, explain_unknown
from hvlab.base.masking import mask
from hvlab.bench.matrix import Block
from hvlab.bench.settings import load
from hvlab.lab.backends import LAUNCHERS
from hvlab.lab.inventory import Lab
from hvlab.lab.variants import choose
from hvlab.workloads import parameters
from hvlab.workloads.parameters import ENV, SAMPLES, WORK, Value, find, read_inherited

A, B = "A", "B"
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_REMEDY = (
    "write --ab 'fusion_threshold=1M' 'fusion_threshold=64M': parameters, backend=, launcher= or environment "
    "variables (NCCL_ALGO=Ring), separated by spaces"
)
Settings = Mapping[str, str]


class SameSidesError(UsageError):
    """Nothing is switched between A and B."""


def read(text: str) -> dict[str, str]:
    """Return the settings of a side, by name; environment variables are in ``env``. Raises UsageError."""
    settings: dict[str, str] = {}
    variables = []
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{mask(text)!r} cannot be read: {error}", remedy=_REMEDY) from error
    for item in words:
        name, equals, value = item.partition("=")
        if not equals or not value:
            raise UsageError(f"{item!r} sets nothing", remedy=_REMEDY)
        if _VARIABLE.fullmatch(name):
            variables.append(item)
        elif name == "settings":
            chosen = load(Path(value)).parameters
            variables += shlex.split(chosen.pop(ENV.name, ""))
            settings |= chosen
        else:
            name = name.replace("-", "_")
            settings[name] = value.lower() if name in ("backend", "launcher") else value
    return settings | ({ENV.name: shlex.join(variables)} if variables else {})


def with_sides(blocks: Sequence[Block], sides: Mapping[str, Settings], lab: Lab) -> tuple[Block, ...]:
    """Return the blocks twice, once with what each side sets.

    A block without any of the parameters that are switched is left out. Raises SameSidesError if both
    sides are the same, UsageError for an unknown name or value, where the work is not the same, and where no
    block has what is switched.
    """
    if sides[A] == sides[B]:
        raise SameSidesError("A and B are the same: nothing is switched between them", remedy=_REMEDY)
    known = {item.name: item for block in blocks for item in parameters(block.workload)}
    if "sizes" in _names(sides):
        raise UsageError("A and B have the same sizes: others cannot be compared", remedy=_REMEDY)
    for name in _names(sides):
        if name not in known and name not in ("backend", "launcher"):
            raise explain_unknown("setting of A or B", name, [*known, "backend", "launcher"])
    changed = [name for name in WORK if sides[A].get(name) != sides[B].get(name)]
    if changed:
        raise UsageError(
            f"{', '.join(changed)} changes what a step does: neither side would be faster",
            remedy=f"switch what leaves the work as it is; throughput decides about {' and '.join(SAMPLES)}",
        )
    names = _names(sides)
    able = [block for block in blocks if names.keys() <= _settable(block)]
    if not able:
        raise UsageError(f"no workload of this run has all of {', '.join(names)}", remedy=_REMEDY)
    one, other = ([_set_side(block, side, sides[side], names, lab) for block in able] for side in (A, B))
    if all(_are_same(*pair, names, lab) for pair in zip(one, other, strict=True)):
        raise SameSidesError("A and B are the same: what one sets, the other has anyway", remedy=_REMEDY)
    return (*one, *other)


def values(sides: Mapping[str, Settings], blocks: Iterable[Block]) -> dict[str, dict[str, Value]]:
    """Return the settings of each side, in the form used by cases."""
    known = {item.name: item for block in blocks for item in parameters(block.workload)}
    return {
        side: {name: known[name].read(text) if name in known else text for name, text in settings.items()}
        for side, settings in sides.items()
    }


def _names(sides: Mapping[str, Settings]) -> dict[str, None]:
    return dict.fromkeys(name for settings in sides.values() for name in settings)


def _settable(block: Block) -> set[str]:
    return {"backend", "launcher", *(item.name for item in parameters(block.workload))}


def _set_side(block: Block, side: str, settings: Settings, switched: Iterable[str], lab: Lab) -> Block:
    known = parameters(block.workload)
    items = {name: find(name, known) for name in settings}
    own = {name: item.several(settings[name]) for name, item in items.items() if item is not None}
    axes = {**block.axes, **own}
    backends = block.backends
    if "backend" in settings:
        backends = tuple(choose(settings["backend"].split(","), lab))
    several = [name for name in switched if len(axes.get(name, ())) > 1]
    several += ["backend"] if "backend" in switched and len(backends) > 1 else []
    if several:
        raise UsageError(
            f"side {side} has several values of {', '.join(several)}",
            remedy="give each side one value of what is switched, with --ab or else with --set or --backend",
        )
    launcher = settings.get("launcher", block.launcher)
    if launcher is not None and launcher not in LAUNCHERS:
        raise explain_unknown("launcher", launcher, LAUNCHERS)
    return dataclasses.replace(block, backends=backends, launcher=launcher, axes=axes, side=side)


def _are_same(one: Block, other: Block, names: Iterable[str], lab: Lab) -> bool:
    known = {item.name: item for item in parameters(one.workload)}
    everywhere = read_inherited(lab.vars.get("lab_rank_env", {}), one.backends[0])
    defaults = {
        name: (everywhere.get(name, known[name].read(known[name].default)),)
        for name in names
        if name in known
    }
    a, b = ({name: block.axes.get(name, usual) for name, usual in defaults.items()} for block in (one, other))
    return (one.backends, one.launcher, a) == (other.backends, other.launcher, b)
