"""New authorities and a new key of the lab user, while hosts go on accepting one another.

Three steps, each on all hosts before the next begins. ANNOUNCED: hosts trust the next authorities, too.
REPLACED: those are in use, and sign every host and a new key of the lab user; the former ones still count.
RETIRED: hosts are told to trust the former ones no longer. STABLE: all of them were. The step shows in the
lab's folder, so an interrupted rotation goes on from there, and hosts that it has not reached are trusted
meanwhile.
"""

from __future__ import annotations

from pathlib import Path

from hvlab.base.files import write_file
from hvlab.remote.ssh_keys import make_key
from hvlab.remote.trust import FORMER, NEXT, PREVIOUS, Trust, keep_former, locked

STABLE, ANNOUNCED, REPLACED, RETIRED = "stable", "announced", "replaced", "retired"
# The step of a rotation shows in which other keys lie beside the authorities.
_STEPS = {NEXT: ANNOUNCED, PREVIOUS: REPLACED, FORMER: RETIRED}


def step(trust: Trust) -> str:
    """Return how far a rotation is; STABLE where none is under way."""
    for ending, step in _STEPS.items():
        if any(path.exists() for key in _authorities(trust) for path in _pair(key, ending)):
            return step
    return STABLE


def announce(trust: Trust) -> None:
    """Make what is missing of the next authorities, which hosts trust from their next provisioning on."""
    with locked(trust.folder):
        if not any(_pair(key, PREVIOUS)[0].exists() for key in _authorities(trust)):
            for key in _authorities(trust):
                make_key(_pair(key, NEXT)[0], f"hvlab-{trust.lab}-{key.name}", anew=True)


def replace_identity(trust: Trust) -> None:
    """Give the lab user a new key, which the next provisioning takes to the hosts.

    A key is there at every moment, so a lab whose rotation is interrupted here still has all its keys.
    """
    coming = _pair(trust.identity, NEXT)
    with locked(trust.folder):
        make_key(coming[0], f"hvlab-{trust.lab}-{trust.identity.name}", anew=True)
        keep_former(trust)
        trust.certificate.unlink(missing_ok=True)
        for path, new in zip(_pair(trust.identity), coming, strict=True):
            new.replace(path)


def replace(trust: Trust) -> None:
    """Bring the next authorities into use, and give the lab user a new key.

    Where it was interrupted it does what is left. An authority in use is missing at no point.
    """
    replace_identity(trust)
    with locked(trust.folder):
        for key in _authorities(trust):
            if _pair(key, NEXT)[0].exists():
                # The public half first: a private key is trusted from the moment it is there.
                for path, former in reversed([*zip(_pair(key), _pair(key, PREVIOUS), strict=True)]):
                    write_file(former, path.read_bytes(), mode=path.stat().st_mode & 0o777)
            for path, coming in zip(_pair(key), _pair(key, NEXT), strict=True):
                if coming.exists():
                    coming.replace(path)


def retire(trust: Trust) -> None:
    """Trust the former authorities no longer, nor do hosts from their next provisioning on."""
    with locked(trust.folder):
        for key in _authorities(trust):
            for path, former in zip(_pair(key, PREVIOUS), _pair(key, FORMER), strict=True):
                if path.exists():
                    path.replace(former)


def finish(trust: Trust) -> None:
    """Remove the former authorities, which no host trusts any more."""
    with locked(trust.folder):
        for key in _authorities(trust):
            for path in _pair(key, FORMER):
                path.unlink(missing_ok=True)


def _authorities(trust: Trust) -> tuple[Path, Path]:
    return trust.host_ca, trust.user_ca


def _pair(key: Path, ending: str = "") -> tuple[Path, Path]:
    """Return the private and the public file of a key, or of another one beside it."""
    private = key.with_name(f"{key.name}.{ending}") if ending else key
    return private, private.with_name(f"{private.name}.pub")
