"""Wishes: NAME=VERSION from the inventory or the command line, and what a version has to be to meet one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hvlab.errors import UsageError
from hvlab.lab.pin_variables import (
    COMPONENTS,
    METHOD_PINS,
    METHODS,
    OLDER_METHOD_PINS,
    OLDER_VERSION_PINS,
    VERSION_PINS,
    plain,
)
from hvlab.resolver import versions

BACKENDS = ("nccl", "mpi", "gloo", "ccl")
FRAMEWORKS = ("torch", "tensorflow")
NAMES = COMPONENTS
TITLES: Mapping[str, str] = {
    "driver": "driver",
    "cuda": "CUDA",
    "cudnn": "cuDNN",
    "nccl": "NCCL",
    "openmpi": "Open MPI",
    "python": "Python",
    "gcc": "gcc",
    "torch": "torch",
    "tensorflow": "TensorFlow",
    "horovod": "Horovod",
    "backend": "backend",
}
_VERSION = re.compile(r"\d+(\.\d+)*([-+][0-9A-Za-z.+~-]+)?")
_LAST_STRICT = 10
# In YAML 9.10 without quotes is 9.1, which is another version of these.
_ZEROS_COUNT = ("python", "torch", "tensorflow", "cudnn", "nccl", "horovod")
_LOCAL = re.compile(r"cu(\d{2,3})")


@dataclass(frozen=True)
class Pin:
    """One wish: a component is to have this version, or one that goes on from it."""

    name: str
    value: str

    @property
    def text(self) -> str:
        """As it is written."""
        return f"{self.name}={self.value}"

    @property
    def version(self) -> str:
        """The wished version in the catalogue's spelling."""
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
        """The CUDA that the suffix of a wheel or a package asks for."""
        if self.name == "cudnn":
            found = re.search(r"[+.]cuda(\d+)(\.\d+)?$", self.value)
            # From CUDA 11 on one package serves the whole major.
            if not found:
                return None
            return found[1] if int(found[1]) > _LAST_STRICT else f"{found[1]}{found[2] or ''}"
        return None if self.build == "cpu" else self.build

    @property
    def build(self) -> str | None:
        """What torch's suffix asks for: ``cpu``, or a CUDA release."""
        local = self.value.partition("+")[2] if self.name == "torch" else ""
        found = _LOCAL.fullmatch(local)
        return f"{found[1][:-1]}.{found[1][-1]}" if found else local or None


def parse(text: str) -> Pin:
    """Return the wish ``NAME=VERSION``. Raises UsageError for an unknown name or a malformed version."""
    name, equals, value = (part.strip() for part in text.partition("="))
    if name not in NAMES:
        near = difflib.get_close_matches(name.lower(), NAMES, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(
            f"unknown component {name!r} in {text!r}", remedy=f"{hint}it can be {', '.join(NAMES)}"
        )
    if not equals or not value:
        raise UsageError(f"{text!r} is not NAME=VERSION", remedy=f"write it as {name}={_EXAMPLES[name]}")
    return _checked(name, value, where=repr(text))


_EXAMPLES = {
    "driver": "580",
    "cuda": "12.4",
    "cudnn": "9.1",
    "nccl": "2.21.5",
    "openmpi": "4.1.8",
    "python": "3.11",
    "gcc": "12",
    "torch": "2.4",
    "tensorflow": "2.15",
    "horovod": "0.28.1",
    "backend": "nccl",
}


def of_host(host: str, variables: Mapping[str, Any]) -> list[Pin]:
    """Return the wishes among a host's raw variables; a template is none."""
    found = []
    for name, variable in (*VERSION_PINS.items(), *OLDER_VERSION_PINS.items()):
        value = variables.get(variable)
        if not plain(value):
            continue
        if isinstance(value, float) and name in _ZEROS_COUNT:
            where, quoted = f"{host}: {variable}", f'{variable}: "{value}"'
            raise UsageError(
                f"{where} is the number {value}, not a text", remedy=f"write it in quotes: {quoted}"
            )
        found.append(_checked(name, str(value).strip(), where=f"{host}: {variable}: {value}"))
    return list(dict.fromkeys(found))


def methods_of(host: str, variables: Mapping[str, Any]) -> dict[str, str]:
    """Return how each component gets onto a host, from its raw variables."""
    found = {}
    for name, allowed in METHODS.items():
        given = {
            variable: str(variables[variable])
            for variable in (METHOD_PINS[name], OLDER_METHOD_PINS[name])
            if plain(variables.get(variable))
        }
        for variable, value in given.items():
            if value not in allowed:
                raise UsageError(f"{host}: {variable} is {value!r}", remedy=f"it can be {', '.join(allowed)}")
        if len(set(given.values())) > 1:
            both = " and ".join(f"{variable} is {value}" for variable, value in given.items())
            raise UsageError(f"{host}: {both}", remedy=f"keep {METHOD_PINS[name]} alone")
        found[name] = next(iter(given.values()), allowed[0])
    return found


def replaced(pins: Iterable[Pin], new: Iterable[Pin]) -> list[Pin]:
    """Return ``pins`` with those of the same names replaced by the ``new`` ones."""
    wanted = list(new)
    names = {pin.name for pin in wanted}
    return [pin for pin in pins if pin.name not in names] + wanted


def meets(pin: Pin, version: str) -> bool:
    """Whether a version of the catalogue is what is wished for."""
    if not pin.value:
        return True
    if pin.name == "nccl":
        # 2.21.5+cuda12.4 is written for 2.21.5-1+cuda12.4 too.
        release, _, build = version.partition("-1+cuda")
        wanted, _, asked = re.sub(r"(-1)?\+cuda", "+", pin.value).partition("+")
        return versions.prefix(wanted, release) and (not asked or versions.prefix(asked, build))
    return versions.prefix(pin.version, version)


def _checked(name: str, value: str, *, where: str) -> Pin:
    if name == "backend":
        if value not in BACKENDS:
            near = difflib.get_close_matches(value.lower(), BACKENDS, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            remedy = f"{hint}the backends are {', '.join(BACKENDS)}"
            raise UsageError(f"{where}: unknown backend {value!r}", remedy=remedy)
        return Pin(name, value)
    value = re.sub(r"^v(?=\d)", "", value)
    if name in ("driver", "cuda"):
        # A package's revision: 550.54.15-0ubuntu1.
        value = value.partition("-")[0]
    pin = Pin(name, value)
    wrong = not _VERSION.fullmatch(value) or (
        name == "torch" and pin.build not in (None, "cpu") and not _LOCAL.fullmatch(value.partition("+")[2])
    )
    if wrong:
        raise UsageError(
            f"{where}: {value!r} is not a version", remedy=f"write it as {name}={_EXAMPLES[name]}"
        )
    return pin
