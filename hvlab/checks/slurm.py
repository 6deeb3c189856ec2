"""Slurm's daemons run, munge has the lab's key, and slurmctld has this node and its configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hvlab.checks.provisioned import FACTS, NotApplicable, Question, Role, RoleHost, run, stat

AGAIN = "run role slurm"
# Asks slurmrestd over its socket as its own user, the only one it answers.
PING = f"""
import json, socket
rest = json.load(open("{FACTS}/hvlab_slurm.fact"))["rest"]
with socket.socket(socket.AF_UNIX) as connection:
    connection.settimeout(10)
    connection.connect(rest["socket"])
    lines = ["GET /slurm/" + rest["api"] + "/ping HTTP/1.1", "Host: localhost", "Connection: close", "", ""]
    connection.sendall("\\r\\n".join(lines).encode())
    print(connection.makefile().read())
"""
IDENTITY = "set lab_user_uid in group_vars/all to a UID that is free on all hosts, and run role lab_user"


def asks(node: RoleHost) -> dict[str, Question]:
    nodes = f"--nodes={node.name}"
    return {
        "munge key": stat("/etc/munge/munge.key"),
        **{
            f"{unit} active": run(["systemctl", "is-active", unit])
            for unit in ("munge", "slurmd", "slurmctld")
        },
        "munge -n": run(["munge", "-n"]),
        # It asks slurmctld, which answers only hosts with the same key.
        "sinfo": run(["sinfo", "--noheader", "--Node", nodes, "--format=%T|%R|%E"]),
        "scontrol show config": run(["scontrol", "show", "config"]),
        "id of the lab user": run(["id", "-u", node.user]),
        **_accounting(node),
        **_ask_slurmrestd(node),
    }


def _accounting(node: RoleHost) -> dict[str, Question]:
    if not _is_here(node, "slurm_accounting_enabled"):
        return {}
    words = ["--noheader", "--parsable2", "show", "associations", "format=Cluster,Account,User"]
    return {
        "slurmdbd active": run(["systemctl", "is-active", "slurmdbd"]),
        "slurmdbd.conf": stat("/etc/slurm*/slurmdbd.conf"),
        "sacctmgr": run(["sacctmgr", *words]),
        "listeners": run(["ss", "-Hltn", "sport = :3306"]),
    }


def _ask_slurmrestd(node: RoleHost) -> dict[str, Question]:
    if not _is_here(node, "slurm_rest_enabled"):
        return {}
    return {
        "slurmrestd active": run(["systemctl", "is-active", "slurmrestd"]),
        "slurmrestd's user": run(["ps", "-C", "slurmrestd", "-o", "user:32="]),
        "slurmrestd ping": run(["python3", "-c", PING], user="slurmrestd"),
    }


def _is_here(node: RoleHost, option: str) -> bool:
    return bool(node.variables[option]) and node.name == node.variables["slurm_controller"]


def _explain_silence(fact: Mapping[str, Any]) -> str:
    """The remedy for a slurmctld that does not answer: it answers only hosts with its key and its time."""
    same = "this host's munge key and clock are the same as there (`hvlab health` shows the clock)"
    return f"see that slurmctld runs on {fact['controller']}, and that {same}; {AGAIN}"


def _explain_left_out(node: RoleHost) -> str:
    chosen = node.variables["slurm_enabled"] and node.name in node.variables["slurm_hosts"]
    return "" if chosen else "the inventory does not ask for it"


ROLE = Role("slurm", asks, skip=_explain_left_out)


@ROLE.check
def daemons_run(node: RoleHost, fact: Mapping[str, Any]) -> None:
    asked = {
        "slurmctld": node.name == fact["controller"],
        "slurmdbd": _is_here(node, "slurm_accounting_enabled"),
        "slurmrestd": _is_here(node, "slurm_rest_enabled"),
    }
    units = ["munge", "slurmd", *(unit for unit, here in asked.items() if here)]
    for unit in units:
        answer = node[f"{unit} active"]["out"].strip()
        node.expect(
            answer == "active",
            f"{unit} is {answer or 'not there'}",
            f"see `journalctl -u {unit}` and /var/log/slurm there, then `systemctl restart {unit}`",
        )


@ROLE.check
def munge_has_a_key_that_only_it_can_read(node: RoleHost, fact: Mapping[str, Any]) -> None:
    node.output("munge -n", "see `journalctl -u munge` there")
    for path, status in node["munge key"].items():
        node.expect(
            (status["mode"], status["owner"]) == ("0400", "munge"),
            f"{path} is {status['owner']}'s, mode {status['mode']}",
        )


@ROLE.check
def slurmctld_has_the_node(node: RoleHost, fact: Mapping[str, Any]) -> None:
    remedy = _explain_silence(fact)
    lines = node.output("sinfo", remedy).splitlines()
    partitions = {line.split("|")[1] for line in lines}
    absent = set(fact["partitions"]) - partitions
    node.expect(
        not absent, f"it is in the partitions {', '.join(partitions)}, not in {', '.join(absent)}", remedy
    )
    state, _, reason = lines[0].split("|", 2)
    node.expect(
        re.fullmatch(r"(?:idle|mixed|allocated|completing|reserved|planned|blocked)[-+]?", state),
        f"Slurm says it is {state}: {reason}",
        f"remove the reason, then `scontrol update NodeName={node.name} State=RESUME`",
    )


@ROLE.check
def its_configuration_is_slurmctlds(node: RoleHost, fact: Mapping[str, Any]) -> None:
    config = node.output("scontrol show config", _explain_silence(fact))
    match = re.search(r"^HASH_VAL\s*=\s*(.*)$", config, re.MULTILINE)
    node.expect(
        match and match.group(1).startswith("Match"),
        f"its slurm.conf is not that of {fact['controller']}: {match.group(1) if match else 'no HASH_VAL'}",
        f"{AGAIN} on all hosts, without --limit",
    )


@ROLE.check
def the_lab_user_has_the_uid_that_all_hosts_had(node: RoleHost, fact: Mapping[str, Any]) -> None:
    uid = node.output("id of the lab user", "run role lab_user").strip()
    node.expect(
        uid == fact["uid"],
        f"{node.user} has the UID {uid}, and had {fact['uid']} on all hosts when Slurm was set up",
        IDENTITY,
    )


@ROLE.check
def accounting_knows_the_lab_and_nobody_else_reaches_its_database(
    node: RoleHost, fact: Mapping[str, Any]
) -> None:
    if not _is_here(node, "slurm_accounting_enabled"):
        raise NotApplicable("the inventory does not ask for it")
    remedy = f"see /var/log/slurm/slurmdbd.log there, and {AGAIN}"
    cluster, user = str(node.variables["slurm_cluster"]).lower(), node.user
    row = f"{cluster}|{user}|{user}"
    node.expect(
        row in node.output("sacctmgr", remedy).splitlines(),
        f"slurmdbd has no user {user} of account {user} of cluster {cluster}",
    )
    for path, status in node["slurmdbd.conf"].items():
        node.expect(
            (status["mode"], status["owner"]) == ("0600", "slurm"),
            f"{path} is {status['owner']}'s, mode {status['mode']}",
        )
    listeners = [line.split()[3] for line in node.output("listeners").splitlines()]
    outside = [address for address in listeners if not address.startswith(("127.", "[::1]"))]
    node.expect(
        not outside, f"its database listens at {', '.join(outside)}", f"{AGAIN}, then restart mariadb"
    )


@ROLE.check
def slurmrestd_answers_its_own_user(node: RoleHost, fact: Mapping[str, Any]) -> None:
    if not _is_here(node, "slurm_rest_enabled"):
        raise NotApplicable("the inventory does not ask for it")
    remedy = f"see `journalctl -u slurmrestd` there, and {AGAIN}"
    user = node.output("slurmrestd's user", remedy).strip()
    node.expect(user == "slurmrestd", f"slurmrestd runs as {user}")
    answer = node.output("slurmrestd ping", remedy)
    node.expect(
        answer.startswith("HTTP/1.1 200") and '"pings"' in answer,
        f"slurmrestd answers {answer[:200]!r}",
        remedy,
    )
