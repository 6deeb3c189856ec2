"""What a host may send of a case: the shapes of case.json, of result.json and of its parts."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from hvlab.base.answers.shapes import Count, HostAnswer, NotNegative, Number, Scalar

# Year 1 to 9999, as datetime has it; and three years of seconds, above which no case runs.
Epoch = Annotated[float, Field(ge=0, le=253_402_300_799)]
Seconds = Annotated[float, Field(ge=0, le=1e8)]
Taken = Annotated[float, Field(gt=0, le=1e8)]
Size = Annotated[int, Field(ge=1, le=2**62)]


class SlurmStep(HostAnswer):
    """How Slurm ended the step of a case."""

    state: str = ""
    error: str = ""


class Ended(HostAnswer):
    """case.json: how the launch ended."""

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
    """What one host tells of its cores: programs/stolen.py."""

    machine: str
    seconds: Seconds
    cpus: dict[CpuNumber, Annotated[tuple[Change, Change], Field(strict=False)]]
    own_s: Change
    throttled_s: Change


class World(HostAnswer):
    """The ranks: how many, and for each its rank, local rank, host, and what else a program tells of it."""

    size: Annotated[int, Field(ge=0, le=2**31)] | None = None
    placement: list[Annotated[tuple[Count, Count, str, Any], Field(strict=False)]] | None = None


class Proof(HostAnswer):
    """What shows which backend carried the collective."""

    activities: list[str] | None = None
    groups: list[str] | None = None


class State(HostAnswer):
    """What Horovod and Open MPI say of themselves."""

    versions: dict[str, Scalar] | None = None
    pml: str | None = None
    horovod: dict[str, Scalar] | None = None


class Wire(HostAnswer):
    """The interfaces that carried the data."""

    carriers: list[str] | None = None


class CaseResult(HostAnswer):
    """result.json, as far as all workloads have it in common."""

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
    """What a collective adds to result.json."""

    sizes: list[Measured]


class Steps(HostAnswer):
    """The steps of a training, each with its seconds and samples."""

    mean_s: list[Taken]
    samples: list[Annotated[int, Field(ge=0, le=2**50)]]


class Times(HostAnswer):
    """When a training began, and what it took."""

    first_step_at: Epoch
    training_s: Seconds | None = None
    user_s: Seconds | None = None
    sys_s: Seconds | None = None


class Model(HostAnswer):
    """The size of a model."""

    gradient_bytes: NotNegative | None = None
    flops_per_sample: NotNegative | None = None


class Compute(HostAnswer):
    """What a step takes on each host without communication."""

    by_host_s: dict[str, Seconds]


class TrainingResult(HostAnswer):
    """What a training adds to result.json."""

    steps: Steps
    times: Times
    model: Model
    compute: Compute
    world: dict[str, Any]
    epochs: list[Any] | None = None
    accuracy: Annotated[float, Field(ge=0, le=100)] | None = None
    loss: Number | None = None
    sent_bytes: NotNegative | None = None


class TrainedEpoch(HostAnswer):
    """What one epoch came to."""

    loss: Number | None = None


class Trained(HostAnswer):
    """What the losses are read from."""

    epochs: list[TrainedEpoch] | None = None


class SampledSteps(HostAnswer):
    """The steps of a training that may have been cut off."""

    mean_s: list[Taken] | None = None


class Sampled(HostAnswer):
    """What the iterations are read from: also of a case that does not count, as far as it came."""

    sizes: list[Timed] | None = None
    steps: SampledSteps | None = None


class Own(HostAnswer):
    """What hvlab measures of a command of the user's."""

    seconds: Seconds
    removed: list[str] | None = None


class CommandResult(HostAnswer):
    """What a command of the user's adds to result.json."""

    command: Own
