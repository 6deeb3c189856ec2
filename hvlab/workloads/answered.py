"""Shapes of the files of a case that hosts send: case.json, result.json and its parts."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from hvlab.base.answers.shapes import Count, HostAnswer, NotNegative, Number, Scalar

# The range of datetime; and three years of seconds, the longest possible case.
Epoch = Annotated[float, Field(ge=0, le=253_402_300_799)]
Seconds = Annotated[float, Field(ge=0, le=1e8)]
Taken = Annotated[float, Field(gt=0, le=1e8)]
Size = Annotated[int, Field(ge=1, le=2**62)]


class SlurmStep(HostAnswer):
    """The end of a case's step in Slurm."""

    state: str = ""
    error: str = ""


class Ended(HostAnswer):
    """case.json: the end of the launch."""

    started_at: Epoch = 0
    ended_at: Epoch = 0
    rc: Annotated[int, Field(ge=-(2**31), le=2**32)] | None = None
    timed_out: bool = False
    error: str | None = None
    skipped: str | None = None
    reaped: dict[str, Any] | None = None
    step: SlurmStep = SlurmStep()


CpuNumber = Annotated[str, Field(pattern="^[0-9]{1,6}$")]
# Counters of a guest may go back a little.
Change = Annotated[float, Field(ge=-1e9, le=1e9)]


class Counted(HostAnswer):
    """One host's counters of its cores: programs/stolen.py."""

    machine: str
    seconds: Seconds
    cpus: dict[CpuNumber, Annotated[tuple[Change, Change], Field(strict=False)]]
    own_s: Change
    throttled_s: Change


class World(HostAnswer):
    """The number of ranks, and for each its rank, local rank, host, and further data of a program."""

    size: Annotated[int, Field(ge=0, le=2**31)] | None = None
    placement: list[Annotated[tuple[Count, Count, str, Any], Field(strict=False)]] | None = None


class Proof(HostAnswer):
    """The evidence for the carrier of the collective."""

    activities: list[str] | None = None
    groups: list[str] | None = None


class State(HostAnswer):
    """Horovod's and Open MPI's own reports; the libraries that averaged, by all ranks' imports."""

    libraries: list[str] | None = None
    versions: dict[str, Scalar] | None = None
    pml: str | None = None
    horovod: dict[str, Scalar] | None = None


class Wire(HostAnswer):
    """The interfaces that carried the data."""

    carriers: list[str] | None = None


class CaseResult(HostAnswer):
    """result.json: the part common to all workloads."""

    unavailable: Scalar = None
    checks: list[str] | None = None
    device: str = ""
    world: World | None = None
    proof: Proof | None = None
    state: State | None = None
    wire: Wire | None = None
    stolen: dict[str, Counted] | None = None


class Timed(HostAnswer):
    """The times of one size, of a case that may have been cut off."""

    size_bytes: Size
    mean_s: list[Taken]


class Measured(Timed):
    """The times of one size, of a case that counts."""

    mean_s: Annotated[list[Taken], Field(min_length=1)]


class CollectiveResult(HostAnswer):
    """A collective's part of result.json."""

    sizes: list[Measured]


class Steps(HostAnswer):
    """The steps of a training, each with its seconds and samples."""

    mean_s: list[Taken]
    samples: list[Annotated[int, Field(ge=0, le=2**50)]]


class Times(HostAnswer):
    """The beginning of a training, and its durations."""

    first_step_at: Epoch
    training_s: Seconds | None = None
    user_s: Seconds | None = None
    sys_s: Seconds | None = None


class Model(HostAnswer):
    """The size of a model."""

    gradient_bytes: NotNegative | None = None
    flops_per_sample: NotNegative | None = None


class Compute(HostAnswer):
    """The duration of a step on each host without communication."""

    by_host_s: dict[str, Seconds]


class TrainingResult(HostAnswer):
    """A training's part of result.json."""

    steps: Steps
    times: Times
    model: Model
    compute: Compute
    world: dict[str, Any]
    epochs: list[Any] | None = None
    accuracy: Annotated[float, Field(ge=0, le=100)] | None = None
    loss: Number | None = None
    sent_bytes: NotNegative | None = None
    memory_bytes: NotNegative | None = None
    gpu: str | None = None


class TrainedEpoch(HostAnswer):
    """The result of one epoch."""

    loss: Number | None = None


class Trained(HostAnswer):
    """The source of the losses."""

    epochs: list[TrainedEpoch] | None = None


class SampledSteps(HostAnswer):
    """The steps of a training that may have been cut off."""

    mean_s: list[Taken] | None = None


class Sampled(HostAnswer):
    """The source of the iterations, as far as the case came."""

    sizes: list[Timed] | None = None
    steps: SampledSteps | None = None


class Own(HostAnswer):
    """hvlab's measurements of a user's command."""

    seconds: Seconds
    removed: list[str] | None = None


class CommandResult(HostAnswer):
    """A user's command's part of result.json."""

    command: Own
