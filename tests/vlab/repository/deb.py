"""Debian packages and the lists of a flat repository, written without Debian's tools."""

from __future__ import annotations

import email.utils
import gzip
import hashlib
import io
import tarfile
from pathlib import Path

from tests.vlab.repository.keys import Key
from tests.vlab.repository.spec import Package

_ARCH = "amd64"


def build(packages: list[Package], folder: Path) -> None:
    """Write the packages and their lists, unsigned, into an empty folder."""
    for package in packages:
        # A file's name has no epoch.
        name = f"{package.name}_{package.version.rpartition(':')[2]}_{_ARCH}.deb"
        (folder / name).write_bytes(_archive(package))
        (folder / f"{name}.stanza").write_text(_control(package) + f"Filename: ./{name}\n", encoding="utf-8")


def publish(folder: Path, key: Key, label: str) -> None:
    """Write Packages, Release and its signatures for the packages that are in the folder."""
    stanzas = []
    for path in sorted(folder.glob("*.deb")):
        data = path.read_bytes()
        stanza = path.with_name(f"{path.name}.stanza").read_text(encoding="utf-8")
        stanzas.append(f"{stanza}Size: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n")
    lists = "\n".join(stanzas).encode()
    (folder / "Packages").write_bytes(lists)
    (folder / "Packages.gz").write_bytes(gzip.compress(lists, 1))
    sums = "".join(
        f" {hashlib.sha256(data).hexdigest()} {len(data)} {name}\n"
        for name in ("Packages", "Packages.gz")
        for data in [(folder / name).read_bytes()]
    )
    release = folder / "Release"
    date = email.utils.formatdate(usegmt=True).replace("GMT", "UTC")
    release.write_text(
        f"Origin: NVIDIA\nLabel: {label}\nArchitectures: {_ARCH}\nDate: {date}\nSHA256:\n{sums}",
        encoding="utf-8",
    )
    key.sign(release, folder / "InRelease", clear=True)
    key.sign(release, folder / "Release.gpg")


def _control(package: Package) -> str:
    lines = [
        f"Package: {package.name}", f"Version: {package.version}", f"Architecture: {_ARCH}",
        "Maintainer: cudatools <cudatools@nvidia.com>", "Section: multiverse/devel", "Priority: optional",
        f"Installed-Size: {1 + sum(len(file.content) for file in package.files.values()) // 1024}",
    ]  # fmt: skip
    lines += [f"{key.capitalize()}: {', '.join(value)}" for key, value in package.relations.items()]
    lines.append("Description: stands in for the package of this name")
    return "\n".join(lines) + "\n"


def _scripts(package: Package) -> dict[str, str]:
    after, before = [], []
    for link, name, path, priority in package.alternatives:
        after.append(f"update-alternatives --install {link} {name} {path} {priority}")
        before.append(f"update-alternatives --remove {name} {path}")
    if package.module:
        module, version = package.module
        after.append(f'/usr/lib/dkms/common.postinst {module} {version} /usr/share/{module} "" "$2"')
        before.append(f"dkms remove -m {module} -v {version} --all || true")
    scripts = {
        "postinst": ('[ "$1" = configure ] || exit 0', after),
        "prerm": ('[ "$1" = remove ] || [ "$1" = upgrade ] || exit 0', before),
    }
    return {
        name: "\n".join(["#!/bin/sh", "set -e", guard, *lines, ""])
        for name, (guard, lines) in scripts.items()
        if lines
    }


def _archive(package: Package) -> bytes:
    control = {"./control": (_control(package).encode(), 0o644)}
    control |= {f"./{name}": (text.encode(), 0o755) for name, text in _scripts(package).items()}
    config = [path for path in package.files if path.startswith("/etc/")]
    if config:
        control["./conffiles"] = ("".join(f"{path}\n" for path in config).encode(), 0o644)
    if any(".so." in path or "ld.so.conf.d" in path for path in package.files):
        control["./triggers"] = (b"activate-noawait ldconfig\n", 0o644)
    with io.BytesIO() as buffer:
        with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as tar:
            for name, (data, mode) in control.items():
                _add(tar, name, data, mode)
        parts = {"debian-binary": b"2.0\n", "control.tar.gz": buffer.getvalue()}
    parts["data.tar.gz"] = _data(package)
    archive = b"!<arch>\n"
    for name, data in parts.items():
        archive += f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode()
        archive += data + b"\n" * (len(data) % 2)
    return archive


def _data(package: Package) -> bytes:
    folders = {str(parent) for path in package.files for parent in Path(path).parents} - {"/"}
    folders |= {path for path, file in package.files.items() if file.folder}
    with io.BytesIO() as buffer:
        with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as tar:
            for folder in sorted(folders):
                entry = tarfile.TarInfo(f".{folder}")
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(entry)
            for path, file in package.files.items():
                if file.folder:
                    continue
                _add(tar, f".{path}", file.content, file.mode, file.target)
        return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, data: bytes, mode: int, target: str = "") -> None:
    entry = tarfile.TarInfo(name)
    entry.mode, entry.uname, entry.gname = mode, "root", "root"
    if target:
        entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, target, 0o777
    else:
        entry.size = len(data)
    tar.addfile(entry, None if target else io.BytesIO(data))
