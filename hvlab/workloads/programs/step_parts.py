"""Divides steps of a training into compute, communication, data and the host's own time, by torch's profiler.

Loaded in the process that trains: observer.py calls ``watch`` when torch's optimizers are loaded. After some
steps as they are, ``PROFILED`` ones are recorded; after as many more, or at the end, ``report`` gets seconds
per step:

    {"steps", "wall", "compute", "exposed": communication that hides behind no compute, "data": waiting for
     the DataLoader, "host": none of these, "overhead": how many times as long as an unrecorded step}

or {"steps", "missing": why nothing was recorded}. Needs Python 3.8+ and torch 2.0 or later.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import re
import time
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple

SKIPPED, PLAIN, PROFILED = 3, 5, 20
# With fewer, nothing is said.
LEAST = 3
LEAST_OF_ALL = SKIPPED + PLAIN + LEAST
STEP, WAIT = "hvlab::step", "hvlab::wait"
DATA = "enumerate(DataLoader)"
COLLECTIVES = ("gloo:", "mpi:", "nccl:", "ncclDevKernel", "ncclKernel", WAIT)
# Operations, torch's and others', and what torch.compile made of them.
OPERATION = re.compile(r"(?!autograd|_?c10d|hvlab|profiler)\w+::|## Call CompiledFxGraph")
# torch's RecordScope::USER_SCOPE: record_function of scripts.
USER = 7

Spans = List[Tuple[float, float]]
Report = Callable[[Dict[str, Any]], None]


def union(spans: Iterable[Tuple[float, float]]) -> Spans:
    """Return spans without overlaps, in order."""
    joined: Spans = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def without(spans: Spans, others: Spans) -> Spans:
    """Return the parts of ``spans`` that no other span covers; both are unions."""
    left: Spans = []
    at = 0
    for start, end in spans:
        while at < len(others) and others[at][1] <= start:
            at += 1
        here, begin = at, start
        while here < len(others) and others[here][0] < end:
            if others[here][0] > begin:
                left.append((begin, others[here][0]))
            begin = max(begin, others[here][1])
            here += 1
        if begin < end:
            left.append((begin, end))
    return left


def length(spans: Spans) -> float:
    """Return the sum of the spans' lengths."""
    return sum(end - start for start, end in spans)


def divide(events: Iterable[Any], wall: Tuple[float, float]) -> Dict[str, float]:
    """Return the parts of the time between two moments, each moment in one part; in the events' unit.

    Where a GPU works, its kernels are the compute; else the operations of the CPU, except in the DataLoader.
    """
    data, compute, collectives, kernels = [], [], [], []
    for event in events:
        span = (max(wall[0], event.time_range.start), min(wall[1], event.time_range.end))
        name, on_gpu = event.name, str(event.device_type).endswith("CUDA")
        # An annotation of the CPU is repeated around the kernels that it started, and the gaps between them.
        if span[0] >= span[1] or (on_gpu and getattr(event, "is_user_annotation", False)):
            continue
        if name.startswith(COLLECTIVES):
            collectives.append(span)
        elif name.startswith(DATA):
            data.append(span)
        elif on_gpu:
            kernels.append(span)
        elif event.scope != USER and OPERATION.match(name):
            compute.append(span)
    loading, working, moving = union(data), union(kernels or compute), union(collectives)
    if kernels:
        loading = without(without(loading, working), moving)
    else:
        working = without(working, loading)
        moving = without(moving, loading)
    parts = {
        "compute": length(working),
        "exposed": length(without(moving, working)),
        "data": length(loading),
    }
    whole = wall[1] - wall[0]
    return {"wall": whole, **parts, "host": max(0.0, whole - sum(parts.values()))}


def quick(values: Sequence[float]) -> float:
    """Return the lower quartile: steps that wait for nothing are alike, recorded or not."""
    return sorted(values)[len(values) // 4]


class StepWatch:
    """Counts the optimizer's steps, and records some of them."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.process = 0
        self.depth = 0
        self.stepped: Set[int] = set()
        self.plain: List[float] = []
        self.recorded: List[float] = []
        self.steps, self.last = 0, 0.0
        self.profile: Any = None
        self.parts: Dict[str, Any] = {}
        self.missing = ""
        self.is_reported = False

    def before(self, *_: Any) -> None:
        """A step begins: Horovod's optimizer calls torch's."""
        self.depth += 1

    def after(self, optimizer: Any, *_: Any) -> None:
        """A step has ended; with several optimizers, the first of them ends it."""
        self.depth -= 1
        if self.depth or self.is_reported:
            return
        if self.stepped and id(optimizer) not in self.stepped:
            self.stepped.add(id(optimizer))
            return
        self.stepped = {id(optimizer)}
        with self.unharmed():
            self.count()

    @contextlib.contextmanager
    def unharmed(self) -> Iterator[None]:
        """Let no failure to record end the training."""
        try:
            yield
        except Exception as error:
            self.profile, self.missing = None, "recording failed: {!r}".format(error)

    def count(self) -> None:
        """Note the step that ended, and start or stop recording."""
        import torch  # noqa: PLC0415

        now = time.perf_counter()
        self.steps += 1
        if self.steps == 1:
            self.process = os.getpid()
        if self.profile:
            self.recorded.append(now - self.last)
            self.mark()
            if len(self.recorded) == PROFILED:
                self.stop()
        elif self.steps > SKIPPED and not torch.autograd._profiler_enabled():
            self.plain.append(now - self.last)
            if len(self.plain) == PLAIN:
                self.start()
            elif len(self.plain) == PLAIN + PROFILED:
                self.finish()
        # What was done here belongs to no step.
        self.last = time.perf_counter()

    def start(self) -> None:
        """Begin to record."""
        import torch  # noqa: PLC0415

        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        profile = torch.profiler.profile(activities=activities)
        profile.start()
        self.profile = profile
        self.mark()
        self.yield_to(torch.autograd.profiler.profile)

    def yield_to(self, profiler: Any) -> None:
        """Stop as soon as the script makes a profiler of its own: torch has one at a time."""
        plain = profiler.__init__

        @functools.wraps(plain)
        def made(*args: Any, **more: Any) -> None:
            with self.unharmed():
                self.stop()
            plain(*args, **more)

        profiler.__init__ = made

    def mark(self) -> None:
        """Record a moment."""
        import torch  # noqa: PLC0415

        with torch.profiler.record_function(STEP):
            pass

    def stop(self) -> None:
        """Stop recording, and divide the steps."""
        profile, self.profile = self.profile, None
        if profile is None:
            return
        profile.stop()
        if len(self.recorded) < LEAST:
            return
        events = profile.events()
        ends = [event.time_range.start for event in events if event.name == STEP]
        parts = divide(events, (min(ends), max(ends)))
        self.parts = {name: value / 1e6 / len(self.recorded) for name, value in parts.items()}

    def finish(self) -> None:
        """Report, once."""
        if self.is_reported or not self.steps or os.getpid() != self.process:
            return
        with self.unharmed():
            self.stop()
        self.is_reported = True
        if not self.parts:
            few = "its optimizer made {} steps, and must make {}".format(self.steps, LEAST_OF_ALL)
            own = "it uses torch's profiler itself; run it without that"
            missing = self.missing or (few if self.steps < LEAST_OF_ALL else own)
            self.report({"steps": self.steps, "missing": missing})
            return
        wall = self.parts["wall"]
        added = max(0.0, quick(self.recorded) - quick(self.plain))
        self.report({"steps": len(self.recorded), **self.parts, "overhead": wall / max(wall - added, 1e-9)})


def watch(module: Any, report: Report) -> None:
    """Watch the steps of all optimizers; ``module`` is torch.optim.optimizer."""
    steps = StepWatch(report)
    module.register_optimizer_step_pre_hook(steps.before)
    module.register_optimizer_step_post_hook(steps.after)
    atexit.register(steps.finish)
    leave = os._exit

    def leave_reported(status: int) -> None:
        try:
            steps.finish()
        finally:
            leave(status)

    os._exit = leave_reported  # type: ignore[assignment]


def time_waits(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of Horovod that waits for a collective, with its time recorded."""
    record: Optional[Any] = None

    @functools.wraps(function)
    def wait(*args: Any, **more: Any) -> Any:
        nonlocal record
        if record is None:
            import torch  # noqa: PLC0415

            record = torch.profiler.record_function
        with contextlib.ExitStack() as stack:
            stack.enter_context(record(WAIT))
            return function(*args, **more)

    return wait
