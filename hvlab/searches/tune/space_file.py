"""The parameters of a search as data: their values, and which act on a benchmark. Pure."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from hvlab.base.errors import UsageError
from hvlab.base.yaml_files import mistake, read_yaml
from hvlab.bench.matrix import Block
from hvlab.bench.settings import SettingsFile
from hvlab.lab.backends import BACKENDS, HOROVOD
from hvlab.workloads import WORKLOADS
from hvlab.workloads.launchers import mpirun
from hvlab.workloads.operations import OPERATIONS
from hvlab.workloads.parameters import BY_VARIABLE

FOLDER = Path(__file__).parent / "spaces"
Word = str | int | float

_REMEDY = (
    "write parameters: a list of {name, to: env, mpirun or rules, variable, values, default}, as in "
    "hvlab/searches/tune/spaces"
)


class SpaceParameter(BaseModel):
    """A setting and where it goes (``to``); an empty value leaves it unset.

    ``collective`` is Open MPI's number of the collective whose algorithm it is (COLLTYPE in
    coll_base_functions.h), for messages from ``from_bytes`` on; there a value is an algorithm's number, with
    a colon and the bytes of its segments, if any.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    about: str = ""
    to: Literal["env", "mpirun", "rules", "host"]
    variable: str = ""
    collective: Annotated[int, Field(ge=0, le=100)] | None = None
    from_bytes: Annotated[int, Field(ge=0)] = 0
    values: Annotated[list[Word], Field(min_length=2, max_length=100)]
    default: Word
    source: str = ""

    @model_validator(mode="after")
    def _check_values(self) -> Self:
        if not self.has(self.default):
            raise ValueError(f"{self.name}: the default {self.default!r} is not among its values")
        if any(self.same(one, other) for one, other in itertools.combinations(self.values, 2)):
            raise ValueError(f"{self.name}: a value occurs twice")
        if (self.to == "env") != bool(self.variable) or (self.to == "rules") != (self.collective is not None):
            raise ValueError(
                f"{self.name}: env needs a variable, rules a collective, and nothing else has one"
            )
        rule = re.compile(r"\d+(:\d+)?")
        if self.to == "rules" and not all(rule.fullmatch(str(value)) for value in self.values):
            raise ValueError(f"{self.name}: a rule is an algorithm's number, or NUMBER:BYTES with segments")
        return self

    @property
    def ordered(self) -> bool:
        """Neighbouring values act alike."""
        return all(isinstance(value, int | float) for value in self.values)

    @property
    def target(self) -> tuple[str, str, int | None, int]:
        """The setting's target: a variable, mpirun's options, or the rule from a size on."""
        return self.to, self.variable, self.collective, self.from_bytes

    def read(self, value: Word) -> Word:
        """Parse a value as its variable's reader or, for any other variable, a number's does."""
        if known := BY_VARIABLE.get(self.variable):
            with suppress(UsageError):
                read = known.read(value)
                return str(read) if isinstance(read, tuple) else read
        return _number(value)

    def same(self, one: Word, other: Word) -> bool:
        """Whether two values are equal, however written: 1 and 1.0, 64M and 67108864."""
        texts = isinstance(one, str) and isinstance(other, str) and self.variable not in BY_VARIABLE
        return str(one) == str(other) or (not texts and self.read(one) == self.read(other))

    def has(self, value: Word) -> bool:
        """Whether a value is one of its values."""
        return any(self.same(each, value) for each in self.values)

    def place(self, value: Word) -> int:
        """Return the index of a value. Raises ValueError for an unknown one."""
        return [self.same(each, value) for each in self.values].index(True)


class _SpaceFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    parameters: Annotated[list[SpaceParameter], Field(min_length=1)]


def _number(given: Word) -> Word:
    for read in (int, float) if isinstance(given, str) else ():
        with suppress(ValueError):
            return read(given)
    return given


def load(path: Path) -> tuple[SpaceParameter, ...]:
    """Return the parameters of a file. Raises UsageError that names the mistake."""
    try:
        parameters = tuple(_SpaceFile.model_validate(read_yaml(path)).parameters)
    except ValidationError as error:
        raise UsageError(f"the space {path}: {mistake(error)}", remedy=_REMEDY) from error
    except ValueError as error:
        raise UsageError(f"the space {path} cannot be read: {error}", remedy=_REMEDY) from error
    if any(item.to == "host" for item in parameters):
        problem = f"the space {path}: settings of hosts are hvlab's own"
        raise UsageError(problem, remedy="leave `to: host` out; --host-settings searches them")
    names = [item.name for item in parameters]
    if len(set(names)) < len(names):
        raise UsageError(f"the space {path}: two parameters have one name", remedy=_REMEDY)
    for one, other in itertools.combinations(parameters, 2):
        if one.target == other.target:
            raise UsageError(
                f"the space {path}: {one.name} and {other.name} set the same, so one would undo the other",
                remedy="make them one parameter; a value of mpirun is all of its options",
            )
    for item in parameters:
        _check(item, path)
    return parameters


def _check(item: SpaceParameter, path: Path) -> None:
    for value in item.values:
        env = {item.variable: value} if item.to == "env" and value != "" else {}
        try:
            _ = SettingsFile(env=env, mpirun=str(value) if item.to == "mpirun" else "").parameters
        except ValidationError as error:
            raise UsageError(f"the space {path}: {item.name}: {mistake(error)}", remedy=_REMEDY) from error
        except UsageError as error:
            raise UsageError(f"the space {path}: {item.name}: {error}", remedy=error.remedy) from error


# Open MPI's rules for it count the bytes of each rank, not of all.
_ALLGATHERV = 1


def of_block(block: Block, launcher: str) -> tuple[SpaceParameter, ...]:
    """Return the settings that can be tuned in a block of one configuration, started by ``launcher``.

    They act on its collective; a training sends by allreduce.
    """
    backend = BACKENDS[block.backends[0]]
    collective = WORKLOADS[block.workload].collective
    own = backend.counterpart or backend.name
    files = ["ranks"] + ["horovod"] * (backend.framework == HOROVOD)
    files += ["hierarchical"] * (bool(backend.hierarchical) and collective == "allreduce")
    files += ["mpirun"] * (launcher == mpirun.NAME)
    if backend.mpi:
        call = OPERATIONS[collective].mpi[backend.framework]
        # Adasum sends from rank to rank, by none of MPI's collectives.
        files += [f"mpi_{call}"] * ("adasum" not in block.axes.get("op", ()))
        files += ["mpi_tcp"] * (block.hosts[0] != 1) + ["mpi_shared"] * (block.slots[0] > 1)
    else:
        files += [own, f"{own}_{collective}"]
    places = [FOLDER / f"{file}.yml" for file in files]
    parameters = [item for place in places if place.is_file() for item in load(place)]
    return tuple(item for item in parameters if _acts(item, parameters, block))


def _acts(item: SpaceParameter, parameters: Sequence[SpaceParameter], block: Block) -> bool:
    """Whether a rule applies to one of the block's sizes; small ones include Horovod's own messages."""
    [sizes] = block.axes.get("sizes", ((),))
    if item.collective is None or not item.from_bytes or not isinstance(sizes, tuple) or not sizes:
        return True
    parts = block.slots[0] * int(block.hosts[0]) if item.collective == _ALLGATHERV else 1
    later = [other.from_bytes for other in parameters if other.collective == item.collective]
    end = min((start for start in later if start > item.from_bytes), default=math.inf)
    return any(item.from_bytes <= size // parts < end for size in sizes)
