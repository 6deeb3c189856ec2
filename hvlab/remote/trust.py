"""Trust within one lab: two SSH certificate authorities and the ranks' key, made and kept on the controller.

The host CA signs each machine's own host key, the user CA signs the one key the lab user's ranks log in with.
Both stay in `hvlab.base.paths.trust_dir`; only the user key, its certificate and public texts go to the
machines. While an authority is replaced, hosts trust two of them.

A rotation has three steps, each on all hosts before the next begins. ANNOUNCED: hosts also trust the next
authorities. REPLACED: those are in use, and sign every host and a new key of the lab user; the former ones
still count. RETIRED: hosts are told to trust the former ones no longer. STABLE: all of them were. The step
shows in the lab's folder, so an interrupted rotation continues there, and hosts not yet reached are trusted
meanwhile.
"""

from __future__ import annotations

import fcntl
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hvlab.base.errors import UsageError
from hvlab.base.files import is_key_whole, write_file
from hvlab.base.paths import trust_dir
from hvlab.remote.ssh_keys import (
    KEY_REMEDY,
    TrustError,
    fingerprint,
    keep_private,
    make_key,
    public,
    public_file,
    quote,
    read_certificate,
    sign,
)

HOST_LIFE = timedelta(weeks=52)
USER_LIFE = timedelta(days=7)
SSH_PORT = 22
# Maximum names in a line of known_hosts: ssh before 7.8 (RHEL 7, Ubuntu 18.04) skips a line of 8192 bytes.
_NAMES = 50
_NAME = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_.:-]*")
_FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")
# Suffixes of the next authority, and of the former one.
NEXT, PREVIOUS, FORMER = "next", "previous", "former"


class _File:
    """A file of a lab's trust, by its name in the folder."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, trust: Trust, _: type[Trust]) -> Path:
        return trust.folder / self._name


@dataclass(frozen=True)
class Trust:
    """The keys of one lab, all of them there; those of the authorities and the identity are private keys."""

    lab: str
    folder: Path

    host_ca = _File("host_ca")
    user_ca = _File("user_ca")
    identity = _File("id_ed25519")
    certificate = _File("id_ed25519-cert.pub")
    # Makes ssh trust the lab's hosts.
    known_hosts = _File("known_hosts")
    # Public keys that no host of the lab accepts any more.
    revoked = _File("revoked_keys")
    # Public keys that the lab user had before; some host may have one still.
    former = _File("former_keys")
    # Fingerprints that hosts may record: its own, former ones, those taken over.
    owned = _File("owned")
    # A folder: NAME-cert.pub is the host's newest certificate, NAME.pub has every key that was ever signed
    # for the host or its containers, a line each.
    signed = _File("hosts")

    @property
    def user_keys(self) -> list[str]:
        """Return every public key that the lab user ever had, the present one last."""
        return [*_lines(self.former), public(self.identity)]

    @property
    def authority(self) -> str | None:
        """Return the fingerprint of the users' authority, which hosts record; None without one."""
        return fingerprint(public(self.user_ca)) if public_file(self.user_ca).is_file() else None

    @property
    def authorities(self) -> list[str]:
        """Return the fingerprints of `owned`."""
        return _lines(self.owned)

    @property
    def revoked_text(self) -> str:
        """Return the revoked public keys, one a line; sshd refuses everybody where it finds no such file."""
        return self.revoked.read_text("utf-8") if self.revoked.is_file() else ""

    @property
    def ssh_options(self) -> list[str]:
        """Return ssh's options by which this machine knows the lab's hosts."""
        revoked = [f"RevokedHostKeys={quote(self.revoked)}"] if self.revoked.is_file() else []
        return [f"UserKnownHostsFile={quote(self.known_hosts)}", *revoked]

    @property
    def user_authorities_text(self) -> str:
        """Return the public keys of the authorities that users may be signed by, one a line."""
        return "".join(public(key) + "\n" for key in list_trusted(self.user_ca))

    def sign_host(
        self,
        public_key: str,
        *,
        name: str,
        principals: Iterable[str],
        current: str | None = None,
        life: timedelta = HOST_LIFE,
        keep: bool = True,
        others: Iterable[str] = (),
    ) -> str:
        """Return a certificate of a host key; `current` itself while that is still valid.

        `principals` are the names and addresses the host is reached by. With `keep`, key and certificate are
        kept in `signed`. Raises TrustError for a key that was revoked, or was signed for one of the `others`.
        """
        key = " ".join(public_key.split()[:2])
        same = [other for other in others if other != name and key in self.host_keys(other)]
        if same:
            raise TrustError(
                f"its host key is one that {same[0]} has or had",
                remedy=f"give {name} a new one (rm /etc/ssh/ssh_host_*; ssh-keygen -A; restart sshd). "
                f"If it is the former {same[0]}, take the key out of {self.signed / same[0]}.pub here",
            )
        if key in self.revoked_text.splitlines():
            raise TrustError(
                "its host key was revoked",
                remedy="give it a new one (rm /etc/ssh/ssh_host_ed25519_key*; ssh-keygen -A; restart sshd), "
                "or take the host out of the inventory",
            )
        certificate = self._host_certificate(public_key, name, principals, current, life)
        if keep:
            self.keep_key(name, public_key)
            self.keep_certificate(name, certificate)
        return certificate

    def keep_key(self, name: str, public_key: str) -> None:
        """Keep the key of a host in `signed`, from where all that it ever had can be revoked."""
        key = " ".join(public_key.split()[:2])
        with lock(self.folder):
            former = [other for other in self.host_keys(name) if other != key]
            self._keep(f"{name}.pub", "\n".join([*former, key]))

    def host_keys(self, name: str) -> list[str]:
        """Return the public keys that were ever signed for a host and its containers."""
        return _lines(self.signed / f"{name}.pub")

    def keep_certificate(self, name: str, certificate: str) -> None:
        """Keep the certificate that a host has now in `signed`."""
        self._keep(f"{name}-cert.pub", certificate)

    def _keep(self, file: str, text: str) -> None:
        self.signed.mkdir(mode=0o700, exist_ok=True)
        path = self.signed / file
        if not path.is_file() or path.read_text("utf-8").strip() != text:
            write_file(path, text + "\n", mode=0o600)

    def _host_certificate(
        self, public_key: str, name: str, principals: Iterable[str], current: str | None, life: timedelta
    ) -> str:
        # As ssh writes a host's name before it looks for it here.
        names = check_names(principals)
        if current:
            held = read_certificate(current)
            authority = fingerprint(public(self.host_ca))
            if held and held.good(
                key=fingerprint(public_key), authority=authority, principals=names, now=datetime.now(UTC)
            ):
                return current.strip()
        return sign(self.host_ca, public_key, f"{name} of {self.lab}", names, life, host=True)

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

    def renew_user_certificate(self, user: str, *, life: timedelta = USER_LIFE) -> bool:
        """Sign the lab user's key again where that is due; return whether it was."""
        with lock(self.folder):
            if self.user_certificate_good(user):
                return False
            text = sign(
                self.user_ca, public(self.identity), f"{user} of {self.lab}", [user], life, host=False
            )
            write_file(self.certificate, text + "\n", mode=0o600)
            return True

    def known_hosts_text(self, hosts: Mapping[str, Iterable[str]], *, ports: Iterable[int] = ()) -> str:
        """Return lines, by which each host CA is trusted for these hosts, given as `{name: aliases}`."""
        names = check_names({alias for name, aliases in hosts.items() for alias in (name, *aliases)})
        odd = sorted(set(ports) - {SSH_PORT})
        patterns = names + [f"[{name}]:{port}" for port in odd for name in names]
        keys = [" ".join(public(key).split()[:2]) for key in list_trusted(self.host_ca)]
        return "".join(
            f"@cert-authority {','.join(patterns[start : start + _NAMES])} {key} hvlab-{self.lab}\n"
            for key in keys
            for start in range(0, len(patterns), _NAMES)
        )

    def write_known_hosts(self, text: str) -> bool:
        """Write the controller's known_hosts file of the lab; return whether it changed."""
        with lock(self.folder):
            if self.known_hosts.is_file() and self.known_hosts.read_text("utf-8") == text:
                return False
            write_file(self.known_hosts, text, mode=0o600)
            return True


def check_names(names: Iterable[str]) -> list[str]:
    """Return names and addresses in small letters. Raises TrustError for one that is neither.

    A comma would be another principal of a certificate, a newline another line of known_hosts.
    """
    wrong = [name for name in names if not _NAME.fullmatch(name)]
    if wrong:
        raise TrustError(
            f"{wrong[0]!r} is neither a host name nor an address",
            remedy="correct the host's name there (hostnamectl set-hostname) or in the inventory",
        )
    return sorted({name.lower() for name in names})


def lab_trust(lab: str) -> Trust | None:
    """Return the trust of a lab as it is on disk; None if it does not exist yet.

    A private key that others may read gets mode 0600 again: ssh refuses it otherwise.
    """
    trust = Trust(lab, trust_dir(lab))
    keys = (trust.host_ca, trust.user_ca, trust.identity)
    if not all(key.is_file() and public_file(key).is_file() for key in keys):
        return None
    for key in keys:
        keep_private(key)
    return trust


def ensure_lab_trust(
    lab: str, *, user: str = "hvlab", life: timedelta = USER_LIFE, fresh: bool = False
) -> Trust:
    """Make what is missing of a lab's trust, renew the user certificate where due, and return it.

    With ``fresh``, damaged keys are replaced; otherwise they raise TrustError.
    """
    trust = Trust(lab, trust_dir(lab))
    try:
        # mkdir gives a mode to the last folder alone; its parents would be as open as the umask lets them.
        for folder in [*reversed(trust.folder.parents), trust.folder]:
            if not folder.is_dir():
                folder.mkdir(mode=0o700, exist_ok=True)
        trust.folder.chmod(0o700)
        with lock(trust.folder):
            if not is_key_whole(trust.identity) and public_file(trust.identity).is_file():
                keep_former(trust)
            for key in (trust.host_ca, trust.user_ca, trust.identity):
                make_key(key, f"hvlab-{lab}-{key.name}", fresh=fresh)
            _add(trust.owned, [fingerprint(public(trust.user_ca))])
        trust.renew_user_certificate(user, life=life)
    except OSError as error:
        raise TrustError(
            f"the keys of lab {lab} cannot be kept in {trust.folder}: {error.strerror}",
            remedy="make that folder writable, or choose another with HVLAB_DATA",
        ) from error
    return trust


def find_damaged(trust: Trust) -> list[Path]:
    """Return the private keys that exist but are unusable."""
    keys = (trust.host_ca, trust.user_ca, trust.identity)
    return [key for key in keys if key.is_file() and not is_key_whole(key)]


def check_keys(trust: Trust) -> None:
    """Raise TrustError if a private key is damaged."""
    if bad := find_damaged(trust):
        raise TrustError(f"damaged, and no private key: {', '.join(map(str, bad))}", remedy=KEY_REMEDY)


def revoke(trust: Trust, keys: Iterable[str]) -> list[str]:
    """Add public keys to those that no host accepts any more; return those that were not among them."""
    with lock(trust.folder):
        return _add(trust.revoked, keys)


def revoke_former(trust: Trust, shown: Mapping[str, str]) -> list[str]:
    """Revoke the former keys of hosts that got another, as by a new installation; return their names.

    ``shown`` has the key that each host has now.
    """
    renewed = {
        name: former
        for name, key in shown.items()
        if (former := trust.host_keys(name)) and " ".join(key.split()[:2]) not in former
    }
    if renewed:
        revoke(trust, [key for former in renewed.values() for key in former])
    return list(renewed)


def take_over(trust: Trust, authority: str) -> None:
    """Accept hosts that trust this authority, given by its fingerprint. Raises UsageError."""
    if not _FINGERPRINT.fullmatch(authority):
        raise UsageError(
            f"{authority!r} is no fingerprint", remedy="copy SHA256:... from what `hvlab provision` says"
        )
    with lock(trust.folder):
        _add(trust.owned, [authority])


def keep_former(trust: Trust) -> None:
    """Remember the lab user's public key, which is about to be replaced; the caller holds the lock."""
    _add(trust.former, [public(trust.identity)])


def _add(file: Path, keys: Iterable[str]) -> list[str]:
    """Add public keys to a list of them, without comments; return those that were not in it."""
    before = _lines(file)
    new = [key for key in dict.fromkeys(" ".join(key.split()[:2]) for key in keys) if key not in before]
    if new:
        write_file(file, "".join(key + "\n" for key in [*before, *new]), mode=0o600)
    return new


def _lines(file: Path) -> list[str]:
    return file.read_text("utf-8").splitlines() if file.is_file() else []


def list_trusted(authority: Path) -> list[Path]:
    """Return the private keys of the authority in use and, while it is replaced, of the other one."""
    others = (authority.with_name(f"{authority.name}.{part}") for part in (NEXT, PREVIOUS))
    return [key for key in (authority, *others) if key.is_file()]


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Lock a lab's keys against other changes."""
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def replacing_keys(trust: Trust) -> Iterator[None]:
    """Let nobody else replace keys of the lab on its hosts meanwhile. Raises UsageError if somebody does.

    Two at once would give hosts halves of two pairs, until the last of them is through.
    """
    with (trust.folder / "replacing").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"another command replaces the keys of lab {trust.lab} just now",
                remedy="wait for it to end, then run this again",
            ) from None
        yield


STABLE, ANNOUNCED, REPLACED, RETIRED = "stable", "announced", "replaced", "retired"
# The step of a rotation shows in which other keys lie beside the authorities.
_STEPS = {NEXT: ANNOUNCED, PREVIOUS: REPLACED, FORMER: RETIRED}


def step(trust: Trust) -> str:
    """Return the step of the rotation; STABLE if none is under way."""
    for ending, step in _STEPS.items():
        if any(path.exists() for key in _authorities(trust) for path in _pair(key, ending)):
            return step
    return STABLE


def announce(trust: Trust) -> None:
    """Make what is missing of the next authorities, which hosts trust from their next provisioning on."""
    with lock(trust.folder):
        if not any(_pair(key, PREVIOUS)[0].exists() for key in _authorities(trust)):
            for key in _authorities(trust):
                make_key(_pair(key, NEXT)[0], f"hvlab-{trust.lab}-{key.name}", fresh=True)


def replace_identity(trust: Trust) -> None:
    """Give the lab user a new key, which the next provisioning takes to the hosts.

    A key exists at every moment, so a lab whose rotation is interrupted here still has all its keys.
    """
    coming = _pair(trust.identity, NEXT)
    with lock(trust.folder):
        make_key(coming[0], f"hvlab-{trust.lab}-{trust.identity.name}", fresh=True)
        keep_former(trust)
        trust.certificate.unlink(missing_ok=True)
        for path, new in zip(_pair(trust.identity), coming, strict=True):
            new.replace(path)


def replace(trust: Trust) -> None:
    """Bring the next authorities into use, and give the lab user a new key.

    Interrupted, it completes the rest when called again. An authority in use is missing at no point.
    """
    replace_identity(trust)
    with lock(trust.folder):
        for key in _authorities(trust):
            if _pair(key, NEXT)[0].exists():
                # The public half first: a private key is trusted from the moment it exists.
                for path, former in reversed([*zip(_pair(key), _pair(key, PREVIOUS), strict=True)]):
                    write_file(former, path.read_bytes(), mode=path.stat().st_mode & 0o777)
            for path, coming in zip(_pair(key), _pair(key, NEXT), strict=True):
                if coming.exists():
                    coming.replace(path)


def retire(trust: Trust) -> None:
    """Stop trusting the former authorities; hosts do so from their next provisioning on."""
    with lock(trust.folder):
        for key in _authorities(trust):
            for path, former in zip(_pair(key, PREVIOUS), _pair(key, FORMER), strict=True):
                if path.exists():
                    path.replace(former)


def finish(trust: Trust) -> None:
    """Remove the former authorities, which no host trusts any more."""
    with lock(trust.folder):
        for key in _authorities(trust):
            for path in _pair(key, FORMER):
                path.unlink(missing_ok=True)


def _authorities(trust: Trust) -> tuple[Path, Path]:
    return trust.host_ca, trust.user_ca


def _pair(key: Path, ending: str = "") -> tuple[Path, Path]:
    private = key.with_name(f"{key.name}.{ending}") if ending else key
    return private, private.with_name(f"{private.name}.pub")
