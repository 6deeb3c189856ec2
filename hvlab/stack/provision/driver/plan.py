"""What to do about the driver of a host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hvlab.base.errors import Problem
from hvlab.stack.provision.driver.fabric import wants_fabric_manager, wants_imex, wants_subnet_manager
from hvlab.stack.provision.driver.host import PACKAGED, DriverHost, DriverRequest, installed_version, upstream
from hvlab.stack.provision.driver.in_use import in_use, interrupts, reboot_in_the_way, reboots
from hvlab.stack.provision.driver.obstacles import obstacles, transitional, unavailable, without_dkms
from hvlab.stack.provision.driver.packages import (
    builds_modules,
    compiler,
    following,
    headers_of_updates,
    is_installed,
    kernels_gcc,
    needed_packages,
    old_packages,
    other_pinning,
    removals,
    requested_packages,
    stays,
    target,
)
from hvlab.stack.provision.driver.sources import pin, sources


@dataclass(frozen=True)
class DriverPlan:
    """What to do, and the obstacles."""

    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    prepare: list[Mapping[str, Any]] = field(default_factory=list)
    install: list[Mapping[str, Any]] = field(default_factory=list)
    requested: list[Mapping[str, Any]] = field(default_factory=list)
    along: list[Mapping[str, Any]] = field(default_factory=list)
    remove: list[str] = field(default_factory=list)
    may_go: list[str] = field(default_factory=list)
    run_uninstaller: bool = False
    runfile: bool = False
    sources: str = ""
    stream: str = ""
    pin: str = ""
    compiler: str = ""
    build: bool = False
    fabric_manager: bool = False
    subnet_manager: bool = False
    imex: bool = False
    interrupts: bool = False
    reboots: bool = False

    @property
    def changes(self) -> bool:
        """Whether anything will be installed or removed."""
        todo = (self.prepare, self.install, self.remove, self.run_uninstaller, self.runfile, self.sources)
        return any(todo)


def plan(host: DriverHost, request: DriverRequest, *, repository_ready: bool) -> DriverPlan:
    """Return the plan for a host.

    ``repository_ready``: whether the method's repository is set up, so that an unavailable package is a
    problem and not merely unknown yet.
    """
    current = installed_version(host, request.kernel)
    prepare = [package for package in needed_packages(host, request) if not is_installed(host, package)]
    staying = stays(host, request)
    runfile = request.method == "runfile" and not staying and not runfile_present(host, request)
    clearing = request.remove_old and request.method != "none" and not staying
    remove = removals(host, request) if clearing and (request.method != "runfile" or runfile) else []
    foreign_run = bool(host.state.get("uninstaller")) and (
        request.method in PACKAGED or (runfile and current != request.version)
    )
    requested, along = requested_packages(host, request), following(host, request)
    install = [package for package in [*requested, *along] if not is_installed(host, package)]
    apt_sources = sources(host, request)
    if apt_sources == host.state.get("own_sources") or (staying and not install):
        apt_sources = ""
    removing = runfile or (clearing and foreign_run) or bool(remove)
    installing = runfile or bool(install)
    interrupted = interrupts(host, request, install=install, removing=removing)
    result = DriverPlan(
        prepare=prepare,
        install=install,
        requested=requested,
        along=along,
        remove=remove,
        may_go=[*(old_packages(host, request) if clearing else []), *other_pinning(host, request)],
        run_uninstaller=clearing and foreign_run,
        runfile=runfile,
        sources=apt_sources,
        stream="" if staying and (_stream(host) or not install) else _other_stream(host, request),
        pin=pin(request, "" if staying else target(host, request))
        if host.facts.get("pkg_mgr") == "apt"
        else "",
        compiler=compiler(host, request),
        build=builds_modules(host, request),
        fabric_manager=wants_fabric_manager(host, request),
        subnet_manager=wants_subnet_manager(host, request),
        imex=wants_imex(request),
        interrupts=interrupted,
        reboots=reboots(host, request, installing=installing, interrupted=interrupted),
        notes=list(notes(host, request)),
    )
    touched = {package["name"] for package in install} & set(host.packages) | set(remove)
    problems = list(obstacles(host, request, installing=installing, touched=touched))
    if result.interrupts:
        problems += in_use(host, request)
    if result.reboots:
        problems += reboot_in_the_way(host, request)
    if install:
        problems += transitional(host, request)
    if repository_ready and install:
        problems += without_dkms(host, request)
    if repository_ready and not apt_sources and not result.stream:
        problems += unavailable(host, request, [*prepare, *install])
    result.problems.extend(Problem(host.name, *problem) for problem in problems)
    return result


def runfile_present(host: DriverHost, request: DriverRequest) -> bool:
    """Return whether NVIDIA's runfile has installed the requested version."""
    return bool(host.state.get("uninstaller")) and installed_version(host, request.kernel) == request.version


def _stream(host: DriverHost) -> str:
    stream = host.fact("module_streams", {}).get("nvidia-driver")
    return f"nvidia-driver:{stream}" if stream else ""


def _other_stream(host: DriverHost, request: DriverRequest) -> str:
    return request.stream if request.stream != _stream(host) else ""


def notes(host: DriverHost, request: DriverRequest) -> Iterator[str]:
    """Yield remarks that are no reason to stop."""
    others = old_packages(host, request) if request.method in PACKAGED and not request.remove_old else []
    if others and not stays(host, request):
        versions = ", ".join(sorted({upstream(host.packages[name]) for name in others}))
        yield (
            f"{host.name}: packages of driver {versions} are installed; "
            "if they conflict, set nvidia_driver_remove_old: true"
        )
    brought = {package["name"] for package in headers_of_updates(host, request)}
    left = [p["name"] for p in request.headers_following if p["name"] not in brought]
    if builds_modules(host, request) and left and not host.state.get("unsure"):
        yield (
            f"{host.name}: no repository has {', '.join(left)}: after the next kernel update the headers are "
            "missing, and with them the driver's modules; install the new kernel's headers with it"
        )
    used, command, own = kernels_gcc(host, request), compiler(host, request), host.fact("gcc")
    if used and (own or command):
        advice = (
            f"the modules are built with {command}"
            if command
            else f"if they do not build, install gcc {used}"
        )
        built = f"kernel {request.kernel} was built with gcc {used}"
        yield f"{host.name}: {built}, and gcc here is {own or 'missing'}; {advice}"
