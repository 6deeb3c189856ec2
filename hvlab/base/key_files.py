"""Which files of SSH keys are whole; no program is asked."""

from __future__ import annotations

import base64
from pathlib import Path


def key_whole(private: Path) -> bool:
    """Return whether a private key of SSH is there, and no half of one; it asks no program."""
    try:
        lines = private.read_text("ascii").split()
        if lines[:4] != ["-----BEGIN", "OPENSSH", "PRIVATE", "KEY-----"]:
            # A key in another form, which somebody else made.
            return lines[:1] == ["-----BEGIN"] and lines[-1].endswith("-----")
        end = ["-----END", "OPENSSH", "PRIVATE", "KEY-----"]
        return lines[-4:] == end and bool(base64.b64decode("".join(lines[4:-4]), validate=True))
    except (FileNotFoundError, IndexError, ValueError):
        return False


def public_whole(private: Path, public: Path) -> bool:
    """Return whether ``public`` is the public half of a whole private key."""
    try:
        blob = base64.b64decode(public.read_text("ascii").split()[1], validate=True)
        body = private.read_text("ascii").split()[4:-4]
        return bool(blob) and (not body or blob in base64.b64decode("".join(body)))
    except (FileNotFoundError, IndexError, ValueError):
        return False
