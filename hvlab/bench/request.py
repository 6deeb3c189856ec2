"""The request to ``hvlab bench``: its options as one frozen object, and the specification of it on a lab."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from hvlab.base.errors import UsageError, explain_unknown
from hvlab.bench import settings, sides, suite
from hvlab.bench.matrix import Spec
from hvlab.bench.resume import against
from hvlab.lab.backends import BACKENDS, LIBRARIES, PARALLEL, of_framework
from hvlab.lab.inventory import Lab
from hvlab.lab.variants import available, choose
from hvlab.results.store import Store
from hvlab.statistics.looks import LOOKS
from hvlab.workloads import WORKLOADS
from hvlab.workloads.command import COMMAND, check_pattern
from hvlab.workloads.launchers import srun

AUTO = 0


@dataclass(frozen=True)
class BenchRequest:
    """A request to measure; None, empty or False stands for what the user left open.

    ``workload``, ``backend`` and ``library`` are names separated by commas, ``hosts`` and ``slots`` counts
    or words. ``short`` holds values by parameter, ``sets`` texts NAME=VALUE. ``ab`` is two texts of
    settings, ``against`` a run. ``words``, ``copy``, ``pattern``, ``unit``
    and ``explain`` are a training of the user's.
    ``repeats`` is a number, or ``AUTO``. ``timeout`` limits a case, ``time_limit`` a run and ``queue_limit``
    the wait for Slurm, in seconds (0: no limit).
    """

    workload: str | None = None
    backend: str | None = None
    library: str | None = None
    suite: str | None = None
    hosts: str | None = None
    slots: str | None = None
    ab: tuple[str, str] | None = None
    against: str | None = None
    settings: Path | None = None
    sets: tuple[str, ...] = ()
    short: Mapping[str, str] = field(default_factory=dict)
    no_cuda: bool = False
    words: tuple[str, ...] = ()
    copy: tuple[str, ...] = ()
    pattern: str | None = None
    unit: str | None = None
    explain: bool = False
    repeats: int | None = None
    time_limit: int = 0
    timeout: int | None = None
    queue_limit: int = 0
    launcher: str | None = None
    container: str | None = None
    ssh_port: int = Spec.ssh_port
    container_options: tuple[str, ...] = ()


def one_configuration(request: BenchRequest, lab: Lab) -> BenchRequest:
    """Return a request for one configuration: by default on all hosts, with GPUs if any."""
    usable = available(lab.hosts) or PARALLEL
    return replace(
        request,
        backend=request.backend or min(usable, key=lambda name: not BACKENDS[name].gpu),
        hosts=request.hosts or str(len(lab.hosts)),
        repeats=1,
    )


def specify(request: BenchRequest, lab: Lab, store: Store) -> Spec:
    """Return the specification of a request: one side, or two measured in turn. Raises UsageError."""
    spec = _against(request, lab, store) if request.against else _spec(request, lab)
    if request.time_limit and not spec.auto:
        raise UsageError("--time-limit is for --repeats auto", remedy="write --repeats auto")
    if request.ab:
        texts = dict(zip((sides.A, sides.B), map(sides.read, request.ab), strict=True))
        asked = spec.asked or any("backend" in settings for settings in texts.values())
        blocks = sides.with_sides(spec.blocks, texts, lab)
        spec = replace(spec, blocks=blocks, sides=sides.values(texts, spec.blocks), asked=asked)
    _check_launchers(spec, lab)
    _check_text(spec)
    return spec


def _check_launchers(spec: Spec, lab: Lab) -> None:
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


def _check_text(spec: Spec) -> None:
    """Raise UsageError for bytes that are no UTF-8: the program would run, but no report could name it."""
    text = json.dumps(asdict(spec), ensure_ascii=False)
    if odd := re.search('[^"]{0,40}[\ud800-\udfff]', text):
        shown = odd[0].encode("utf-8", "backslashreplace").decode()
        raise UsageError(
            f"this is not UTF-8: {shown}",
            remedy="give the file another name, or put that value into a script of your own",
        )


def _against(request: BenchRequest, lab: Lab, store: Store) -> Spec:
    changes = {name: str(value) for name, value in _sets(request).items()}
    for name, value in (("backend", request.backend), ("launcher", request.launcher)):
        changes |= {name: value.lower()} if value else {}
    spec = against(store, str(request.against), changes, lab)
    return replace(
        spec,
        time_limit=request.time_limit,
        queue_limit=request.queue_limit,
        **_repeats(request.repeats or AUTO),
    )


def _spec(request: BenchRequest, lab: Lab) -> Spec:
    named = _backends(
        _names(request.backend, "--backend", BACKENDS), _names(request.library, "--library", LIBRARIES), lab
    )
    workloads = _names(request.workload, "--workload", WORKLOADS)
    if request.words and not workloads and not request.suite:
        workloads = (COMMAND.name,)
    ours = _command(request, workloads)
    overrides = suite.Overrides(
        workloads=workloads,
        backends=tuple(choose(named, lab)) if named else None,
        hosts=request.hosts,
        slots=request.slots,
        sets=_sets(request) | ours,
    )
    chosen = suite.load(request.suite) if request.suite else suite.build_plain(overrides, lab)
    launcher = request.launcher
    if lab.step or (lab.slurm and not request.container):
        launcher = launcher or srun.NAME
    usual = AUTO if request.ab else 1 if chosen.repeats is None else chosen.repeats
    repeats = usual if request.repeats is None else request.repeats
    return Spec(
        blocks=suite.blocks(chosen, lab, overrides),
        **_repeats(repeats),
        time_limit=request.time_limit,
        queue_limit=request.queue_limit,
        timeout=request.timeout or chosen.timeout or Spec.timeout,
        suite=chosen.name,
        asked=bool(named),
        launcher=launcher,
        container=request.container,
        ssh_port=request.ssh_port,
        container_options=request.container_options,
    )


def _repeats(number: int) -> dict[str, Any]:
    return {"auto": number == AUTO, "repeats": number or LOOKS[-1].repeats}


def _names(text: str | None, option: str, known: Iterable[str]) -> tuple[str, ...] | None:
    if text is None:
        return None
    named = [name.strip().lower() for name in text.split(",") if name.strip()]
    if not named:
        raise UsageError(f"{option} is empty", remedy=f"choose from {', '.join(known)}")
    return tuple(dict.fromkeys(named))


def _sets(request: BenchRequest) -> dict[str, object]:
    parameters: dict[str, object] = {}
    if request.settings:
        parameters |= settings.load(request.settings).parameters
    parameters |= request.short
    for text in request.sets:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--set {text}: no value", remedy=f"write --set {name}=VALUE")
        parameters[name.strip().replace("-", "_")] = value
    return parameters | ({"device": "cpu"} if request.no_cuda else {})


_WRITE = f"`hvlab bench --workload {COMMAND.name} -- python train.py`"


def _backends(
    named: tuple[str, ...] | None, libraries: tuple[str, ...] | None, lab: Lab
) -> tuple[str, ...] | None:
    """Return the backends that were ``named``, or their like in ``libraries``; None for the default.

    Where none was named, they are those that the lab can run. Raises UsageError.
    """
    if libraries is None:
        return named
    for name in libraries:
        if name not in LIBRARIES:
            raise explain_unknown("library", name, LIBRARIES)
    planes = [name for name in named or available(lab.hosts) if name in BACKENDS]
    if not named and len(libraries) > 1:
        # They are compared over the data planes that all of them have: on GPUs, those of GPUs.
        shared = [name for name in planes if all(_packaged(name, library) for library in libraries)]
        planes = [name for name in shared if BACKENDS[name].gpu] or shared or planes
    pairs = [(name, of_framework(name, library)) for library in libraries for name in planes]
    without = [name for name, other in pairs if not other]
    if named and without:
        raise UsageError(
            f"--library {','.join(libraries)}: torch has nothing like {', '.join(dict.fromkeys(without))}",
            remedy="leave it out of --backend",
        )
    chosen = [other for _, other in pairs if other and (named or BACKENDS[other].wheel)]
    return tuple(dict.fromkeys([*chosen, *(name for name in named or () if name not in BACKENDS)]))


def _packaged(name: str, library: str) -> bool:
    other = of_framework(name, library)
    return other is not None and BACKENDS[other].wheel


def _command(request: BenchRequest, workloads: tuple[str, ...] | None) -> dict[str, object]:
    words, copy = request.words, request.copy
    named = {"pattern": request.pattern, "unit": request.unit, "explain": request.explain}
    given = {name: value for name, value in named.items() if value}
    if COMMAND.name not in (workloads or ()):
        if words or given or copy:
            what = "a command" if words else "--copy, --pattern, --unit or --explain"
            raise UsageError(f"{what} belongs to --workload {COMMAND.name}", remedy=f"write {_WRITE}")
        return {}
    if not words:
        raise UsageError(f"--workload {COMMAND.name} has no command", remedy=f"write it at the end: {_WRITE}")
    # It loads slowly, and most benches need none of it.
    from hvlab.workloads.datasets import own_files  # noqa: PLC0415

    check_pattern(request.pattern)
    copied = own_files.format_chosen(words, copy, Path.cwd())
    return {"command": shlex.join(words), "copy": copied, **given}
