"""Where the catalogue and the package index differ; the index is read through pip and its configuration."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from typing import Any

from hvlab.base import process
from hvlab.base.errors import HvlabError
from hvlab.base.groups import grouped
from hvlab.base.temporary import temporary_folder
from hvlab.stack.resolver import newer, versions

Files = Mapping[str, Mapping[str, Any]]
Entries = Mapping[str, Mapping[str, Any]]
# Requirements of the newest releases only: METADATA of a published wheel does not change.
_NEWEST = 5
# Source named by entries that come from the index.
SOURCES = {
    "cuda": "index",
    "cudnn": "wheels",
    "nccl": "wheels",
    "torch": "metadata",
    "tensorflow": "metadata",
}


@dataclass(frozen=True)
class Difference:
    """A release that the catalogue lacks, or lists with other values.

    ``changes``: the fields as the index has them; ``like``: the known release from which a new one takes its
    other fields; None for a known release.
    """

    file: str
    release: str
    changes: Mapping[str, Any]
    known: Mapping[str, Any] = field(default_factory=dict)
    like: str | None = None

    @property
    def missing(self) -> bool:
        """Whether the catalogue lacks the release."""
        return self.like is not None

    def as_json(self) -> dict[str, Any]:
        """Return the difference as plain data."""
        known = None if self.missing else {name: self.known.get(name) for name in self.changes}
        return {"file": self.file, "release": self.release, "catalogue": known, "index": dict(self.changes)}


def differences(files: Files, index: Pip, say: Callable[[str], None] = lambda _: None) -> list[Difference]:
    """Return every difference; ``say`` gets each name looked up. Raises HvlabError if the index fails."""
    return [
        *_cuda(files["cuda"]["releases"], index, say),
        *_library("cudnn", files["cudnn"]["releases"], index, say),
        *_library("nccl", files["nccl"]["releases"], index, say),
        *_framework("torch", files["torch"]["releases"], index, say),
        *_framework("tensorflow", files["tensorflow"]["releases"], index, say),
    ]


def _list_releases(package: str, index: Pip, say: Callable[[str], None]) -> list[str]:
    """Return a package's releases, oldest first, without pre-releases, builds and post-releases."""
    say(package)
    plain = (version for version in index.versions(package) if all(c.isdigit() or c == "." for c in version))
    return sorted(plain, key=versions.numbers)


def _cuda(known: Entries, index: Pip, say: Callable[[str], None]) -> Iterator[Difference]:
    # Some have a fourth number of their own: 13.0.3.0.
    points = grouped(
        (versions.minor(version), ".".join(version.split(".")[:3]))
        for version in _list_releases("cuda-toolkit", index, say)
    )
    for release, listed in points.items():
        if release in known:
            has: Mapping[str, Any] = known[release].get("points") or {}
            new = [point for point in listed if newer.end_of_branch(point, has)]
            if new:
                yield Difference("cuda", release, {"points": {**has, **dict.fromkeys(new)}}, known[release])
        elif like := newer.end_of_branch(release, known):
            yield Difference("cuda", release, {"driver": None, "points": dict.fromkeys(listed)}, like=like)


def _library(name: str, known: Entries, index: Pip, say: Callable[[str], None]) -> Iterator[Difference]:
    families = grouped(
        (version, family)
        for family in ("cu12", "cu13")
        for version in _list_releases(f"nvidia-{name}-{family}", index, say)
    )
    for version, wheels in sorted(families.items(), key=lambda pair: versions.numbers(pair[0])):
        if version in known:
            has = [family for family in known[version].get("wheels") or () if family in ("cu12", "cu13")]
            if has != wheels:
                others = [family for family in known[version].get("wheels") or () if family not in has]
                yield Difference(name, version, {"wheels": [*others, *wheels]}, known[version])
        elif like := newer.end_of_branch(version, known):
            majors = [int(family.removeprefix("cu")) for family in wheels]
            # The index does not show for which CUDA releases a repository has packages.
            packages = {"builds": [], "cuda": majors} if name == "nccl" else {"cuda": majors}
            yield Difference(name, version, {**packages, "wheels": wheels}, like=like)


def _framework(name: str, known: Entries, index: Pip, say: Callable[[str], None]) -> Iterator[Difference]:
    listed = _list_releases(name, index, say)
    new = {version: like for version in listed if (like := newer.end_of_branch(version, known))}
    for version in [*[v for v in listed if v in known][-_NEWEST:], *new]:
        say(f"{name} {version}")
        data = index.metadata(name, version)
        like = new.get(version)
        entry = known[like or version]
        says = _read_torch(data, {} if like else entry) if name == "torch" else _read_tensorflow(data)
        wrong = {part: value for part, value in says.items() if like or entry.get(part) != value}
        if wrong:
            yield Difference(name, version, wrong, {} if like else entry, like)


def _read_torch(data: Metadata, entry: Mapping[str, Any]) -> dict[str, Any]:
    runtimes = (f"nvidia-cuda-runtime{family}" for family in ("", "-cu13", "-cu12", "-cu11"))
    toolkit = next(filter(None, map(data.exact, ("cuda-toolkit", *runtimes))), None)
    values: dict[str, Any] = {"python": list(data.python)}
    if toolkit is None:
        return values
    build = versions.minor(toolkit)
    values["index"] = build
    for library in ("cudnn", "nccl"):
        version = data.exact(f"nvidia-{library}-cu{versions.major(build)}")
        if version:
            values[library] = {**(entry.get(library) or {}), build: version}
    return values


def _read_tensorflow(data: Metadata) -> dict[str, Any]:
    values: dict[str, Any] = {"python": list(data.python)}
    for name, part in (("cuda-runtime", "cuda"), ("cudnn", "cudnn")):
        least = next((v for major in ("13", "12") if (v := data.least(f"nvidia-{name}-cu{major}"))), None)
        if least:
            values[part] = versions.minor(least)
    return values


_SECONDS = 300.0
# Ask for Linux wheels of this Python, whatever hvlab itself runs on.
_PYTHON = "3.12"
_PLATFORMS = (*(f"manylinux{kind}_x86_64" for kind in ("_2_28", "_2_27", "2014", "1")), "any")
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
    required: dict[str, str] = {}
    for line in content.get("requires_dist") or ():
        match = _REQUIREMENT.match(line)
        if match:
            required.setdefault(match[1].lower().replace("_", "-"), match[3].strip().strip("()"))
    return Metadata(_python(content), required)


def _python(content: Mapping[str, Any]) -> tuple[str, str]:
    named = [match[1] for text in content.get("classifier") or () if (match := _MINOR.match(str(text)))]
    if not named:
        raise ValueError("it names no Python minors")
    least = re.search(r">=\s*(\d+\.\d+)", str(content.get("requires_python") or ""))
    minors = sorted(
        (name for name in named if not least or versions.is_at_least(name, least[1])), key=versions.numbers
    )
    return minors[0], minors[-1]
