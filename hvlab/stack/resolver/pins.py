"""Pins: NAME=VERSION from the inventory or the command line, and the versions that meet them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hvlab.base.errors import UsageError, did_you_mean
from hvlab.lab.backends import PARALLEL
from hvlab.lab.pin_variables import COMPONENTS, EXAMPLES, METHOD_PINS, METHODS, TORCH, VERSION_PINS, is_plain
from hvlab.stack.resolver import versions

FRAMEWORKS = ("torch", "tensorflow")
# A package's revision begins with a digit (9.1.0.70-1): 580-server is another driver than 580.
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*(-[0-9][0-9A-Za-z.+~-]*|\+[0-9A-Za-z.+~-]+)?")
# Maximum characters of a version.
_LONGEST = 100
_LAST_STRICT = 10
# In YAML an unquoted 9.10 is 9.1, which is another version of these.
_ZEROS_COUNT = ("python", "torch", "tensorflow", "cudnn", "nccl", "horovod")
_LOCAL = re.compile(r"cu(\d{2,3})")


@dataclass(frozen=True)
class Pin:
    """The version requested for a component; longer versions that begin with it also match."""

    name: str
    value: str

    @property
    def text(self) -> str:
        """As it is written."""
        return f"{self.name}={self.value}"

    @property
    def version(self) -> str:
        """The version in the catalogue's spelling."""
        if self.name == "python":
            return ".".join(self.value.split(".")[:2])
        if self.name == "gcc":
            return self.value.split(".")[0]
        if self.name == "cudnn":
            # 8.9.7.29-1+cuda12.2 is the package of 8.9.7.29.
            return self.value.partition("-")[0]
        return self.value.partition("+")[0] if self.name == "torch" else self.value

    @property
    def cuda(self) -> str | None:
        """The CUDA requested by the suffix of a wheel or package."""
        if self.name == "cudnn":
            suffix = re.search(r"[+.]cuda(\d+)(\.\d+)?$", self.value)
            # From CUDA 11 on one package serves the whole major.
            if not suffix:
                return None
            return suffix[1] if int(suffix[1]) > _LAST_STRICT else f"{suffix[1]}{suffix[2] or ''}"
        return None if self.build == "cpu" else self.build

    @property
    def build(self) -> str | None:
        """The build requested by torch's suffix: ``cpu``, or a CUDA release."""
        local = self.value.partition("+")[2] if self.name == "torch" else ""
        cuda = _LOCAL.fullmatch(local)
        return f"{cuda[1][:-1]}.{cuda[1][-1]}" if cuda else local or None


def parse(text: str) -> Pin:
    """Return the pin ``NAME=VERSION``. Raises UsageError for an unknown name or a malformed version."""
    name, equals, value = (part.strip() for part in text.partition("="))
    if name not in COMPONENTS:
        remedy = f"{did_you_mean(name, COMPONENTS)}it can be {', '.join(COMPONENTS)}"
        raise UsageError(f"unknown component {name!r} in {text!r}", remedy=remedy)
    if not equals or not value:
        raise UsageError(f"{text!r} is not NAME=VERSION", remedy=f"write it as {name}={EXAMPLES[name]}")
    return _check(name, value, where=repr(text))


def of_host(host: str, variables: Mapping[str, Any]) -> list[Pin]:
    """Return the pins among a host's variables, leaving out templates."""
    pins = []
    for name, variable in VERSION_PINS.items():
        value = variables.get(variable)
        if not is_plain(value):
            continue
        if isinstance(value, float) and name in _ZEROS_COUNT:
            raise UsageError(
                f"{host}: {variable} is the number {value}, not a text",
                remedy=f'write it in quotes: {variable}: "{value}" (in an INI file {variable}="\'{value}\'")',
            )
        pins.append(_check(name, str(value).strip(), where=f"{host}: {variable}: {value}"))
    return list(dict.fromkeys(pins))


def methods_of(host: str, variables: Mapping[str, Any]) -> dict[str, str]:
    """Return the method by which each component gets onto a host, from its variables."""
    methods = {}
    for name, choices in METHODS.items():
        variable = METHOD_PINS[name]
        value = str(variables[variable]) if is_plain(variables.get(variable)) else choices[0]
        if value not in choices:
            raise UsageError(f"{host}: {variable} is {value!r}", remedy=f"it can be {', '.join(choices)}")
        methods[name] = value
    return methods


def replace_pins(pins: Iterable[Pin], new: Iterable[Pin]) -> list[Pin]:
    """Return ``pins`` with those of the same names replaced by the ``new`` ones."""
    others = list(new)
    names = {pin.name for pin in others}
    return [pin for pin in pins if pin.name not in names] + others


def meets(pin: Pin, version: str) -> bool:
    """Whether a version of the catalogue meets a pin."""
    if not pin.value:
        return True
    if pin.name == "nccl":
        # 2.21.5+cuda12.4 is written for 2.21.5-1+cuda12.4 too.
        release, _, build = version.partition("-1+cuda")
        own, _, own_build = re.sub(r"(-1)?\+cuda", "+", pin.value).partition("+")
        return versions.is_prefix(own, release) and (not own_build or versions.is_prefix(own_build, build))
    return versions.is_prefix(pin.version, version)


def _check(name: str, value: str, *, where: str) -> Pin:
    if name == "backend":
        if value not in PARALLEL:
            remedy = f"{did_you_mean(value, PARALLEL)}the backends are {', '.join(PARALLEL)}"
            raise UsageError(f"{where}: unknown backend {value!r}", remedy=remedy)
        return Pin(name, value)
    if (name, value) == ("horovod", TORCH):
        return Pin(name, value)
    value = re.sub(r"^v(?=\d)", "", value)
    if name in ("driver", "cuda"):
        # A package's revision: 550.54.15-0ubuntu1.
        value = re.sub(r"-\d.*", "", value)
    pin = Pin(name, value)
    suffix = value.partition("+")[2] if name == "torch" else ""
    built = suffix in ("", "cpu") or _LOCAL.fullmatch(suffix)
    if len(value) > _LONGEST or not _VERSION.fullmatch(value) or not built:
        raise UsageError(
            f"{where[:_LONGEST]}: {value[:_LONGEST]!r} is not a version",
            remedy=f"write it as {name}={EXAMPLES[name]}",
        )
    return pin
