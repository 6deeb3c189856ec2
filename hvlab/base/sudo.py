"""Under sudo, nothing in the home of the caller may end up owned by root."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def caller() -> tuple[int, int] | None:
    """Return the user and the group that called sudo; None if root was not reached through it."""
    user, group = os.environ.get("SUDO_UID"), os.environ.get("SUDO_GID")
    return (int(user), int(group)) if user and group and os.geteuid() == 0 else None


def hand_over(path: Path) -> None:
    """Under sudo, give a file to the person who called it; without sudo do nothing."""
    person = caller()
    if person:
        os.chown(path, *person, follow_symlinks=False)


def spare_home() -> None:
    """Under sudo, keep what Python and Ansible write for themselves out of the caller's home.

    ``~/.ansible`` left to root would end the caller's next ``ansible-playbook`` in a traceback.
    """
    person = caller()
    if person is None:
        return
    # What Ansible would make.
    with as_caller(), suppress(OSError):
        Path(os.environ.get("ANSIBLE_HOME", "~/.ansible")).expanduser().mkdir(mode=0o700)
    os.environ["ANSIBLE_LOCAL_TEMP"] = tempfile.gettempdir()
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    # What Python compiled on its way here. Code of others is left alone: root runs it.
    here = Path(__file__).parent
    for folder in (here.parent, here):
        compiled = folder / "__pycache__"
        if folder.stat().st_uid == person[0] and compiled.is_dir():
            for path in (compiled, *compiled.iterdir()):
                if path.lstat().st_uid == 0:
                    hand_over(path)


@contextmanager
def as_caller() -> Iterator[None]:
    """Under sudo, run the block with no more rights than those of the person who called it."""
    person = caller()
    if person is None:
        yield
        return
    user, group = person
    before = os.getegid(), os.getgroups()
    os.setgroups([group])
    os.setegid(group)
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(before[0])
        os.setgroups(before[1])
