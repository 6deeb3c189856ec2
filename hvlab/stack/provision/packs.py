"""Packs on the controller: the key, the building host, the cached archive, and who forwards it.

Also the inputs of a stack, those of them that the cache lacks, and copies of them in a portable folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import hashlib
import io
import json
import os
import re
import resource
import shutil
import tarfile
import tempfile
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from hvlab.base import answers
from hvlab.base.answers.shapes import Count, HostAnswer
from hvlab.base.files import file_sha256, write_file
from hvlab.base.paths import cache_dir

_SUM = re.compile(r"[0-9a-f]{64}")
MARKER = ".hvlab-pack.json"
_NO_PACK = (
    *(FileNotFoundError, EOFError, ValueError, zlib.error),
    *(gzip.BadGzipFile, tarfile.TarError, answers.AnswerError),
)
# Maximum size of a marker, and of the headers before it.
_MARKER_BYTES = 1 << 20
# The packs of CUDA and of torch with CUDA have a few GiB each.
LARGEST = 32 << 30
# With fewer hosts or a smaller archive, the controller alone is faster.
FORWARDING_HOSTS, FORWARDING_BYTES = 4, 8 << 20
# If failures exceed successes by this many, network or trust is broken: the controller serves all hosts.
_FAILURES = 2
_CONTROLLER = ".controller"
_TICK_S = 0.1


class _Marker(HostAnswer):
    """A pack's marker, as the host that built it wrote it."""

    bytes: Count = 0


def pack_key(name: str, inputs: dict[str, Any]) -> str:
    """Return a key of 16 hex digits, a hash of everything that goes into a pack."""
    text = json.dumps({"name": name, "inputs": inputs}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_saved_sum(file: Path) -> str:
    """Return the sum saved in a file beside an archive; empty without one."""
    try:
        words = file.read_text(encoding="utf-8", errors="replace").split()
    except FileNotFoundError:
        return ""
    return words[0] if words and _SUM.fullmatch(words[0]) else ""


def save_sum(file: Path, sha256: str) -> None:
    """Write a sum to ``NAME.sha256``, as sha256sum does, in one step."""
    write_file(file, f"{sha256}  {file.name.removesuffix('.sha256')}\n")


@contextlib.contextmanager
def limit_size(file: Path, host: str) -> Iterator[None]:
    """Limit ``file``, which a host's data fills, to the free space, whichever program writes it.

    Raises AnswerError. A size that the host states is not trusted.
    """
    free = shutil.disk_usage(file.parent).free
    limit = min(LARGEST, free * 9 // 10)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    except Exception as error:
        if file.stat().st_size < limit:
            raise
        raise answers.AnswerError(
            host,
            f"it sent {limit >> 20} MiB and did not end ({file.parent} has {free >> 20} MiB free)",
            remedy=f"free space in {file.parent}; where there is enough, see what {host} has there",
        ) from error
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextlib.contextmanager
def incoming(folder: Path) -> Iterator[Path]:
    """Yield a file in a cache folder to fetch to; it is removed afterwards unless renamed."""
    folder.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".incoming-", dir=folder)
    os.close(handle)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def elect(states: Iterable[Mapping[str, Any]], key: str) -> str:
    """Return the host that provides the pack ``key`` to those that lack it; empty if none lacks it.

    ``states`` are the results of state present, in the order of the play's hosts. A host that already has the
    pack is preferred, since it need not build; then the one with the most cores. Hosts that could unpack it
    from the cache are left out.
    """
    same = [state for state in states if state.get("key") == key and not state["cached"]]
    missing = [state for state in same if state["status"] == "missing"]
    installed = [state for state in same if state["status"] != "missing"]
    fastest = sorted(missing, key=lambda state: -int(state.get("cores") or 0))
    return str((installed + fastest)[0]["host"]) if missing else ""


class Archive:
    """One pack in the controller's cache: the archive, and beside it a file with its sha256."""

    def __init__(self, name: str, key: str) -> None:
        self.path = cache_dir() / "packs" / f"{name}-{key}.tar.gz"
        self.sum_path = self.path.with_name(self.path.name + ".sha256")

    def cached(self) -> bool:
        """Whether both files exist and the second holds a sum."""
        return self.path.is_file() and bool(self.sha256())

    def sha256(self) -> str:
        """Return the sum saved with the archive; empty without one."""
        return read_saved_sum(self.sum_path)

    def marker(self, *, summed: bool = True) -> dict[str, Any] | None:
        """Return the marker inside; None if the archive, as far as it is read, is not what was saved.

        ``summed`` reads all of it, one second per 400 MB.
        """
        try:
            if summed and file_sha256(self.path) != self.sha256():
                return None
            # tarfile reads whole headers, however long these are.
            with gzip.open(self.path) as packed:
                head = io.BytesIO(packed.read(2 * _MARKER_BYTES))
            with tarfile.open(fileobj=head, mode="r:") as tar:
                member = tar.next()
                text = tar.extractfile(member) if member and member.name == MARKER else None
                content = text.read(_MARKER_BYTES) if text else b"{}"
                loaded = answers.load(content, self.path.name, _Marker, limit=_MARKER_BYTES)
        except _NO_PACK:
            return None
        return dict(loaded)

    def discard(self) -> None:
        """Discard the archive; it will be made again."""
        self.sum_path.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)

    def take(self, file: Path, sha256: str) -> None:
        """Make ``file`` the archive."""
        self.sum_path.unlink(missing_ok=True)
        file.chmod(0o644)
        file.replace(self.path)
        save_sum(self.sum_path, sha256)


@contextlib.contextmanager
def first_of_the_run(folder: Path) -> Iterator[bool]:
    """Run the block in one process at a time; yield whether this is the run's first to complete it.

    A block that fails does not count: then the next process is the first.
    """
    folder.mkdir(parents=True, exist_ok=True)
    done = folder / "done"
    with _lock(folder / "first", fcntl.LOCK_EX):
        yield not done.exists()
        done.touch()


@dataclass(frozen=True)
class PackSource:
    """A host that has the archive: its path there, and how other hosts reach it."""

    host: str
    archive: str
    peer: dict[str, Any]


class Forwarding:
    """One archive in one run, as the process that serves ``host`` sees it.

    Call ``source``, within it ``record`` and ``offer``, and finally ``withdraw``. The processes of a run
    share ``folder``, where each host with the archive is a file, locked while it serves another host: the
    kernel unlocks it if the process dies. The controller serves the first host. Each source serves one host
    at a time, so the number of hosts with the archive doubles: 16 have it after five transfers.
    """

    def __init__(self, folder: Path, host: str) -> None:
        self.host = host
        self._folder, self._sources = folder, folder / "sources"
        self._sources.mkdir(parents=True, exist_ok=True)
        (self._sources / _CONTROLLER).touch()
        self._held = contextlib.ExitStack()

    @contextlib.contextmanager
    def source(self) -> Iterator[PackSource | None]:
        """Wait for a source and hold it; None is the controller.

        Offer the archive within this block: until then no other host asks the controller.
        """
        with self._held:
            with _lock(self._folder / "waiting", fcntl.LOCK_SH):
                while not (name := self._claim()):
                    time.sleep(_TICK_S)
            text = (self._sources / name).read_text("utf-8")
            yield PackSource(**json.loads(text)) if name != _CONTROLLER else None

    def record(self, source: PackSource, *, worked: bool) -> None:
        """Record how a transfer ended; a source that failed serves no more."""
        with self._mutex(), (self._folder / "outcomes").open("a", encoding="utf-8") as outcomes:
            outcomes.write("+" if worked else "-")
            if not worked:
                (self._sources / source.host).unlink(missing_ok=True)
                self._held.close()

    def offer(self, archive: str, peer: dict[str, Any]) -> None:
        """Let this host serve others from now on."""
        source = PackSource(self.host, archive, peer)
        with self._mutex():
            (self._sources / self.host).write_text(json.dumps(asdict(source)), "utf-8")

    def withdraw(self) -> None:
        """Wait until no host waits for the archive and this host serves none; then stop serving."""
        path = self._sources / self.host
        with contextlib.suppress(FileNotFoundError), path.open() as file:
            with _lock(self._folder / "waiting", fcntl.LOCK_EX):
                pass
            fcntl.flock(file, fcntl.LOCK_EX)
            with self._mutex():
                path.unlink()

    def _claim(self) -> str | None:
        """Hold a source and return its name (a host with the archive, or _CONTROLLER); None means wait."""
        with self._mutex():
            outcomes = self._folder / "outcomes"
            done = outcomes.read_text("utf-8") if outcomes.exists() else ""
            if done.count("-") - done.count("+") >= _FAILURES:
                return _CONTROLLER
            hosts = [path for path in sorted(self._sources.iterdir()) if path.name != _CONTROLLER]
            for path in hosts or [self._sources / _CONTROLLER]:
                file = path.open()
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    self._held.enter_context(file)
                    return path.name
                file.close()
            return None

    def _mutex(self) -> contextlib.AbstractContextManager[TextIO]:
        return _lock(self._folder / "mutex", fcntl.LOCK_EX)


@contextlib.contextmanager
def _lock(path: Path, how: int) -> Iterator[TextIO]:
    with path.open("a") as file:
        fcntl.flock(file, how)
        yield file


# Fields that differ between hosts with the same stack.
_OWN = ("host", "gpus", "reasons", "notes", "role_packages")


def stack_key(stack: Mapping[str, Any]) -> str:
    """Return a key shared by all hosts that get the same versions."""
    return pack_key("stack", {name: value for name, value in stack.items() if name not in _OWN})


def _record(stack: Mapping[str, Any]) -> Path:
    return cache_dir() / "sources" / f"fetched-{stack_key(stack)}.json"


def note(stack: Mapping[str, Any], needed: Mapping[str, list[str]]) -> None:
    """Record the inputs of a stack: each item with its alternative files in the cache."""
    path = _record(stack)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, json.dumps(needed, indent=1) + "\n")


def find_missing(stacks: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the known inputs of these stacks that the controller lacks."""
    absent: dict[str, None] = {}
    for stack in {stack_key(stack): stack for stack in stacks}.values():
        try:
            needed = json.loads(_record(stack).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            names = ("openmpi", "torch", "tensorflow", "horovod")
            versions = ((name, stack["versions"][name]) for name in names)
            needed = {f"{name} {version}": [] for name, version in versions if version}
        absent |= {name: None for name, files in needed.items() if not _glob(files)}
    return list(absent)


def _glob(patterns: Iterable[str]) -> list[Path]:
    return [path for pattern in patterns for path in cache_dir().glob(pattern)]


def carry(needed: Mapping[str, list[str]], folder: Path) -> None:
    """Copy needed files to a folder that serves as a cache (``HVLAB_CACHE``) and may have some already."""
    for file in _glob(pattern for patterns in needed.values() for pattern in patterns):
        copy = folder / file.relative_to(cache_dir())
        copy.parent.mkdir(parents=True, exist_ok=True)
        sources = file.parent.glob(f"{file.name.split('-')[0]}-*.json")
        for source in (file, file.with_name(f"{file.name}.sha256"), *sources):
            target = copy.with_name(source.name)
            if source.is_file() and (not target.is_file() or target.stat().st_size != source.stat().st_size):
                shutil.copy2(source, target)
