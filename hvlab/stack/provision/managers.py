"""Command lines of the package managers, and parsers of their answers. Pure.

Both classes have the same members:

- ``simulate`` returns commands that show what would happen; ``judge`` reads an answer, None is a refusal.
- ``perform`` returns the commands that do it, in order: downloads come before any removal.
- ``hold`` keeps packages at their version, ``forget`` ends holds that no longer fit, ``release`` is the
  command line with which a person ends them. ``unlocked`` ignores our own holds.
- ``swaps`` says whether one simulated call covers packages that replace others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from hvlab.stack.provision.packages import (
    PackageSpec,
    Transaction,
    apt_transaction,
    apt_versions,
    rpm_transaction,
    rpm_versions,
)


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
    refresh = ["apt-get", "-o", "DPkg::Lock::Timeout=300", "update"]
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

    def judge(self, rc: int, text: str) -> Transaction | None:
        """Return what would happen."""
        return None if rc else apt_transaction(text)

    def perform(self, install: Sequence[PackageSpec], remove: Sequence[str]) -> list[list[str]]:
        """Fetch everything, then install and remove in one call."""
        fetch = [self._argv(install, remove, "--download-only")] if install and remove else []
        return [*fetch, self._argv(install, remove)]

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

    def judge(self, rc: int, text: str) -> Transaction | None:
        """Return what would happen; a call that only stopped at the prompt succeeded."""
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
        fetch = self._argv("install", words, *options, "--downloadonly", "--setopt=keepcache=1")
        return [*([fetch] if self.swaps else []), goes, self._argv("install", words, *options)]

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
