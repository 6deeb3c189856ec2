"""Hosts reach one another as the user of the ranks, and check one another's host keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from tests.node.lab import Node, Question, is_virtual, logs_in, run, stat

STRICT = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "-o", "ControlPath=none"]
ALL_PAIRS = 8
NO_OUTPUT = "no output: is there an `exit` in its ~/.bashrc, ~/.bash_profile or ~/.profile?"

HOST_CERTIFICATE = "/etc/ssh/ssh_host_ed25519_key-cert.pub"
SOON = timedelta(weeks=1)


def targets(peers: Mapping[str, str], *, virtual: bool = False) -> dict[str, str]:
    """Return the hosts that one host tries: all others in a small lab, else those 1, 2, 4, ... places on.

    Of many virtual hosts each tries the next one alone: they all share the cores of one machine.

    ``peers`` is in the order of the ring. Each host tries one at a time, and is tried by as many hosts as it
    tries itself. So up to 1024 hosts no sshd has more than ten logins to do at once, which it never cuts
    (MaxStartups), and that is enough: every host shows its certificate, and every host's user shows theirs.
    """
    names = list(peers)
    if len(names) >= ALL_PAIRS:
        powers = 1 if virtual else len(names).bit_length()
        names = [names[(1 << power) - 1] for power in range(powers)]
    return {name: peers[name] for name in names}


def by_address(tried: Mapping[str, str]) -> dict[str, str]:
    """Return the host that is tried by its address, too: the next one, so each host is tried by one."""
    return dict(list(tried.items())[:1])


@pytest.fixture(autouse=True)
def others(node: Node) -> None:
    """Skip a lab that is this machine alone: it has nobody to trust, and the role leaves it out."""
    if node.alone:
        pytest.skip("it is reached without ssh, and there is no other host")


def asks(node: Node) -> dict[str, Question]:
    tried = targets(node.peers, virtual=is_virtual(node))
    questions = {
        f"ssh {target}": run(["ssh", *STRICT, target, "id", "-un"], user=node.user, queue="ssh")
        for target in dict.fromkeys([*tried, *by_address(tried).values()])
    }
    questions["ssh config"] = run(["ssh", "-G", next(iter(node.peers), node.name)], user=node.user)
    questions["ssh files"] = run(["find", ".ssh", "-printf", "%p %u %m\\n"], user=node.user)
    questions["sshd config"] = run(["sshd", "-T", "-C", f"user={node.user},host={node.name},addr=127.0.0.1"])
    questions["host certificate"] = run(["ssh-keygen", "-L", "-f", HOST_CERTIFICATE], env={"TZ": "UTC"})
    questions["host keys"] = stat("/etc/ssh/ssh_host_*_key")
    return questions


@pytest.mark.parametrize("target_kind", ["name", "address"])
def test_reaches_other_hosts(node: Node, target_kind: str, request: pytest.FixtureRequest) -> None:
    tried, unreachable = targets(node.peers, virtual=is_virtual(node)), []
    if target_kind == "address":
        tried = by_address(tried)
    count = f"tried {len(tried)} of the {len(node.peers)} other hosts"
    if len(tried) < len(node.peers):
        places = "the next one" if len(tried) == 1 else "those 1, 2, 4, ... places on"
        scope = f"each host {count}, {places} in the inventory"
        request.node.user_properties.append(("observed", scope))
    for peer, address in tried.items():
        target = peer if target_kind == "name" else address
        answer = node[f"ssh {target}"]
        if not logs_in(answer, node.user):
            lines = (answer["err"] or answer["out"]).strip().splitlines()
            unreachable.append(f"{target} ({lines[-1] if lines else NO_OUTPUT})")
    node.expect(
        not unreachable,
        f"{node.user} cannot reach {', '.join(unreachable)}; {count}",
        "run role ssh_trust on both hosts; `ssh -v` as that user tells more",
    )


def test_checks_host_keys(node: Node) -> None:
    output = node.output("ssh config", "correct the ssh configuration, then run role ssh_trust")
    config = dict(line.partition(" ")[::2] for line in output.splitlines())
    strict = config.get("stricthostkeychecking", "")
    node.expect(
        strict in ("true", "yes"),
        f"ssh of {node.user} has StrictHostKeyChecking {strict}",
        "look for it in ~/.ssh/config and /etc/ssh/ssh_config.d, then run role ssh_trust",
    )
    known = config.get("userknownhostsfile", "")
    node.expect(
        "/dev/null" not in known, f"ssh of {node.user} does not keep host keys: {known}", "run role ssh_trust"
    )


def test_private_files_are_private(node: Node) -> None:
    wrong = []
    for line in node.output("ssh files", "run role ssh_trust").splitlines():
        path, owner, mode = line.rsplit(" ", 2)
        private = path == ".ssh" or not path.endswith((".pub", "/known_hosts", "/config"))
        if owner != node.user or int(mode, 8) & (0o077 if private else 0o022):
            wrong.append(f"~/{path} ({owner} {mode})")
    node.expect(
        not wrong, f"owner or mode is wrong: {', '.join(wrong)}", "run role ssh_trust, which sets mode 0600"
    )
    for path, status in node["host keys"].items():
        private = status["owner"] == "root" and status["mode"] in ("0600", "0640")
        node.expect(private, f"{path} has mode {status['mode']}", f"`chmod 0600 {path}`")


def test_certificate_of_the_host_lasts(node: Node) -> None:
    output = node.output("host certificate", "run role ssh_trust")
    match = re.search(r"Valid: from \S+ to (\S+)", output)
    ends = datetime.fromisoformat(match[1]).replace(tzinfo=UTC) if match else None
    state = f"ends at {ends:%Y-%m-%d %H:%M} UTC" if ends else "cannot be read"
    node.expect(
        ends and ends > datetime.now(UTC) + SOON,
        f"its certificate for ssh {state}",
        "run `hvlab keys issue` (role ssh_trust)",
    )


def test_sshd_trusts_the_authority(node: Node) -> None:
    output = node.output("sshd config", "`sshd -t` shows what is wrong with sshd's configuration")
    config = dict(line.partition(" ")[::2] for line in output.splitlines())
    for option in ("trustedusercakeys", "hostcertificate"):
        node.expect(
            config.get(option, "none") != "none",
            f"sshd has no {option}",
            "run role ssh_trust; /etc/ssh/sshd_config has to include /etc/ssh/sshd_config.d/*.conf",
        )
