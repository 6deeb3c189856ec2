"""Slurm's daemons run, munge has the lab's key, and slurmctld has this node and its configuration."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.node.lab import Node, Question, run, stat

AGAIN = "run role slurm"
IDENTITY = "set lab_user_uid in group_vars/all to a UID that is free on all hosts, and run role lab_user"


def asks(node: Node) -> dict[str, Question]:
    nodes = f"--nodes={node.name}"
    return {
        "munge key": stat("/etc/munge/munge.key"),
        **{
            f"{unit} active": run(["systemctl", "is-active", unit])
            for unit in ("munge", "slurmd", "slurmctld")
        },
        "munge -n": run(["munge", "-n"]),
        # It asks slurmctld, which takes the question only from who has the same key.
        "sinfo": run(["sinfo", "--noheader", "--Node", nodes, "--format=%T|%R|%E"]),
        "scontrol show config": run(["scontrol", "show", "config"]),
        "id of the lab user": run(["id", "-u", node.user]),
    }


@pytest.fixture
def fact(node: Node) -> dict[str, Any]:
    if not node.variables["slurm_enabled"] or node.name not in node.variables["slurm_hosts"]:
        pytest.skip("the inventory does not ask for it")
    return node.fact("slurm")


def test_daemons_run(node: Node, fact: dict[str, Any]) -> None:
    units = ["munge", "slurmd", *(["slurmctld"] if node.name == fact["controller"] else [])]
    for unit in units:
        answer = node[f"{unit} active"]["out"].strip()
        node.expect(
            answer == "active",
            f"{unit} is {answer or 'not there'}",
            f"see `journalctl -u {unit}` and /var/log/slurm there, then `systemctl restart {unit}`",
        )


def test_munge_has_a_key_that_only_it_can_read(node: Node, fact: dict[str, Any]) -> None:
    node.output("munge -n", "see `journalctl -u munge` there")
    for path, found in node["munge key"].items():
        node.expect(
            (found["mode"], found["owner"]) == ("0400", "munge"),
            f"{path} is {found['owner']}'s, mode {found['mode']}",
            AGAIN,
        )


def test_slurmctld_has_the_node(node: Node, fact: dict[str, Any]) -> None:
    remedy = f"see that slurmctld runs on {fact['controller']}, and {AGAIN}"
    lines = node.output("sinfo", remedy).splitlines()
    partitions = {line.split("|")[1] for line in lines}
    node.expect(
        fact["partition"] in partitions, f"it is in the partitions {partitions or 'of no name'}", remedy
    )
    state, _, reason = lines[0].split("|", 2)
    node.expect(
        re.fullmatch(r"idle|mixed|allocated|completing|reserved|planned", state),
        f"Slurm says it is {state}: {reason}",
        f"mend what the reason says, then `scontrol update NodeName={node.name} State=RESUME`",
    )


def test_its_configuration_is_slurmctlds(node: Node, fact: dict[str, Any]) -> None:
    config = node.output("scontrol show config", AGAIN)
    found = re.search(r"^HASH_VAL\s*=\s*(.*)$", config, re.MULTILINE)
    node.expect(
        found and found.group(1).startswith("Match"),
        f"its slurm.conf is not that of {fact['controller']}: {found.group(1) if found else 'no HASH_VAL'}",
        f"{AGAIN} on all hosts, without --limit",
    )


def test_the_lab_user_has_the_uid_that_all_hosts_had(node: Node, fact: dict[str, Any]) -> None:
    found = node.output("id of the lab user", "run role lab_user").strip()
    node.expect(
        found == fact["uid"],
        f"{node.user} has the UID {found}, and had {fact['uid']} on all hosts when Slurm was set up",
        IDENTITY,
    )
