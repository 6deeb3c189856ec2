# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Get an archive to a host from another host, a mirror or the controller, to a place only root can write."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
import shlex
import shutil
import signal
import subprocess
import tempfile
from typing import Any, BinaryIO, Iterator

from ansible.module_utils.hvlab_packed import holding

BLOCK = 1 << 20
# A transfer slower than this is given up: the controller is asked instead.
SETUP_SECONDS, LEAST_BYTES_PER_SECOND = 60, 1 << 20
# Strict regardless of the user's own settings.
SSH = (
    *("ssh", "-T", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"),
    *("-o", "GlobalKnownHostsFile=/etc/ssh/ssh_known_hosts"),
    *("-o", "UserKnownHostsFile=/etc/ssh/ssh_known_hosts"),
    *("-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"),
    *("-o", "ClearAllForwardings=yes", "-o", "ControlPath=none", "-o", "PermitLocalCommand=no"),
)


def receive(
    place: str, *, archive: str, url: str, peer: dict[str, Any], size: int, sha256: str, user: str
) -> None:
    """Get an archive of ``size`` bytes to ``place``, in a new folder of root's own.

    It is read from ``archive``, which is a path on the host ``peer`` where that is given, else from ``url``,
    else from the path ``archive`` on this host. ``user`` may read it then, to forward it.
    Raises OSError or ValueError if it does not arrive intact.
    """
    seconds = SETUP_SECONDS + size // LEAST_BYTES_PER_SECOND
    with time_limit(seconds), open_archive(archive, url, peer) as stream, folder_of(place) as folder:
        # The sum is that of the bytes written.
        with open(place, "xb") as file:
            copy(stream, file, size, sha256)
        if user:
            group = pwd.getpwnam(user).pw_gid
            for path, mode in ((place, 0o640), (folder, 0o750)):
                os.chown(path, -1, group)
                os.chmod(path, mode)


@contextlib.contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise ValueError in the block when it takes longer."""

    def raise_late(*_: Any) -> None:
        raise ValueError("it did not arrive within {} s".format(seconds))

    before = signal.signal(signal.SIGALRM, raise_late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def open_archive(archive: str, url: str, peer: dict[str, Any]) -> Iterator[BinaryIO]:
    """Open an archive: of another host, at an address, or on this host."""
    if peer:
        with peer_stream(peer["user"], peer["address"], peer["port"], archive) as stream:
            yield stream
    elif url:
        # Loaded only here: most calls have no use for it.
        import http.client  # noqa: PLC0415
        import urllib.request  # noqa: PLC0415

        try:
            with urllib.request.urlopen(url, timeout=SETUP_SECONDS) as stream:  # noqa: S310
                yield stream
        except http.client.HTTPException as error:
            raise ValueError(str(error)) from error
    else:
        with open(archive, "rb") as stream:
            yield stream


@contextlib.contextmanager
def peer_stream(user: str, address: str, port: int, path: str) -> Iterator[BinaryIO]:
    """Read a file of another host as ``user``; root writes the data here."""
    argv = ["runuser", "-u", user, "--", *SSH, "-p", str(port), "-l", user, address]
    argv.append("exec cat " + shlex.quote(path))
    with tempfile.TemporaryFile() as errors:
        ssh = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd="/",
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
            start_new_session=True,
        )
        with ssh:
            try:
                yield ssh.stdout  # type: ignore[misc]
            except ValueError as error:
                errors.seek(0)
                words = errors.read().decode("utf-8", "replace").strip()[-500:]
                raise ValueError("{}; ssh: {}".format(error, words) if words else str(error)) from error
            finally:
                with contextlib.suppress(OSError):
                    os.killpg(ssh.pid, signal.SIGKILL)


@contextlib.contextmanager
def folder_of(archive: str) -> Iterator[str]:
    """Make an archive's folder, owned by root, and hold it; remove it if the block fails.

    Raises FileExistsError if somebody else has made it.
    """
    folder = os.path.dirname(archive)
    os.makedirs(os.path.dirname(folder), mode=0o755, exist_ok=True)
    os.mkdir(folder, 0o700)
    try:
        with holding(folder):
            yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def copy(source: BinaryIO, target: BinaryIO, size: int, sha256: str) -> None:
    """Copy ``size`` bytes. Raises ValueError if there are fewer or more, or their sum differs."""
    digest, left = hashlib.sha256(), size
    while left >= 0:
        # One byte beyond the size shows that there is more.
        block = source.read(min(BLOCK, left + 1))
        if not block:
            break
        digest.update(block)
        left -= len(block)
        target.write(block)
    if left < 0:
        raise ValueError("more than {} bytes arrived".format(size))
    if left:
        raise ValueError("{} of {} bytes arrived".format(size - left, size))
    if digest.hexdigest() != sha256:
        raise ValueError("its sha256 is {}, the controller's is {}".format(digest.hexdigest(), sha256))
