"""Every host reaches every other as the user of the ranks, and checks whom it talks to."""

from __future__ import annotations

import pytest

from tests.node.lab import Node, Question, run, stat

STRICT = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "-o", "ControlPath=none"]


def targets(node: Node) -> list[str]:
    """All other hosts, by name and by address."""
    return list(dict.fromkeys([*node.peers, *node.peers.values()]))


def asks(node: Node) -> dict[str, Question]:
    questions = {
        f"ssh {target}": run(["ssh", *STRICT, target, "id", "-un"], user=node.user)
        for target in targets(node)
    }
    questions["ssh config"] = run(["ssh", "-G", next(iter(node.peers), node.name)], user=node.user)
    questions["ssh files"] = run(["find", ".ssh", "-printf", "%p %u %m\\n"], user=node.user)
    questions["sshd config"] = run(["sshd", "-T", "-C", f"user={node.user},host={node.name},addr=127.0.0.1"])
    questions["host keys"] = stat("/etc/ssh/ssh_host_*_key")
    return questions


@pytest.mark.parametrize("way", ["name", "address"])
def test_reaches_every_host(node: Node, way: str) -> None:
    refused = []
    for peer, address in node.peers.items():
        target = peer if way == "name" else address
        answer = node[f"ssh {target}"]
        if answer["rc"] or answer["out"].strip() != node.user:
            said = (answer["err"] or answer["out"]).strip().splitlines()
            refused.append(f"{target} ({said[-1] if said else 'no word'})")
    node.expect(
        not refused,
        f"{node.user} cannot reach {', '.join(refused)}",
        "run role ssh_trust on both hosts; `ssh -v` as that user tells more",
    )


def test_checks_host_keys(node: Node) -> None:
    said = node.output(
        "ssh config", "remove what is wrong from the ssh configuration, then run role ssh_trust"
    )
    config = dict(line.partition(" ")[::2] for line in said.splitlines())
    strict = config.get("stricthostkeychecking", "")
    node.expect(
        strict in ("true", "yes"),
        f"ssh of {node.user} has StrictHostKeyChecking {strict}",
        "look for it in ~/.ssh/config and /etc/ssh/ssh_config.d, then run role ssh_trust",
    )
    known = config.get("userknownhostsfile", "")
    node.expect(
        "/dev/null" not in known, f"ssh of {node.user} forgets host keys: {known}", "run role ssh_trust"
    )


def test_private_files_are_private(node: Node) -> None:
    wrong = []
    for line in node.output("ssh files", "run role ssh_trust").splitlines():
        path, owner, mode = line.rsplit(" ", 2)
        private = path == ".ssh" or not path.endswith((".pub", "/known_hosts", "/config"))
        if owner != node.user or int(mode, 8) & (0o077 if private else 0o022):
            wrong.append(f"~/{path} ({owner} {mode})")
    node.expect(not wrong, f"too open: {', '.join(wrong)}", "run role ssh_trust, which sets mode 0600")
    for path, seen in node["host keys"].items():
        right = seen["owner"] == "root" and seen["mode"] in ("0600", "0640")
        node.expect(right, f"{path} has mode {seen['mode']}", f"`chmod 0600 {path}`")


def test_sshd_trusts_the_authority(node: Node) -> None:
    said = node.output("sshd config", "`sshd -t` shows what is wrong with sshd's configuration")
    config = dict(line.partition(" ")[::2] for line in said.splitlines())
    for option in ("trustedusercakeys", "hostcertificate"):
        node.expect(
            config.get(option, "none") != "none",
            f"sshd has no {option}",
            "run role ssh_trust; /etc/ssh/sshd_config has to include /etc/ssh/sshd_config.d/*.conf",
        )
