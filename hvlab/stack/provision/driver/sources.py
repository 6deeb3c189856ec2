"""apt's configuration: the driver's components, and the pins that keep its packages at their version."""

from __future__ import annotations

from collections.abc import Iterable

from hvlab.stack.provision.driver.host import DriverHost, DriverRequest, branch
from hvlab.stack.provision.driver.packages import NVIDIAS, exact_version

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
        known = (
            not entry["signed_by"]
            or "archive-keyring" in entry["signed_by"]
            or "BEGIN PGP" in entry["signed_by"]
        )
        for uri in entry["uris"] if known else []:
            for suite in suites & set(entry["suites"]):
                present = groups.setdefault((uri.rstrip("/"), entry["signed_by"]), {}).setdefault(
                    suite, set()
                )
                present.update(entry["components"])
    paragraphs = []
    for (uri, signed_by), suites_there in sorted(groups.items()):
        missing = {
            suite: set(request.components) - present
            for suite, present in suites_there.items()
            if "main" in present
        }
        components = sorted(set().union(*missing.values())) if missing else []
        if components:
            lines = [
                "Types: deb",
                f"URIs: {uri}/",
                f"Suites: {' '.join(sorted(s for s in missing if missing[s]))}",
            ]
            lines.append(f"Components: {' '.join(components)}")
            paragraphs.append("\n".join([*lines, *([f"Signed-By: {signed_by}"] if signed_by else [])]) + "\n")
    return "\n".join(paragraphs)


def guard(names: Iterable[str]) -> str:
    """Return apt's configuration that keeps unattended upgrades from these packages, empty for none.

    A hold alone was seen to be overridden, and a library newer than the loaded module stops CUDA.
    """
    lines = [f'  "^{name}$";' for name in names]
    return "\n".join(["Unattended-Upgrade::Package-Blacklist {", *lines, "};", ""]) if lines else ""


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
