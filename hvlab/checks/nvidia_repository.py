"""NVIDIA's repository matches the inventory, is trusted by its own key, and known to the package manager."""

from __future__ import annotations

import re

from hvlab.checks.provisioned import Question, Role, RoleHost, read, run

APT, RPM = "/etc/apt/sources.list.d/nvidia-cuda.sources", "/etc/yum.repos.d/nvidia-cuda.repo"


def asks(node: RoleHost) -> dict[str, Question]:
    return {
        "nvidia source": read(read_record(node).get("file") or APT),
        "nvidia repo": read(RPM),
        "nvidia known": run(["apt-cache", "policy"]),
        "nvidia rpm keys": run(["rpm", "-qa", "gpg-pubkey*"]),
    }


def read_record(node: RoleHost) -> dict[str, str]:
    """What the role recorded; empty where the host has no such repository."""
    enabled = "gpu" in node.variables["group_names"] and node.variables["nvidia_repository_enabled"]
    return node.fact("nvidia_repository") if enabled else {}


def source(node: RoleHost) -> str:
    """The text of the source's file."""
    return "".join([*node["nvidia source"].values(), *node["nvidia repo"].values()])


ROLE = Role("nvidia_repository", asks)


@ROLE.check
def the_source_is_the_recorded_one(node: RoleHost) -> None:
    fact = read_record(node)
    if not fact:
        return
    text = source(node)
    node.expect(fact["url"] in text, f"the source is {text or 'missing'!r}, not {fact['url']}")
    off = "Enabled: no" in text or "enabled=0" in text
    node.expect(not off, "NVIDIA's repository is switched off")


@ROLE.check
def signatures_are_checked(node: RoleHost) -> None:
    if not read_record(node):
        return
    text = source(node)
    checked = re.search(r"(?i)signed-by(: |=)/", text) or "gpgcheck=1" in text.splitlines()
    node.expect(checked, "packages of NVIDIA's repository are installed without a check of their signatures")


@ROLE.check
def the_package_manager_knows_it(node: RoleHost) -> None:
    fact = read_record(node)
    if not fact:
        return
    if node["nvidia source"]:
        output = node.output("nvidia known")
        node.expect(
            fact["url"] in output,
            f"apt does not know {fact['url']}",
            "`apt-get update`, or run role nvidia_repository",
        )
    else:
        output, short = node.output("nvidia rpm keys"), fact["fingerprint"][-8:].lower()
        node.expect(f"gpg-pubkey-{short}-" in output, f"rpm does not trust the key {short}")
