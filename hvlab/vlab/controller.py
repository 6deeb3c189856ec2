"""Read the package configuration of this machine, for the nodes to inherit."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hvlab.base import process
from hvlab.vlab import names, packages
from hvlab.vlab.command import SECONDS, environment, run

_APT = Path("/etc/apt")
_CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
_RESOLVED_UPSTREAM = Path("/run/systemd/resolve/resolv.conf")
_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy")


@dataclass(frozen=True)
class ImageConfig:
    """What goes into a base image. ``files`` are (path, mode, content) to lie at the same path there."""

    release: str
    sources: tuple[packages.PackageSource, ...]
    apt_settings: str
    files: tuple[tuple[str, int, bytes], ...]
    ca_bundle: str


@dataclass(frozen=True)
class NodeConfig:
    """What a node gets each time it starts. ``shared`` are folders shown at the same path, read-only.

    ``files`` are (path, mode, content) of what pip's settings name in folders of the system itself.
    """

    resolv_conf: str
    pip_conf: str
    environment: str
    shared: tuple[Path, ...]
    files: tuple[tuple[str, int, bytes], ...] = ()
    sshd_settings: str = ""


def image_config(release: str) -> ImageConfig:
    """Return what the base image of a release inherits from this machine."""
    sources = tuple(_sources(names.debian(release)))
    dump = run(["apt-config", "dump"]) if shutil.which("apt-config") else ""
    settings = packages.apt_settings(dump)
    paths = [Path(name) for name in packages.files_named(sources, settings)]
    paths += [_APT / "auth.conf", *sorted((_APT / "auth.conf.d").glob("*.conf"))]
    own_keyrings = Path("/usr/share/keyrings/debian-archive-")
    files = _files(path for path in paths if not str(path).startswith(str(own_keyrings)))
    return ImageConfig(release, sources, settings, files, _text(_CA_BUNDLE))


def node_config(release: str) -> NodeConfig:
    """Return what each node inherits from this machine when it starts."""
    settings = packages.pip_settings(_pip_listing())
    named = packages.pip_paths(settings)
    shared = named + packages.source_paths(_sources(names.debian(release)))
    names_of = (name for variable in _PROXIES for name in (variable, variable.upper()))
    every, roots = packages.proxies({name: os.environ[name] for name in names_of if os.environ.get(name)})
    return NodeConfig(
        resolv_conf=packages.resolv_conf(_text(Path("/etc/resolv.conf")), _text(_RESOLVED_UPSTREAM)),
        pip_conf=packages.pip_conf(settings),
        environment=every,
        shared=tuple(path for path in dict.fromkeys(shared) if path.exists() and packages.shareable(path)),
        files=_files(path for path in named if not packages.shareable(path)),
        sshd_settings=roots,
    )


def _files(paths: Iterable[Path]) -> tuple[tuple[str, int, bytes], ...]:
    """Return path, mode and content of those that are files; the CA bundle is in the image.

    The folders are the real ones: a node's tree has the links to them, too, but none is written through.
    """
    real = [path.parent.resolve() / path.name for path in paths]
    return tuple(
        (str(path), path.stat().st_mode & 0o777, path.read_bytes())
        for path in real
        if path.is_file() and path != _CA_BUNDLE
    )


def _sources(release: str) -> list[packages.PackageSource]:
    """Return this machine's apt entries as entries of ``release``; empty where it is not Debian."""
    system = dict(line.split("=", 1) for line in _text(Path("/etc/os-release")).splitlines() if "=" in line)
    own = system.get("VERSION_CODENAME", "").strip('"')
    if system.get("ID", "").strip('"') != "debian" or not own:
        return []
    sources = packages.read_list(_text(_APT / "sources.list"))
    for path in sorted((_APT / "sources.list.d").glob("*")):
        if path.suffix == ".list":
            sources += packages.read_list(_text(path))
        elif path.suffix == ".sources":
            sources += packages.read_sources(_text(path))
    return packages.translate(sources, own=own, release=release)


def _pip_listing() -> str:
    """Return the output of `pip config list` for the Python that runs hvlab; empty without pip."""
    argv = [sys.executable, "-m", "pip", "config", "list"]
    done = process.run(argv, seconds=SECONDS, env=environment())
    return done.stdout if not done.returncode else ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
