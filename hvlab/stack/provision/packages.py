"""Which packages to change on a host, and how apt, dnf and yum are asked to do it. Pure.

Both package managers have the same members:

- ``simulate`` returns commands that show what would happen; ``judge`` reads an answer, None is a refusal.
- ``unused``: a command that shows what goes if unused dependencies do; with apt also those unused before.
- ``perform`` returns the commands that do it, in order: downloads come before any removal.
- ``hold`` keeps packages at their version, ``forget`` ends holds that no longer fit, ``release`` is the
  command line with which a person ends them. ``unlocked`` ignores our own holds.
- ``swaps`` says whether one simulated call covers packages that replace others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
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
        """Whether it is installed; an rpm's version may lack the release or have an epoch."""
        present = installed.get(self.name)
        if present is None or self.version is None:
            return present is not None
        versions = [present, present.rpartition("-")[0]] if "-" not in self.version else [present]
        accepted = {self.version, self.version.partition(":")[2] or self.version}
        if self.version.endswith("*"):
            return any(present.startswith(text.removesuffix("*")) for text in accepted)
        return bool(accepted & set(versions))

    def is_among(self, versions: Iterable[str]) -> bool:
        """Whether a repository has it: repositories name the epoch, rpm's facts do not."""
        spellings = (text for version in versions for text in (version, version.partition(":")[2] or version))
        return any(self.is_met({self.name: text}) for text in spellings)


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
        diff = {"before": before, "after": after}
        return {name: "".join(f"{line}\n" for line in lines) for name, lines in diff.items()}


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
    globs = list(patterns)
    chosen = {name for name in installed if any(fnmatchcase(name, glob) for glob in globs)}
    return sorted(chosen.difference(but))


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


def parse_installed(listing: str) -> dict[str, str]:
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
    rows = re.findall(r"(\S+)\.(?:\w+)\s+(\d\S*)\s+([@\w]\S*)", listing)
    return list(
        dict.fromkeys(version for package, version, repo in rows if package == name and repo[0] != "@")
    )


def remedy(text: str, conflict: str) -> str:
    """Return the remedy for a package manager's error; ``conflict`` tells how to let other packages go."""
    usual = "run the package manager there yourself for details"
    return remedies.remedy("packages", text, usual, conflict=conflict)


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


class Apt:
    """apt and dpkg: one call installs and removes."""

    environment: tuple[str, ...] = (
        "LC_ALL=C",
        "DEBIAN_FRONTEND=noninteractive",
        "NEEDRESTART_MODE=l",
        "APT_LISTCHANGES_FRONTEND=none",
    )
    lock_plugin: str | None = None
    swaps = True
    query = ["dpkg-query", "-W", "-f", "${db:Status-Status} ${Package} ${Version}\\n"]
    refresh = ["apt-get", "update"]
    versions = staticmethod(apt_versions)
    # Otherwise a name unknown to apt, such as g++, is a pattern that matches installed packages.
    _options = ("-y", "--purge", "--no-install-recommends", "--allow-downgrades",
                "-o", "APT::Cmd::Pattern-Only=true", "-o", "DPkg::Lock::Timeout=300",
                "-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold")  # fmt: skip

    def __init__(self) -> None:
        self.unlocked = False

    def _argv(self, install: Sequence[PackageSpec], remove: Sequence[str], *options: str) -> list[str]:
        if self.unlocked:
            options += ("--allow-change-held-packages", "-o", "APT::Ignore-Hold=true")
        words = [f"{one.name}={one.version}" if one.version else one.name for one in install]
        verb = "install" if install else "remove"
        gone = [f"{name}-" for name in remove] if install else [*remove]
        return ["apt-get", *options, *self._options, verb, "--", *words, *gone]

    def simulate(self, install: Sequence[PackageSpec], remove: Sequence[str]) -> list[list[str]]:
        """Return the one simulated call."""
        return [self._argv(install, remove, "--simulate")]

    def unused(self, remove: Sequence[str]) -> list[str]:
        """Let apt mark them."""
        return self._argv([], remove, "--simulate", "--auto-remove")

    def judge(self, rc: int, text: str) -> Transaction | None:
        """Return the simulated transaction."""
        return None if rc else apt_transaction(text)

    def show(self, packages: Mapping[str, str]) -> list[str]:
        """Show these versions; their Installed-Size is in KiB."""
        return ["apt-cache", "show", "--", *(f"{name}={version}" for name, version in packages.items())]

    def perform(self, install: Sequence[PackageSpec], remove: Sequence[str]) -> list[list[str]]:
        """Fetch everything, then install and remove in one call."""
        fetch = self.fetch(install, remove) if install and remove else []
        return [*fetch, self._argv(install, remove)]

    def fetch(self, install: Sequence[PackageSpec], remove: Sequence[str]) -> list[list[str]]:
        """Leave the packages in /var/cache/apt/archives."""
        return [self._argv(install, remove, "--download-only")]

    def hold(self, names: Sequence[str]) -> list[str]:
        """Set dpkg's selection."""
        return ["apt-mark", "hold", "--", *names]

    def forget(self, names: Sequence[str]) -> list[str]:  # noqa: ARG002
        """Do nothing: a purged package has no selection, and a selection has no version."""
        return []

    def release(self, names: Sequence[str]) -> str:
        """Name apt-mark."""
        return f"apt-mark unhold {' '.join(names)}"

    def list_versions(self, names: Sequence[str]) -> list[str]:
        """Ask apt's lists."""
        return ["apt-cache", "madison", "--", *names]


class Rpm:
    """dnf or yum: new packages are fetched and checked, then old ones are removed, then new ones installed.

    yum cannot simulate past a conflict with a package to remove: it only shows that versions exist.
    """

    environment: tuple[str, ...] = ("LC_ALL=C",)
    query = ["rpm", "-qa", "--qf", "installed %{NAME} %{VERSION}-%{RELEASE}\\n"]
    versions = staticmethod(rpm_versions)

    def __init__(self, program: str) -> None:
        self.program = program
        self.unlocked = False
        self.swaps = program != "yum"
        self.refresh = [program, "-y", "clean", "expire-cache"]
        names = {"yum": "yum-plugin-versionlock", "dnf": "python3-dnf-plugin-versionlock"}
        self.lock_plugin = names.get(program)

    def _argv(self, verb: str, words: Sequence[str], *options: str) -> list[str]:
        options += ("--disableplugin=versionlock",) if self.unlocked and self.lock_plugin else ()
        return [self.program, "--setopt=clean_requirements_on_remove=0", *options, verb, *words]

    @staticmethod
    def _words(install: Sequence[PackageSpec]) -> list[str]:
        return [f"{one.name}-{one.version}" if one.version else one.name for one in install]

    def _erasing(self, remove: Sequence[str]) -> list[str]:
        return ["--allowerasing"] if remove else []

    def simulate(self, install: Sequence[PackageSpec], remove: Sequence[str]) -> list[list[str]]:
        """Return one call for installs and one for removals."""
        comes = [self._argv("install", self._words(install), "--assumeno", *self._erasing(remove))]
        goes = [self._argv("remove", remove, "--assumeno")]
        simulable = install and (self.swaps or not remove)
        return (comes if simulable else []) + (goes if remove else [])

    def unused(self, remove: Sequence[str]) -> list[str]:
        """Let dnf or yum look for them."""
        return self._argv("remove", remove, "--assumeno", "--setopt=clean_requirements_on_remove=1")

    def judge(self, rc: int, text: str) -> Transaction | None:
        """Return the simulated transaction; a call that only stopped at the prompt succeeded."""
        if re.search(r"No match for argument|No package \S+ available|Unable to find a match", text):
            return None
        if rc and not re.search(r"Operation aborted|Exiting on user", text):
            return None
        return rpm_transaction(text)

    def perform(self, install: Sequence[PackageSpec], remove: Sequence[str]) -> list[list[str]]:
        """Return the calls; the download also checks the packages' signatures."""
        words, options = self._words(install), ["-y", *(self._erasing(remove) if self.swaps else [])]
        if not remove:
            return [self._argv("install", words, *options)]
        goes = self._argv("remove", remove, "-y", "--setopt=keepcache=1")
        if not install:
            return [goes]
        fetch = self.fetch(install, remove) if self.swaps else []
        return [*fetch, goes, self._argv("install", words, *options)]

    def fetch(self, install: Sequence[PackageSpec], remove: Sequence[str]) -> list[list[str]]:
        """Leave the packages below /var/cache, whose signatures are checked on the way."""
        erasing = self._erasing(remove) if self.swaps else []
        options = ("-y", *erasing, "--downloadonly", "--setopt=keepcache=1")
        return [self._argv("install", self._words(install), *options)]

    def hold(self, names: Sequence[str]) -> list[str]:
        """Lock the installed versions."""
        return [self.program, "versionlock", "add", *names]

    def forget(self, names: Sequence[str]) -> list[str]:
        """Delete the locks."""
        return [self.program, "versionlock", "delete", *names]

    def release(self, names: Sequence[str]) -> str:
        """Name the plugin."""
        return f"{self.program} versionlock delete {' '.join(names)}"

    def list_versions(self, names: Sequence[str]) -> list[str]:
        """Ask the repositories."""
        plugin = ["--disableplugin=versionlock"] if self.lock_plugin else []
        return [self.program, "-q", *plugin, "list", "--showduplicates", *names]

    def enable(self, module: str) -> list[list[str]]:
        """Return the calls that look up a module stream and enable it."""
        name = module.partition(":")[0]
        plain = [["-q", "module", "list", module], ["-y", "module", "reset", name]]
        return [[self.program, *words] for words in [*plain, ["-y", "module", "enable", module]]]


MANAGERS: dict[str, Callable[[], Apt | Rpm]] = {
    "apt": Apt,
    "dnf": lambda: Rpm("dnf"),
    "dnf5": lambda: Rpm("dnf5"),
    "yum": lambda: Rpm("yum"),
}
