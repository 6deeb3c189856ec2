"""The trainings: their parameters, and their JSON result -> figures."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hvlab.base import answers
from hvlab.base.answers import AnswerError
from hvlab.statistics import interval
from hvlab.workloads import answered, samples
from hvlab.workloads.case import Case
from hvlab.workloads.metrics import TABLES
from hvlab.workloads.outcome import Figure, Outcome, Workload, figure, host_names, open_outcome
from hvlab.workloads.parameters import from_table
from hvlab.workloads.proof import collectives

_PROGRAM = "train.py"


def parse(case: Case, ended: Mapping[str, Any], folder: Path) -> Outcome:
    """Return the figures of a case, or why it does not count."""
    outcome, result = open_outcome(case, ended, folder, answered.TrainingResult)
    if outcome.error:
        return outcome
    error = _incomplete(case, result)
    if not error and result["times"]["first_step_at"] < outcome.started_at:
        error = f"{case.hosts[0]}: its clock was set back while the case ran: run it again"
    if error:
        return replace(outcome, error=error)
    return replace(outcome, figures=tuple(_figures(case, outcome, result)))


def losses(folder: Path) -> tuple[float, ...]:
    """Return the loss of each epoch in the files of a case, ``folder`` being its own."""
    try:
        result = answers.read(folder / "result.json", str(folder), answered.Trained)
    except (FileNotFoundError, AnswerError):
        return ()
    every = [epoch.get("loss") for epoch in result.get("epochs") or ()]
    return () if None in every else tuple(every)


def _incomplete(case: Case, result: Mapping[str, Any]) -> str | None:
    steps, epochs = len(result["steps"]["mean_s"]), len(result.get("epochs") or [])
    if not steps or steps != len(result["steps"]["samples"]):
        return f"{steps} steps were timed, {len(result['steps']['samples'])} counted"
    for name, count in (("steps", steps), ("epochs", epochs)):
        if name in case.params and case.params[name] != count:
            return f"asked for {case.params[name]} {name}, trained {count}"
    return None


def _figures(case: Case, outcome: Outcome, result: Mapping[str, Any]) -> Iterator[Figure]:
    yield from _summarise_steps(case, result)
    times, model, hosts = result["times"], result["model"], _by_host(case, result)
    values = {
        "accuracy": result.get("accuracy"),
        "loss": result.get("loss"),
        "real": outcome.seconds,
        "user": times.get("user_s"),
        "sys": times.get("sys_s"),
        "training_time": times.get("training_s"),
        "startup": times["first_step_at"] - outcome.started_at,
        # The ranks wait for the slowest host in every step.
        "compute_time": max(hosts.values(), default=None),
        "gradient_bytes": model.get("gradient_bytes"),
        "sent_bytes": result.get("sent_bytes"),
        "flops": model.get("flops_per_sample"),
        "memory": result.get("memory_bytes"),
        **{name: count for name, count in collectives(result).items() if count},
    }
    yield from (figure(metric, value) for metric, value in values.items() if value is not None)
    yield from (figure("host_compute_time", seconds, host=host) for host, seconds in hosts.items())


def _by_host(case: Case, result: Mapping[str, Any]) -> dict[str, float]:
    """Return the computing seconds of each host under the inventory's name, which the host might not know."""
    names = host_names(case, result)
    return {names.get(node, node): seconds for node, seconds in result["compute"]["by_host_s"].items()}


def _summarise_steps(case: Case, result: Mapping[str, Any]) -> Iterator[Figure]:
    """Return the figures of the steps after the warm-up; throughput is all samples over all time."""
    steps, flops = result["steps"], result["model"].get("flops_per_sample")
    peak = TABLES["peaks"].get(result.get("gpu")) if case.params.get("precision") == "bfloat16" else None
    timed = samples.of_steps(steps)
    throughput = sum(steps["samples"][timed.warmup :]) / sum(timed.times)
    median = interval.median(timed.times)
    values = {
        "step_time": statistics.fmean(timed.times),
        "step_time_median": median.mid,
        "step_time_low": median.low,
        "step_time_high": median.high,
        **timed.percentiles(),
        "step_time_min": min(timed.times),
        "step_time_max": max(timed.times),
        "step_time_sd": statistics.stdev(timed.times) if len(timed.times) > 1 else None,
        "throughput": throughput,
        "token_rate": throughput * case.params["length"] if "length" in case.params else None,
        "mfu": 100 * throughput * flops / (peak * case.world_size) if flops and peak else None,
        "warmup": timed.warmup,
    }
    return (figure(metric, value) for metric, value in values.items() if value is not None)


# Multiply-adds at 224 pixels, and weights: ResNet arXiv:1512.03385, table 1; VGG arXiv:1409.1556, table 1.
_IMAGE_MODELS = {"resnet18": (1.8e9, 11.7e6), "resnet50": (4.1e9, 25.6e6), "vgg16": (15.5e9, 138e6)}
_VOCABULARY = 1000


def _images(params: Mapping[str, Any]) -> tuple[float, float]:
    work, weights = _IMAGE_MODELS[params["model"]]
    return work * (params["image"] / 224) ** 2, weights


def _lstm(params: Mapping[str, Any]) -> tuple[float, float]:
    layers, ends = 8 * params["layers"] * params["hidden"] ** 2, _VOCABULARY * params["hidden"]
    return (layers + ends) * params["length"], layers + 2 * ends


def _transformer(params: Mapping[str, Any]) -> tuple[float, float]:
    width, length = params["hidden"], params["length"]
    blocks, ends = 12 * params["layers"] * width**2, params["vocabulary"] * width
    # Scores and sums of attention, over half of the tokens each.
    attention = params["layers"] * width * length
    return (blocks + ends + attention) * length, blocks + ends + length * width


# What each training costs, by its parameters.
_COSTS: Mapping[str, Callable[[Mapping[str, Any]], tuple[float, float]]] = {
    "mnist": lambda _: (0.5e6, 22e3),
    "synthetic": _images,
    "rnn": _lstm,
    "lm": _transformer,
}


def _workload(name: str, rows: Sequence[Mapping[str, Any]]) -> Workload:
    *own, framework = from_table(rows)
    parameters = (*own, *from_table(TABLES["training"]), framework)
    return Workload(name, _PROGRAM, parameters, parse, "step_time", model=_COSTS[name])


TRAININGS = tuple(_workload(name, rows) for name, rows in TABLES["trainings"].items())
