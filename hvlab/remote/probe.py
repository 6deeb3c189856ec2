"""Ask each host's SSH endpoint who it is, before any playbook runs."""

from __future__ import annotations

import logging
import re
import shlex
import socket
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import paramiko

from hvlab.base.errors import Problem, UnreachableError, report, unusable
from hvlab.lab.inventory import Host
from hvlab.remote.known_hosts import KnownKeys, entry_name, known_hosts_files, read_known_keys, ssh_options
from hvlab.remote.ssh_client import has_detour, responds

TIMEOUT_S = 8.0
# Parts of ssh options that set a jump host.
_JUMP = re.compile("-J|proxy", re.IGNORECASE)


def probe(hosts: Sequence[Host], *, known_hosts: Path | None = None) -> None:
    """Reach every host at once; raise one UnreachableError that names those that fail.

    ``known_hosts`` is the file in force; by default what the inventory's ssh options name, else the user's.
    """
    if observed := problems(hosts, known_hosts=known_hosts):
        head = unusable([problem.host for problem in observed], len(hosts))
        raise UnreachableError(f"{head}:\n{report(observed, indent='  ')}")


def problems(hosts: Sequence[Host], *, known_hosts: Path | None = None) -> list[Problem]:
    """Reach every host at once; return the problems of unusable ones."""
    logging.getLogger("paramiko").setLevel(logging.CRITICAL)
    with ThreadPoolExecutor(max_workers=min(32, len(hosts))) as pool:
        answers = pool.map(lambda host: _ask(host, known_hosts), hosts)
        return [problem for problem in answers if problem is not None]


def _ask(host: Host, known_hosts: Path | None) -> Problem | None:
    options = ssh_options(host)
    by_ssh = host.vars.get("ansible_connection", "ssh") in ("ssh", "smart")
    if host.local or not by_ssh or (_JUMP.search(options) and has_detour(host.address, host.port, options)):
        return None
    files = [known_hosts] if known_hosts else known_hosts_files(host)
    known = read_known_keys([host.name, entry_name(host)], files)
    try:
        with socket.create_connection((host.address, host.port), timeout=TIMEOUT_S) as link:
            if known.by_authority and not known.keys:
                # Only ssh itself can check a host certificate; here it is enough that sshd answers.
                return _greeting(host, link)
            return _judge(host, link, known, files=files)
    except OSError as error:
        key = host.text("ansible_ssh_private_key_file")
        place = (host.address, host.port, options)
        there = has_detour(*place) and responds(*place, user=host.user, key=key)
        return None if there else explain_unreached(host, error)


def explain_unreached(host: Host, error: OSError) -> Problem:
    """Explain why a host could not be connected to."""
    where = f"{host.address}:{host.port}"
    look = "look at its power, its network and ansible_host"
    if isinstance(error, ConnectionRefusedError):
        return Problem(
            host.name, f"{where} refuses the connection", "start sshd there, or correct ansible_port"
        )
    if isinstance(error, socket.gaierror):
        observed = f"the name {host.address} does not resolve: {error.strerror}"
        remedy = f"give its address: ansible_host in the inventory; with `hvlab init`, {host.name}=ADDRESS"
        return Problem(host.name, observed, remedy)
    if isinstance(error, TimeoutError):
        observed = f"{where} does not answer within {TIMEOUT_S:.0f} s"
    else:
        observed = f"{where}: {error.strerror or error}"
    return Problem(host.name, observed, "boot the virtual machines: `hvlab lab up`" if host.virtual else look)


def _judge(host: Host, link: socket.socket, known: KnownKeys, *, files: Iterable[Path]) -> Problem | None:
    transport = paramiko.Transport(link)
    transport.banner_timeout = TIMEOUT_S
    if known.keys:
        # Ask for the kinds of key that are known, as ssh does.
        preferred = [kind for kind in transport.get_security_options().key_types if kind in known.kinds]
        if preferred:
            transport.get_security_options().key_types = preferred
    try:
        transport.start_client(timeout=TIMEOUT_S)
        key = transport.get_remote_server_key()
    except (paramiko.SSHException, EOFError, OSError) as error:
        return _no_ssh(host, str(error) or "it hung up")
    finally:
        transport.close()
    if key in known.keys:
        return None
    same_kind = [other for other in known.keys if other.get_name() == key.get_name()]
    names = ", ".join(map(str, files))
    presented = f"{key.get_name()} {key.fingerprint}"
    entry, file = entry_name(host), shlex.quote(str(next(iter(files))))
    compare = (
        "compare that with the host's own, read on its console (ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub)"
    )
    record = f"`echo {shlex.quote(f'{entry} {key.get_name()} {key.get_base64()}')} >> {file}`"
    if host.virtual:
        remedy = "`hvlab lab up` writes the virtual hosts' keys again"
    elif same_kind:
        remedy = (
            f"somebody may be answering in its place: {compare}. Only if they are the same, as after a new "
            f"installation: `ssh-keygen -R {shlex.quote(entry)} -f {file}`, then {record}"
        )
    else:
        remedy = f"{compare}; if they are the same: {record}"
    if not same_kind:
        return Problem(host.name, f"its host key {presented} is unknown ({names})", remedy)
    return Problem(
        host.name, f"its host key has changed: known {same_kind[0].fingerprint}, shown {presented}", remedy
    )


def _greeting(host: Host, link: socket.socket) -> Problem | None:
    greeting = link.makefile("rb").readline(256)
    return None if greeting.startswith(b"SSH-2.0-") else _no_ssh(host, f"it says {greeting[:40]!r}")


def _no_ssh(host: Host, reason: str) -> Problem:
    observed = f"{host.address}:{host.port} does not speak SSH as it should: {reason}"
    look = "boot it (`hvlab lab up`), or" if host.virtual else ""
    return Problem(host.name, observed, f"{look} look at sshd there (journalctl -u ssh)".strip())
