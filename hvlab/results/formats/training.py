"""Output of Horovod's synthetic benchmarks and tf_cnn_benchmarks, of any framework and version. Pure."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from hvlab.base.errors import CheckError
from hvlab.results.formats.launch import Launch, LaunchRow
from hvlab.results.formats.lines import failure, lines, number

# The last lines of Horovod's examples/*/*_synthetic_benchmark.py, and those of tf_cnn_benchmarks, which every
# rank prints. Both are of all ranks together. Source: https://github.com/horovod/horovod/issues/466
_TOTAL = re.compile(
    r"Total img/sec on (?P<ranks>\d{1,7}) (?P<device>[GC]PU)\(s\): (?P<value>\S+)(?: \+-\S+)?$"
    r"|total images/sec: (?P<each>\S+)$"
)
# A benchmark begins with one of these; tf_cnn_benchmarks begins with the version of TensorFlow.
_MODEL = re.compile(r"Model:\s+(\S+)$")
_FRAMEWORK = re.compile(r"TensorFlow:\s+([\d.]+)$")
_BATCH = re.compile(r"Batch size:\s+(\d{1,9})(?: global)?$")
_A_DEVICE = re.compile(r"\s*(\d{1,9}) per device$")
_DEVICES = re.compile(r"Devices:\s+\[(.*)\]$")
_VARIABLES = re.compile(r"Variables:\s+(\S+)$")
_RANKS = re.compile(r"Number of ([GC]PU)s: (\d{1,7})$")
# Lines that only the programs write; anything before them is a launcher's.
_WRITTEN = re.compile(
    r"Total img/sec on \d|total images/sec: |Number of [GC]PUs: \d|Running (?:warmup|benchmark)\.\.\."
    r"|Iter #\d+: |Img/sec per [GC]PU: |TensorFlow:  |Variables:   |Generating (?:training )?model"
    r"|Model: +\w+$|Batch size: +\d"
)
_HOROVOD = "horovod"


def knows(text: str) -> bool:
    """Recognise the output of such a training."""
    return any(_TOTAL.match(line.text) or _RANKS.match(line.text) for line in lines(text, _WRITTEN))


def read(text: str) -> list[Launch]:
    """Return the throughput of each training. Raises CheckError if ranks trained independently."""
    trainings: list[_Training] = []
    for line in lines(text, _WRITTEN):
        begins = bool(_MODEL.match(line.text) or _FRAMEWORK.match(line.text))
        if not trainings or (begins and trainings[-1].totals):
            trainings.append(_Training())
        trainings[-1].add(line.text)
    return [training.launch() for training in trainings]


@dataclass
class _Training:
    settings: dict[str, Any] = field(default_factory=dict)
    framework: str | None = None
    variables: str | None = None
    ranks: int | None = None
    device: str | None = None
    totals: list[str] = field(default_factory=list)
    error: str | None = None

    def add(self, text: str) -> None:
        """Add the content of a line."""
        if match := _TOTAL.match(text):
            self.totals.append(match["value"] or match["each"])
            if match["ranks"]:
                self._note_ranks(match["device"], int(match["ranks"]))
        elif match := _RANKS.match(text):
            self._note_ranks(match[1], int(match[2]))
        elif match := _MODEL.match(text):
            self.settings["model"] = match[1]
        elif match := _FRAMEWORK.match(text):
            self.framework = match[1]
        elif (match := _BATCH.match(text)) or (match := _A_DEVICE.match(text)):
            self.settings["batch_size"] = int(match[1])
        elif match := _VARIABLES.match(text):
            self.variables = match[1]
        elif match := _DEVICES.match(text):
            names = match[1].split(",")
            self._note_ranks("GPU" if "gpu" in names[0] else "CPU", len(names))
        elif not self.totals:
            self.error = self.error or failure(text)

    def _note_ranks(self, device: str, ranks: int) -> None:
        self.ranks, self.device = ranks, {"GPU": "cuda", "CPU": "cpu"}[device]

    def launch(self) -> Launch:
        """Return the measured values; a launch without a throughput has failed."""
        if len(self.totals) > 1 and self.variables not in (None, _HOROVOD):
            raise CheckError(
                f"{len(self.totals)} programs printed a throughput, each of its own training"
                f" (Variables: {self.variables})",
                remedy=f"start tf_cnn_benchmarks with --variable_update={_HOROVOD}",
            )
        values = [number(total.replace(",", "")) for total in self.totals]
        ended = "the output ends before the throughput of all ranks ('Total img/sec on', 'total images/sec:')"
        wrong = next((total for total, value in zip(self.totals, values, strict=True) if not value), None)
        if wrong:
            ended = f"the throughput {wrong!r} is not a number"
        program = "tf_cnn_benchmarks" if self.variables else "horovod's synthetic benchmark"
        return Launch(
            workload="command",
            rows=() if wrong else tuple(_row(value for value in values if value)),
            ranks=self.ranks,
            device=self.device,
            error=self.error or (None if self.totals and not wrong else ended),
            settings={"command": program, **self.settings},
            stack={"source": "training", "tool": program}
            | ({"tensorflow": self.framework} if self.framework else {}),
        )


def _row(values: Iterable[float]) -> Iterable[LaunchRow]:
    """Yield the throughput of all ranks, which each may have printed a little earlier or later."""
    every = list(values)
    if every:
        yield LaunchRow(0, {"throughput": statistics.median(every)})
