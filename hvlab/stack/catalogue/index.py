"""What the package index says today, through pip and its own configuration."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from typing import Any, Protocol

from hvlab.base import process
from hvlab.base.errors import HvlabError
from hvlab.base.temporary import temporary_folder
from hvlab.stack.resolver import versions

_SECONDS = 300.0
# Ask for Linux wheels of this Python, whatever hvlab itself runs on.
_PYTHON = "3.12"
_PLATFORMS = (
    "manylinux_2_28_x86_64",
    "manylinux_2_27_x86_64",
    "manylinux2014_x86_64",
    "manylinux1_x86_64",
    "any",
)
_REMEDY = "look at pip's configuration: `pip config list`, and try `pip index versions torch`"
_MINOR = re.compile(r"Programming Language :: Python :: (3\.\d+)$")
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(\[[^]]*\])?\s*([^;]*)")


@dataclass(frozen=True)
class Metadata:
    """A wheel's METADATA: Python minors [oldest, newest], and package -> versions it requires."""

    python: tuple[str, str]
    requires: Mapping[str, str]

    def exact(self, package: str) -> str | None:
        """Return the exact version required of a package; None without an exact requirement."""
        required = self.requires.get(package, "")
        return required.removeprefix("==").removesuffix(".*") if required.startswith("==") else None

    def least(self, package: str) -> str | None:
        """Return the oldest version of a package that meets the requirement."""
        bounds = [part.strip() for part in self.requires.get(package, "").split(",")]
        return next(
            (part.removeprefix(">=") for part in bounds if part.startswith(">=")), self.exact(package)
        )


class Index(Protocol):
    """A package index."""

    def versions(self, package: str) -> list[str]:
        """Return the versions of a package that have a wheel, newest first."""

    def metadata(self, package: str, version: str) -> Metadata:
        """Return the metadata of one version's wheel."""


class Pip:
    """The index that pip is configured for. No wheel is downloaded where the index serves METADATA alone."""

    def versions(self, package: str) -> list[str]:
        """Return the versions of a package that have a wheel, newest first."""
        printed = self._pip("index", "versions", package, *self._target())
        listed = re.search(r"^Available versions: (.*)$", printed, re.MULTILINE)
        if not listed:
            raise HvlabError(f"pip lists no versions of {package}: {printed.strip()!r}", remedy=_REMEDY)
        return [version.strip() for version in listed[1].split(",")]

    def metadata(self, package: str, version: str) -> Metadata:
        """Return the metadata of one version's wheel."""
        with temporary_folder() as folder:
            options = ("--dry-run", "--ignore-installed", "--no-deps", "--quiet", "--target", str(folder))
            printed = self._pip(
                "install", *options, "--report", "-", *self._target(), f"{package}=={version}"
            )
        try:
            return metadata(json.loads(printed)["install"][0]["metadata"])
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise HvlabError(
                f"pip's report on {package} {version} cannot be read: {error}", remedy=_REMEDY
            ) from error

    def _target(self) -> list[str]:
        platforms = [word for platform in _PLATFORMS for word in ("--platform", platform)]
        return ["--only-binary=:all:", "--python-version", _PYTHON, *platforms]

    def _pip(self, *words: str) -> str:
        # Not imported: setuptools would replace distutils.
        if not PathFinder.find_spec("pip"):
            raise ModuleNotFoundError("No module named 'pip'", name="pip")
        argv = [sys.executable, "-m", "pip", *words, "--disable-pip-version-check"]
        # Ignore a user's constraints: they say nothing about the index.
        env = {**os.environ, "PIP_CONSTRAINT": os.devnull}
        result = process.run(argv, seconds=_SECONDS, env=env, remedy=_REMEDY)
        if result.returncode:
            last = (result.stderr.strip().splitlines() or ["nothing"])[-1]
            raise HvlabError(f"pip {' '.join(words[:3])} failed: {last}", remedy=_REMEDY)
        return result.stdout


def metadata(content: Mapping[str, Any]) -> Metadata:
    """Return the relevant parts of a METADATA file (PEP 566's JSON)."""
    return Metadata(_python(content), _requires(content.get("requires_dist") or ()))


def _python(content: Mapping[str, Any]) -> tuple[str, str]:
    named = [match[1] for text in content.get("classifier") or () if (match := _MINOR.match(str(text)))]
    if not named:
        raise ValueError("it names no Python minors")
    least = re.search(r">=\s*(\d+\.\d+)", str(content.get("requires_python") or ""))
    minors = sorted(
        (name for name in named if not least or versions.at_least(name, least[1])), key=versions.numbers
    )
    return minors[0], minors[-1]


def _requires(lines: Sequence[str]) -> dict[str, str]:
    required: dict[str, str] = {}
    for line in lines:
        match = _REQUIREMENT.match(line)
        if match:
            required.setdefault(match[1].lower().replace("_", "-"), match[3].strip().strip("()"))
    return required
