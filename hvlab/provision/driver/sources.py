"""What apt is told: the components the driver is in, and the exact version of all its parts."""

from __future__ import annotations

from hvlab.provision.driver.host import Host, Wish, branch
from hvlab.provision.driver.packages import NVIDIAS, exact_version

SOURCES = "/etc/apt/sources.list.d/hvlab-nvidia-driver.sources"


def sources(host: Host, wish: Wish) -> str:
    """Return apt sources with the components that a host's own sources of its distribution lack.

    They follow the host's own mirror. Empty when nothing is missing.
    """
    if wish.method != "distro" or not wish.components:
        return ""
    codename = str(host.facts.get("distribution_release", ""))
    suites = {codename, *(f"{codename}-{kind}" for kind in ("updates", "security", "backports"))}
    groups: dict[tuple[str, ...], dict[str, set[str]]] = {}
    for entry in host.seen.get("sources", []):
        if entry["file"] == SOURCES:
            continue
        known = (
            not entry["signed_by"]
            or "archive-keyring" in entry["signed_by"]
            or "BEGIN PGP" in entry["signed_by"]
        )
        for uri in entry["uris"] if known else []:
            for suite in suites & set(entry["suites"]):
                had = groups.setdefault((uri.rstrip("/"), entry["signed_by"]), {}).setdefault(suite, set())
                had.update(entry["components"])
    paragraphs = []
    for (uri, signed_by), present in sorted(groups.items()):
        needy = {suite: set(wish.components) - had for suite, had in present.items() if "main" in had}
        lacking = sorted(set().union(*needy.values())) if needy else []
        if lacking:
            lines = [
                "Types: deb",
                f"URIs: {uri}/",
                f"Suites: {' '.join(sorted(s for s in needy if needy[s]))}",
            ]
            lines.append(f"Components: {' '.join(lacking)}")
            paragraphs.append("\n".join([*lines, *([f"Signed-By: {signed_by}"] if signed_by else [])]) + "\n")
    return "\n".join(paragraphs)


def pin(wish: Wish) -> str:
    """Return apt preferences that keep all packages of the driver at the version or branch wanted.

    NVIDIA's packages ask one another for "at least" a version, and apt takes the newest it sees.
    """
    exact, goal = exact_version(wish), branch(wish.version)
    version = f"{exact}-*" if exact else f"{goal}.*" if goal else ""
    if not version or wish.method not in NVIDIAS:
        return ""
    return f"Package: {' '.join(wish.old)}\nPin: version {version}\nPin-Priority: 1001\n"
