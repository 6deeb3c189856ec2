"""Logins among the hosts as launchers make them, and the keys behind them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from hvlab.base.answers.shapes import HostAnswer
from hvlab.base.errors import Problem
from hvlab.base.groups import grouped
from hvlab.checks.before import PreflightHost, PreflightLab, preflight
from hvlab.checks.programs import source
from hvlab.checks.provisioned import Question, Role, RoleHost, is_logged_in, is_virtual, run, stat
from hvlab.checks.site import TRIED, HostFault, HostReplies, Site
from hvlab.doctor import reading
from hvlab.lab.inventory import Host
from hvlab.remote.known_hosts import entry_name, known_hosts_files, unknown_keys
from hvlab.remote.ssh_keys import fingerprint
from hvlab.remote.trust import Trust

_LOGINS = "logins"
_USER = "user"
# Run at the other end of a login, whose limits are those of ranks.
_SCRIPT = (
    "echo hostname $(hostname); "
    "echo memlock $(ulimit -l); echo nofile $(ulimit -n); echo nproc $(ulimit -u); "
    "echo python_home $PYTHONHOME; "
    "echo ports $(cat /proc/sys/net/ipv4/ip_local_port_range); "
    "echo orted $(command -v orted || command -v prted)"
)
# Mended by the roles: keys, certificates, modes. Except for modes, either end may be at fault.
_EITHER = ("host-key", "host-key-changed", "ssh-denied")
# Said by the host that is logged in to, of itself.
_FAR = ("account-refused", "ssh-closed", "home-missing")
_MENDED = (*_EITHER, "ssh-key-modes")


class PeerLogin(HostAnswer):
    """How one login ended."""

    rc: int
    out: str
    err: str


# Faults that a comparison of hosts shows, and the role that fixes each.
FAULTS = {
    "user-missing": "lab_user",
    "silent-login": "",
    "horovodrun-ssh": "",
    "host-key": "ssh_trust",
    "host-key-changed": "ssh_trust",
    "ssh-denied": "ssh_trust",
    "ssh-key-modes": "ssh_trust",
    "python-home": "",
    "few-ports": "",
}
# Ports for connections: each rank has one to every other, and as many wait a minute after they closed.
_LEAST_PORTS = 1000


def questions(site: Site) -> dict[str, dict[str, Any]]:
    """Ask whether the user exists and reaches the next hosts."""
    asked: dict[str, dict[str, Any]] = {_USER: {"run": ["id", "-u", site.user], "timeout": 5}}
    if len(site.hosts) > 1 and not any(host.local for host in site.hosts):
        given = {
            "hosts": [
                {"name": host.name, "address": host.addresses[0], "port": host.port} for host in site.hosts
            ],
            "tried": TRIED,
            "script": _SCRIPT,
        }
        argv = ["python3", "-c", source("log_in"), "@HOST@", json.dumps(given)]
        asked[_LOGINS] = {"run": argv, "user": site.user, "timeout": 60}
    return asked


def logins(replies: HostReplies) -> dict[str, PeerLogin]:
    """Return the outcome of a host's login to each other host, by name."""
    return replies.parse(_LOGINS, dict[str, PeerLogin]) or {}


def find_reached(every: Mapping[str, HostReplies]) -> dict[str, tuple[str, dict[str, str]]]:
    """Return host -> the host that logged in to it, and the words that the login found there."""
    observed: dict[str, tuple[str, dict[str, str]]] = {}
    for name, replies in every.items():
        for other, login in logins(replies).items():
            if login.rc == 0:
                rows = (line.partition(" ") for line in login.out.splitlines())
                observed.setdefault(other, (name, {key: value.strip() for key, _, value in rows}))
    return observed


def faults(site: Site, every: Mapping[str, HostReplies]) -> Iterator[HostFault]:
    """Explain failed logins from the messages of ssh."""
    refusing: dict[str, HostFault] = {}
    for name, replies in every.items():
        if "no such user" in replies.error(_USER):
            yield HostFault("user-missing", name, f"there is no user {site.user}", "lab_user")
            continue
        for other, login in logins(replies).items():
            if login.rc == 0 or not login.err.strip():
                if not any(line.startswith("hostname ") for line in login.out.splitlines()):
                    ends = f"ends with {login.rc} before it runs its command"
                    yield HostFault("silent-login", other, f"a login of {site.user} from {name} {ends}")
                continue
            root = reading.root(login.err.splitlines())
            lines = [text for _, text in root.lines] if root else login.err.splitlines()
            words = " ".join(" ".join(lines).split())[:200]
            observed = f"{site.user} cannot log in from {name} to {other}: {words}"
            id_ = root.cause.id if root else "horovodrun-ssh"
            if id_ in _FAR:
                refusing.setdefault(other, HostFault(id_, other, observed))
                continue
            both = (name, other) if id_ in _EITHER and other in every else (name,)
            role = "ssh_trust" if id_ in _MENDED else ""
            yield from (HostFault(id_, end, observed, role) for end in both)
    yield from refusing.values()
    for host, (origin, words_there) in find_reached(every).items():
        if home := words_there.get("python_home"):
            yield HostFault("python-home", host, f"PYTHONHOME is {home[:200]} after a login from {origin}")
        ports = re.fullmatch(r"(\d{1,5})\s+(\d{1,5})", words_there.get("ports", ""))
        if ports and int(ports[2]) - int(ports[1]) < _LEAST_PORTS:
            yield HostFault("few-ports", host, f"net.ipv4.ip_local_port_range is {ports[1]} {ports[2]}")


STRICT = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "-o", "ControlPath=none"]
ALL_PAIRS = 8
NO_OUTPUT = "no output: is there an `exit` in its ~/.bashrc, ~/.bash_profile or ~/.profile?"

HOST_CERTIFICATE = "/etc/ssh/ssh_host_ed25519_key-cert.pub"
SOON = timedelta(weeks=1)


def targets(peers: Mapping[str, str], *, virtual: bool = False) -> dict[str, str]:
    """Return the hosts that one host tries: all others in a small lab, else those 1, 2, 4, ... places on.

    With many virtual hosts each tries only the next one: they all share the cores of one machine.

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
    """Return the host that is also tried by address: the next one, so one host tries each."""
    return dict(list(tried.items())[:1])


def asks(node: RoleHost) -> dict[str, Question]:
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


def _explain_alone(node: RoleHost) -> str:
    """A lab of this machine only needs no trust, and the role skips it."""
    return "it is reached without ssh, and there is no other host" if node.alone else ""


ROLE = Role("ssh_trust", asks, skip=_explain_alone)


@ROLE.check_each("name", "address")
def reaches_other_hosts(node: RoleHost, case: str) -> str:
    tried, unreachable = targets(node.peers, virtual=is_virtual(node)), []
    if case == "address":
        tried = by_address(tried)
    scope, count = "", f"tried {len(tried)} of the {len(node.peers)} other hosts"
    if len(tried) < len(node.peers):
        places = "the next one" if len(tried) == 1 else "those 1, 2, 4, ... places on"
        scope = f"each host {count}, {places} in the inventory"
    for peer, address in tried.items():
        target = peer if case == "name" else address
        answer = node[f"ssh {target}"]
        if not is_logged_in(answer, node.user):
            lines = (answer["err"] or answer["out"]).strip().splitlines()
            # "ED25519 host key for n2 was revoked and you have requested strict checking."
            why = [line.partition(" and you ")[0] for line in lines if "requested strict checking" in line]
            unreachable.append(f"{target} ({[*(lines[-1:] or [NO_OUTPUT]), *why][-1]})")
    node.expect(
        not unreachable,
        f"{node.user} cannot reach {', '.join(unreachable)}; {count}",
        "run role ssh_trust on both hosts; `ssh -v` as that user tells more",
    )
    return scope


@ROLE.check
def checks_host_keys(node: RoleHost) -> None:
    output = node.output("ssh config", "correct the ssh configuration, then run role ssh_trust")
    config = dict(line.partition(" ")[::2] for line in output.splitlines())
    strict = config.get("stricthostkeychecking", "")
    node.expect(
        strict in ("true", "yes"),
        f"ssh of {node.user} has StrictHostKeyChecking {strict}",
        "look for it in ~/.ssh/config and /etc/ssh/ssh_config.d, then run role ssh_trust",
    )
    known = config.get("userknownhostsfile", "")
    node.expect("/dev/null" not in known, f"ssh of {node.user} does not keep host keys: {known}")


@ROLE.check
def private_files_are_private(node: RoleHost) -> None:
    wrong = []
    for line in node.output("ssh files").splitlines():
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


@ROLE.check
def certificate_of_the_host_lasts(node: RoleHost) -> None:
    output = node.output("host certificate")
    match = re.search(r"Valid: from \S+ to (\S+)", output)
    ends = datetime.fromisoformat(match[1]).replace(tzinfo=UTC) if match else None
    state = f"ends at {ends:%Y-%m-%d %H:%M} UTC" if ends else "cannot be read"
    node.expect(
        ends and ends > datetime.now(UTC) + SOON,
        f"its certificate for ssh {state}",
        "run `hvlab keys issue` (role ssh_trust)",
    )


@ROLE.check
def sshd_trusts_the_authority(node: RoleHost) -> None:
    output = node.output("sshd config", "`sshd -t` shows what is wrong with sshd's configuration")
    config = dict(line.partition(" ")[::2] for line in output.splitlines())
    for option in ("trustedusercakeys", "hostcertificate"):
        node.expect(
            config.get(option, "none") != "none",
            f"sshd has no {option}",
            "run role ssh_trust; /etc/ssh/sshd_config must include /etc/ssh/sshd_config.d/*.conf",
        )


def check_owner(hosts: list[PreflightHost], trust: Trust) -> Iterator[Problem]:
    """Yield hosts that were provisioned with other keys than the lab's: somebody else's, or lost ones."""
    for host in hosts:
        if host.alone or host.authority is None or host.authority in trust.authorities:
            continue
        yield Problem(
            host.name,
            f"it was provisioned with other keys: it trusts {host.authority}; lab {trust.lab} of "
            f"{trust.folder} has {trust.authority or 'no keys yet'}",
            "use those keys: set HVLAB_DATA to their folder, or put it back from a backup; if they are lost, "
            f"or their owner gives the host up: `hvlab keys init --take-over {host.authority}`",
        )


@preflight
def check_host_key(lab: PreflightLab) -> Iterator[Problem]:
    """Yield hosts without the key that the lab's trust rests on."""
    for host in lab.hosts:
        if not host.alone and not host.own.get("ssh_host_key"):
            remedy = "ssh-keygen -A, then restart sshd; a host in FIPS mode makes none, and cannot be used"
            yield Problem(host.name, "sshd has no Ed25519 host key", remedy)


@preflight
def check_shared_keys(lab: PreflightLab) -> Iterator[Problem]:
    """Yield hosts that share a key; `hvlab init` compares the keys it received."""
    holders = grouped((key, host.name) for host in lab.hosts if (key := host.own.get("ssh_host_key")))
    for names in holders.values():
        if len(names) > 1:
            remedy = "make new ones on all but one: rm /etc/ssh/ssh_host_*; ssh-keygen -A; restart sshd"
            yield Problem(", ".join(names), "they have the same ssh host key", remedy)


def check_possession(stated: Iterable[tuple[Host, str]]) -> Iterator[Problem]:
    """Yield hosts that state a host key other than ssh knows them by: nothing shows that it is theirs."""
    for host, key, known in unknown_keys(stated):
        files = known_hosts_files(host)
        forget = shlex.join(["ssh-keygen", "-R", entry_name(host), "-f", str(files[0])])
        yield Problem(
            host.name,
            f"it states the host key {fingerprint(key)}, but ssh knows it by {', '.join(known)} "
            f"({', '.join(map(str, files))})",
            f"if you gave it a new key, restart its sshd, `{forget}`, and run this again, which says how to "
            "record it; else the host may be taken over",
        )
