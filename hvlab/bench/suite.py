"""Suites: named matrices in files, and the command line's overrides of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hvlab.base.errors import UsageError, explain_unknown
from hvlab.base.yaml_files import read_yaml
from hvlab.bench.matrix import Block
from hvlab.bench.placement import ALL_PAIRS, EACH, PAIRS, default_hosts, default_slots, parse_counts, spread
from hvlab.lab.backends import BACKENDS, LIBRARIES, PARALLEL
from hvlab.lab.inventory import Lab
from hvlab.lab.variants import available, choose, computes_on_gpu, in_place, side_by_side
from hvlab.workloads import WORKLOADS, parameters
from hvlab.workloads.parameters import DEVICE, TUNING, Parameter, Value, find

FOLDER = Path(__file__).parent / "suites"
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.yml")))
AUTO = "auto"
# Every repeat is a case of its own, and is listed before any is measured.
MOST_REPEATS = 10_000
_MOST_SECONDS = 10**9
_KEYS = ("about", "repeats", "timeout", "blocks")
_BLOCK_KEYS = ("workload", "backends", "hosts", "slots", "devices", "set")
# Parameters without effect on a single process.
_OF_MANY = {"compression", "scaling", *(item.name for item in TUNING if item.name != "threads")}


@dataclass(frozen=True)
class Suite:
    """A named matrix; ``blocks`` are as the file has them. ``repeats`` and ``timeout`` (s) may be unset.

    ``repeats`` is 0 for ``auto``: as many as its questions need.
    """

    name: str
    blocks: tuple[Mapping[str, Any], ...]
    about: str = ""
    repeats: int | None = None
    timeout: int | None = None


@dataclass(frozen=True)
class Overrides:
    """The command line's values, None where it has none; ``sets`` are values by parameter."""

    workloads: tuple[str, ...] | None = None
    backends: tuple[str, ...] | None = None
    hosts: str | None = None
    slots: str | None = None
    sets: Mapping[str, object] = field(default_factory=dict)


def load(name: str) -> Suite:
    """Return a suite, by its name or from a file. Raises UsageError that names the mistake."""
    path = Path(name) if name.endswith((".yml", ".yaml")) else FOLDER / f"{name.lower()}.yml"
    if path.parent == FOLDER and path.stem not in NAMES:
        raise explain_unknown("suite", name, (*NAMES, "FILE.yml"))
    try:
        content = read_yaml(path)
    except ValueError as error:
        raise UsageError(
            f"the suite {path} cannot be read: {error}",
            remedy=f"write --suite {path.stem}"
            if path.stem in NAMES
            else f"correct it; {FOLDER} has suites to look at",
        ) from error
    where = f"the suite {path}" if path.parent != FOLDER else f"the suite {name}"
    _check(content, _KEYS, where)
    blocks = content.get("blocks")
    if not isinstance(blocks, list) or not blocks:
        raise UsageError(f"{where} has no blocks", remedy="add some, as in blocks: [{workload: allreduce}]")
    for number, block in enumerate(blocks, 1):
        _check(block, _BLOCK_KEYS, f"block {number} of {where}")
        if "workload" not in block:
            raise UsageError(
                f"block {number} of {where} has no workload", remedy="write workload: allreduce, ..."
            )
        sets = block.get("set") or {}
        if not isinstance(sets, dict) or not all(isinstance(name, str) for name in sets):
            problem = f"set in block {number} of {where} is not a mapping of parameters to values"
            raise UsageError(problem, remedy="write set: {batch: [32, 64]}")
    auto = content.get("repeats") == AUTO
    for key, most in (("repeats", MOST_REPEATS), ("timeout", _MOST_SECONDS)):
        value = content.get(key, 1)
        whole = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most
        if not whole and not (key == "repeats" and auto):
            raise UsageError(f"{where}: {key} is {value!r}", remedy=f"write a whole number from 1 to {most}")
    return Suite(
        path.stem,
        tuple(blocks),
        str(content.get("about", "")),
        0 if auto else content.get("repeats"),
        content.get("timeout"),
    )


def build_plain(overrides: Overrides, lab: Lab) -> Suite:
    """Return the suite of a command line that names none: its own options, on every backend that can run."""
    backends = overrides.backends or tuple(choose([], lab))
    return Suite("", ({"workload": list(overrides.workloads or ["allreduce"]), "backends": list(backends)},))


def blocks(suite: Suite, lab: Lab, overrides: Overrides) -> tuple[Block, ...]:
    """Return the suite's blocks on ``lab``, with the command line's overrides.

    Raises UsageError if a name or a value is unknown, or if no block has what is overridden.
    """
    chosen = [
        (entry, name)
        for entry in suite.blocks
        for name in _workloads(entry)
        if overrides.workloads is None or name in overrides.workloads
    ]
    if not chosen:
        there = dict.fromkeys(name for entry in suite.blocks for name in _workloads(entry))
        raise UsageError(
            f"suite {suite.name} has no {', '.join(overrides.workloads or ())}",
            remedy=f"it has {', '.join(there)}",
        )
    names = list(dict.fromkeys(name for _, name in chosen))
    _check_known(overrides.sets, names, "--set")
    for entry in suite.blocks:
        _check_known(entry.get("set") or {}, _workloads(entry), "set")
    mixed = any(_is_parallel(_backends(entry, lab, overrides)) for entry, _ in chosen)
    return tuple(
        block for entry, name in chosen for block in _blocks(entry, name, lab, overrides, mixed=mixed)
    )


def _blocks(
    entry: Mapping[str, Any], workload: str, lab: Lab, overrides: Overrides, *, mixed: bool
) -> Iterator[Block]:
    backends = _backends(entry, lab, overrides)
    known = parameters(workload)
    sets = {**(entry.get("set") or {}), **overrides.sets}
    sets = _fitting(known, sets, lab) | sets
    alone = tuple(name for name in backends if not BACKENDS[name].parallel)
    if alone and mixed:
        fit = {name: value for name, value in sets.items() if name not in _OF_MANY}
        yield Block(workload, alone, (1,), (1,), _axes(fit, known))
        backends = tuple(name for name in backends if name not in alone)
    elif alone:
        yield Block(
            workload,
            alone,
            _hosts(overrides.hosts or "1", lab),
            _slots(overrides.slots or "1", lab),
            _axes(sets, known),
        )
        return
    if not backends:
        return
    axes = _axes(sets, known)
    if "devices" in entry and not (overrides.hosts or overrides.slots):
        places = dict.fromkeys(spread(_count(number), lab) for number in _list(entry["devices"]))
        yield from (Block(workload, backends, (hosts,), (slots,), axes) for hosts, slots in places)
        return
    hosts = overrides.hosts or _text(entry.get("hosts"))
    slots = overrides.slots or _text(entry.get("slots"))
    yield Block(workload, backends, _hosts(hosts, lab), _slots(slots, lab), axes)


def _backends(entry: Mapping[str, Any], lab: Lab, overrides: Overrides) -> tuple[str, ...]:
    """Return a block's backends, or the overriding ones, except for a block of one process alone.

    In a suite, ``all`` is every backend of Horovod, and ``first`` the first of the lab: NCCL with GPUs.
    ``horovod-and-ddp`` is the lab's backends of Horovod and of DDP: NCCL with GPUs, else MPI and Gloo; so is
    any list of libraries. Where torch is in Horovod's place, so are the backends of hvlab_horovod.
    """
    given = _words(entry.get("backends", "all"))
    if given == ["all"]:
        own = PARALLEL
    elif set(libraries := given[0].split("-and-")) <= set(LIBRARIES):
        own = side_by_side(libraries, lab)
    elif given == ["first"]:
        own = tuple(sorted(available(lab.hosts), key=lambda name: not BACKENDS[name].gpu)[:1]) or PARALLEL
    else:
        for name in given:
            if name not in BACKENDS:
                raise explain_unknown("backend", name, BACKENDS)
        own = tuple(given)
    if overrides.backends and _is_parallel(own):
        return overrides.backends
    return tuple(in_place(name, lab.hosts) for name in own)


def _is_parallel(backends: Sequence[str]) -> bool:
    return any(BACKENDS[name].parallel for name in backends)


def _hosts(text: str | None, lab: Lab) -> tuple[int | str, ...]:
    if text is None:
        return default_hosts(lab)
    return parse_counts(text, "--hosts", most=len(lab.hosts), words=(EACH, PAIRS, ALL_PAIRS))


def _slots(text: str | None, lab: Lab) -> tuple[int, ...]:
    if text is None:
        return default_slots(lab)
    most = min(host.slots for host in lab.hosts)
    return tuple(int(count) for count in parse_counts(text, "--slots", most=most))


def _fitting(known: Sequence[Parameter], sets: Mapping[str, object], lab: Lab) -> dict[str, object]:
    """Return smaller sizes for a lab with hosts without GPUs, where one thread takes minutes for a full step.

    They apply to every case, because cases of different sizes cannot be compared.
    """
    if all(map(computes_on_gpu, lab.hosts)) and str(sets.get(DEVICE.name)) != "cpu":
        return {}
    return {item.name: item.cpu for item in known if item.cpu is not None}


def _axes(given: Mapping[str, object], known: Sequence[Parameter]) -> dict[str, tuple[Value, ...]]:
    items = {name: find(name, known) for name in given}
    return {name: item.several(given[name]) for name, item in items.items() if item is not None}


def _check_known(given: Mapping[str, object], workloads: Sequence[str], where: str) -> None:
    known = dict.fromkeys(item.name for name in workloads for item in parameters(name))
    for name in given:
        if name not in known:
            others = [other for other in WORKLOADS if find(name, parameters(other))]
            if others:
                trains = len(others) > 1 and WORKLOADS[others[0]].primary == "step_time"
                whose = f"trainings ({', '.join(others)})" if trains else ", ".join(others)
                # Some parameters are options of their own.
                place, way = ("", "add --workload") if where == "--set" else (f"{where} ", "write workload:")
                raise UsageError(
                    f"{place}{name}: a parameter of {whose}, not of {', '.join(workloads)}",
                    remedy=f"{way} {others[0]}",
                )
            raise explain_unknown(f"parameter of {', '.join(workloads)} ({where})", name, known)


def _workloads(entry: Mapping[str, Any]) -> list[str]:
    names = _words(entry["workload"])
    for name in names:
        if name not in WORKLOADS:
            raise explain_unknown("workload", name, WORKLOADS)
    return names


def _count(value: object) -> int:
    if not isinstance(value, int) or value < 1:
        raise UsageError(
            f"devices: {value!r} is not a whole number of 1 or more", remedy="write devices: [2, 4]"
        )
    return value


def _check(content: object, known: Sequence[str], where: str) -> None:
    if not isinstance(content, dict):
        raise UsageError(f"{where} is not a mapping", remedy=f"write {': ..., '.join(known)}: ...")
    for key in content:
        if key not in known:
            raise explain_unknown(f"key in {where}", str(key), known)


def _list(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _words(value: object) -> list[str]:
    return [str(item).lower() for item in _list(value)]


def _text(value: object) -> str | None:
    return None if value is None else ",".join(_words(value))
