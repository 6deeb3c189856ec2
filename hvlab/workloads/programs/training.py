"""A training on all ranks, whatever its framework: its schedule, its clock and its checks.

A step is a batch's forward and backward pass, the exchange of gradients and the update; no step is dropped.
The learning rate grows with the global batch, is reached over the first tenth of the steps (Goyal et al.
2017, arXiv:1706.02677), and falls to nothing from there on. Needs Python 3.8+.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import resource
import statistics
import time
from typing import Any, Callable, Container, Iterable, Sequence

import world as ranks_of
from ranks import Alone

WARM_UP = 0.1
COMPUTE_STEPS = 5
COMPUTE_WARM_UP = 1


def parser(description: str | None, compressions: Sequence[str], framework: str) -> argparse.ArgumentParser:
    """Return a parser of the options common to all trainings."""
    parser = ranks_of.parser(description)
    parser.add_argument("--data", default="synthetic", help="synthetic, or a folder of four IDX files")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.05, help="for one rank's batch")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--compression", choices=compressions, default="none")
    parser.add_argument("--scaling", choices=("weak", "strong"), default="weak")
    parser.add_argument("--framework", choices=(framework,), default=framework)
    return parser


def check_options(
    parser: argparse.ArgumentParser, known: Container[str], argv: Sequence[str] | None
) -> argparse.Namespace:
    """Return the options; end the program if they make no sense, or the workload is not ``known``."""
    options = parser.parse_args(argv)
    if options.workload not in known:
        parser.error("no training with {}: {}".format(options.framework, options.workload))
    if options.serial and options.compression != "none":
        parser.error("one process alone sends no gradients to compress")
    return options


class Run:
    """One training, and its measurements. Subclasses do the work of their framework.

    ``task`` has the number of ``epochs`` and their ``steps``, the ranks' ``shares`` of a ``batch``, the
    learning ``rate`` of one rank's batch, and whether it follows a schedule (``learns``).
    """

    def __init__(self, task: Any) -> None:
        self.task, self.world = task, task.world
        self.peak = task.rate * (task.batch / task.options.batch if task.learns else 1)
        self.times: list[float] = []
        self.losses: list[float] = []
        self.epochs: list[dict[str, float | None]] = []
        self.usage: list[float] = []
        self.training_s = 0.0
        self.first_step_at = 0.0
        self.real_s = 0.0

    def step(self, inputs: Any, targets: Any) -> float:
        raise NotImplementedError

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next step."""
        raise NotImplementedError

    def weights(self) -> Iterable[bytes]:
        raise NotImplementedError

    def train(self) -> None:
        self.first_step_at = time.time()
        for epoch in range(self.task.epochs):
            self.world.barrier()
            started = time.perf_counter()
            self.go_through(epoch, started)
            self.training_s += time.perf_counter() - started
            losses = self.world.total([sum(self.losses[-self.task.steps :]) * self.task.share], "loss")
            mean = losses[0] / self.task.steps / self.task.batch
            self.epochs.append({"loss": finite(mean), "accuracy": self.task.accuracy()})
        used = resource.getrusage(resource.RUSAGE_SELF)
        self.usage = self.world.total([used.ru_utime, used.ru_stime], "usage")
        self.real_s = max(self.world.gather(age(), "age"))

    def go_through(self, epoch: int, last: float) -> None:
        """Make one epoch's steps; each is timed from the end of the one before it, ``last`` at first."""
        for inputs, targets in self.task.batches(epoch):
            if self.task.learns:
                self.set_rate(self.rate_at(len(self.times) / (self.task.epochs * self.task.steps)))
            self.losses.append(self.step(inputs, targets))
            now = time.perf_counter()
            self.times.append(now - last)
            last = now

    def rate_at(self, done: float) -> float:
        """Return the learning rate after a share of all steps."""
        low = min(self.peak, self.task.rate)
        return float((low + (self.peak - low) * min(1.0, done / WARM_UP)) * (1 - done))

    def results(self) -> dict[str, Any]:
        everyone = self.world.gather(self.times, "times")
        task = self.task
        return {
            "data": task.data,
            "batch": {"per_rank": max(task.shares), "global": task.batch},
            "steps": {
                "mean_s": [sum(column) / len(column) for column in zip(*everyone)],
                "max_s": [max(column) for column in zip(*everyone)],
                "samples": [task.batch] * len(self.times),
            },
            "epochs": self.epochs,
            "accuracy": self.epochs[-1]["accuracy"],
            "loss": self.epochs[-1]["loss"],
            "times": {
                "training_s": self.training_s,
                "first_step_at": self.first_step_at,
                "real_s": self.real_s,
                "user_s": self.usage[0],
                "sys_s": self.usage[1],
            },
        }

    def checks(self) -> list[str]:
        """Return the evidence that this was not one training of all ranks, the same on every rank."""
        faults = []
        task = self.task
        weights = self.world.gather(fingerprint(self.weights()), "weights")
        strange = [rank for rank, digest in enumerate(weights) if digest != weights[0]]
        if strange:
            faults.append("weights: those of the ranks {} are not those of rank 0".format(strange))
        lost = [number for number, epoch in enumerate(self.epochs) if epoch["loss"] is None]
        if lost:
            faults.append("loss: not finite in epoch {}".format(lost[0] + 1))
        steps = task.epochs * task.steps
        counted = self.world.total([len(self.times) * task.share, *task.used], "samples")
        expected = [steps * task.batch, *task.expected]
        if counted != expected:
            faults.append(
                "samples: {} were used, or others, not {} once an epoch".format(counted[0], expected[0])
            )
        return faults


def make_ready(make: Callable[[], Any], world: Alone, checks: list[str]) -> Any:
    """Call ``make``; if it fails on some rank, every rank notes the reason, and gets None."""
    instance = failure = None
    try:
        instance = make()
    except (OSError, ValueError) as error:
        failure = str(error)
    checks += sorted({text for text in world.gather(failure, "trouble") if text})
    return None if checks else instance


def compute_alone(step: Callable[[], Any], world: Alone, result: dict[str, Any]) -> dict[str, Any]:
    """Return each host's median seconds of a step without communication, all ranks at work at once."""
    device, hosts = result["device"], [host for _, _, host, _ in result["world"]["placement"]]
    every = [ranks_of.time_operation(step, world, device) for _ in range(COMPUTE_WARM_UP + COMPUTE_STEPS)]
    by_host: dict[str, list[float]] = {}
    for host, times in zip(hosts, world.gather(every[COMPUTE_WARM_UP:], "compute")):
        by_host.setdefault(host, []).extend(times)
    return {"by_host_s": {host: statistics.median(times) for host, times in by_host.items()}}


def age() -> float:
    """Return the seconds since this process started (proc(5), field 22 of stat)."""
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def fingerprint(weights: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in weights:
        digest.update(part)
    return digest.hexdigest()
