"""Docker runs with the settings asked for, and NVIDIA's toolkit is the one asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.node.lab import Node, Question, read, run

SETTINGS = "/etc/docker/daemon.json"
VERSION = ["dpkg-query", "--show", "--showformat", "${Version}"]
RPM_VERSION = ["rpm", "--query", "--queryformat", "%{VERSION}-%{RELEASE}"]
ALONE = "run role container_runtime; `journalctl -u docker` tells more"


def asks(node: Node) -> dict[str, Question]:
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


@pytest.fixture(autouse=True)
def _only_where_wanted(node: Node) -> None:
    if not node.wanted["container_runtime_enabled"]:
        pytest.skip("no docker was asked for")


def lacking(wanted: Any, seen: Any, place: str = "") -> list[str]:
    """Return the settings that are not as wanted; there may be others."""
    if isinstance(wanted, dict) and isinstance(seen, dict):
        return [
            item
            for key in wanted
            for item in lacking(wanted[key], seen.get(key), f"{place}.{key}".strip("."))
        ]
    if isinstance(wanted, list) and isinstance(seen, list):
        return [] if all(item in seen for item in wanted) else [place]
    return [] if wanted == seen else [place]


def test_docker_runs(node: Node) -> None:
    info = json.loads(node.output("docker info", ALONE))
    node.expect(
        not info.get("ServerErrors"), f"docker says {info.get('ServerErrors')}", "`systemctl restart docker`"
    )
    node.output("docker at boot", "`systemctl enable docker`")


def test_settings_are_in_the_file_and_in_force(node: Node) -> None:
    text = node["docker settings"].get(SETTINGS, "{}")
    wrong = lacking(dict(node.wanted["container_runtime_daemon"]), json.loads(text))
    node.expect(not wrong, f"{SETTINGS} lacks {', '.join(wrong)}", "run role container_runtime")
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


def test_only_who_should_reaches_docker(node: Node) -> None:
    members = node["docker group"]["out"].strip().rpartition(":")[2].split(",")
    user = str(node.wanted["container_runtime_user"])
    wanted = bool(node.wanted["container_runtime_user_in_group"])
    if user:
        node.expect(
            (user in members) == wanted,
            f"{user} is {'not ' if wanted else ''}in group docker",
            "run role container_runtime" if wanted else f"`gpasswd -d {user} docker`: it can become root",
        )


def test_toolkit_is_pinned(node: Node) -> None:
    if not node.wanted["container_runtime_nvidia_enabled"]:
        pytest.skip("no toolkit was asked for")
    wanted = str(node.wanted["container_runtime_nvidia_version"])
    debian = node["toolkit deb"]["rc"] != 127
    seen = node["toolkit deb" if debian else "toolkit rpm"]["out"].strip()
    node.expect(
        seen == wanted,
        f"the container toolkit is {seen or 'missing'}, not {wanted}",
        "run role container_runtime",
    )
    if debian:
        held = node["toolkit held"]["out"].split()
        node.expect(
            "nvidia-container-toolkit" in held, "the toolkit is not held", "run role container_runtime"
        )
    info = json.loads(node.output("docker info", ALONE))
    node.expect("nvidia" in info["Runtimes"], "docker has no runtime nvidia", "run role container_runtime")
