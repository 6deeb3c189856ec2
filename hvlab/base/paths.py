"""File locations. No other module knows any."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from functools import cache
from pathlib import Path

from hvlab.base import sudo
from hvlab.base.errors import UsageError

OWN_CATALOGUE = "HVLAB_CATALOGUE"


def project_dir() -> Path:
    """Return the folder of playbooks, roles and templates: the clone, or hvlab's installation."""
    package = Path(__file__).resolve().parent.parent
    for root in (package / "_project", package.parent):
        if (root / "site.yml").is_file():
            return root
    raise UsageError(
        f"hvlab is installed in {package}, but its playbooks are missing",
        remedy="install it again: `pip install .` in a clone of the repository",
    )


def default_inventory() -> Path:
    """Return the default inventory (``ANSIBLE_INVENTORY``)."""
    chosen = os.environ.get("ANSIBLE_INVENTORY")
    return Path(chosen) if chosen else _check_owner(Path("inventory/lab"), "-i or ANSIBLE_INVENTORY")


def _read_variable(variable: str) -> Path | None:
    chosen = os.environ.get(variable)
    return Path(chosen).expanduser().resolve() if chosen else None


def _below(xdg: str, default: str) -> Path:
    return Path(os.environ.get(xdg) or Path.home() / default) / "hvlab"


def cache_dir() -> Path:
    """Return the folder of reproducible files: sources, wheels, packs, data sets (``HVLAB_CACHE``)."""
    return _read_variable("HVLAB_CACHE") or _below("XDG_CACHE_HOME", ".cache")


def own_catalogue() -> Path:
    """Return the file of releases that the user adds to the catalogue (``HVLAB_CATALOGUE``)."""
    return _read_variable(OWN_CATALOGUE) or _below("XDG_CONFIG_HOME", ".config") / "catalogue.yml"


def images_dir() -> Path:
    """Return the folder of the virtual hosts' base images (``HVLAB_IMAGES``).

    They are made of root's files, so under sudo they do not lie in the caller's cache.
    """
    return image_dirs()[0]


def image_dirs() -> list[Path]:
    """Return the folders that may have base images: the current one first, then sudo's."""
    if chosen := _read_variable("HVLAB_IMAGES"):
        return [chosen]
    own, under_sudo = cache_dir() / "images", Path("/var/cache/hvlab/images")
    return [under_sudo, own] if sudo.caller() else [own, under_sudo]


def _data_dir() -> Path:
    return _read_variable("HVLAB_DATA") or _below("XDG_DATA_HOME", ".local/share")


def trust_dir(lab: str) -> Path:
    """Return the folder of one lab's CA and rank keys, mode 0700 (``HVLAB_DATA``)."""
    return _data_dir() / "trust" / lab


def provisioning_dir(lab: str) -> Path:
    """Return the folder locked by a call that changes a lab's hosts (``HVLAB_DATA``)."""
    return _data_dir() / "provisioning" / lab


def results_dir(asked: Path | None = None) -> Path:
    """Return the folder of results: ``asked``, else ``HVLAB_RESULTS``, else ``./results``."""
    option = "--results or HVLAB_RESULTS"
    chosen = os.environ.get("HVLAB_RESULTS")
    place = asked or (Path(chosen) if chosen else _check_owner(Path("results"), option))
    if place.is_file():
        raise UsageError(f"the results folder {place} is a file", remedy=f"name a folder with {option}")
    return asked.absolute() if asked else place.resolve()


def _check_owner(path: Path, option: str) -> Path:
    """Return a path in the current folder. Raises UsageError if other users own it or may change it."""
    trusted = _trusted_users()
    if os.path.lexists(path):
        for each in {Path(), *(path.parents), path, path.resolve()}:
            info = each.stat() if each.exists() else each.lstat()
            reason = None
            if info.st_uid not in trusted:
                reason = f"belongs to user {info.st_uid}"
            elif stat.S_ISDIR(info.st_mode) and info.st_mode & stat.S_IWOTH:
                reason = "may be written by every user"
            if reason:
                raise UsageError(
                    f"{path.absolute()} is not used: {each.absolute()} {reason}",
                    remedy=f"name it with {option} if you trust it, or go to a folder of your own",
                )
    return path


def _trusted_users() -> set[int]:
    person = sudo.caller()
    return {0, os.geteuid(), *([person[0]] if person else [])}


@cache
def refuse_links(results: Path) -> None:
    """Raise UsageError for another user's link in a results folder: it may lead to a file of the caller's."""
    trusted = _trusted_users()
    pending = [results / "runs", results]
    while pending:
        with suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                user = entry.stat(follow_symlinks=False).st_uid
                if user in trusted:
                    continue
                if entry.is_symlink():
                    raise UsageError(
                        f"{entry.path} is a link of user {user}, which hvlab does not follow",
                        remedy="copy the folder without links (rsync -r), and name the copy with --results",
                    )
                if entry.is_dir(follow_symlinks=False):
                    pending.append(Path(entry.path))


def lab_runtime_dir(lab: str) -> Path:
    """Return the folder of a virtual lab's machines while it is up; gone after ``lab down``."""
    return Path("/var/lib/hvlab") / lab
