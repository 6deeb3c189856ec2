"""What the options of ``hvlab bench`` ask for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any, TypeVar

import click

from hvlab.base.errors import UsageError
from hvlab.bench import settings, sides, suite
from hvlab.bench.against import against
from hvlab.bench.matrix import Spec
from hvlab.cli import bench_own, candidates
from hvlab.lab.backends import BACKENDS, FRAMEWORKS, PARALLEL
from hvlab.lab.inventory import Lab
from hvlab.lab.variants import available, choose
from hvlab.results.store import Store
from hvlab.statistics.looks import LOOKS
from hvlab.workloads import WORKLOADS
from hvlab.workloads.launchers import srun

F = TypeVar("F", bound=Callable[..., Any])
_LAUNCHERS = sorted({name for backend in BACKENDS.values() for name in backend.launchers})
SHORT = ("sizes", "iterations", "dtype", "op", "batch", "compression", "data")


class RepeatsType(click.ParamType[int]):
    """A number of repeats, or auto, which is 0."""

    name = "repeats"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        if value == suite.AUTO:
            return 0
        return int(click.IntRange(1, suite.MOST_REPEATS).convert(value, param, ctx))


class TimeType(click.ParamType[int]):
    """A time such as 90s, 20m or 2h, in seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the seconds."""
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"([1-9]\d*)([smh]?)", str(value).strip())
        if match is None:
            self.fail(f"{value} is no time such as 90s, 20m or 2h", param, ctx)
        return int(match[1]) * {"s": 1, "": 1, "m": 60, "h": 3600}[match[2]]


_ONE = (
    click.option("--hosts", type=click.IntRange(1), help="Number of hosts. Default: all."),
    click.option(
        "--slots", type=click.IntRange(1), default=1, show_default=True, help="Number of ranks per host."
    ),
    click.option(
        "--workload",
        shell_complete=candidates.words(WORKLOADS),
        help="What to measure. Default: allreduce.",
    ),
    click.option(
        "--backend",
        type=click.Choice(list(BACKENDS)),
        help="What carries the data. Default: the first that can run, with GPUs before others.",
    ),
    click.option(
        "--set",
        "sets",
        multiple=True,
        metavar="NAME=VALUE",
        help="Set a parameter of the workload, as in bench.",
    ),
    click.option(
        "--copy",
        multiple=True,
        metavar="PATH",
        shell_complete=candidates.files,
        help="A file that COMMAND needs, as in bench.",
    ),
    click.option("--pattern", metavar="REGEX", help="The line with COMMAND's throughput, as in bench."),
    click.option(
        "--timeout",
        type=click.IntRange(1),
        default=900,
        show_default=True,
        help="Time limit of a case, in seconds.",
    ),
    click.option("--launcher", type=click.Choice(_LAUNCHERS), help="What starts the ranks, as in bench."),
)
# What one configuration is not asked.
_UNASKED: Mapping[str, Any] = {
    **dict.fromkeys(("against", "ab", "suite", "framework", "container", "settings", "unit")),
    **dict.fromkeys(SHORT),
    **{
        "ssh_port": 0,
        "container_options": (),
        "no_cuda": False,
        "repeats": 1,
        "time_limit": 0,
        "queue_limit": 0,
    },
}


def one_options(command: F) -> F:
    """Add the options that ask for one configuration; :func:`one` reads them."""
    for option in reversed(_ONE):
        command = option(command)
    return command


def one(lab: Lab, values: Mapping[str, Any], store: Store) -> Spec:
    """Return what the options of one configuration ask for; without a backend, over one of GPUs if any."""
    usable = available(lab.hosts) or PARALLEL
    backend = values["backend"] or min(usable, key=lambda name: not BACKENDS[name].gpu)
    chosen = {
        "backend": backend,
        "hosts": str(values["hosts"] or len(lab.hosts)),
        "slots": str(values["slots"]),
    }
    return requested(lab, {**_UNASKED, **values, **chosen}, {"repeats", "timeout"}, store)


def requested(lab: Lab, values: Mapping[str, Any], given: set[str], store: Store) -> Spec:
    """Return what the options ask for: one side, or two that are measured in turn. Raises UsageError."""
    spec = _asked(lab, values, given, store)
    launchers = {block.launcher or spec.launcher for block in spec.blocks}
    others = sorted(name or "other launchers" for name in launchers - {srun.NAME})
    if lab.step and others:
        raise UsageError(
            f"{', '.join(others)} cannot start ranks on the hosts of a Slurm job: --here has no ssh",
            remedy="leave the launcher out: with --here it is srun",
        )
    if spec.container and srun.NAME in launchers and others:
        raise UsageError(
            f"the containers of srun are pyxis's, those of {', '.join(others)} docker's: a run has one kind",
            remedy="compare launchers without --container",
        )
    _check_text(spec)
    return spec


def _check_text(spec: Spec) -> None:
    """Raise UsageError for bytes that are no UTF-8: the program would run, but no report could name it."""
    text = json.dumps(asdict(spec), ensure_ascii=False)
    if odd := re.search('[^"]{0,40}[\ud800-\udfff]', text):
        shown = odd[0].encode("utf-8", "backslashreplace").decode()
        raise UsageError(
            f"this is not UTF-8: {shown}",
            remedy="give the file another name, or put that value into a script of your own",
        )


def _asked(lab: Lab, values: Mapping[str, Any], given: set[str], store: Store) -> Spec:
    spec = _against(lab, values, given, store) if values["against"] else _spec(lab, values, given)
    if values["time_limit"] and not spec.auto:
        raise UsageError("--time-limit is for --repeats auto", remedy="write --repeats auto")
    if not values["ab"]:
        return spec
    texts = dict(zip((sides.A, sides.B), map(sides.read, values["ab"]), strict=True))
    asked = spec.asked or any("backend" in settings for settings in texts.values())
    blocks = sides.sided(spec.blocks, texts, lab)
    return replace(spec, blocks=blocks, sides=sides.values(texts, spec.blocks), asked=asked)


def _against(lab: Lab, values: Mapping[str, Any], given: set[str], store: Store) -> Spec:
    changes = {name: str(value) for name, value in _sets(values).items()}
    changes |= {name: values[name] for name in ("backend", "launcher") if values[name]}
    spec = against(store, values["against"], changes, lab)
    repeats = _repeats(values["repeats"] if "repeats" in given else 0)
    limits = {name: values[name] for name in ("time_limit", "queue_limit")}
    return replace(spec, **limits, **repeats)


def _repeats(number: int) -> dict[str, Any]:
    """Return the fields of a specification for so many repeats; 0: as many as its questions need."""
    return {"auto": not number, "repeats": number or LOOKS[-1].repeats}


def _spec(lab: Lab, values: Mapping[str, Any], given: set[str]) -> Spec:
    """Return what the options and the suite ask for."""
    named = bench_own.backends(
        _names(values["backend"], "--backend", BACKENDS),
        _names(values["framework"], "--framework", FRAMEWORKS),
        lab,
    )
    workloads = bench_own.workloads(values, _names(values["workload"], "--workload", WORKLOADS))
    overrides = suite.Overrides(
        workloads=workloads,
        backends=tuple(choose(named, lab)) if named else None,
        hosts=values["hosts"],
        slots=values["slots"],
        sets=_sets(values) | bench_own.command(values, workloads),
    )
    chosen = suite.load(values["suite"]) if values["suite"] else suite.plain(overrides, lab)
    kept = {name: values[name] for name in ("launcher", "container", "ssh_port", "container_options")}
    if lab.step or (lab.slurm and not kept["container"]):
        kept["launcher"] = kept["launcher"] or srun.NAME
    return Spec(
        blocks=suite.blocks(chosen, lab, overrides),
        **_repeats(_number_of_repeats(chosen, values, given)),
        time_limit=values["time_limit"],
        queue_limit=values["queue_limit"],
        timeout=values["timeout"] if "timeout" in given else chosen.timeout or values["timeout"],
        suite=chosen.name,
        asked=bool(named),
        **kept,
    )


def _number_of_repeats(chosen: suite.Suite, values: Mapping[str, Any], given: set[str]) -> int:
    """Return the repeats of the options, of two sides or of the suite; 0: auto."""
    if "repeats" in given:
        return int(values["repeats"])
    if values["ab"]:
        return 0
    return int(values["repeats"] if chosen.repeats is None else chosen.repeats)


def _names(text: str | None, option: str, known: Iterable[str]) -> tuple[str, ...] | None:
    if text is None:
        return None
    named = [name.strip() for name in text.split(",") if name.strip()]
    if not named:
        raise UsageError(f"{option} is empty", remedy=f"choose from {', '.join(known)}")
    return tuple(dict.fromkeys(named))


def _sets(values: Mapping[str, Any]) -> dict[str, object]:
    """Return what was set, by parameter."""
    parameters: dict[str, object] = {}
    if values["settings"]:
        parameters |= settings.load(values["settings"]).parameters
    parameters |= {name: values[name] for name in SHORT if values[name] is not None}
    for text in values["sets"]:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--set {text}: no value", remedy=f"write --set {name}=VALUE")
        parameters[name.strip().replace("-", "_")] = value
    return parameters | ({"device": "cpu"} if values["no_cuda"] else {})
