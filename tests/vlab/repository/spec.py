"""What the repositories hold: packages.yml and drivers.yml, as objects."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.vlab.repository import elf

FOLDER = Path(__file__).parent
SOURCES = ("packages.yml", "drivers.yml")
# Where the families put libraries and headers.
PLACES = {
    "deb": {"libdir": "/usr/lib/x86_64-linux-gnu", "incdir": "/usr/include/x86_64-linux-gnu"},
    "rpm": {"libdir": "/usr/lib64", "incdir": "/usr/include"},
}


@dataclass(frozen=True)
class File:
    """A file, or a link where ``target`` is set, or a folder."""

    content: bytes = b""
    mode: int = 0o644
    target: str = ""
    folder: bool = False


@dataclass(frozen=True)
class Package:
    """One version of one package."""

    name: str
    version: str
    relations: dict[str, list[str]]
    files: dict[str, File]
    alternatives: list[list[str]]
    module: tuple[str, str] | None
    streams: list[str]


def packages(system: str, kind: str) -> list[Package]:
    """Return the packages of a system, such as debian12; ``kind`` is deb or rpm."""
    dist = {"rhel": f".el{system[4:]}", "amzn": f".{system}"}.get(system[:4], "")
    found = []
    for source in SOURCES:
        for block in yaml.safe_load((FOLDER / source).read_text(encoding="utf-8")):
            for values in block.get("for", [{}]):
                for entry in block["packages"]:
                    if any(fnmatch.fnmatch(system, p) for p in entry.get("systems", _cuda(system))):
                        found.append(_package(entry, values | PLACES[kind] | {"dist": dist}, kind))
    names = [(package.name, package.version) for package in found]
    unique = [package for n, package in enumerate(found) if names.index((package.name, package.version)) == n]
    return sorted(unique, key=lambda package: package.name)


def _cuda(system: str) -> list[str]:
    """Packages without a list of systems are in every repository of CUDA."""
    return [] if system in ("libnvidia-container", "epel") else ["*"]


def _package(entry: dict, values: dict, kind: str) -> Package:
    values = values | {key: fill(entry[key], values) for key in ("dkms", "dkms_version") if key in entry}
    entry = _filled({key: value for key, value in entry.items() if key != "systems"}, values)
    files = dict(_files(entry.get("files", {}), values))
    module = (entry["dkms"], entry["dkms_version"]) if "dkms" in entry else None
    if module:
        for name in ("dkms.conf", "Makefile", "nvidia.c"):
            files[f"/usr/src/{'-'.join(module)}/{name}"] = File(_read(name, values))
    name, version = entry["name"], entry["version"]
    if kind == "rpm":
        name, version = rpm_name(name), rpm_version(name, version)
    relations = {
        key: entry.get(key, []) for key in ("depends", "provides", "conflicts", "replaces") if key in entry
    }
    return Package(
        name, version, relations, files, entry.get("alternatives", []), module, entry.get("streams", [])
    )


def rpm_name(name: str) -> str:
    """Return what NVIDIA calls a Debian package as an rpm."""
    return {"libnccl2": "libnccl"}.get(name, re.sub(r"-dev(?=-|$)", "-devel", name))


def rpm_version(name: str, version: str) -> str:
    """Return the version that goes with it: only cuDNN 8 writes it in another way."""
    return version.replace("+", ".") if name.startswith("libcudnn8") else version


def _files(listed: dict, values: dict) -> Iterator[tuple[str, File]]:
    for path, what in listed.items():
        if isinstance(what, str):
            yield path, File(what.encode())
        elif "link" in what:
            yield path, File(target=what["link"])
        elif "folder" in what:
            yield path, File(mode=0o755, folder=True)
        elif "library" in what:
            yield path, File(elf.library(what["library"], what["functions"]), 0o755)
        else:
            yield path, File(_read(what["from"], values), int(what.get("mode", "0644"), 8))


def _read(name: str, values: dict) -> bytes:
    return fill((FOLDER / "content" / name).read_text(encoding="utf-8"), values).encode()


def fill(text: str, values: dict) -> str:
    """Replace <name> by its value; other text in angle brackets stays."""
    return re.sub(r"<(\w+)>", lambda match: str(values.get(match[1], match[0])), text)


def _filled(value, values: dict):
    if isinstance(value, dict):
        return {fill(key, values): _filled(each, values) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, values) for each in value]
    return fill(value, values) if isinstance(value, str) else value
