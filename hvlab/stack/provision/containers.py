"""What role container_runtime installs, and from where. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hvlab.stack.provision.names import from_release, of_system, signers, toolkit_names

_OTHER = {"distro": "repo", "repo": "distro"}
# In Debian's names.
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def plan(
    *,
    method: str,
    version: str,
    urls: Mapping[str, str],
    fingerprints: Mapping[str, str],
    toolkit: str,
    facts: Mapping[str, Any],
) -> dict[str, Any]:
    """Return docker's packages by a method, those of the other one, NVIDIA's toolkit, and repositories.

    ``version`` is docker's, empty for any, and ``toolkit`` the toolkit's; ``urls`` and ``fingerprints`` are
    those of docker and nvidia, the latter empty for the usual keys. ``present`` has the versions of both
    that are installed, without epoch and revision.
    """
    names = of_system("docker", facts)
    own = names.get("distro", []) + from_release(
        names.get("distro_from", {}), str(facts.get("distribution_major_version"))
    )
    kinds = names.get("kinds", {"distro": [], "repo": []})
    pinned = {name: version or None for name in names.get("repo", []) if name.startswith("docker")}
    repo = [{"name": name, "version": pinned.get(name)} for name in names.get("repo", [])]
    packages: Mapping[str, str] = (facts.get("hvlab") or {}).get("packages") or {}
    return {
        "packages": repo if method == "repo" else own,
        "other": kinds[_OTHER[method]],
        "repository": _docker(urls["docker"], fingerprints["docker"], facts) if names.get("repo") else {},
        "toolkit": [{"name": name, "version": toolkit} for name in toolkit_names()],
        "toolkit_repository": _nvidia(urls["nvidia"], fingerprints["nvidia"], facts),
        "present": {
            "docker": _upstream(packages.get(next(iter(kinds[method]), ""), "")),
            "toolkit": _upstream(packages.get("nvidia-container-toolkit", "")),
            "other": [name for name in kinds[_OTHER[method]][:1] if name in packages],
        },
    }


def _docker(url: str, fingerprint: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    fingerprint = fingerprint or signers("docker")[facts["os_family"]]
    if facts["os_family"] == "Debian":
        base = f"{url}/{facts['distribution'].lower()}"
        place = {"url": base, "suite": facts["distribution_release"], "components": ["stable"]}
    else:
        base = f"{url}/{'rhel' if facts['distribution'] == 'RedHat' else 'centos'}"
        place = {"url": f"{base}/{facts['distribution_major_version']}/{facts['architecture']}/stable"}
    return {**place, "key": f"{base}/gpg", "fingerprint": fingerprint}


def _nvidia(url: str, fingerprint: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    signed = {"fingerprint": fingerprint or signers("container_toolkit")["fingerprint"]}
    architecture = facts.get("architecture", "")
    if facts.get("os_family") == "Debian":
        return {"url": f"{url}/deb/{_ARCHITECTURES[architecture]}", "suite": "/", **signed}
    return {"url": f"{url}/rpm/{architecture}", **signed}


def _upstream(version: str) -> str:
    """Return a package's version without epoch and revision."""
    return re.sub(r"^[0-9]+:|-[^-]*$", "", version)
