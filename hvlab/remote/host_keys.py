"""SSH host keys: those that hosts show, compared with known or trusted ones.

A key is new until a person, or a file of fingerprints, has confirmed it. One that differs from the known key
is never recorded.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import paramiko
from paramiko.hostkeys import HostKeyEntry, InvalidHostKey

from hvlab.base import process
from hvlab.base.errors import HvlabError, Problem, UsageError
from hvlab.lab.inventory import Host
from hvlab.remote.known_hosts import KnownKeys, entry_name, known_hosts_files, read_known_keys, ssh_options
from hvlab.remote.probe import TIMEOUT_S, explain_unreached
from hvlab.remote.ssh_client import has_detour

# If a host has several keys, the person sees the first of these.
_PREFERRED = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa")
_ANSWER_S, _SCAN_S = 5, 30.0
_AT_ONCE = 32
_FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}=?")


@dataclass(frozen=True)
class ShownKeys:
    """A host's shown keys: ``new`` holds those that nobody has confirmed yet, the preferred one first.

    ``problem`` says why there is none; ``refused`` means it must not be used: its key has changed.
    """

    host: Host
    new: tuple[paramiko.PKey, ...] = ()
    problem: Problem | None = None
    refused: bool = False


@dataclass(frozen=True)
class TrustedFingerprints:
    """Fingerprints that a person trusts: those of one host, by its name or address, and those of any host."""

    file: Path
    of_host: Mapping[str, frozenset[str]] = field(default_factory=dict)
    of_any: frozenset[str] = frozenset()

    def of(self, host: Host) -> frozenset[str]:
        """Return the fingerprints that this host may show."""
        names = (host.name, host.address, entry_name(host))
        own = frozenset().union(*(self.of_host.get(name, ()) for name in names))
        return own or self.of_any


def ask(hosts: Sequence[Host]) -> list[ShownKeys]:
    """Ask every host for its keys, several at once, and compare them with the known ones."""
    with ThreadPoolExecutor(max_workers=min(_AT_ONCE, len(hosts))) as pool:
        return list(pool.map(_ask, hosts))


def read_fingerprints(file: Path) -> TrustedFingerprints:
    """Read trusted fingerprints: ``HOST SHA256:...`` a line, or lines of ``ssh-keygen -l``, for any host.

    Raises UsageError for a line that has no SHA256 fingerprint.
    """
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", error)
        raise UsageError(f"{file} cannot be read: {reason}", remedy="give a file of fingerprints") from error
    of_host: dict[str, frozenset[str]] = {}
    of_any: set[str] = set()
    for number, line in enumerate(lines, start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        prints = [word.rstrip("=") for word in words if _FINGERPRINT.fullmatch(word)]
        if len(prints) != 1:
            raise UsageError(
                f"{file}, line {number}: no SHA256 fingerprint in {line.strip()!r}",
                remedy="write HOST SHA256:..., as `ssh-keygen -lf KEY.pub` prints it on the host",
            )
        if _FINGERPRINT.fullmatch(words[0]) or words[0].isdigit():
            of_any.add(prints[0])
        else:
            of_host[words[0]] = of_host.get(words[0], frozenset()) | {prints[0]}
    return TrustedFingerprints(file, of_host, frozenset(of_any))


def select_trusted(shown: ShownKeys, trusted: TrustedFingerprints) -> ShownKeys:
    """Return those new keys of a host whose fingerprints are trusted; refused where none is."""
    if not shown.new:
        return shown
    keys = tuple(key for key in shown.new if key.fingerprint in trusted.of(shown.host))
    if keys:
        return ShownKeys(shown.host, keys)
    listing = ", ".join(f"{key.get_name()} {key.fingerprint}" for key in shown.new)
    allowed = ", ".join(sorted(trusted.of(shown.host)))
    observed = f"it shows {listing}; {trusted.file} has {allowed or 'no fingerprint of it'}"
    remedy = (
        "read the fingerprint on the host's console (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub): "
        "correct the file if that is the one shown here, else find out who answers at that address"
    )
    return ShownKeys(shown.host, problem=Problem(shown.host.name, observed, remedy), refused=True)


def find_shared_keys(all_shown: Iterable[ShownKeys]) -> list[Problem]:
    """Return the problems of hosts that show one key: with it, one could pass for the other."""
    hosts: dict[str, list[str]] = {}
    for shown in all_shown:
        for key in shown.new[:1]:
            hosts.setdefault(key.fingerprint, []).append(shown.host.name)
    remedy = (
        "if it is one host with several addresses, list it once; copies of one image need keys of their own: "
        "`rm /etc/ssh/ssh_host_*; ssh-keygen -A` on each, and restart sshd"
    )
    return [
        Problem(", ".join(names), f"they show the same host key {print_}", remedy)
        for print_, names in hosts.items()
        if len(names) > 1
    ]


def _ask(host: Host) -> ShownKeys:
    files = known_hosts_files(host)
    known = read_known_keys([entry_name(host)], files)
    if has_detour(host.address, host.port, ssh_options(host)):
        return ShownKeys(
            host, problem=None if known.keys or known.by_authority else _explain_behind(host, files[0])
        )
    try:
        keys = _scan(host)
    except HvlabError as error:
        return ShownKeys(host, problem=Problem(host.name, str(error), error.remedy or "try again"))
    if not keys:
        return ShownKeys(host, problem=_silent(host))
    return compare(host, keys, known, files)


def compare(host: Host, keys: Sequence[paramiko.PKey], known: KnownKeys, files: Sequence[Path]) -> ShownKeys:
    """Return a host's keys as new, known (none is left), or refused: changed, or revoked."""
    revoked = [key for key in keys if key in known.revoked]
    if revoked:
        observed = f"its host key {revoked[0].fingerprint} is marked @revoked in {_names(files)}"
        remedy = (
            "give it a new host key (`ssh-keygen -A` after removing the old ones); do not use it until then"
        )
        return ShownKeys(host, problem=Problem(host.name, observed, remedy), refused=True)
    if any(key in known.keys for key in keys):
        return ShownKeys(host)
    if known.by_authority and not known.keys:
        # Its certificate counts; ssh itself checks that when it logs in.
        return ShownKeys(host)
    if not known.keys:
        return ShownKeys(host, new=tuple(keys))
    before = ", ".join(f"{key.get_name()} {key.fingerprint}" for key in known.keys)
    now = ", ".join(f"{key.get_name()} {key.fingerprint}" for key in keys)
    observed = f"ITS HOST KEY HAS CHANGED: {_names(files)} has {before}; {host.address} now shows {now}"
    remedy = (
        "somebody may be answering in its place. Read the fingerprint on the host's console (ssh-keygen -lf "
        "/etc/ssh/ssh_host_ed25519_key.pub). Only if it is the one shown here, as after a new installation: "
        f"{shlex.join(['ssh-keygen', '-R', entry_name(host), '-f', str(files[0])])}, then run this again"
    )
    return ShownKeys(host, problem=Problem(host.name, observed, remedy), refused=True)


def _scan(host: Host) -> tuple[paramiko.PKey, ...]:
    argv = ["ssh-keyscan", "-T", str(_ANSWER_S), "-p", str(host.port), "-t", "ed25519,ecdsa,rsa"]
    done = process.run(
        [*argv, "--", host.address],
        seconds=_SCAN_S,
        env=os.environ | {"LC_ALL": "C"},
        remedy="install openssh-client (Debian) or openssh-clients",
        hung="look at its sshd: it accepts connections and then says nothing",
    )
    keys = []
    for line in done.stdout.splitlines():
        with suppress(paramiko.SSHException, InvalidHostKey):
            entry = None if line.startswith("#") else HostKeyEntry.from_line(line)
            if entry is not None and entry.key.get_name() in _PREFERRED:
                keys.append(entry.key)
    return tuple(sorted(keys, key=lambda key: _PREFERRED.index(key.get_name())))


def _silent(host: Host) -> Problem:
    try:
        with socket.create_connection((host.address, host.port), timeout=TIMEOUT_S) as link:
            link.settimeout(TIMEOUT_S)
            greeting = link.makefile("rb").readline(256)
    except OSError as error:
        return explain_unreached(host, error)
    where = f"{host.address}:{host.port}"
    if greeting.startswith(b"SSH-"):
        observed = f"{where} speaks SSH, but shows no Ed25519, ECDSA or RSA host key"
        return Problem(host.name, observed, "make its host keys (ssh-keygen -A), and restart sshd")
    observed = f"{where} does not speak SSH: it says {greeting[:40]!r}"
    return Problem(host.name, observed, "correct the address or the port")


def _explain_behind(host: Host, file: Path) -> Problem:
    observed = (
        "it is behind a jump host, from where ssh-keyscan cannot reach it, and its host key is not known"
    )
    login = shlex.join(
        ["ssh", *shlex.split(host.text("ansible_ssh_common_args") or ""), "-p", str(host.port), host.address]
    )
    remedy = (
        f"log in once with `{login}`, compare the fingerprint it shows, accept it into {file}, and try again"
    )
    return Problem(host.name, observed, remedy)


def _names(files: Iterable[Path]) -> str:
    return " or ".join(map(str, files))
