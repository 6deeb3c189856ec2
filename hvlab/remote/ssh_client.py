"""The user's own ssh: how its configuration reaches a host, and a first login that changes nothing there."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ansible import constants
from paramiko.config import SSH_PORT

from hvlab.base import process
from hvlab.base.errors import HvlabError, Problem, UsageError
from hvlab.lab.host_patterns import ListedHost
from hvlab.lab.inventory import Host
from hvlab.remote.ssh_keys import quote

# The oldest that ansible-core 2.19 runs on at the far end.
OLDEST_PYTHON = (3, 8)
_SYSTEM_PYTHON = "/usr/bin/python3"
_SETTINGS_S, _CONNECT_S, _LOGIN_S = 20.0, 10, 45.0
_AT_ONCE = 32
_REMEDY = "install openssh-client (Debian) or openssh-clients"
SSH_FAILED = 255
# ssh's messages if an sshd answers and either side refuses the other.
_REFUSALS = ("Permission denied", "Host key verification failed", "Too many authentication failures")
_MARK = "hvlab"
_KEY = "ansible_ssh_private_key_file"
# It goes into the inventory, whose values are templates.
_PATH = re.compile(r"/[\w./+-]+")
# Read by a shell of the host, whatever the login shell; what it starts must not read the rest of it.
_SCRIPT = f"""\
LC_ALL=C; export LC_ALL
echo {_MARK} clock $(date +%s.%N)
echo {_MARK} system $(. /etc/os-release 2>/dev/null; echo "$ID $VERSION_ID")
for name in {{pythons}}; do
  path=$(command -v "$name" 2>/dev/null) || continue
  version=$("$path" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null </dev/null)
  echo {_MARK} python "$path" $version
done
if [ "$(id -u)" = 0 ]; then echo {_MARK} sudo yes
elif answer=$(sudo -n true 2>&1 </dev/null); then echo {_MARK} sudo yes
else echo {_MARK} sudo no $answer
fi
"""


@dataclass(frozen=True)
class FirstLogin:
    """The findings of a login: the host's clock, between two readings of ours, its Pythons and its sudo.

    ``pythons`` are (path, version) in the order in which Ansible looks for them; the version is empty for one
    that does not run. ``sudo`` is empty if it works, else its answer. ``system`` is the name and version of
    the operating system, such as ubuntu 18.04; empty if unknown.
    """

    host: Host
    sent: float
    now: float
    received: float
    pythons: tuple[tuple[str, str], ...]
    sudo: str | None
    system: tuple[str, str] = ("", "")

    @property
    def offset(self) -> float:
        """Return the least number of seconds that its clock is ahead of ours; below 0 it is behind."""
        return max(self.now - self.received, min(0.0, self.now - self.sent))

    @property
    def interpreter(self) -> str | None:
        """Return the Python that Ansible would take, else the system's, else any other; None without any."""
        usable = [path for path, version in self.pythons if _numbers(version) >= OLDEST_PYTHON]
        if not usable or usable[0] == self.pythons[0][0] or _SYSTEM_PYTHON not in usable:
            return usable[0] if usable else None
        return _SYSTEM_PYTHON

    @property
    def chosen(self) -> str | None:
        """Return the interpreter if Ansible must be told, because it would take another one."""
        return self.interpreter if self.pythons and self.pythons[0][0] != self.interpreter else None


def resolve(
    listed: Sequence[ListedHost], *, user: str | None, key: str | None, known_hosts: str | None
) -> list[Host]:
    """Return hosts as ssh's configuration has them: address, port, user, jump host.

    Raises UsageError if ssh cannot read its configuration.
    """
    fixed: dict[str, Any] = {_KEY: key} if key else {}

    def one(entry: ListedHost) -> Host:
        settings = _settings(entry, _login(user, entry.port))
        options = [f"-o {shlex.quote(f'{name}={value}')}" for name, value in _jumps(settings).items()]
        options += [f"-o {shlex.quote(f'UserKnownHostsFile={quote(known_hosts)}')}"] if known_hosts else []
        return Host(
            name=entry.name,
            address=settings.get("hostname", entry.target),
            port=int(settings.get("port", 22)),
            user=settings.get("user", user),
            slots=1,
            groups=frozenset(["all"]),
            vars={**fixed, **({"ansible_ssh_common_args": " ".join(options)} if options else {})},
        )

    with ThreadPoolExecutor(max_workers=min(_AT_ONCE, len(listed))) as pool:
        return list(pool.map(one, listed))


def has_detour(address: str, port: int, options: str = "") -> bool:
    """Whether ssh reaches an address by another way than directly: a jump host, or ~/.ssh/config.

    ``options`` are those of the inventory (``ansible_ssh_common_args``).
    """
    try:
        own = [*shlex.split(options), *(["-p", str(port)] if port != SSH_PORT else [])]
        settings = _settings(ListedHost(address, address, None), own)
    except (HvlabError, ValueError):
        return False
    leads = (settings.get("hostname", address).lower(), settings.get("port", str(port)))
    return leads != (address.lower(), str(port)) or bool(_jumps(settings))


def responds(address: str, port: int, options: str, *, user: str | None, key: str | None) -> bool:
    """Whether ssh reaches an sshd there, which may accept or refuse the user."""
    try:
        own = None if port == SSH_PORT else port  # Otherwise as ~/.ssh/config has it.
        argv = login_argv(address, own, options, user=user, key=key, command="true")
        env = os.environ | {"LC_ALL": "C"}
        done = process.run(argv, seconds=_LOGIN_S, env=env, remedy=_REMEDY)
    except (HvlabError, ValueError):
        return False
    return done.returncode != SSH_FAILED or any(words in done.stderr for words in _REFUSALS)


def hashes_names(host: Host) -> bool:
    """Whether ssh's configuration wants the names of hosts hashed in known_hosts (HashKnownHosts)."""
    entry = ListedHost(host.name, host.address, host.port)
    return _settings(entry, _login(host.user, host.port)).get("hashknownhosts") == "yes"


def log_in(hosts: Sequence[Host]) -> list[FirstLogin | Problem]:
    """Log in to every host, several at once; host keys have to be known by now."""
    with ThreadPoolExecutor(max_workers=min(_AT_ONCE, max(1, len(hosts)))) as pool:
        return list(pool.map(_log_in, hosts))


def _login(user: str | None, port: int | None) -> list[str]:
    return [*(["-l", user] if user else []), *(["-p", str(port)] if port else [])]


def _jumps(settings: Mapping[str, str]) -> dict[str, str]:
    ways = {name: settings.get(name.lower(), "none") for name in ("ProxyJump", "ProxyCommand")}
    return {name: value for name, value in ways.items() if value != "none"}


def _settings(entry: ListedHost, options: Sequence[str]) -> dict[str, str]:
    argv = ["ssh", "-T", "-G", *options, "--", entry.target]
    done = process.run(argv, seconds=_SETTINGS_S, remedy=_REMEDY)
    if done.returncode:
        raise UsageError(
            f"{entry.name}: ssh does not accept {entry.target!r}: {_last_line(done.stderr)}",
            remedy="correct the address, or ~/.ssh/config",
        )
    pairs = (line.partition(" ") for line in done.stdout.splitlines())
    return {name.lower(): value for name, _, value in pairs}


def login_argv(
    address: str,
    port: int | None,
    options: str = "",
    *,
    command: str,
    user: str | None = None,
    key: str | None = None,
) -> list[str]:
    """Return the words that run a shell's line on a host, by the user's own ssh; host keys are checked."""
    own = ["BatchMode=yes", "StrictHostKeyChecking=yes", f"ConnectTimeout={_CONNECT_S}"]
    own += ["ServerAliveInterval=5", "ServerAliveCountMax=3", "RemoteCommand=none"]
    argv = ["ssh", "-T", *(word for option in own for word in ("-o", option)), *shlex.split(options)]
    argv += ["-i", key] if key else []
    argv += _login(user, port)
    return [*argv, "--", address, command]


def _log_in(host: Host) -> FirstLogin | Problem:
    key, options = host.text(_KEY), host.text("ansible_ssh_common_args") or ""
    argv = login_argv(host.address, host.port, options, user=host.user, key=key, command="/bin/sh -s")
    # A Python that Ansible would take comes first.
    names = " ".join(shlex.quote(name) for name in constants.INTERPRETER_PYTHON_FALLBACK)
    sent = time.time()
    try:
        done = process.run(
            argv,
            seconds=_LOGIN_S,
            given=_SCRIPT.format(pythons=names),
            env=os.environ | {"LC_ALL": "C"},
            remedy=_REMEDY,
            hung="log in by hand and see what it waits for (a name server, a home directory, sudo)",
        )
    except HvlabError as error:
        return Problem(host.name, str(error), error.remedy or "try again")
    received = time.time()
    lines = [line.split(" ", 2) for line in done.stdout.splitlines() if line.startswith(f"{_MARK} ")]
    values = {kind: " ".join(rest).strip() for _, kind, *rest in lines}
    # Some print N in place of nanoseconds.
    clock = re.match(r"\d+(\.\d+)?", values.get("clock", ""))
    if clock is None or "sudo" not in values:
        # A forced command speaks on its output, ssh itself on the other one.
        failed = done.returncode == SSH_FAILED
        return _explain_refusal(host, done.stderr if failed else done.stdout or done.stderr, key)
    pythons = [[*" ".join(rest).split(), "", ""] for _, kind, *rest in lines if kind == "python"]
    answer = values["sudo"].partition(" ")
    name, _, version = values.get("system", "").partition(" ")
    return FirstLogin(
        host=host,
        sent=sent,
        now=float(clock.group()),
        received=received,
        pythons=tuple((path, version) for path, version, *_ in pythons if _PATH.fullmatch(path)),
        sudo=None if answer[0] == "yes" else answer[2].strip() or "there is no sudo",
        system=(name, version),
    )


def _explain_refusal(host: Host, text: str, key: str | None) -> Problem:
    who = f"{host.user}@{host.address}"
    words = _last_line(text)
    if "permission denied" in text.lower():
        own = f"-i {shlex.quote(key)} " if key else ""
        remedy = (
            f"let your key in: `ssh-copy-id {own}-p {host.port} {who}`; or name another with --user or --key "
            "(a key with a passphrase has to be in ssh-agent)"
        )
        return Problem(host.name, f"it refuses the login of {host.user}: {words}", remedy)
    if "verification failed" in text.lower():
        remedy = f"compare its fingerprint, and look at its lines: `ssh-keygen -F {host.address}`"
        return Problem(host.name, f"ssh does not accept its host key: {words}", remedy)
    observed = f"the login of {host.user} ends without a shell: {words or 'nothing was printed'}"
    return Problem(
        host.name, observed, f"try it by hand: `ssh -p {host.port} {who} /bin/sh`; --user names another user"
    )


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "".join(char for char in (lines[-1] if lines else "") if char.isprintable())[:300]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
