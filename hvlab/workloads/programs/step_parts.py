"""Divides steps of a training into compute, communication, data and the host's own time, by torch's profiler.

Loaded in the process that trains: observer.py calls ``watch`` when torch's optimizers are loaded. After some
steps as they are, ``PROFILED`` ones are recorded; ``report`` then gets seconds per step:

    {"steps", "wall", "compute", "exposed": communication that hides behind no compute, "data": waiting for
     the DataLoader, "host": none of these, "overhead": how many times as long as an unrecorded step}

Needs Python 3.8+ and torch 2.0 or later.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import statistics
import time
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

SKIPPED, PLAIN, PROFILED = 3, 5, 20
# With fewer, nothing is said.
LEAST = 3
WAIT = "hvlab::wait"
DATA = "enumerate(DataLoader)"
COLLECTIVES = ("gloo:", "mpi:", "nccl:", "ncclDevKernel", "ncclKernel", WAIT)

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
        name = event.name
        if span[0] >= span[1]:
            continue
        if name.startswith(COLLECTIVES):
            collectives.append(span)
        elif name.startswith(DATA):
            data.append(span)
        elif str(event.device_type).endswith("CUDA"):
            kernels.append(span)
        elif name.startswith("aten::"):
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


class StepWatch:
    """Counts the optimizer's steps, and records some of them."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.depth = 0
        self.ends: List[float] = []
        self.profile: Any = None

    def before(self, *_: Any) -> None:
        """A step begins: Horovod's optimizer calls torch's."""
        self.depth += 1

    def after(self, *_: Any) -> None:
        """A step has ended."""
        self.depth -= 1
        if self.depth:
            return
        self.ends.append(time.perf_counter())
        if len(self.ends) == SKIPPED + PLAIN:
            self.start()
        elif len(self.ends) == SKIPPED + PLAIN + PROFILED:
            self.stop()

    def start(self) -> None:
        """Begin to record."""
        import torch  # noqa: PLC0415

        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        self.profile = torch.profiler.profile(activities=activities)
        self.profile.start()
        self.mark("hvlab::first")
        atexit.register(self.stop)

    def mark(self, name: str) -> None:
        """Record a moment."""
        import torch  # noqa: PLC0415

        with torch.profiler.record_function(name):
            pass

    def stop(self) -> None:
        """Stop recording, and report."""
        profile, self.profile = self.profile, None
        steps = len(self.ends) - SKIPPED - PLAIN
        if profile is None:
            return
        self.mark("hvlab::last")
        profile.stop()
        if steps < LEAST:
            return
        events = profile.events()
        first, last = (
            next(event.time_range.start for event in events if event.name == name)
            for name in ("hvlab::first", "hvlab::last")
        )
        parts = divide(events, (first, last))
        steps_s = [after - before for before, after in zip(self.ends, self.ends[1:])]
        plain = statistics.median(steps_s[SKIPPED - 1 : SKIPPED + PLAIN - 1])
        # The first step of each kind may still compile or allocate.
        overhead = statistics.median(steps_s[SKIPPED + PLAIN - 1 :]) / plain
        seconds = {name: value / 1e6 / steps for name, value in parts.items()}
        self.report({"steps": steps, **seconds, "overhead": overhead})


def watch(module: Any, report: Report) -> None:
    """Watch the steps of all optimizers; ``module`` is torch.optim.optimizer."""
    steps = StepWatch(report)
    module.register_optimizer_step_pre_hook(steps.before)
    module.register_optimizer_step_post_hook(steps.after)


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
