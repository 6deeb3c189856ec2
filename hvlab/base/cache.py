"""Reproducible files that hvlab keeps on this machine: their kind, size and last use.

Code that uses a cached file calls ``use``. Nothing that was used within the last day is removed, so a
playbook that runs keeps what it has looked at.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import ByteSize, TypeAdapter, ValidationError

from hvlab.base.errors import UsageError
from hvlab.base.paths import cache_dir, image_dirs

DAY_S = 86_400.0
LIMIT = "HVLAB_CACHE_LIMIT"
_DEFAULT_LIMIT = "20G"
_SIZE = TypeAdapter(ByteSize)
_FOLDERS = {"pack": "packs", "wheels": "wheels", "source": "sources", "data set": "datasets"}
# Leftovers of a killed process beside what it was making.
_HALF = (".incoming-", ".new-", ".building-", ".removing-")
# What is known of a file: its sum, beside it; of sources, where they are from. Too small to list.
_NOTES = (".sha256", ".json")
# A case's files that are no longer needed once its figures are stored.
_RUN_FILES = ("stdout", "stderr", "timeline.json")


@dataclass(frozen=True)
class Kept:
    """Something that can be made again; ``size`` is in bytes, ``used_at`` in seconds since the epoch.

    ``busy`` says that it is in use now, as the image of a lab that is up; ``host`` is where it lies, if that
    is not this machine.
    """

    kind: str
    name: str
    paths: tuple[Path, ...]
    size: int
    used_at: float
    busy: bool = False
    host: str = ""

    def removable(self, now: float) -> bool:
        """Whether nothing uses it now, or may have begun to."""
        return not self.busy and now - self.used_at > DAY_S


def use(path: Path) -> None:
    """Note that something in the cache is used now; a cache that is read-only is left alone."""
    stamp = path if path.is_file() else _stamp(path)
    with suppress(OSError):
        stamp.touch()


def _stamp(folder: Path) -> Path:
    """Return the file beside a folder that says when it was last used: the folder itself is never changed."""
    return folder.with_name(f".{folder.name}.used")


def parse_size(text: str) -> int:
    """Return a size such as `20G` (20 GB) or `20GiB` in bytes. Raises UsageError."""
    try:
        return int(_SIZE.validate_python(text))
    except (ValidationError, OverflowError):
        raise UsageError(f"{text!r} is no size", remedy="write it as in 500M or 20G") from None


def limit() -> int:
    """Return the maximum size of the cache in bytes: ``HVLAB_CACHE_LIMIT``. Raises UsageError."""
    try:
        return parse_size(os.environ.get(LIMIT) or _DEFAULT_LIMIT)
    except UsageError as error:
        raise UsageError(f"{LIMIT}: {error}", remedy=error.remedy) from None


def entries() -> list[Kept]:
    """Return everything in the cache, and the virtual hosts' images."""
    return [*_in_cache(), *(one for folder in image_dirs() for one in _images(folder))]


def _in_cache() -> list[Kept]:
    cache = cache_dir()
    return [one for kind, name in _FOLDERS.items() for one in _in_folder(kind, cache / name)]


def _in_folder(kind: str, folder: Path) -> Iterator[Kept]:
    for path in _entries(folder):
        if path.name.startswith(_HALF):
            yield _entry("leftover", path)
        elif not path.name.startswith(".") and not path.name.endswith(_NOTES):
            yield _entry(kind, path)


def _images(folder: Path) -> Iterator[Kept]:
    mounts = _lower_folders()
    for path in _entries(folder):
        if path.name.startswith(_HALF):
            yield _entry("leftover", path, busy=str(path) in mounts)
        elif path.is_dir() and not path.name.startswith("."):
            yield _entry("image", path, busy=str(path) in mounts)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _entry(kind: str, path: Path, *, busy: bool = False) -> Kept:
    beside = (path.with_name(f"{path.name}.sha256"), _stamp(path))
    paths = tuple(each for each in (path, *beside) if os.path.lexists(each))
    return Kept(kind, path.name, paths, sum(map(_size, paths)), _read_last_used(paths), busy)


def _read_last_used(paths: Iterable[Path]) -> float:
    return max((path.lstat().st_mtime for path in paths if os.path.lexists(path)), default=0.0)


def _lower_folders() -> set[str]:
    """Return the lower folders of mounted overlays, which running labs use."""
    with suppress(OSError):
        lines = Path("/proc/self/mountinfo").read_text("utf-8").splitlines()
        options = [option for line in lines for option in line.rpartition(" ")[2].split(",")]
        lower = [option.partition("=")[2] for option in options if option.startswith("lowerdir=")]
        return {folder for folders in lower for folder in folders.split(":")}
    return set()


def _size(path: Path) -> int:
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_blocks * 512
    total = 0
    with suppress(OSError):
        for folder, _, files in os.walk(path):
            for name in files:
                with suppress(OSError):
                    total += os.lstat(f"{folder}/{name}").st_blocks * 512
    return total


def run_files(results: Path) -> Iterator[Kept]:
    """Yield, for each run, what its programs printed and their timelines: no records, which always stay."""
    for run in _entries(results / "runs"):
        if not run.is_dir():
            continue
        paths = tuple(
            path for case in _entries(run) for name in _RUN_FILES if (path := case / name).is_file()
        )
        if paths:
            yield Kept("run files", run.name, paths, sum(map(_size, paths)), _read_last_used(paths))


def choose(each: Sequence[Kept], *, seconds: float, size: int | None, now: float) -> list[Kept]:
    """Return each host's items unused for that long, then those that exceed ``size`` bytes. Pure."""
    old = older(each, seconds, now=now)
    if size is None:
        return old
    rest = [one for one in each if one not in old]
    hosts = dict.fromkeys(one.host for one in rest)
    return old + [
        one for host in hosts for one in beyond([one for one in rest if one.host == host], size, now=now)
    ]


def older(each: Iterable[Kept], seconds: float, *, now: float) -> list[Kept]:
    """Return the items unused for that long; leftovers count after one day. Pure."""
    return [
        one for one in each if one.removable(now) and (one.kind == "leftover" or now - one.used_at > seconds)
    ]


def beyond(each: Sequence[Kept], size: int, *, now: float) -> list[Kept]:
    """Return the least recently used items to remove so that the rest fits ``size`` bytes. Pure.

    Items used within the last day stay, even if that exceeds the limit.
    """
    excess, chosen = sum(one.size for one in each) - size, []
    for one in sorted(each, key=lambda one: one.used_at):
        if excess > 0 and one.removable(now):
            chosen.append(one)
            excess -= one.size
    return chosen


def remove(one: Kept) -> bool:
    """Remove it, unless it was used meanwhile; return whether it is gone. Raises OSError."""
    if _read_last_used(one.paths) != one.used_at:
        return False
    # First the file that marks it as whole.
    for path in reversed(one.paths):
        if path.is_dir() and not path.is_symlink():
            # Half removed, it must not be taken for whole.
            doomed = path.with_name(f".removing-{path.name.lstrip('.')}")
            path.rename(doomed)
            shutil.rmtree(doomed)
        else:
            path.unlink(missing_ok=True)
    return True


def keep_limit(say: Callable[[str], None]) -> None:
    """Remove from the cache, but not of the images, what exceeds its limit; ``say`` gets a line for each."""
    each = [one for one in _in_cache() if one.kind != "leftover"]
    for one in beyond(each, limit(), now=time.time()):
        with suppress(OSError):
            if remove(one):
                say(f"{one.name} went from the cache: it was the longest unused ({LIMIT})")
