"""Which packages to change on a host, and the simulated effect of changing them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from hvlab.base import remedies
from hvlab.base.errors import UsageError


@dataclass(frozen=True)
class PackageSpec:
    """A package and its requested version: exact, ending in ``*``, or None for any."""

    name: str
    version: str | None = None

    def __str__(self) -> str:
        return f"{self.name} {self.version}" if self.version else self.name

    def is_met(self, installed: Mapping[str, str]) -> bool:
        """Return whether it is installed; an rpm's version may lack the release or have an epoch."""
        present = installed.get(self.name)
        if present is None or self.version is None:
            return present is not None
        versions = [present, present.rpartition("-")[0]] if "-" not in self.version else [present]
        accepted = {self.version, self.version.partition(":")[2] or self.version}
        if self.version.endswith("*"):
            return any(present.startswith(text.removesuffix("*")) for text in accepted)
        return bool(accepted & set(versions))

    def is_among(self, versions: Iterable[str]) -> bool:
        """Return whether a repository has it: repositories name the epoch, rpm's facts do not."""
        return any(
            self.is_met({self.name: text})
            for version in versions
            for text in (version, version.partition(":")[2] or version)
        )


@dataclass(frozen=True, kw_only=True)
class PackageChanges:
    """The package changes to make on a host."""

    install: Sequence[PackageSpec] = ()
    remove: Sequence[str] = ()
    hold: Sequence[str] = ()
    modules: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.install or self.remove or self.hold or self.modules)

    def __str__(self) -> str:
        parts = [f"to install {', '.join(map(str, self.install))}"] if self.install else []
        parts += [f"to remove {', '.join(self.remove)}"] if self.remove else []
        return " and ".join(parts)

    @property
    def names(self) -> list[str]:
        """Return the names of all packages to change."""
        return list(dict.fromkeys([*(one.name for one in self.install), *self.remove, *self.hold]))

    def diff(self, installed: Mapping[str, str]) -> dict[str, str]:
        """Return the change for `--diff`."""
        touched = [*(one.name for one in self.install), *self.remove]
        before = [f"{name} {installed[name]}" for name in touched if name in installed]
        after = [*map(str, self.install), *(f"{name} held" for name in self.hold), *self.modules]
        return {
            "before": "".join(f"{line}\n" for line in before),
            "after": "".join(f"{line}\n" for line in after),
        }


@dataclass(frozen=True)
class Transaction:
    """Names of installed packages that a simulated call would change to another version, or remove.

    ``comes``: all packages it would install, with their versions.
    """

    changed: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()
    comes: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def touched(self) -> frozenset[str]:
        """Return the installed packages that would not stay as they are."""
        return self.changed | self.removed

    def __or__(self, other: Transaction) -> Transaction:
        comes = {**self.comes, **other.comes}
        return Transaction(self.changed | other.changed, self.removed | other.removed, comes)


def as_packages(items: Iterable[str | Mapping[str, Any]]) -> list[PackageSpec]:
    """Return a task's packages. Raises UsageError for an entry that is no name, alone or with a version."""
    packages = []
    for item in items:
        if isinstance(item, str):
            packages.append(PackageSpec(item))
            continue
        name, version = item.get("name"), item.get("version")
        if not name or set(item) - {"name", "version"}:
            raise UsageError(f"{dict(item)} is not a package: write a name, or {{name: ..., version: ...}}")
        if version is not None and not isinstance(version, str):
            raise UsageError(
                f"version {version} of {name} is a number: write it in quotes, as YAML drops zeros"
            )
        packages.append(PackageSpec(name, version or None))
    return packages


def matching(patterns: Iterable[str], installed: Iterable[str], *, but: Iterable[str]) -> list[str]:
    """Return the installed packages whose name matches one of the patterns, without those in ``but``."""
    globs, excluded = list(patterns), set(but)
    return sorted(
        {
            name
            for name in installed
            if name not in excluded and any(fnmatchcase(name, glob) for glob in globs)
        }
    )


def apt_transaction(text: str) -> Transaction:
    """Read the output of ``apt-get --simulate``; the old version follows the name of a changed package."""
    changed = re.findall(r"^Inst ([^\s:]+)(?::\S+)? \[", text, re.MULTILINE)
    removed = re.findall(r"^(?:Remv|Purg) ([^\s:]+)", text, re.MULTILINE)
    comes = re.findall(r"^Inst ([^\s:]+)(?::\S+)? (?:\[[^\]]*\] )?\((\S+)", text, re.MULTILINE)
    return Transaction(frozenset(changed), frozenset(removed), dict(comes))


def rpm_transaction(text: str) -> Transaction:
    """Read the table of ``dnf --assumeno`` or ``yum --assumeno``."""
    changed: set[str] = set()
    removed: set[str] = set()
    comes: dict[str, str] = {}
    section: set[str] | None = None
    for line in text.splitlines():
        if re.match(r"[A-Z][^:]*:$", line.rstrip()) or line.startswith("Transaction Summary"):
            section = None
            if line.startswith("Install"):
                section = set()
            elif line.startswith(("Upgrad", "Updat", "Downgrad", "Reinstall")):
                section = changed
            elif line.startswith(("Remov", "Eras")):
                section = removed
        elif section is not None and (match := re.match(r" (\S+)", line)):
            section.add(match[1])
            cells = line.split()
            if section is not removed and len(cells) > 3:  # noqa: PLR2004 - name, architecture, version, repository
                comes[match[1]] = cells[2]
        elif match := re.match(r" {5}replacing +(\S+)\.\S+ ", line):
            removed.add(match[1])
    return Transaction(frozenset(changed), frozenset(removed), comes)


def installed(listing: str) -> dict[str, str]:
    """Return name and version of each package of lines ``installed NAME VERSION``; others are left out."""
    rows = [line.split() for line in listing.splitlines()]
    return {row[1]: row[2] for row in rows if len(row) == 3 and row[0] == "installed"}  # noqa: PLR2004


def apt_versions(madison: str, name: str) -> list[str]:
    """Return the versions of a package that ``apt-cache madison`` printed, verbatim."""
    rows = [[cell.strip() for cell in line.split("|")] for line in madison.splitlines()]
    return list(dict.fromkeys(row[1] for row in rows if len(row) > 1 and row[0] == name))


def rpm_versions(listing: str, name: str) -> list[str]:
    """Return a package's versions in the repositories, from ``dnf list --showduplicates``.

    yum wraps long lines, so this reads words, not lines.
    """
    words = re.findall(r"(\S+)\.(?:\w+)\s+(\d\S*)\s+([@\w]\S*)", listing)
    return list(
        dict.fromkeys(version for package, version, repo in words if package == name and repo[0] != "@")
    )


def remedy(text: str, conflict: str) -> str:
    """Return the remedy for a package manager's error; ``conflict`` tells how to let other packages go."""
    return remedies.remedy(
        "packages", text, "run the package manager there yourself for details", conflict=conflict
    )


def complaint(text: str) -> str:
    """Return the lines of a package manager's output that explain a failure, at most twelve."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    noise = r"Last metadata|Operation aborted|Exiting on user|Nothing to do|Complete!|Reading |Building |W: "
    marks = (
        r"E: |W: (Failed to fetch|GPG)|Error|\s*Problem|  - |No match|No package|GPG|Public key|"
        r"Package .* is not signed|.* Depends: |Consult .*make\.log|dpkg: error"
    )
    errors = [line for line in lines if re.match(marks, line) and "Operation aborted" not in line]
    shown = errors or [line for line in lines if not re.match(noise, line)]
    return "\n".join(f"  {line.strip()}" for line in shown[:12])
