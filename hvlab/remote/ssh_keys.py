"""SSH keys and certificates, made, read and signed by ssh-keygen."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hvlab.base import process
from hvlab.base.errors import HvlabError
from hvlab.base.files import is_key_whole, is_public_whole, sync, write_file

# Maximum lag of a host's clock, for instance one that keeps local time.
BACKDATED = timedelta(days=1)
_KEYGEN_SECONDS = 30.0
KEY_REMEDY = (
    "put it back from a backup; or `hvlab keys init` makes a new one (what the old one signed no longer "
    "counts), and `hvlab keys issue` takes it to the hosts"
)


class TrustError(HvlabError):
    """A key or certificate of the lab cannot be made or read."""


@dataclass(frozen=True)
class Certificate:
    """A certificate as shown by `ssh-keygen -L`; times are UTC."""

    key: str
    authority: str
    principals: frozenset[str]
    begins: datetime
    ends: datetime

    def good(self, *, key: str, authority: str, principals: Iterable[str], now: datetime) -> bool:
        """Whether it certifies just this, and more than half of its life is left."""
        same = (self.key, self.authority, self.principals) == (key, authority, frozenset(principals))
        return same and self.begins <= now < self.begins + (self.ends - self.begins) / 2


def public(private: Path) -> str:
    """Return the public half of a key as one line."""
    return public_file(private).read_text("utf-8").strip()


def fingerprint(public_key: str) -> str:
    """Return the SHA256 fingerprint of a public key. Raises TrustError for what is none."""
    try:
        blob = base64.b64decode(public_key.split()[1], validate=True)
    except (IndexError, ValueError) as error:
        raise TrustError(f"this is no public key of SSH: {public_key[:60]!r}") from error
    # As ssh-keygen -l prints it; a program for each key of each host would take longer than the signing.
    return f"SHA256:{base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip('=')}"


def read_certificate(text: str) -> Certificate | None:
    """Read a certificate; None if it is none, or has no end."""
    try:
        text = _keygen("-L", "-f", "-", text=text.strip() + "\n")
    except TrustError:
        return None
    keys = re.findall(r"(?:Public key|Signing CA): \S+ (SHA256:\S+)", text)
    times = re.search(r"Valid: from (\S+) to (\S+)", text)
    listed = re.search(r"Principals:\s*\n(.*?)\n\s*Critical Options:", text, re.DOTALL)
    if len(keys) != 2 or times is None or listed is None:  # noqa: PLR2004
        return None
    begins, ends = (datetime.fromisoformat(time).replace(tzinfo=UTC) for time in times.groups())
    return Certificate(keys[0], keys[1], frozenset(listed.group(1).split()), begins, ends)


def public_file(private: Path) -> Path:
    """Return the file of the public half of a key."""
    return private.with_name(private.name + ".pub")


def quote(path: str | Path) -> str:
    """Return a path quoted for an ssh option, which otherwise ends at a space."""
    return f'"{path}"' if " " in str(path) else str(path)


@contextmanager
def _workplace(parent: Path) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(dir=parent, prefix=".new-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def keep_private(path: Path) -> None:
    """Give a private key that others may read mode 0600 again; another's cannot be."""
    if path.stat().st_mode & 0o077:
        with suppress(PermissionError):
            path.chmod(0o600)


def make_key(path: Path, comment: str, *, fresh: bool = False) -> None:
    """Make a missing key pair; remake a public half that is lost or belongs to another key.

    A private key that others may read gets mode 0600 again. Raises TrustError for a damaged one; with
    ``fresh`` that is replaced.
    """
    if path.is_file() and not is_key_whole(path) and not fresh:
        raise TrustError(
            f"{path} is damaged ({path.stat().st_size} bytes): it is no private key", remedy=KEY_REMEDY
        )
    if is_key_whole(path):
        keep_private(path)
        if not is_public_whole(path, public_file(path)):
            write_file(public_file(path), _keygen("-y", "-f", str(path)), mode=0o644)
        return
    with _workplace(path.parent) as folder:
        new = folder / path.name
        _keygen("-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(new))
        sync(new)
        sync(public_file(new))
        public_file(new).replace(public_file(path))
        new.replace(path)
        sync(path.parent)


def sign(
    authority: Path, public_key: str, identity: str, principals: Iterable[str], life: timedelta, *, host: bool
) -> str:
    """Return the certificate of a public key, for a host or for a user, signed by this private key."""
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
