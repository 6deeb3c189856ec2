"""Command lines of the package managers, and how their answers are read. Pure."""

from __future__ import annotations

import re
from typing import Protocol

from hvlab.provision.packages import (
    Transaction,
    Wanted,
    apt_transaction,
    apt_versions,
    rpm_transaction,
    rpm_versions,
)


class Manager(Protocol):
    """What the action hvlab_packages asks of a package manager. `unlocked`: holds of our own do not count."""

    environment: tuple[str, ...]
    lock_plugin: str | None
    query: list[str]
    refresh: list[str]
    unlocked: bool
    # Whether one simulated call can tell of packages that come in the place of others.
    swaps: bool

    def simulate(self, install: list[Wanted], remove: list[str]) -> list[list[str]]:
        """Return the commands that say what would happen."""

    def judge(self, rc: int, text: str) -> Transaction | None:
        """Return what a simulation says would happen; None for a refusal."""

    def perform(self, install: list[Wanted], remove: list[str]) -> list[list[str]]:
        """Return the commands that do it, in this order; what they need is fetched before anything goes."""

    def hold(self, names: list[str]) -> list[str]:
        """Return the command that keeps packages as they are."""

    def forget(self, names: list[str]) -> list[str]:
        """Return the command that ends holds that no longer fit; empty where none has to."""

    def release(self, names: list[str]) -> str:
        """Return the command line with which a person ends holds."""

    def list_versions(self, names: list[str]) -> list[str]:
        """Return the command that lists what the repositories have."""

    def versions(self, listing: str, name: str) -> list[str]:
        """Return the versions of one package in that list."""

    def installed(self, listing: str) -> dict[str, str]:
        """Return name and version of each installed package from what `query` printed."""


class Apt:
    """apt and dpkg: one call installs and removes."""

    environment: tuple[str, ...] = (
        "LC_ALL=C",
        "DEBIAN_FRONTEND=noninteractive",
        "NEEDRESTART_MODE=l",
        "APT_LISTCHANGES_FRONTEND=none",
    )
    lock_plugin: str | None = None
    query = ["dpkg-query", "-W", "-f", "${db:Status-Status} ${Package} ${Version}\\n"]
    refresh = ["apt-get", "-o", "DPkg::Lock::Timeout=300", "update"]
    # Else a name that is not in apt's lists, such as g++, is a pattern that matches what is installed.
    _options = ("-y", "--purge", "--no-install-recommends", "--allow-downgrades",
                "-o", "APT::Cmd::Pattern-Only=true", "-o", "DPkg::Lock::Timeout=300",
                "-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold")  # fmt: skip

    def __init__(self) -> None:
        self.unlocked = False
        self.swaps = True

    def _argv(self, install: list[Wanted], remove: list[str], *options: str) -> list[str]:
        if self.unlocked:
            options += ("--allow-change-held-packages", "-o", "APT::Ignore-Hold=true")
        words = [f"{one.name}={one.version}" if one.version else one.name for one in install]
        verb = "install" if install else "remove"
        gone = [f"{name}-" for name in remove] if install else remove
        return ["apt-get", *options, *self._options, verb, "--", *words, *gone]

    def simulate(self, install: list[Wanted], remove: list[str]) -> list[list[str]]:
        """Return the one simulated call."""
        return [self._argv(install, remove, "--simulate")]

    def judge(self, rc: int, text: str) -> Transaction | None:
        """Return what would happen."""
        return None if rc else apt_transaction(text)

    def perform(self, install: list[Wanted], remove: list[str]) -> list[list[str]]:
        """Fetch everything, then install and remove in one call."""
        fetch = [self._argv(install, remove, "--download-only")] if install and remove else []
        return [*fetch, self._argv(install, remove)]

    def hold(self, names: list[str]) -> list[str]:
        """Set dpkg's selection."""
        return ["apt-mark", "hold", "--", *names]

    def forget(self, names: list[str]) -> list[str]:  # noqa: ARG002
        """Do nothing: a purged package has no selection, and a selection has no version."""
        return []

    def release(self, names: list[str]) -> str:
        """Name apt-mark."""
        return f"apt-mark unhold {' '.join(names)}"

    def list_versions(self, names: list[str]) -> list[str]:
        """Ask apt's lists."""
        return ["apt-cache", "madison", "--", *names]

    def versions(self, listing: str, name: str) -> list[str]:
        """Read them."""
        return apt_versions(listing, name)

    def installed(self, listing: str) -> dict[str, str]:
        """Read dpkg's list."""
        rows = [line.split() for line in listing.splitlines()]
        return {row[1]: row[2] for row in rows if len(row) == 3 and row[0] == "installed"}  # noqa: PLR2004


class Rpm:
    """dnf or yum: what is wanted is fetched and checked, then the old goes, then the new comes.

    yum cannot look past a conflict with what has to go: there it is only seen that the wanted versions exist.
    """

    environment: tuple[str, ...] = ("LC_ALL=C",)
    query = ["rpm", "-qa", "--qf", "%{NAME} %{VERSION}-%{RELEASE}\\n"]

    def __init__(self, program: str) -> None:
        self.program = program
        self.unlocked = False
        self.swaps = program != "yum"
        self.refresh = [program, "-y", "clean", "expire-cache"]
        names = {"yum": "yum-plugin-versionlock", "dnf": "python3-dnf-plugin-versionlock"}
        self.lock_plugin = names.get(program)

    def _argv(self, verb: str, words: list[str], *options: str) -> list[str]:
        options += ("--disableplugin=versionlock",) if self.unlocked and self.lock_plugin else ()
        return [self.program, "--setopt=clean_requirements_on_remove=0", *options, verb, *words]

    @staticmethod
    def _words(install: list[Wanted]) -> list[str]:
        return [f"{one.name}-{one.version}" if one.version else one.name for one in install]

    def _erasing(self, remove: list[str]) -> list[str]:
        return ["--allowerasing"] if remove else []

    def simulate(self, install: list[Wanted], remove: list[str]) -> list[list[str]]:
        """Return a call for what comes and one for what goes."""
        comes = [self._argv("install", self._words(install), "--assumeno", *self._erasing(remove))]
        goes = [self._argv("remove", remove, "--assumeno")]
        told = install and (self.swaps or not remove)
        return (comes if told else []) + (goes if remove else [])

    def judge(self, rc: int, text: str) -> Transaction | None:
        """Return what would happen: a call that asked, and was told no, had nothing to complain about."""
        if re.search(r"No match for argument|No package \S+ available|Unable to find a match", text):
            return None
        if rc and not re.search(r"Operation aborted|Exiting on user", text):
            return None
        return rpm_transaction(text)

    def perform(self, install: list[Wanted], remove: list[str]) -> list[list[str]]:
        """Return the calls; the download checks the packages' signatures, too."""
        words, options = self._words(install), ["-y", *(self._erasing(remove) if self.swaps else [])]
        if not remove:
            return [self._argv("install", words, *options)]
        goes = self._argv("remove", remove, "-y", "--setopt=keepcache=1")
        if not install:
            return [goes]
        fetch = self._argv("install", words, *options, "--downloadonly", "--setopt=keepcache=1")
        return [*([fetch] if self.swaps else []), goes, self._argv("install", words, *options)]

    def hold(self, names: list[str]) -> list[str]:
        """Lock the installed versions."""
        return [self.program, "versionlock", "add", *names]

    def forget(self, names: list[str]) -> list[str]:
        """Delete the locks."""
        return [self.program, "versionlock", "delete", *names]

    def release(self, names: list[str]) -> str:
        """Name the plugin."""
        return f"{self.program} versionlock delete {' '.join(names)}"

    def list_versions(self, names: list[str]) -> list[str]:
        """Ask the repositories."""
        plugin = ["--disableplugin=versionlock"] if self.lock_plugin else []
        return [self.program, "-q", *plugin, "list", "--showduplicates", *names]

    def versions(self, listing: str, name: str) -> list[str]:
        """Read the answer."""
        return rpm_versions(listing, name)

    def installed(self, listing: str) -> dict[str, str]:
        """Read rpm's list."""
        return dict(line.split(" ", 1) for line in listing.splitlines() if " " in line)

    def enable(self, module: str) -> list[list[str]]:
        """Return the calls that look for a module stream and make it the one in use."""
        name = module.partition(":")[0]
        plain = [["-q", "module", "list", module], ["-y", "module", "reset", name]]
        return [[self.program, *words] for words in [*plain, ["-y", "module", "enable", module]]]
