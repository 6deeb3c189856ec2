"""known_hosts files: those in force for a host, their keys for it, and recording new ones."""

from __future__ import annotations

import base64
import hmac
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import paramiko
from paramiko.hostkeys import HostKeyEntry, InvalidHostKey

from hvlab.base.errors import HvlabError
from hvlab.base.files import append
from hvlab.base.sudo import hand_over
from hvlab.lab.inventory import Host

USER_FILE = Path("~/.ssh/known_hosts")
_FILES = (USER_FILE, Path("/etc/ssh/ssh_known_hosts"))


@dataclass(frozen=True)
class KnownKeys:
    """A host's entries in known_hosts files."""

    keys: tuple[paramiko.PKey, ...] = ()
    revoked: tuple[paramiko.PKey, ...] = ()
    by_authority: bool = False
    """Whether a certificate authority vouches for it."""

    @property
    def kinds(self) -> set[str]:
        """Return the algorithms by which a server shows these keys; an RSA key signs with SHA-2."""
        names = {key.get_name() for key in self.keys}
        return names | ({"rsa-sha2-512", "rsa-sha2-256"} if "ssh-rsa" in names else set())


def ssh_options(host: Host) -> str:
    """Return the options of ssh that the inventory gives a host."""
    return " ".join(host.text(f"ansible_ssh_{kind}_args") or "" for kind in ("common", "extra"))


def known_hosts_files(host: Host) -> list[Path]:
    """Return the known_hosts files that ssh would read for this host, as the inventory has it."""
    words = shlex.split(ssh_options(host))
    for index, word in enumerate(words):
        option = words[index + 1] if word == "-o" and index + 1 < len(words) else word.removeprefix("-o")
        name, _, value = option.partition("=")
        if name.lower() == "userknownhostsfile":
            return [Path(part).expanduser() for part in shlex.split(value)]
    return [path.expanduser() for path in _FILES]


def entry_name(host: Host) -> str:
    """Return the name under which ssh looks a host's key up."""
    return host.address if host.port == paramiko.config.SSH_PORT else f"[{host.address}]:{host.port}"


def read_known_keys(names: Sequence[str], files: Iterable[Path]) -> KnownKeys:
    """Return the keys and authorities in these files for a host with these names."""
    return _parse_known(names, (line for path in files for line in _lines(path)))


def unknown_keys(stated: Iterable[tuple[Host, str]]) -> Iterator[tuple[Host, str, list[str]]]:
    """Yield the hosts that state an Ed25519 key unknown to known_hosts, with the known keys.

    At a login, a host proves that it holds a key of known_hosts; any other key it merely claims. If
    known_hosts has no such key of a host, nothing is compared.
    """
    read: dict[Path, list[str]] = {}
    for host, key in stated:
        names, (kind, text) = [entry_name(host)], key.split()[:2]
        files = known_hosts_files(host)
        read |= {path: [line for line in _lines(path) if kind in line] for path in files if path not in read}
        lines = [line for path in files for line in read[path]]
        # Hashed names take their time; the line that has the key is nearly always the host's.
        for some in ([line for line in lines if text in line], lines):
            known = [one for one in _parse_known(names, some).keys if one.get_name() == kind]
            if any(one.get_base64() == text for one in known):
                break
        else:
            if known:
                yield host, key, [one.fingerprint for one in known]


def _lines(path: Path) -> list[str]:
    return path.read_text("utf-8", errors="replace").splitlines() if path.is_file() else []


def _parse_known(names: Sequence[str], lines: Iterable[str]) -> KnownKeys:
    keys: list[paramiko.PKey] = []
    revoked: list[paramiko.PKey] = []
    by_authority = False
    for line in lines:
        mark, rest = [*line.split(None, 1), ""][:2] if line.startswith("@") else ("", line)
        patterns = rest.split()[0].split(",") if rest.split() else []
        excepted = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
        fits = any(_matches(pattern, name) for pattern in patterns for name in names)
        if not fits or any(_matches(pattern, name) for pattern in excepted for name in names):
            continue
        if mark == "@cert-authority":
            by_authority = True
            continue
        with suppress(paramiko.SSHException, InvalidHostKey):
            entry = HostKeyEntry.from_line(rest)
            if entry is not None:
                (revoked if mark else keys).append(entry.key)
    return KnownKeys(tuple(keys), tuple(revoked), by_authority)


def record(file: Path, new: Iterable[tuple[Host, Sequence[paramiko.PKey]]], *, hashed: bool) -> int:
    """Add the new keys of these hosts to a known_hosts file in one write; return their number.

    What ssh adds to it meanwhile stays. An existing file keeps its mode, a new one gets 0600. ``hashed``:
    host names are written as ssh's HashKnownHosts writes them. Raises HvlabError if that is impossible.
    """
    lines = []
    for host, keys in new:
        name = entry_name(host)
        for key in keys:
            written = paramiko.HostKeys.hash_host(name) if hashed else name
            lines.append(f"{written} {key.get_name()} {key.get_base64()}\n")
    if not lines:
        return 0
    try:
        target = file.resolve()
        if not target.parent.is_dir():
            target.parent.mkdir(mode=0o700, parents=True)
            hand_over(target.parent)
        made = not target.exists()
        append(target, "".join(lines), mode=0o600)
        if made:
            hand_over(target)
    except OSError as error:
        raise HvlabError(
            f"the host keys cannot be recorded in {file}: {error.strerror}",
            remedy="make it writable, or name another file with --known-hosts",
        ) from error
    return len(lines)


def _matches(pattern: str, name: str) -> bool:
    if pattern.startswith("|1|"):
        with suppress(ValueError):  # of a broken line
            salt, digest = map(base64.b64decode, pattern[3:].split("|"))
            return hmac.digest(salt, name.encode(), "sha1") == digest
        return False
    if "*" not in pattern and "?" not in pattern:
        return pattern.lower() == name.lower()
    wild = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    return re.fullmatch(wild, name, re.IGNORECASE) is not None
