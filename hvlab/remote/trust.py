"""Trust within one lab: two SSH certificate authorities and the ranks' key, made and kept on the controller.

The host CA signs each machine's own host key, the user CA signs the one key the lab user's ranks log in with.
Both stay in `hvlab.paths.trust_dir`; only the user key, its certificate and public texts go to the machines.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hvlab import process
from hvlab.errors import HvlabError
from hvlab.files import write_file
from hvlab.paths import trust_dir

BACKDATED = timedelta(minutes=5)
HOST_LIFE = timedelta(weeks=52)
USER_LIFE = timedelta(days=7)
SSH_PORT = 22
_KEYGEN_SECONDS = 30.0


class TrustError(HvlabError):
    """A key or certificate of the lab cannot be made or read."""


@dataclass(frozen=True)
class Certificate:
    """What `ssh-keygen -L` says about a certificate; times are UTC."""

    key: str
    authority: str
    principals: frozenset[str]
    begins: datetime
    ends: datetime

    def good(self, *, key: str, authority: str, principals: Iterable[str], now: datetime) -> bool:
        """Whether it certifies just this, and more than half of its life is left."""
        same = (self.key, self.authority, self.principals) == (key, authority, frozenset(principals))
        return same and self.begins <= now < self.begins + (self.ends - self.begins) / 2


@dataclass(frozen=True)
class Trust:
    """The keys of one lab, all of them there."""

    lab: str
    folder: Path

    @property
    def host_ca(self) -> Path:
        """Return the private key that signs hosts."""
        return self.folder / "host_ca"

    @property
    def user_ca(self) -> Path:
        """Return the private key that signs users."""
        return self.folder / "user_ca"

    @property
    def identity(self) -> Path:
        """Return the lab user's private key."""
        return self.folder / "id_ed25519"

    @property
    def certificate(self) -> Path:
        """Return the lab user's certificate."""
        return self.folder / "id_ed25519-cert.pub"

    @property
    def known_hosts(self) -> Path:
        """Return the file that makes ssh trust the lab's hosts."""
        return self.folder / "known_hosts"

    def sign_host(
        self, public_key: str, *, name: str, principals: Iterable[str], current: str | None = None
    ) -> str:
        """Return a certificate of a host key; `current` itself while that is still valid.

        `principals` are the names and addresses the host is reached by.
        """
        names = sorted(set(principals))
        if current:
            held = read_certificate(current)
            authority = fingerprint(public(self.host_ca))
            if held and held.good(
                key=fingerprint(public_key), authority=authority, principals=names, now=datetime.now(UTC)
            ):
                return current.strip()
        return _sign(self.host_ca, public_key, f"{name} of {self.lab}", names, HOST_LIFE, host=True)

    def user_certificate_good(self, user: str) -> bool:
        """Whether the lab user's certificate is for `user` and lasts for more than half of its life."""
        if not self.certificate.is_file():
            return False
        held = read_certificate(self.certificate.read_text("utf-8"))
        return held is not None and held.good(
            key=fingerprint(public(self.identity)),
            authority=fingerprint(public(self.user_ca)),
            principals=[user],
            now=datetime.now(UTC),
        )

    def renew_user_certificate(self, user: str) -> bool:
        """Sign the lab user's key again where that is due; return whether it was."""
        with _locked(self.folder):
            if self.user_certificate_good(user):
                return False
            text = _sign(
                self.user_ca, public(self.identity), f"{user} of {self.lab}", [user], USER_LIFE, host=False
            )
            write_file(self.certificate, text + "\n", mode=0o600)
            return True

    def known_hosts_text(self, hosts: Mapping[str, Iterable[str]], *, ports: Iterable[int] = ()) -> str:
        """Return the one line that trusts the host CA for these hosts, given as `{name: aliases}`."""
        names = sorted({alias for name, aliases in hosts.items() for alias in (name, *aliases)})
        odd = sorted(set(ports) - {SSH_PORT})
        patterns = names + [f"[{name}]:{port}" for port in odd for name in names]
        kind, key = public(self.host_ca).split()[:2]
        return f"@cert-authority {','.join(patterns)} {kind} {key} hvlab-{self.lab}\n"

    def write_known_hosts(self, text: str) -> bool:
        """Write the controller's known_hosts file of the lab; return whether it changed."""
        with _locked(self.folder):
            if self.known_hosts.is_file() and self.known_hosts.read_text("utf-8") == text:
                return False
            write_file(self.known_hosts, text, mode=0o600)
            return True


def lab_trust(lab: str) -> Trust | None:
    """Return the trust of a lab as it is on disk; None where it does not exist yet."""
    trust = Trust(lab, trust_dir(lab))
    keys = (trust.host_ca, trust.user_ca, trust.identity)
    return trust if all(key.is_file() and _pub(key).is_file() for key in keys) else None


def ensure_lab_trust(lab: str, *, user: str = "hvlab") -> Trust:
    """Make what is missing of a lab's trust, renew the user certificate where due, and return it."""
    trust = Trust(lab, trust_dir(lab))
    try:
        trust.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        trust.folder.chmod(0o700)
        with _locked(trust.folder):
            for key in (trust.host_ca, trust.user_ca, trust.identity):
                _make_key(key, f"hvlab-{lab}-{key.name}")
        trust.renew_user_certificate(user)
    except OSError as error:
        raise TrustError(
            f"the keys of lab {lab} cannot be kept in {trust.folder}: {error.strerror}",
            remedy="make that folder writable, or choose another with HVLAB_DATA",
        ) from error
    return trust


def public(private: Path) -> str:
    """Return the public half of a key as one line."""
    return _pub(private).read_text("utf-8").strip()


def fingerprint(public_key: str) -> str:
    """Return the SHA256 fingerprint of a public key."""
    return _keygen("-l", "-f", "-", text=public_key + "\n").split()[1]


def read_certificate(text: str) -> Certificate | None:
    """Return what a certificate says; None for what is no certificate, or has no end."""
    try:
        shown = _keygen("-L", "-f", "-", text=text.strip() + "\n")
    except TrustError:
        return None
    keys = re.findall(r"(?:Public key|Signing CA): \S+ (SHA256:\S+)", shown)
    times = re.search(r"Valid: from (\S+) to (\S+)", shown)
    listed = re.search(r"Principals:\s*\n(.*?)\n\s*Critical Options:", shown, re.DOTALL)
    if len(keys) != 2 or times is None or listed is None:  # noqa: PLR2004
        return None
    begins, ends = (datetime.fromisoformat(time).replace(tzinfo=UTC) for time in times.groups())
    return Certificate(keys[0], keys[1], frozenset(listed.group(1).split()), begins, ends)


def _pub(private: Path) -> Path:
    return private.with_name(private.name + ".pub")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _workplace(parent: Path) -> Iterator[Path]:
    """Yield a private folder beside the keys."""
    folder = Path(tempfile.mkdtemp(dir=parent, prefix=".new-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _make_key(path: Path, comment: str) -> None:
    """Make a key pair; a private key without its public half gets that again."""
    if path.is_file():
        if not _pub(path).is_file():
            write_file(_pub(path), _keygen("-y", "-f", str(path)), mode=0o644)
        return
    with _workplace(path.parent) as folder:
        new = folder / path.name
        _keygen("-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(new))
        _pub(new).replace(_pub(path))
        new.replace(path)


def _sign(
    authority: Path, public_key: str, identity: str, principals: Iterable[str], life: timedelta, *, host: bool
) -> str:
    with _workplace(authority.parent) as folder:
        file = folder / "key.pub"
        file.write_text(public_key + "\n", "utf-8")
        argv = ["-q", "-s", str(authority), "-I", identity, "-n", ",".join(principals), "-V", _validity(life)]
        _keygen(*argv, *(["-h"] if host else []), str(file))
        return (folder / "key-cert.pub").read_text("utf-8").strip()


def _validity(life: timedelta) -> str:
    return f"-{int(BACKDATED.total_seconds())}s:+{int(life.total_seconds())}s"


def _keygen(*arguments: str, text: str = "") -> str:
    done = process.run(
        ["ssh-keygen", *arguments],
        seconds=_KEYGEN_SECONDS,
        given=text,
        env=os.environ | {"TZ": "UTC", "LC_ALL": "C"},
        remedy="install openssh-client (Debian) or openssh",
        hung="check that the keys' folder and the home directory respond (a network file system?)",
    )
    if done.returncode:
        raise TrustError(f"ssh-keygen refused: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
