"""What has to be done for the driver of a host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hvlab.errors import Problem
from hvlab.provision.driver.host import PACKAGED, Host, Wish, installed_version, upstream
from hvlab.provision.driver.obstacles import obstacles, unavailable, without_dkms
from hvlab.provision.driver.packages import (
    builds_modules,
    following,
    needed_packages,
    old_packages,
    removals,
    stays,
    there,
    wanted_packages,
    wants_fabric_manager,
)
from hvlab.provision.driver.sources import pin, sources


@dataclass(frozen=True)
class Plan:
    """What has to be done, and what stands in the way."""

    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    prepare: list[Mapping[str, Any]] = field(default_factory=list)
    install: list[Mapping[str, Any]] = field(default_factory=list)
    wanted: list[Mapping[str, Any]] = field(default_factory=list)
    along: list[Mapping[str, Any]] = field(default_factory=list)
    remove: list[str] = field(default_factory=list)
    may_go: list[str] = field(default_factory=list)
    run_uninstaller: bool = False
    runfile: bool = False
    sources: str = ""
    stream: str = ""
    pin: str = ""
    build: bool = False
    fabric_manager: bool = False

    @property
    def changes(self) -> bool:
        """Whether anything is to be installed or removed."""
        todo = (self.prepare, self.install, self.remove, self.run_uninstaller, self.runfile, self.sources)
        return any(todo)


def plan(host: Host, wish: Wish, *, repository_ready: bool) -> Plan:
    """Return what has to be done on a host.

    ``repository_ready``: whether the method's repository is there already, so that a package which cannot be
    had is a problem and not just not yet known.
    """
    current = installed_version(host, wish.kernel)
    prepare = [package for package in needed_packages(host, wish) if not there(host, package)]
    staying = stays(host, wish)
    runfile = wish.method == "runfile" and not staying and not runfile_present(host, wish)
    clearing = wish.remove_old and wish.method != "none" and not staying
    remove = removals(host, wish) if clearing and (wish.method != "runfile" or runfile) else []
    foreign_run = bool(host.seen.get("uninstaller")) and (
        wish.method in PACKAGED or (runfile and current != wish.version)
    )
    wanted, along = wanted_packages(host, wish), following(host, wish)
    install = [package for package in [*wanted, *along] if not there(host, package)]
    lacking = sources(host, wish)
    lacking = "" if lacking == host.seen.get("own_sources") or (staying and not install) else lacking
    found = Plan(
        prepare=prepare,
        install=install,
        wanted=wanted,
        along=along,
        remove=remove,
        may_go=old_packages(host, wish) if clearing else [],
        run_uninstaller=clearing and foreign_run,
        runfile=runfile,
        sources=lacking,
        stream="" if staying and (_stream(host) or not install) else _other_stream(host, wish),
        pin=pin(wish) if host.facts.get("pkg_mgr") == "apt" else "",
        build=builds_modules(host, wish),
        fabric_manager=wants_fabric_manager(host, wish),
        notes=list(notes(host, wish)),
    )
    touched = {package["name"] for package in install} & set(host.packages) | set(remove)
    problems = list(obstacles(host, wish, installing=runfile or bool(install), touched=touched))
    if repository_ready and install:
        problems += without_dkms(host, wish)
    if repository_ready and not lacking and not found.stream:
        problems += unavailable(host, wish, [*prepare, *install])
    found.problems.extend(Problem(host.name, *problem) for problem in problems)
    return found


def runfile_present(host: Host, wish: Wish) -> bool:
    """Say whether NVIDIA's runfile has installed the wanted version."""
    return bool(host.seen.get("uninstaller")) and installed_version(host, wish.kernel) == wish.version


def _stream(host: Host) -> str:
    stream = host.own("module_streams", {}).get("nvidia-driver")
    return f"nvidia-driver:{stream}" if stream else ""


def _other_stream(host: Host, wish: Wish) -> str:
    return wish.stream if wish.stream != _stream(host) else ""


def notes(host: Host, wish: Wish) -> Iterator[str]:
    """Yield what is worth knowing and no reason to stop."""
    others = old_packages(host, wish) if wish.method in PACKAGED and not wish.remove_old else []
    if others and not stays(host, wish):
        versions = ", ".join(sorted({upstream(host.packages[name]) for name in others}))
        yield (
            f"{host.name}: packages of driver {versions} are installed; "
            "should they get in the way, set nvidia_driver_remove_old: true"
        )
    used, own = host.seen.get("compiler"), str(host.own("gcc", "")).split(".")[0]
    if builds_modules(host, wish) and used and own and used != own:
        yield (
            f"{host.name}: kernel {wish.kernel} was built with gcc {used}, and gcc here is {own}; "
            f"should the modules not build, install gcc-{used}"
        )
