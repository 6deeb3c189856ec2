"""What a report calls configurations: workloads, backends, numbers of servers and ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hvlab.lab.backends import BACKENDS, DDP_BACKENDS, PARALLEL, SERIAL
from hvlab.report.blocks import Code, Say, Several, Value
from hvlab.results.configurations import Configuration, Param

Params = tuple[tuple[str, Param], ...]
# What a person calls a training by.
_NAMING = ("model", "data", "command")
_NAMED = 12


def backend(name: str) -> Value:
    """Return a backend as the lab sheet writes it; ``name`` may be a plane."""
    plain, _, launcher = name.partition("/")
    shown = (
        Say("backend.serial") if plain == SERIAL else BACKENDS[plain].title if plain in BACKENDS else plain
    )
    return Several((shown, launcher)) if launcher else shown


def plane(configuration: Configuration) -> str:
    """Return a configuration's backend, and its launcher where that is not the usual one."""
    known = BACKENDS.get(configuration.backend)
    unusual = known is not None and configuration.launcher in known.launchers[1:]
    return f"{configuration.backend}/{configuration.launcher}" if unusual else configuration.backend


def tone(name: str) -> str:
    """Return what names the colour of a backend or plane."""
    return name.partition("/")[0]


def variant(configuration: Configuration) -> Value:
    """Return a backend, with its launcher where that is unusual, and how gradients were compressed."""
    compression = configuration.get("compression") or "none"
    return Several((backend(plane(configuration)), *([str(compression)] if compression != "none" else [])))


def backends(names: Iterable[str]) -> Value:
    """Return several backends."""
    return Several(tuple(backend(name) for name in dict.fromkeys(names)))


def order(name: str) -> tuple[int, str]:
    """Return a key that sorts backends as the lab sheet does: MPI, Gloo, NCCL, oneCCL."""
    known = (SERIAL, *PARALLEL, *DDP_BACKENDS)
    name, _, launcher = name.partition("/")
    return (known.index(name) if name in known else len(known), f"{name}/{launcher}")


def hosts(names: Sequence[str]) -> Value:
    """Return the names of hosts; of many only the first."""
    shown: list[Value] = [*names[:_NAMED]]
    more = len(names) - len(shown)
    return Several((*shown, Say("failures.more", {"count": more})) if more else tuple(shown))


def layout(hosts: int, slots: int) -> Say:
    """Return a number of servers and of ranks on each in words."""
    if not slots:
        return Say("layout.unknown")
    kind = ("one" if slots == 1 else "inside") if hosts == 1 else "across" if slots == 1 else "both"
    return Say(f"layout.{kind}", {"hosts": hosts, "slots": slots})


def short(hosts: int, slots: int) -> Say:
    """Return a number of servers and of ranks on each in figures."""
    return Say("layout.short", {"hosts": hosts, "slots": slots}) if slots else Say("layout.unknown")


def topology(name: str, slots: int = 1) -> Say:
    """Return inside one server or across servers, with the number of ranks on each where it is several."""
    return Say("topology.slots", {"slots": slots}) if slots > 1 else Say(f"topology.{name}")


def place(name: str, kind: str, slots: int = 1) -> Value:
    """Return where ranks are, see `topology`, and that scaling is strong where it is."""
    where = topology(name, slots)
    return Several((where, scaling("strong"))) if kind == "strong" else where


def scaling(kind: str) -> Say:
    """Return weak or strong."""
    return Say(f"scaling.{kind}")


def study(name: Value, kind: str) -> Value:
    """Return a workload's name with weak or strong, where that is known."""
    return Say("scaling.study", {"name": name, "scaling": scaling(kind)}) if kind else name


class Labels:
    """Names of groups of configurations: the workload, and the parameters that differ between groups."""

    def __init__(self, groups: Iterable[tuple[str, Params]]) -> None:
        values_by_name: dict[str, dict[str, set[Param]]] = {}
        counted: dict[str, dict[str, int]] = {}
        total: dict[str, int] = {}
        for workload, params in set(groups):
            total[workload] = total.get(workload, 0) + 1
            for name, value in params:
                values_by_name.setdefault(workload, {}).setdefault(name, set()).add(value)
                row = counted.setdefault(workload, {})
                row[name] = row.get(name, 0) + 1
        # A parameter that only some groups have sets them apart as well.
        self._telling = {
            workload: {
                name
                for name, values in names.items()
                if len(values) > 1 or counted[workload][name] < total[workload]
            }
            for workload, names in values_by_name.items()
        }

    def name(self, workload: str, params: Params) -> Value:
        """Return the name of a group."""
        given: Mapping[str, Param] = dict(params)
        named = next((str(given[name]) for name in _NAMING if given.get(name)), None)
        if given.get("unit"):
            named = f"{named} ({given['unit']})"
        telling = self._telling.get(workload, set()) - {*_NAMING, "unit"}
        more: list[Value] = [Code(f"{name}={given[name]}") for name in given if name in telling]
        title = Say("label.named", {"workload": workload, "name": named}) if named else workload
        return Several((title, *more)) if more else title
