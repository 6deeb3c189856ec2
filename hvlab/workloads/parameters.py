"""The parameters of a measurement: names, kinds, defaults, and readers of values. Pure."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hvlab.base.errors import UsageError, explain_unknown
from hvlab.base.masking import mask
from hvlab.lab.backends import BACKENDS, HOROVOD, Backend
from hvlab.workloads.metrics import TABLES
from hvlab.workloads.sizes import format_size, parse_size, parse_sizes

Kind = Literal[
    "int", "float", "text", "flag", "bytes", "sizes", "data", "seed", "env", "line", "files", "note", "stack"
]
# Any text as it is; and texts that commas do not divide.
VERBATIM: tuple[Kind, ...] = ("line", "files", "note")
UNDIVIDED: tuple[Kind, ...] = (*VERBATIM, "env")
Value = str | int | float | bool | tuple[int, ...]

_FLAGS = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}
_READERS: Mapping[str, Callable[[str], float]] = {
    "int": int,
    "seed": int,
    "float": float,
    "bytes": parse_size,
}
# Beyond 64 bits.
_TOO_LARGE = 2**63
_NOUNS = {"int": "whole number", "seed": "whole number", "float": "number", "bytes": "size in bytes"}


@dataclass(frozen=True)
class Parameter:
    """A setting. ``least`` is the smallest number allowed; ``choices`` lists all values.

    ``cpu`` replaces the default on hosts without GPUs; None: the default stays. Kinds: ``sizes`` is a list of
    bytes that one case goes through; any other may have several values, each with its own cases. ``data`` is
    the name or the folder of a data set; ``seed`` that of the first repeat, each further one adds one. In
    these four, commas mean nothing, and several values need a list: ``env`` (environment variables as words,
    ``NAME=VALUE``), ``line`` (of a shell), ``files`` (of the user, as ``datasets.own_files`` writes them) and
    ``note`` (for readers of the results). ``stack`` is the name of an installed stack.
    """

    name: str
    kind: Kind
    default: Value
    help: str
    choices: tuple[str, ...] = ()
    least: float = 1
    cpu: Value | None = None

    def read(self, given: object) -> Value:
        """Return the value from a command line or a suite. Raises UsageError."""
        if self.kind in VERBATIM:
            return str(given)
        text = str(given).strip()
        if self.kind == "sizes":
            return parse_sizes(",".join(map(str, given)) if isinstance(given, list | tuple) else text)
        if self.kind in ("text", "data"):
            is_folder = self.kind == "data" and "/" in text
            return str(Path(text).expanduser().absolute()) if is_folder else self._format_choice(text)
        if self.kind in ("env", "stack"):
            return self._variables(text) if self.kind == "env" else self._stack(text)
        if self.kind == "flag":
            if text.lower() not in _FLAGS:
                raise self._explain_wrong(text, "neither true nor false", "true")
            return _FLAGS[text.lower()]
        return self._number(text)

    def several(self, given: object) -> tuple[Value, ...]:
        """Return every value of a list such as ``1,2`` or ``[1, 2]``. Raises UsageError."""
        if self.kind == "sizes":
            return (self.read(given),)
        if self.kind in UNDIVIDED and not isinstance(given, list | tuple):
            return (self.read(given),)
        parts = given if isinstance(given, list | tuple) else str(given).split(",")
        return tuple(dict.fromkeys(self.read(part) for part in parts))

    def format_value(self, value: Value) -> str:
        """Return a value as people write it."""
        return format_size(value) if self.kind == "bytes" and isinstance(value, int) else word(value)

    def _format_choice(self, text: str) -> str:
        if not text:
            raise self._explain_wrong(text, "no value", str(self.default))
        if self.choices and (text := text.lower()) not in self.choices:
            raise explain_unknown(f"value of {self.name}", text, self.choices)
        return text

    def _variables(self, text: str) -> str:
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise self._explain_wrong(text, str(error), _EXAMPLE) from error
        for item in words:
            name, equals, _ = item.partition("=")
            if not equals or not re.fullmatch(r"[A-Za-z_]\w*", name):
                raise self._explain_wrong(text, f"{item} is not NAME=VALUE", _EXAMPLE)
            if name.startswith("HVLAB_"):
                raise self._explain_wrong(text, f"{name} is hvlab's own", _EXAMPLE)
        return shlex.join(sorted(words))

    def _stack(self, text: str) -> str:
        """Return the name of a stack beside the lab's own; empty for that."""
        if not _STACK_NAME.fullmatch(text):
            raise self._explain_wrong(text, "not the name of a stack", OWN_STACK)
        return "" if text == OWN_STACK else text

    def _number(self, text: str) -> Value:
        try:
            number = _READERS[self.kind](text)
        except (ValueError, UsageError):
            number = math.nan
        if not self.least <= number < math.inf:
            why = f"not a {_NOUNS[self.kind]} of {self.least:g} or more"
            raise self._explain_wrong(text, why, word(self.default))
        if number >= _TOO_LARGE:
            raise self._explain_wrong(text, "larger than any program takes", word(self.default))
        return number

    def _explain_wrong(self, text: str, why: str, example: str) -> UsageError:
        return UsageError(
            mask(f"{self.name}={text}: {why}"), remedy=f"{self.help} Write --set {self.name}={example}"
        )


_EXAMPLE = "NCCL_ALGO=Ring"
OWN_STACK = "lab"
_STACK_NAME = re.compile(r"([a-z0-9][a-z0-9_.-]{0,40})?")


def from_table(rows: Iterable[Mapping[str, Any]]) -> tuple[Parameter, ...]:
    """Return the parameters in a list of ``tables.yml``."""
    return tuple(Parameter(**{**row, "choices": tuple(row.get("choices", ()))}) for row in rows)


(DEVICE,) = from_table(TABLES["device"])
TUNING = from_table(TABLES["tuning"])
# Each by the environment variable that sets it.
BY_VARIABLE: Mapping[str, Parameter] = {
    "OMP_NUM_THREADS" if item.name == "threads" else f"HOROVOD_{item.name.upper()}": item for item in TUNING
}
ENV, MPIRUN, RULES, STACK = OPTIONAL = from_table(TABLES["optional"])
COMMON = (DEVICE, *TUNING, *OPTIONAL)
# A step's work: with another model, neither setting is faster.
WORK = ("model", "image", "hidden", "layers", "heads", "length", "vocabulary", "precision")
# A step's samples: throughput compares settings that differ in these.
SAMPLES = ("batch", "scaling")


def variables(params: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment variables that parameter ``env`` sets."""
    return dict(item.split("=", 1) for item in shlex.split(str(params.get(ENV.name, ""))))


def read_inherited(rank_env: Mapping[str, Any], backend: str) -> dict[str, Value]:
    """Return the tuning parameters in the inventory's rank environment, by name. Raises UsageError."""
    values: dict[str, Value] = {}
    for name, item in BY_VARIABLE.items():
        if name not in rank_env or not _acts(item, BACKENDS[backend]):
            continue
        try:
            values[item.name] = item.read(rank_env[name])
        except UsageError as error:
            raise UsageError(f"lab_rank_env: {name}: {error}", remedy=item.help) from error
    return values


def _acts(item: Parameter, backend: Backend) -> bool:
    if item.name == "threads":
        return True
    return backend.framework == HOROVOD and (
        item.name != "hierarchical_allreduce" or bool(backend.hierarchical)
    )


def environment(params: Mapping[str, Any], *, named: Iterable[str] = ()) -> dict[str, str]:
    """Return the environment that sets a rank's tuning parameters.

    Defaults are left to Horovod, except for the variables in ``named``, which somebody else sets, too.
    """
    env = {}
    for name, item in BY_VARIABLE.items():
        value = params.get(item.name, item.default)
        if value != item.default or name in named or item.name == "threads":
            env[name] = word(int(value) if item.kind == "flag" else value)
    return env


def word(value: object) -> str:
    """Return a value as one word of a command line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def find(name: str, parameters: Iterable[Parameter]) -> Parameter | None:
    """Return the parameter of that name, if any."""
    return next((item for item in parameters if item.name == name), None)
