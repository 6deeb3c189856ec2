"""Axes in, cases out. Pure."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from hvlab.base.errors import explain_unknown
from hvlab.base.masking import mask
from hvlab.bench.placement import HostSet, host_sets
from hvlab.lab import variants
from hvlab.lab.backends import BACKENDS
from hvlab.lab.inventory import Lab
from hvlab.workloads import WORKLOADS, limits, parameters, sizes
from hvlab.workloads.case import Case, InfeasibleCase
from hvlab.workloads.command import EXPLAIN
from hvlab.workloads.launchers import mpirun, srun
from hvlab.workloads.parameters import (
    DEVICE,
    MPIRUN,
    OPTIONAL,
    RULES,
    STACK,
    Parameter,
    Value,
    read_inherited,
)

_ALONE = "its counterpart on the other side is infeasible"
_TOO_SMALL = "one of the sizes is too small for whole elements of both A and B"
__all__ = ["Block", "Case", "InfeasibleCase", "Spec", "expand"]

_LONGEST_ID = 110
# Fields that came later: without a value they are no part of the key, so that older runs keep theirs.
_LATER, _LATER_OF_BLOCKS = ("auto", "sides", "against", "queue_limit"), ("launcher", "side")


@dataclass(frozen=True)
class Block:
    """One product of axes.

    ``hosts`` are counts, or ``each`` and ``pairs``. ``axes`` holds the values of parameters that are not left
    at their default; every value is combined with all others. ``launcher`` overrides that of the
    specification; ``side`` is A or B where two sides of a run differ in what they set.
    """

    workload: str
    backends: tuple[str, ...]
    hosts: tuple[int | str, ...]
    slots: tuple[int, ...]
    axes: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    launcher: str | None = None
    side: str = ""


@dataclass(frozen=True)
class Spec:
    """A request. ``timeout`` limits a case, in seconds; ``asked``: the user named the backends.

    ``container`` is the image the ranks run in, with an sshd on ``ssh_port``; None: on the hosts themselves.
    With ``auto``, ``repeats`` is the most, and a run ends where its questions are answered, or after
    ``time_limit`` seconds (0: no limit). ``queue_limit`` is how long Slurm may take to grant the hosts, in
    seconds (0: no limit). ``sides`` are what A and B set, where a run has these; A is as
    the run ``against`` was, if there is one.
    """

    blocks: tuple[Block, ...]
    repeats: int = 1
    launcher: str | None = None
    timeout: int = 900
    container: str | None = None
    ssh_port: int = 9435
    container_options: tuple[str, ...] = ()
    suite: str = ""
    asked: bool = False
    auto: bool = False
    time_limit: int = 0
    sides: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    against: str = ""
    queue_limit: int = 0

    def key(self, lab: Lab) -> str:
        """Return a hash that is the same for two commands which request the same measurements."""
        spec = {name: value for name, value in asdict(self).items() if name not in _LATER or value}
        for limit in ("time_limit", "queue_limit"):  # More time is no other measurement.
            spec.pop(limit, None)
        spec["blocks"] = [
            {name: value for name, value in block.items() if name not in _LATER_OF_BLOCKS or value}
            for block in spec["blocks"]
        ]
        request = {"spec": spec, "lab": lab.name, "hosts": [[h.name, h.address] for h in lab.hosts]}
        if lab.vars.get("lab_rank_env"):
            request["rank_env"] = lab.vars["lab_rank_env"]
        return _hash(request, 16)

    @classmethod
    def restore(cls, stored: Mapping[str, Any]) -> Spec:
        """Return the specification that a store holds as JSON. Raises TypeError if its fields differ."""
        plain = _tuples(dict(stored))
        return cls(**{**plain, "blocks": tuple(Block(**block) for block in plain.get("blocks", ()))})


def expand(spec: Spec, lab: Lab) -> tuple[list[Case], list[InfeasibleCase]]:
    """Return every case of ``spec`` on ``lab``, each once, and those that are infeasible.

    Repeats are outermost. Each has its own random order, so that neither drift nor a neighbouring case looks
    like a result. The specification is the seed, so a resumed run keeps its order. A and B of a
    configuration follow one another, and take turns in being first; one without the other is infeasible.
    """
    cases, infeasible = _feasible(spec, lab)
    cases = _round_sizes(cases, spec) if spec.sides else cases
    common = {case.id: _hash(_common(case, spec)) for case in cases} if spec.sides else {}
    sides = Counter(common.values())
    alone = [case for case in cases if spec.sides and sides[common[case.id]] < len(spec.sides)]
    infeasible += [InfeasibleCase(case.id, _ALONE) for case in alone]
    empty = [case for case in cases if case not in alone and not min(case.params.get("sizes", [1]))]
    infeasible += [InfeasibleCase(case.id, _TOO_SMALL) for case in empty]
    cases = [case for case in cases if case not in alone and case not in empty]
    seed = spec.key(lab)
    ordered = []
    for repeat in range(1, spec.repeats + 1):
        again = [(case, replace(case, id=f"{case.id}-r{repeat}", repeat=repeat)) for case in cases]
        again.sort(key=lambda pair: _place(pair[1], common.get(pair[0].id), seed))
        ordered += [case for _, case in again]
    return ordered, [replace(item, case=f"{item.case}-r1") for item in infeasible]


def _place(case: Case, common: str | None, seed: str) -> tuple[str, bool]:
    """Return the sort key of a case in its repeat; those with the same ``common`` part are neighbours."""
    if common is None:
        return _hash([seed, case.id]), False
    first = (int(common, 16) + case.repeat) % 2
    return _hash([seed, common, case.repeat]), (case.params["side"] == "B") is bool(first)


def _common(case: Case, spec: Spec) -> dict[str, Any]:
    switched = {"side", *(name for values in spec.sides.values() for name in values)}
    if "backend" in switched:
        switched |= {"launcher", "variant"}
    switched |= {"variant"} if "framework" in switched else set()
    own = {name: value for name, value in asdict(replace(case, id="")).items() if name not in switched}
    own["params"] = {name: value for name, value in case.params.items() if name not in switched}
    if {"backend", "framework"} & switched:
        own["params"].pop(DEVICE.name)
    return own


def _round_sizes(cases: Sequence[Case], spec: Spec) -> list[Case]:
    """Return the cases; where elements of A and of B have unlike sizes, buffers are whole in both."""
    sized = [case for case in cases if "sizes" in case.params]
    asked = {case.id: _hash(_common(_set_sizes(case, ()), spec)) for case in sized}
    steps: dict[str, int] = {}
    for case in sized:
        step = limits.step(case, WORKLOADS[case.workload].collective)
        steps[asked[case.id]] = math.lcm(steps.get(asked[case.id], 1), step)
    return [
        _set_sizes(case, sizes.round_down(tuple(case.params["sizes"]), steps[asked[case.id]]))
        if case.id in asked
        else case
        for case in cases
    ]


def _set_sizes(case: Case, chosen: Sequence[int]) -> Case:
    return replace(case, params={**case.params, "sizes": list(chosen)})


def _feasible(spec: Spec, lab: Lab) -> tuple[list[Case], list[InfeasibleCase]]:
    cases: dict[str, Case] = {}
    infeasible: dict[str, InfeasibleCase] = {}
    for case, hosts in _products(spec, lab):
        reason = _reason(case, hosts, lab)
        if reason is not None:
            infeasible.setdefault(case.id, InfeasibleCase(case.id, reason))
            continue
        same = cases.setdefault(case.id, case)
        if same != case:
            # The variant follows from the rest; ids are as they were before cases had it.
            fields = {
                name: value for name, value in asdict(replace(case, id="")).items() if name != "variant"
            }
            unique = replace(case, id=f"{case.id}-{_hash(fields)}")
            cases.setdefault(unique.id, unique)
    return list(cases.values()), list(infeasible.values())


def _products(spec: Spec, lab: Lab) -> Iterator[tuple[Case, HostSet]]:
    for block in spec.blocks:
        known = parameters(block.workload)
        for name in block.axes:
            if name not in {item.name for item in known}:
                raise explain_unknown(f"parameter of {block.workload}", name, [item.name for item in known])
        sets = [hosts for requested in block.hosts for hosts in host_sets(requested, lab)]
        chosen = [
            dict(zip(block.axes, values, strict=True)) for values in itertools.product(*block.axes.values())
        ]
        for backend, hosts, slots, values in itertools.product(block.backends, sets, block.slots, chosen):
            yield _case(spec, lab, block, backend=backend, hosts=hosts, slots=slots, values=values), hosts


def _case(
    spec: Spec,
    lab: Lab,
    block: Block,
    *,
    backend: str,
    hosts: HostSet,
    slots: int,
    values: Mapping[str, Value],
) -> Case:
    own = variants.launchers(backend, lab.hosts)
    chosen = block.launcher or spec.launcher
    # One process alone is also a step where only steps reach the host or the container.
    alone = not BACKENDS[backend].parallel
    if alone and chosen == srun.NAME and not (lab.step or spec.container):
        chosen = None
    launcher = chosen if chosen and (not alone or chosen in own) else own[0]
    known = parameters(block.workload)
    everywhere = read_inherited(lab.vars.get("lab_rank_env", {}), backend)
    params: dict[str, Any] = {
        item.name: values.get(item.name, everywhere.get(item.name, item.read(item.default))) for item in known
    }
    for item in (*OPTIONAL, EXPLAIN):
        if not params.get(item.name, True):
            del params[item.name]
    if block.side:
        params["side"] = block.side
    collective = WORKLOADS[block.workload].collective
    machines = [lab.host(name) for name in hosts.names]
    framework = params.get("framework", "torch")
    if params[DEVICE.name] != "cpu":
        params[DEVICE.name] = variants.device(backend, machines, collective, framework)
    case = Case(
        id="",
        workload=block.workload,
        backend=backend,
        launcher=launcher,
        hosts=hosts.names,
        slots=slots,
        repeat=1,
        variant=variants.variant_for(backend, machines, framework) or "",
        params=params,
        timeout=spec.timeout,
        container=spec.container or "",
        ssh_port=spec.ssh_port if spec.container and launcher != srun.NAME else 0,
    )
    if "sizes" in params:
        params["sizes"] = list(sizes.round_down(params["sizes"], limits.step(case, collective)))
    settings = [*_non_defaults(known, values), *([block.side] if block.side else [])]
    return replace(case, id=_id(case, hosts, lab, settings, chosen=chosen))


def _non_defaults(known: Sequence[Parameter], values: Mapping[str, Value]) -> list[str]:
    """Return the parameters that a case's id names: those not at their default, except long ones."""
    named = [item for item in known if item.kind not in ("sizes", "files", "note") and item.name in values]
    changed = [item for item in named if values[item.name] != item.default]
    return [mask(f"{item.name}={item.format_value(values[item.name])}") for item in changed]


def _id(case: Case, hosts: HostSet, lab: Lab, settings: Sequence[str], *, chosen: str | None) -> str:
    first = hosts.names == tuple(host.name for host in lab.hosts[: hosts.count])
    place = f"{hosts.count}x{case.slots}" + ("" if first or not hosts.names else f"@{'+'.join(hosts.names)}")
    launcher = [case.launcher] if chosen == case.launcher else []
    inside = ["container"] if case.container else []
    full = "-".join([case.workload, case.backend, *launcher, *inside, place, *settings])
    safe = re.sub(r"[^A-Za-z0-9._=@+-]", "_", full)[:_LONGEST_ID]
    return safe if safe == full else f"{safe}-{_hash(full)}"


def _reason(case: Case, hosts: HostSet, lab: Lab) -> str | None:
    if hosts.count > len(case.hosts):
        return f"{hosts.count} hosts requested, the lab has {len(lab.hosts)}"
    machines = [lab.host(name) for name in case.hosts]
    full = [f"{host.name} has {host.slots}" for host in machines if host.slots < case.slots]
    if full:
        return f"{case.slots} slots requested, {', '.join(full)}{' (lab_slots)' * lab.prepared}"
    if case.launcher not in BACKENDS[case.backend].launchers:
        return f"{case.launcher} cannot start {case.backend} ranks"
    if variants.unavailable(case.backend, machines, case.framework):
        return variants.unavailable(case.backend, lab.hosts, case.framework)
    return _find_unused(case) or limits.reason(case, WORKLOADS[case.workload].collective, machines)


def _find_unused(case: Case) -> str | None:
    if MPIRUN.name in case.params and case.launcher != mpirun.NAME:
        return f"{case.launcher} takes no options of mpirun (--set mpirun=)"
    if STACK.name in case.params and case.container:
        return "a container has its own stack (--set stack=)"
    if RULES.name in case.params and not BACKENDS[case.backend].mpi:
        return f"{case.backend} sends nothing through Open MPI, whose rules file is set (--set rules=)"
    return None


def _hash(value: object, length: int = 8) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:length]


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _tuples(inner) for name, inner in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
