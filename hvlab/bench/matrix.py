"""Axes in, cases out. Pure."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from hvlab.bench.placement import HostSet, host_sets
from hvlab.errors import unknown
from hvlab.lab import backends
from hvlab.lab.inventory import Lab
from hvlab.workloads import WORKLOADS, limits, parameters, sizes
from hvlab.workloads.case import Case, Impossible
from hvlab.workloads.parameters import DEVICE, Parameter, Value

__all__ = ["Block", "Case", "Impossible", "Spec", "expand"]

_LONGEST_ID = 110


@dataclass(frozen=True)
class Block:
    """One product of axes.

    ``hosts`` are counts, or ``each`` and ``pairs``; ``axes`` holds the values of parameters that are not to
    have their default, each with all others.
    """

    workload: str
    backends: tuple[str, ...]
    hosts: tuple[int | str, ...]
    slots: tuple[int, ...]
    axes: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Spec:
    """What was asked for. ``timeout`` is seconds a case may take; ``asked`` tells that backends were named.

    ``container`` is the image the ranks run in, with an sshd on ``ssh_port``; None: on the hosts themselves.
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

    def key(self, lab: Lab) -> str:
        """Return a hash of all that makes two commands ask for the same measurements."""
        asked = {"spec": asdict(self), "lab": lab.name, "hosts": [[h.name, h.address] for h in lab.hosts]}
        return _hash(asked, 16)

    @classmethod
    def restored(cls, told: Mapping[str, Any]) -> Spec:
        """Return the specification that a store kept as JSON. Raises TypeError where its shape is another."""
        plain = _tuples(dict(told))
        return cls(**{**plain, "blocks": tuple(Block(**block) for block in plain.get("blocks", ()))})


def expand(spec: Spec, lab: Lab) -> tuple[list[Case], list[Impossible]]:
    """Return every case of ``spec`` on ``lab``, each once, and those that cannot be run.

    Repeats are outermost; within each the order is another, drawn from the specification itself, so that
    neither drift nor a neighbour looks like a result, and a run that goes on has the order it had.
    """
    cases, impossible = _possible(spec, lab)
    seed = spec.key(lab)
    ordered = []
    for repeat in range(1, spec.repeats + 1):
        again = [replace(case, id=f"{case.id}-r{repeat}", repeat=repeat) for case in cases]
        ordered += sorted(again, key=lambda case: _hash([seed, case.id]))
    return ordered, [replace(left, case=f"{left.case}-r1") for left in impossible]


def _possible(spec: Spec, lab: Lab) -> tuple[list[Case], list[Impossible]]:
    cases: dict[str, Case] = {}
    impossible: dict[str, Impossible] = {}
    for case, hosts in _products(spec, lab):
        reason = _reason(case, hosts, lab)
        if reason is not None:
            impossible.setdefault(case.id, Impossible(case.id, reason))
            continue
        same = cases.setdefault(case.id, case)
        if same != case:
            unique = replace(case, id=f"{case.id}-{_identity(case)}")
            cases.setdefault(unique.id, unique)
    return list(cases.values()), list(impossible.values())


def _products(spec: Spec, lab: Lab) -> Iterator[tuple[Case, HostSet]]:
    for block in spec.blocks:
        known = parameters(block.workload)
        for name in block.axes:
            if name not in {item.name for item in known}:
                raise unknown(f"parameter of {block.workload}", name, [item.name for item in known])
        sets = [found for asked in block.hosts for found in host_sets(asked, lab)]
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
    own = backends.BACKENDS[backend].launchers
    launcher = spec.launcher if spec.launcher and backends.BACKENDS[backend].parallel else own[0]
    known = parameters(block.workload)
    params: dict[str, Any] = {item.name: values.get(item.name, item.read(item.default)) for item in known}
    carried = WORKLOADS[block.workload].carried
    machines = [lab.host(name) for name in hosts.names]
    if params[DEVICE.name] != "cpu":
        params[DEVICE.name] = backends.device(backend, machines, carried, params.get("framework", "torch"))
    case = Case(
        id="",
        workload=block.workload,
        backend=backend,
        launcher=launcher,
        hosts=hosts.names,
        slots=slots,
        repeat=1,
        params=params,
        timeout=spec.timeout,
        container=spec.container or "",
        ssh_port=spec.ssh_port if spec.container else 0,
    )
    if "sizes" in params:
        params["sizes"] = list(sizes.whole(params["sizes"], limits.step(case, carried)))
    return replace(case, id=_id(case, hosts, lab, _told(known, values), chosen=spec.launcher))


def _told(known: Sequence[Parameter], values: Mapping[str, Value]) -> list[str]:
    """Return what a case's id says of its parameters: those that do not have their default, but for sizes."""
    named = [item for item in known if item.kind != "sizes" and item.name in values]
    told = [item for item in named if values[item.name] != item.default]
    return [f"{item.name}={item.shown(values[item.name])}" for item in told]


def _id(case: Case, hosts: HostSet, lab: Lab, told: Sequence[str], *, chosen: str | None) -> str:
    first = hosts.names == tuple(host.name for host in lab.hosts[: hosts.wanted])
    place = f"{hosts.wanted}x{case.slots}" + ("" if first or not hosts.names else f"@{'+'.join(hosts.names)}")
    launcher = [case.launcher] if chosen == case.launcher else []
    named = [case.workload, case.backend, *launcher, *(["container"] if case.container else []), place, *told]
    wanted = "-".join(named)
    safe = re.sub(r"[^A-Za-z0-9._=@+-]", "_", wanted)[:_LONGEST_ID]
    return safe if safe == wanted else f"{safe}-{_hash(wanted)}"


def _identity(case: Case) -> str:
    return _hash(asdict(replace(case, id="")))


def _reason(case: Case, hosts: HostSet, lab: Lab) -> str | None:
    if hosts.wanted > len(case.hosts):
        return f"{hosts.wanted} hosts asked for, the lab has {len(lab.hosts)}"
    machines = [lab.host(name) for name in case.hosts]
    full = [f"{host.name} has {host.slots}" for host in machines if host.slots < case.slots]
    if full:
        return f"{case.slots} slots asked for, {', '.join(full)} (lab_slots)"
    if case.launcher not in backends.BACKENDS[case.backend].launchers:
        return f"{case.launcher} cannot start {case.backend} ranks"
    if backends.lacking(case.backend, machines, case.framework):
        return backends.lacking(case.backend, lab.hosts, case.framework)
    return limits.reason(case, WORKLOADS[case.workload].carried, machines)


def _hash(value: object, length: int = 8) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:length]


def _tuples(value: Any) -> Any:
    """Return a copy in which what JSON made lists of are tuples."""
    if isinstance(value, dict):
        return {name: _tuples(inner) for name, inner in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
