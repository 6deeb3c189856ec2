"""Keys of a virtual lab: its key to log in, and each node's host key, made before its first boot."""

from __future__ import annotations

import os
from pathlib import Path

from hvlab.base.files import is_key_whole, is_public_whole
from hvlab.base.sudo import hand_over
from hvlab.vlab.controller import discard, run, write

LOGIN_KEY = "id_ed25519"


def ensure(path: Path, *, comment: str) -> str:
    """Make an ed25519 key pair unless a whole one exists; return the line of its public key."""
    public = path.with_name(f"{path.name}.pub")
    if is_key_whole(path):
        path.chmod(0o600)
        if not is_public_whole(path, public):
            write(public, run(["ssh-keygen", "-y", "-f", path]))
    else:
        part = path.with_name(f"{path.name}.part")
        part.unlink(missing_ok=True)
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", part])
        part.with_name(f"{part.name}.pub").replace(public)
        part.replace(path)
    return public.read_text(encoding="utf-8").strip()


def login(directory: Path, *, lab: str) -> str:
    """Make the lab's login key, of the person under sudo, in ``directory``; return its public line.

    The folder stays root's: root writes there, and would write through a link of that person's.
    """
    if directory.exists() and directory.stat().st_uid != os.geteuid():
        # As an earlier hvlab left it.
        discard(directory)
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o755)
    line = ensure(directory / LOGIN_KEY, comment=f"hvlab {lab}")
    for path in (directory / LOGIN_KEY, directory / f"{LOGIN_KEY}.pub"):
        hand_over(path)
    return line
