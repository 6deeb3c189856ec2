"""The plan for the driver of a host, and apt's configuration for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hvlab.base.errors import Problem
from hvlab.stack.provision.driver.host import (
    PACKAGED,
    DriverHost,
    DriverRequest,
    branch,
    find_installed_version,
    upstream,
    wants_fabric_manager,
    wants_imex,
    wants_subnet_manager,
)
from hvlab.stack.provision.driver.in_use import DRAIN, in_use, interrupts, needs_reboot, reboot_in_the_way
from hvlab.stack.provision.driver.obstacles import obstacles, transitional, unavailable, without_dkms
from hvlab.stack.provision.driver.packages import (
    NVIDIAS,
    builds_modules,
    compiler,
    exact_version,
    following,
    follows_kernels,
    headers_of_updates,
    is_installed,
    kernels_gcc,
    list_needed,
    list_old,
    list_other_pinning,
    list_requested,
    removals,
    stays,
    target,
)


@dataclass(frozen=True)
class DriverPlan:
    """Changes to a host, and the obstacles; ``waits``: the work that a drain lets end first."""

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
    trial: bool = False
    fabric_manager: bool = False
    subnet_manager: bool = False
    imex: bool = False
    interrupts: bool = False
    reboots: bool = False
    waits: list[str] = field(default_factory=list)

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
    current = find_installed_version(host, request.kernel)
    prepare = [package for package in list_needed(host, request) if not is_installed(host, package)]
    staying = stays(host, request)
    has_runfile = bool(host.state.get("uninstaller")) and current == request.version
    runfile = request.method == "runfile" and not staying and not has_runfile
    clearing = request.remove_old and request.method != "none" and not staying
    remove = removals(host, request) if clearing and (request.method != "runfile" or runfile) else []
    foreign_run = bool(host.state.get("uninstaller")) and (
        request.method in PACKAGED or (runfile and current != request.version)
    )
    requested, along = list_requested(host, request), following(host, request)
    install = [package for package in [*requested, *along] if not is_installed(host, package)]
    apt_sources = sources(host, request)
    if apt_sources == host.state.get("own_sources") or (staying and not install):
        apt_sources = ""
    removing = runfile or (clearing and foreign_run) or bool(remove)
    installing = runfile or bool(install)
    interrupted = interrupts(host, request, install=install, removing=removing)
    enabled = host.fact("module_streams", {}).get("nvidia-driver")
    stream = f"nvidia-driver:{enabled}" if enabled else ""
    pinned = host.facts.get("pkg_mgr") == "apt" and not (staying and follows_kernels(host))
    unchanged = request.stream == stream or (staying and (stream or not install))
    result = DriverPlan(
        prepare=prepare,
        install=install,
        requested=requested,
        along=along,
        remove=remove,
        may_go=[*(list_old(host, request) if clearing else []), *list_other_pinning(host, request)],
        run_uninstaller=clearing and foreign_run,
        runfile=runfile,
        sources=apt_sources,
        stream="" if unchanged else request.stream,
        pin=pin(request, target(host, request)) if pinned else "",
        compiler=compiler(host, request),
        # A build that fails would leave the host without the driver that it has.
        trial=bool(install and current) and request.method in PACKAGED and builds_modules(host, request),
        fabric_manager=wants_fabric_manager(host, request),
        subnet_manager=wants_subnet_manager(host, request),
        imex=wants_imex(request),
        interrupts=interrupted,
        reboots=needs_reboot(host, request, installing=installing, interrupted=interrupted),
        notes=list(notes(host, request)),
    )
    touched = {package["name"] for package in install} & set(host.packages) | set(remove)
    problems = list(obstacles(host, request, installing=installing, touched=touched))
    if result.interrupts:
        problems += in_use(host, request)
    if result.reboots:
        problems += reboot_in_the_way(host, request)
    if (result.interrupts or result.reboots) and request.in_use == DRAIN:
        result.waits.extend([f"{job} of Slurm" for job in host.state.get("work", {}).get("jobs", [])])
        result.waits.extend(host.holders)
    if install:
        problems += transitional(host, request)
    if repository_ready and install:
        problems += without_dkms(host, request)
    if repository_ready and not apt_sources and not result.stream:
        problems += unavailable(host, request, [*prepare, *install])
    result.problems.extend(Problem(host.name, *problem) for problem in problems)
    return result


def notes(host: DriverHost, request: DriverRequest) -> Iterator[str]:
    """Yield remarks that are no reason to stop."""
    others = list_old(host, request) if request.method in PACKAGED and not request.remove_old else []
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
        other = f"if they do not build, install gcc {used}"
        advice = f"the modules are built with {command}" if command else other
        built = f"kernel {request.kernel} was built with gcc {used}"
        yield f"{host.name}: {built}, and gcc here is {own or 'missing'}; {advice}"


SOURCES = "/etc/apt/sources.list.d/hvlab-nvidia-driver.sources"


def sources(host: DriverHost, request: DriverRequest) -> str:
    """Return apt sources with the components that a host's own distribution sources lack.

    They use the host's own mirror. Empty if nothing is missing.
    """
    if request.method != "distro" or not request.components:
        return ""
    codename = str(host.facts.get("distribution_release", ""))
    suites = {codename, *(f"{codename}-{kind}" for kind in ("updates", "security", "backports"))}
    groups: dict[tuple[str, ...], dict[str, set[str]]] = {}
    for entry in host.state.get("sources", []):
        if entry["file"] == SOURCES:
            continue
        signer = entry["signed_by"]
        known = not signer or "archive-keyring" in signer or "BEGIN PGP" in signer
        for uri in entry["uris"] if known else []:
            for suite in suites & set(entry["suites"]):
                of_suite = groups.setdefault((uri.rstrip("/"), signer), {})
                of_suite.setdefault(suite, set()).update(entry["components"])
    paragraphs = []
    for (uri, signed_by), suites_there in sorted(groups.items()):
        requested = set(request.components)
        missing = {suite: requested - present for suite, present in suites_there.items() if "main" in present}
        incomplete = sorted(suite for suite, absent in missing.items() if absent)
        if incomplete:
            components = sorted(set().union(*missing.values()))
            lines = ["Types: deb", f"URIs: {uri}/", f"Suites: {' '.join(incomplete)}"]
            lines += [
                f"Components: {' '.join(components)}",
                *([f"Signed-By: {signed_by}"] if signed_by else []),
            ]
            paragraphs.append("\n".join(lines) + "\n")
    return "\n".join(paragraphs)


def pin(request: DriverRequest, found: str = "") -> str:
    """Return apt preferences that keep all packages of the driver at the requested version.

    For a branch that is ``found``, the version it would install; the branch itself if that is unknown.
    NVIDIA's packages depend on one another in "at least" a version, and apt takes the newest it sees.
    """
    goal = branch(request.version)
    exact = exact_version(request) or (found if "." in found and branch(found) == goal else "")
    version = f"{exact}-*" if exact else f"{goal}.*" if goal else ""
    if not version or request.method not in NVIDIAS:
        return ""
    return f"Package: {' '.join(request.old)}\nPin: version {version}\nPin-Priority: 1001\n"
