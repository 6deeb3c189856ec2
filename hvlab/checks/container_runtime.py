"""Docker and NVIDIA's container toolkit match the inventory."""

from __future__ import annotations

import json
from typing import Any

from hvlab.checks.provisioned import NotApplicable, Question, Role, RoleHost, read, run

SETTINGS = "/etc/docker/daemon.json"
VERSION = ["dpkg-query", "--show", "--showformat", "${Version}"]
RPM_VERSION = ["rpm", "--query", "--queryformat", "%{VERSION}-%{RELEASE}"]
ALONE = "run role container_runtime; `journalctl -u docker` tells more"


def asks(node: RoleHost) -> dict[str, Question]:
    toolkit = "nvidia-container-toolkit"
    return {
        "docker info": run(["docker", "info", "--format", "{{json .}}"]),
        "docker at boot": run(["systemctl", "is-enabled", "docker"]),
        "docker settings": read(SETTINGS),
        "docker group": run(["getent", "group", "docker"]),
        "toolkit deb": run([*VERSION, toolkit]),
        "toolkit rpm": run([*RPM_VERSION, toolkit]),
        "toolkit held": run(["apt-mark", "showhold"]),
    }


def missing_settings(expected: Any, actual: Any, place: str = "") -> list[str]:
    """Return the settings of ``expected`` that ``actual`` lacks; extra ones are allowed."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        return [
            item
            for key in expected
            for item in missing_settings(expected[key], actual.get(key), f"{place}.{key}".strip("."))
        ]
    if isinstance(expected, list) and isinstance(actual, list):
        return [] if all(item in actual for item in expected) else [place]
    return [] if expected == actual else [place]


def _not_wanted(node: RoleHost) -> str:
    return "" if node.variables["container_runtime_enabled"] else "docker is not enabled for this host"


ROLE = Role("container_runtime", asks, skip=_not_wanted)


@ROLE.check
def docker_runs(node: RoleHost) -> None:
    info = json.loads(node.output("docker info", ALONE))
    node.expect(
        not info.get("ServerErrors"), f"docker says {info.get('ServerErrors')}", "`systemctl restart docker`"
    )
    node.output("docker at boot", "`systemctl enable docker`")


@ROLE.check
def settings_are_in_the_file_and_in_force(node: RoleHost) -> None:
    text = node["docker settings"].get(SETTINGS, "{}")
    missing = missing_settings(dict(node.variables["container_runtime_daemon"]), json.loads(text))
    node.expect(not missing, f"{SETTINGS} does not match the inventory in {', '.join(missing)}")
    info = json.loads(node.output("docker info", ALONE))
    recorded = node.fact("container_runtime")
    node.expect(
        info["DockerRootDir"] == recorded["data_root"],
        f"docker keeps its data in {info['DockerRootDir']}, not in {recorded['data_root']}",
        "`systemctl restart docker`",
    )
    mirrors = [mirror.rstrip("/") for mirror in info["RegistryConfig"]["Mirrors"] or []]
    missing = [mirror for mirror in recorded["mirrors"] if mirror.rstrip("/") not in mirrors]
    node.expect(not missing, f"docker does not use {', '.join(missing)}", "`systemctl restart docker`")


@ROLE.check
def only_the_chosen_user_reaches_docker(node: RoleHost) -> None:
    members = node["docker group"]["out"].strip().rpartition(":")[2].split(",")
    user = str(node.variables["container_runtime_user"])
    allowed = bool(node.variables["container_runtime_user_in_group"])
    if user:
        node.expect(
            (user in members) == allowed,
            f"{user} is {'not ' if allowed else ''}in group docker",
            "run role container_runtime" if allowed else f"`gpasswd -d {user} docker`: it can become root",
        )


@ROLE.check
def toolkit_is_pinned(node: RoleHost) -> None:
    if not node.variables["container_runtime_nvidia_enabled"]:
        raise NotApplicable("NVIDIA's toolkit is not enabled for this host")
    version = str(node.variables["container_runtime_nvidia_version"])
    debian = node["toolkit deb"]["rc"] != 127
    installed = node["toolkit deb" if debian else "toolkit rpm"]["out"].strip()
    node.expect(
        installed == version,
        f"the container toolkit is {installed or 'missing'}, the inventory asks for {version}",
    )
    if debian:
        held = node["toolkit held"]["out"].split()
        node.expect("nvidia-container-toolkit" in held, "the toolkit is not held at its version")
    info = json.loads(node.output("docker info", ALONE))
    node.expect("nvidia" in info["Runtimes"], "docker has no runtime nvidia")
