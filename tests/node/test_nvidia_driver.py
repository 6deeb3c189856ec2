"""The NVIDIA driver matches the inventory, is built for the kernel, and in use where there is a GPU."""

from __future__ import annotations

import re

import pytest

from tests.node.lab import Node, Question, read, run, stat

AGAIN = "run role nvidia_driver"


def asks(node: Node) -> dict[str, Question]:
    return {
        "dkms": run(["dkms", "status"]),
        "kernels": stat("/boot/vmlinuz-*"),
        "modules": run(["find", "/lib/modules", "-name", "nvidia*.ko*"]),
        "loaded driver": read("/proc/driver/nvidia/version"),
        "modprobe.d": read("/etc/modprobe.d/hvlab-nvidia.conf"),
        "nvidia-smi": run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]),
        "fabric manager": run(["systemctl", "is-enabled", "nvidia-fabricmanager"]),
        "IMEX": run(["systemctl", "is-active", "nvidia-imex"]),
        "module of the subnet manager": stat("/sys/module/ib_umad"),
        "IMEX channel": stat("/dev/nvidia-caps-imex-channels/channel0"),
        "persistence daemon": run(["systemctl", "is-enabled", "nvidia-persistenced"]),
    }


@pytest.fixture
def fact(node: Node) -> dict[str, object]:
    if "/etc/ansible/facts.d/hvlab_nvidia_driver.fact" not in node["facts"]:
        pytest.skip("this host has no GPU driver")
    return node.fact("nvidia_driver")


def test_method_matches_the_inventory(node: Node, fact: dict[str, object]) -> None:
    requested = node.variables["nvidia_driver_method"]
    node.expect(
        fact["method"] == requested,
        f"the driver was installed by method {fact['method']}; the inventory asks for {requested}",
        AGAIN,
    )


def test_modules_are_built(node: Node, fact: dict[str, object]) -> None:
    if fact["method"] == "none" or not any("/" in module for module in fact["modules"]):  # type: ignore[attr-defined]
        return
    output = node.output("dkms", "install dkms, then run role nvidia_driver")
    lines = [
        line for line in output.splitlines() if line.startswith("nvidia") and str(fact["kernel"]) in line
    ]
    node.expect(
        any("installed" in line for line in lines),
        f"DKMS has built nothing for kernel {fact['kernel']}: {output}",
        AGAIN,
    )


def test_the_kernels_that_boot_next_have_a_module(node: Node, fact: dict[str, object]) -> None:
    if fact["method"] == "none" or not fact["version"]:
        return
    newer = [path.partition("vmlinuz-")[2] for path in node["kernels"]]
    newer = [kernel for kernel in newer if numbers(kernel) > numbers(str(fact["kernel"]))]
    # By its names in NVIDIA's and the distributions' packages; the kernel has others: nvidiafb, nvidia_cspmu.
    module = r"/lib/modules/([^/]+)/\S*/nvidia(?:-current)?(?:-tesla(?:-\d+)?)?(?:-open)?[.]ko"
    paths = re.findall(module, node["modules"]["out"])
    bare = sorted(set(newer) - set(paths))
    node.expect(
        not bare,
        f"kernels without a module of the driver: {', '.join(bare)}; booted, they have no GPU",
        f"install their headers, then {AGAIN}; or remove these kernels",
    )


def numbers(release: str) -> list[int]:
    """Return the numbers of a kernel's release, the larger the newer."""
    return [int(number) for number in re.findall(r"\d+", release)]


def test_nouveau_is_kept_out(node: Node, fact: dict[str, object]) -> None:
    if fact["method"] == "none" or not node.variables["nvidia_driver_nouveau_blacklisted"]:
        return
    texts = "".join(node["modprobe.d"].values())
    node.expect("blacklist nouveau" in texts, "nouveau is not blacklisted in /etc/modprobe.d", AGAIN)


def test_installed_driver_is_in_use(node: Node, fact: dict[str, object]) -> None:
    if not fact["loaded"]:
        node.expect(fact["reason"], "the driver is not loaded, and no reason is recorded", AGAIN)
        return
    text = "".join(node["loaded driver"].values())
    match = re.search(r"\s(\d+\.\d+(\.\d+)?)\s", text)
    loaded = match[1] if match else "no version"
    node.expect(
        fact["version"] in (None, loaded),
        f"driver {loaded} is loaded, {fact['version']} is installed (Driver/library version mismatch)",
        f"{AGAIN}, or reboot the host",
    )
    node.output("nvidia-smi", f"{AGAIN}; see `dmesg` there")


def test_services(node: Node, fact: dict[str, object]) -> None:
    enabled = node["fabric manager"]["out"].strip() == "enabled"
    if fact["method"] != "none":
        node.expect(
            enabled == fact["fabric_manager"],
            f"the fabric manager is {'enabled' if enabled else 'disabled'}, unlike when the role ran",
            AGAIN,
        )
    daemon = node["persistence daemon"]["out"].strip()
    enabled = node.variables["nvidia_driver_persistence_enabled"]
    node.expect(
        fact["method"] == "none" or not enabled or daemon != "disabled",
        "the persistence daemon is disabled",
        AGAIN,
    )


def test_gpus_are_linked(node: Node, fact: dict[str, object]) -> None:
    if not fact["loaded"]:
        return
    if fact.get("subnet_manager"):
        node.expect(
            node["module of the subnet manager"],
            "ib_umad is not loaded, so NVLink has no subnet manager, and CUDA stops with error 802",
            f"`modprobe ib_umad mlx5_ib`, restart nvidia-fabricmanager, or {AGAIN}",
        )
    if fact.get("imex"):
        active = node["IMEX"]["out"].strip()
        node.expect(active == "active", f"nvidia-imex is {active}", "see `journalctl -u nvidia-imex` there")
        node.expect(
            node["IMEX channel"],
            "there is no /dev/nvidia-caps-imex-channels/channel0, so no program shares memory between hosts",
            "reboot the host: the driver makes it when its modules are loaded",
        )
