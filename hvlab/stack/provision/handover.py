"""Who gets an archive from whom: hosts of one run that have it hand it on to those that still wait for it.

Ansible serves each host in a process of its own. What these processes share is a folder: a source is a file
in it, locked while it serves a host. The kernel frees the lock of a process that ends, whatever ended it.
The controller serves the first host only; as each source then serves one host at a time, the number of
hosts that have the archive doubles: 16 have it after five transfers, one of them the controller's.
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

CONTROLLER = ".controller"
# With fewer hosts, or a smaller archive, the transfers from the controller end sooner.
LEAST_HOSTS = 4
LEAST_BYTES = 8 << 20
# With so many more failures than successes, the lab's network or trust is broken: the controller serves all.
FAILURES = 2
_TICK_S = 0.1


@dataclass(frozen=True)
class PackSource:
    """A host that has the archive: where it is reached, and the archive's path there."""

    host: str
    address: str
    port: int
    archive: str


def worthwhile(*, hosts: int, size: int) -> bool:
    """Return whether an archive of ``size`` bytes should be handed on among so many hosts. Pure."""
    return hosts >= LEAST_HOSTS and size >= LEAST_BYTES


class Handover:
    """One archive in one run, as the process that serves ``host`` sees it.

    ``folder`` belongs to this archive and this run. First ``source``, within it ``record`` and ``offer``;
    in the end ``withdraw``.
    """

    def __init__(self, folder: Path, host: str) -> None:
        self.host = host
        self._folder = folder
        self._sources = folder / "sources"
        self._sources.mkdir(parents=True, exist_ok=True)
        (self._sources / CONTROLLER).touch()
        self._held = ExitStack()

    @contextmanager
    def source(self) -> Iterator[PackSource | None]:
        """Wait for a source and hold it; None is the controller.

        The host that gets the archive in this block should offer it in this block: until then no other host
        turns to the controller.
        """
        with self._held:
            with self._locked("waiting", fcntl.LOCK_SH):
                while not (name := self._claim()):
                    time.sleep(_TICK_S)
            if name == CONTROLLER:
                yield None
            else:
                yield PackSource(**json.loads((self._sources / name).read_text("utf-8")))

    def record(self, source: PackSource, *, worked: bool) -> None:
        """Note how the transfer from a source ended; one that failed is let go, and serves no more."""
        with self._locked("mutex", fcntl.LOCK_EX):
            with (self._folder / "outcomes").open("a", encoding="utf-8") as outcomes:
                outcomes.write("+" if worked else "-")
            if not worked:
                (self._sources / source.host).unlink(missing_ok=True)
                self._held.close()

    def offer(self, source: PackSource) -> None:
        """Let this host serve others from now on."""
        with self._locked("mutex", fcntl.LOCK_EX):
            (self._sources / self.host).write_text(json.dumps(asdict(source)), "utf-8")

    def withdraw(self) -> None:
        """Wait until no host waits for the archive and this host serves none; then stop serving."""
        path = self._sources / self.host
        with suppress(FileNotFoundError), path.open() as file:
            with self._locked("waiting", fcntl.LOCK_EX):
                pass
            fcntl.flock(file, fcntl.LOCK_EX)
            with self._locked("mutex", fcntl.LOCK_EX):
                path.unlink()

    def _claim(self) -> str | None:
        """Hold a source and return its name, a host that has the archive or CONTROLLER; None: wait."""
        with self._locked("mutex", fcntl.LOCK_EX):
            outcomes = self._folder / "outcomes"
            done = outcomes.read_text("utf-8") if outcomes.exists() else ""
            if done.count("-") - done.count("+") >= FAILURES:
                return CONTROLLER
            hosts = [path for path in sorted(self._sources.iterdir()) if path.name != CONTROLLER]
            for path in hosts or [self._sources / CONTROLLER]:
                file = path.open()
                if _lock(file):
                    self._held.enter_context(file)
                    return path.name
                file.close()
            return None

    @contextmanager
    def _locked(self, name: str, how: int) -> Iterator[None]:
        with (self._folder / name).open("a") as file:
            fcntl.flock(file, how)
            yield


def _lock(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def first_of_the_run(folder: Path) -> Iterator[bool]:
    """Yield whether no process of this run has come through this block, one at a time, before.

    A block that fails does not count: the next process is the first then.
    """
    folder.mkdir(parents=True, exist_ok=True)
    done = folder / "done"
    with (folder / "first").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield not done.exists()
        done.touch()
