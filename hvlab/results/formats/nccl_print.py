"""Launches as the text that nccl-tests prints today (src/util.cu). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hvlab.results.formats import nccl_document
from hvlab.results.formats.launch import Launch, origin_line, with_figures
from hvlab.results.formats.nccl_columns import HALF, HALVES, LEFT

# The line on how a program was launched: what is not known does not stand in it.
_WORDS = (
    ("nThread", "nthreads"), ("nGpus", "ngpus"), ("minBytes", "minimum_bytes"), ("maxBytes", "maximum_bytes"),
    ("step:", "step"), ("warmup iters:", "warmup_iters"), ("iters:", "iterations"),
    ("agg iters:", "aggregated_iterations"), ("validation:", "validation"), ("graph:", "graph"),
)  # fmt: skip


def write(measured: Iterable[Launch]) -> str:
    """Return what nccl-tests would have printed, one program's output after the other.

    A half that was not measured is N/A; a failed launch has its error in the footer's place.
    """
    documents = (
        nccl_document.document(launch) | {"hvlab": with_figures(launch.origin, launch.rows)}
        for launch in measured
    )
    return "".join(f"{line}\n" for document in documents for line in _printed(document))


def _printed(document: Mapping[str, Any]) -> Iterator[str]:
    config, (program,), errors = document["config"], document["args"], document["errors"]
    step, by = next((name[5:], value) for name, value in config.items() if name.startswith("step_"))
    yield origin_line(document["hvlab"])
    yield f"# Collective test starting: {program}"
    said = {**config, "step": f"{by}({step})"}
    yield "# " + " ".join(f"{words} {said[key]}" for words, key in _WORDS if said.get(key) is not None)
    yield "#"
    yield "# Using devices"
    for device in config["devices"]:
        yield (
            f"#  Rank {device['rank']:2d} Group  0 Pid {0:6d} on {device['hostname']:>10s} "
            f"device {device['device']:2d} [0000:00:00] {device['device_info']}"
        )
    yield "#"
    yield _left([""] * len(LEFT)) + "           out-of-place                       in-place          "
    yield _left([column.head for column in LEFT]) + _half([column.head for column in HALF]) * 2 + " "
    yield _left([column.unit for column in LEFT]) + _half([column.unit for column in HALF]) * 2 + " "
    for result in document["results"]:
        left = "  ".join(f"{result[column.key]:>{column.width}}" for column in LEFT)
        yield left + "".join(_half(_texts(result[half])) for half in HALVES)
    if errors:
        yield "# error: " + " ".join(errors[0].split())
    if document["out_of_bounds"]:
        yield f"# {'Out of bounds values':<20s} : 0 OK"
    if busbw := document["average_bus_bandwidth"]:
        yield f"# {'Avg bus bandwidth':<20s} : {busbw['bandwidth']:g} "
    yield "#"
    yield f"# Collective test concluded: {program}"
    yield "#"


def _left(words: Sequence[str]) -> str:
    line = "  ".join(f"{word:>{column.width}}" for column, word in zip(LEFT, words, strict=True))
    return "#" + line[1:]


def _half(words: Sequence[str]) -> str:
    return "".join(f"  {word:>{column.width}}" for column, word in zip(HALF, words, strict=True))


def _texts(values: Mapping[str, float | None] | None) -> list[str]:
    if values is None:
        return ["N/A"] * len(HALF)
    return [
        "N/A" if (value := values[column.key]) is None
        else rounded(value, column.width) if column.metric else str(value)
        for column in HALF
    ]  # fmt: skip


def rounded(value: float, width: int) -> str:
    """Return a number as nccl-tests rounds it to a width (src/util.cu, getFloatStr)."""
    digits = len(str(int(value))) if value >= 1 else 0
    if digits < width - 2:
        return f"{value:{width}.2f}"
    if digits < width - 1:
        return f"{value:{width}.1f}"
    return f"{value:{width}.0f}" if digits < width + 1 else f"{value:{width}.1e}"
