"""The driver that was asked for is installed, built for its kernel, and in use where there is a GPU."""

from __future__ import annotations

import re

import pytest

from tests.node.lab import Node, Question, read, run

AGAIN = "run role nvidia_driver"


def asks(node: Node) -> dict[str, Question]:
    return {
        "dkms": run(["dkms", "status"]),
        "loaded driver": read("/proc/driver/nvidia/version"),
        "modprobe.d": read("/etc/modprobe.d/hvlab-nvidia.conf"),
        "nvidia-smi": run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]),
        "fabric manager": run(["systemctl", "is-enabled", "nvidia-fabricmanager"]),
        "persistence daemon": run(["systemctl", "is-enabled", "nvidia-persistenced"]),
    }


@pytest.fixture
def fact(node: Node) -> dict[str, object]:
    if "/etc/ansible/facts.d/hvlab_nvidia_driver.fact" not in node["facts"]:
        pytest.skip("no host of a GPU")
    return node.fact("nvidia_driver")


def test_method_is_what_was_asked(node: Node, fact: dict[str, object]) -> None:
    asked = node.wanted["nvidia_driver_method"]
    node.expect(fact["method"] == asked, f"the driver came by {fact['method']}, asked for is {asked}", AGAIN)


def test_modules_are_built(node: Node, fact: dict[str, object]) -> None:
    if fact["method"] == "none" or not any("/" in module for module in fact["modules"]):  # type: ignore[attr-defined]
        return
    said = node.output("dkms", "install dkms, then run role nvidia_driver")
    lines = [line for line in said.splitlines() if line.startswith("nvidia") and str(fact["kernel"]) in line]
    node.expect(
        any("installed" in line for line in lines),
        f"DKMS has built nothing for kernel {fact['kernel']}: {said}",
        AGAIN,
    )


def test_nouveau_is_kept_out(node: Node, fact: dict[str, object]) -> None:
    if fact["method"] == "none" or not node.wanted["nvidia_driver_nouveau_blacklisted"]:
        return
    texts = "".join(node["modprobe.d"].values())
    node.expect("blacklist nouveau" in texts, "nouveau is not blacklisted in /etc/modprobe.d", AGAIN)


def test_installed_driver_is_in_use(node: Node, fact: dict[str, object]) -> None:
    if not fact["loaded"]:
        node.expect(fact["reason"], "the driver is not loaded, and nobody knows why", AGAIN)
        return
    text = "".join(node["loaded driver"].values())
    found = re.search(r"\s(\d+\.\d+(\.\d+)?)\s", text)
    loaded = found[1] if found else "no version"
    node.expect(
        fact["version"] in (None, loaded),
        f"loaded is {loaded}, installed {fact['version']} (Driver/library version mismatch)",
        f"{AGAIN}, or reboot the host",
    )
    node.output("nvidia-smi", f"{AGAIN}; see `dmesg` there")


def test_services(node: Node, fact: dict[str, object]) -> None:
    enabled = node["fabric manager"]["out"].strip() == "enabled"
    if fact["method"] != "none":
        node.expect(
            enabled == fact["fabric_manager"],
            f"the fabric manager is {'on' if enabled else 'off'}, which is not as the role left it",
            AGAIN,
        )
    daemon = node["persistence daemon"]["out"].strip()
    wanted = node.wanted["nvidia_driver_persistence_enabled"]
    node.expect(
        fact["method"] == "none" or not wanted or daemon != "disabled",
        "the persistence daemon is disabled",
        AGAIN,
    )
