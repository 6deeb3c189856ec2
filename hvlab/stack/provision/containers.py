"""The plan of role container_runtime: docker's packages, repositories and settings. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from ansible.utils.vars import merge_hash

from hvlab.stack.provision.names import from_release, of_system, signers, toolkit_names

_OTHER = {"distro": "repo", "repo": "distro"}
# First release whose new installations use containerd's store, and its switch.
_CONTAINERDS_STORE, _STORE = 29, "containerd-snapshotter"
# With CDI, a container keeps its devices when systemd reloads its units.
_NVIDIA = {
    "runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}},
    "features": {"cdi": True},
}
# Of two lists, the new entries first.
_merge = partial(merge_hash, list_merge="prepend_rp")
# By Debian's names.
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
    """Return the docker packages of a method, those of the other method, NVIDIA's toolkit, and repositories.

    ``version`` is docker's, empty for any, and ``toolkit`` the toolkit's; ``urls`` and ``fingerprints`` are
    those of docker and nvidia; fingerprints are empty for the usual keys. ``present`` has the installed
    versions of both, without epoch and revision.
    """
    names = of_system("docker", facts)
    release = str(facts.get("distribution_major_version"))
    own = names.get("distro", []) + from_release(names.get("distro_from", {}), release)
    kinds = names.get("kinds", {"distro": [], "repo": []})
    pinned = {name: version or None for name in names.get("repo", []) if name.startswith("docker")}
    served = facts.get("distribution") in names.get("repo_for", [facts.get("distribution")])
    repo = [{"name": name, "version": pinned.get(name)} for name in names.get("repo", []) if served]
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


def plan_settings(
    *, old: Mapping[str, Any], asked: Mapping[str, Any], nvidia: bool, docker: str, roots: Mapping[str, str]
) -> dict[str, Any]:
    """Return docker's settings, its image folder, and the folders whose images would become invisible.

    ``old`` has the settings of the file; ``docker`` is the installed version, empty for none. Lists are
    merged, requested entries first. From 29 on, a new docker keeps images in containerd's folder, wherever
    data-root is.
    """
    own = _NVIDIA if nvidia else {}
    newer = bool(docker) and int(docker.split(".", maxsplit=1)[0]) >= _CONTAINERDS_STORE
    if newer and "data-root" in asked and _STORE not in old.get("features", {}):
        own = _merge(own, {"features": {_STORE: False}})
    new = _merge(old, _merge(own, asked))
    old_root, root = (str(each.get("data-root", roots["docker"])) for each in (old, new))
    moves = posixpath.normpath(old_root) != posixpath.normpath(root)
    used, uses = (each.get("features", {}).get(_STORE, True) for each in (old, new))
    left = [f"{old_root}/{name}" for name in ("containers", "image", "containerd/daemon")] if moves else []
    if newer and used and not uses:
        left.append(f"{roots['containerd']}/io.containerd.content.v1.content/blobs")
    return {"new": new, "old_root": old_root, "data_root": root, "left_places": left}


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
    return re.sub(r"^[0-9]+:|-[^-]*$", "", version)
