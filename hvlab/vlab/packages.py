"""The package configuration that nodes inherit from this machine, as texts for a node."""

from __future__ import annotations

import ast
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from hvlab.base import process
from hvlab.vlab import names
from hvlab.vlab.controller import SECONDS, environment, run

_ONE_LINE_OPTIONS = {"arch": "Architectures", "lang": "Languages", "target": "Targets"}
_ONE_LINE = re.compile(r"deb\s+(?:\[(?P<options>[^]]*)\]\s*)?(?P<rest>(?!cdrom:)[^#]+)(?:#.*)?")
_CORE_FIELDS = ("types", "uris", "suites", "components", "enabled")
# Suites that every release has; backports and proposed updates come and go.
_SURE_SUFFIXES = ("", "-updates", "-security")
_SINCE_BOOKWORM = "non-free-firmware"
_APT_SETTINGS = re.compile(
    r"Acquire::(https?(::(?!Proxy-Auto-Detect)|\s)|Check-Valid-Until|Check-Date|Retries|ForceIPv[46]"
    r"|Allow\w+Repositories\s+\"(1|true|yes)\")",
    re.IGNORECASE,
)
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_PIP_LINE = re.compile(r"(?P<section>.+?)\.(?P<key>[\w-]+)=(?P<value>['\"].*['\"])")
# The controller's alone: its own directories, and ways to install that a node lacks.
_PIP_NOT_INHERITED = {"cache-dir", "log", "log-file", "target", "prefix", "root", "src", "python", "user",
                      "require-virtualenv", "no-input", "report"}  # fmt: skip
_PIP_FOLDERS = ("find-links", "index-url", "extra-index-url")
_PIP_FILES = ("cert", "client-cert", "constraint")
_SYSTEM = {"/", "/etc", "/usr", "/var", "/home", "/root", "/tmp", "/opt", "/srv", "/run", "/bin", "/lib"}  # noqa: S108


@dataclass(frozen=True)
class PackageSource:
    """One entry of apt's sources; ``options`` are its other fields, named as in a .sources file."""

    uris: tuple[str, ...]
    suites: tuple[str, ...]
    components: tuple[str, ...]
    options: tuple[tuple[str, str], ...] = ()


def read_list(text: str) -> list[PackageSource]:
    """Read the `deb` lines of a sources.list file."""
    sources_read = []
    for line in text.splitlines():
        match = _ONE_LINE.fullmatch(line.strip())
        if not match or len(match["rest"].split()) < 2:  # noqa: PLR2004 - a URI and a suite
            continue
        uri, suite, *components = match["rest"].split()
        options = []
        for option in (match["options"] or "").split():
            name, _, value = option.partition("=")
            options.append((_ONE_LINE_OPTIONS.get(name, name.title()), value.strip('"').replace(",", " ")))
        sources_read.append(PackageSource((uri,), (suite,), tuple(components), tuple(options)))
    return sources_read


def read_sources(text: str) -> list[PackageSource]:
    """Read the enabled `deb` stanzas of a .sources file (deb822)."""
    sources_read = []
    for stanza in re.split(r"\n\s*\n", text):
        lines = [line for line in stanza.splitlines() if not line.startswith("#")]
        fields: dict[str, str] = {}
        name = ""
        for line in lines:
            if line[:1] in (" ", "\t") and name:
                fields[name] += "\n" + line
            elif ":" in line:
                name, _, value = line.partition(":")
                fields[name] = value.strip()
        known = {name.lower(): value for name, value in fields.items()}
        if "deb" not in known.get("types", "").split() or known.get("enabled", "yes").lower() in (
            "no",
            "false",
        ):
            continue
        sources_read.append(
            PackageSource(
                tuple(known.get("uris", "").split()),
                tuple(known.get("suites", "").split()),
                tuple(known.get("components", "").split()),
                tuple((name, value) for name, value in fields.items() if name.lower() not in _CORE_FIELDS),
            )
        )
    return sources_read


def translate(sources: Iterable[PackageSource], *, own: str, release: str) -> list[PackageSource]:
    """Return the entries of the release ``own`` as entries of ``release``; entries of others are left out.

    For another release only the suites that every release has are kept.
    """
    translated: list[PackageSource] = []
    for source in sources:
        suffixes = [
            suite.removeprefix(own) for suite in source.suites if suite == own or suite.startswith(f"{own}-")
        ]
        if release != own:
            suffixes = [suffix for suffix in suffixes if suffix in _SURE_SUFFIXES]
        components = source.components
        if release == "bullseye":
            components = tuple(name for name in components if name != _SINCE_BOOKWORM)
        moved = replace(source, suites=tuple(release + suffix for suffix in suffixes), components=components)
        remote = tuple(uri for uri in source.uris if not uri.startswith("cdrom:"))
        if suffixes and remote:
            translated.append(replace(moved, uris=remote))
    return list(dict.fromkeys(translated))


def render(sources: Iterable[PackageSource]) -> str:
    """Return the entries as the text of a .sources file."""
    stanzas = []
    for source in sources:
        fields = [
            ("Types", "deb"),
            ("URIs", " ".join(source.uris)),
            ("Suites", " ".join(source.suites)),
            ("Components", " ".join(source.components)),
            *source.options,
        ]
        stanzas.append("".join(f"{name}: {value}\n" for name, value in fields if value))
    return "\n".join(stanzas)


def find_named_files(sources: Iterable[PackageSource], apt_settings: str) -> list[str]:
    """Return the files that apt's entries and settings name (keys, certificates), as absolute paths."""
    values = [value for source in sources for name, value in source.options if name.lower() == "signed-by"]
    values += re.findall(r'"(/[^"]+)"', apt_settings)
    return sorted({word for value in values for word in value.split() if word.startswith("/")})


def apt_settings(dump: str) -> str:
    """Return the settings of `apt-config dump` by which packages are reached: proxies, CAs, date checks."""
    lines = [line for line in dump.splitlines() if _APT_SETTINGS.match(line) and not line.endswith(' "";')]
    return "".join(f"{line}\n" for line in lines)


def find_missing_certificates(bundle: str, other: str) -> list[str]:
    """Return the certificates (PEM) of ``bundle`` that are missing in ``other``."""

    def bodies(text: str) -> dict[str, str]:
        return {"".join(pem.split()): pem for pem in _CERTIFICATE.findall(text)}

    known = bodies(other)
    return [pem + "\n" for body, pem in bodies(bundle).items() if body not in known]


def mode(text: str) -> int:
    """Return the mode of a file of settings: root's alone if an address in it may have a password."""
    return 0o600 if "@" in text else 0o644


def proxies(addresses: Mapping[str, str]) -> tuple[str, str]:
    """Return the text of /etc/environment, and sshd's settings: addresses with a password, for root alone."""
    every = "".join(f'{name}="{value}"\n' for name, value in addresses.items() if "@" not in value)
    roots = [f'"{name}={value}"' for name, value in addresses.items() if "@" in value]
    return every, f"Match User root\nSetEnv {' '.join(roots)}\n" if roots else ""


def resolv_conf(text: str, upstream: str | None) -> str:
    """Return the resolver's configuration for a node, which cannot ask a stub on our loopback."""
    servers = re.findall(r"^\s*nameserver\s+(\S+)", text, re.MULTILINE)
    stub = servers and all(server.startswith("127.") or server == "::1" for server in servers)
    return upstream if stub and upstream else text


def pip_settings(listing: str) -> dict[str, dict[str, str]]:
    """Read `pip config list`: section -> key -> value. Values of the environment win over all sections."""
    sections: dict[str, dict[str, str]] = {}
    for match in map(_PIP_LINE.fullmatch, listing.splitlines()):
        if match and match["key"] not in _PIP_NOT_INHERITED:
            value = str(ast.literal_eval(match["value"]))
            sections.setdefault(match["section"], {})[match["key"]] = value
    forced = sections.pop(":env:", {})
    forced.pop("config-file", None)
    for section in sections.values():
        for key in forced:
            section.pop(key, None)
    if forced:
        sections["global"] = {**sections.get("global", {}), **forced}
    return sections


def pip_conf(settings: Mapping[str, Mapping[str, str]]) -> str:
    """Return pip's settings as the text of a pip.conf."""
    lines = []
    for section, values in settings.items():
        lines.append(f"[{section}]")
        lines += [f"{key} = " + "\n    ".join(value.split("\n")) for key, value in values.items()]
    return "".join(f"{line}\n" for line in lines)


def pip_paths(settings: Mapping[str, Mapping[str, str]]) -> list[Path]:
    """Return the local folders and files that pip's settings name.

    The pages of a file:// index usually point beside it, so for ``.../simple`` its parent is returned.
    """
    paths = set()
    for values in settings.values():
        for key in _PIP_FOLDERS:
            for word in values.get(key, "").split():
                path = local_path(word)
                if path:
                    paths.add(path.parent if key != "find-links" and path.name == "simple" else path)
        words = [word for key in _PIP_FILES for word in values.get(key, "").split()]
        paths |= {path for path in map(local_path, words) if path}
    return sorted(path for path in paths if path.is_absolute())


def source_paths(sources: Iterable[PackageSource]) -> list[Path]:
    """Return the local folders that apt's entries name."""
    paths = (local_path(uri.removeprefix("copy:")) for source in sources for uri in source.uris)
    return sorted({path for path in paths if path})


def local_path(word: str) -> Path | None:
    """Return the path that a word means: a path, or a file: URL; None for anything on the network."""
    if word.startswith("file:"):
        return Path(unquote(urlsplit(word).path))
    return Path(word).expanduser() if word.startswith(("/", "~")) else None


def is_shareable(path: Path) -> bool:
    """Whether a folder may be shown to the nodes: not a folder of the system itself."""
    return str(path) not in _SYSTEM and not str(path).startswith(("/etc/", "/usr/", "/bin/", "/lib/"))


_APT = Path("/etc/apt")
_CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
_RESOLVED_UPSTREAM = Path("/run/systemd/resolve/resolv.conf")
_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy")


@dataclass(frozen=True)
class ImageConfig:
    """The inputs of a base image. ``files`` are (path, mode, content), for the same path there."""

    release: str
    sources: tuple[PackageSource, ...]
    apt_settings: str
    files: tuple[tuple[str, int, bytes], ...]
    ca_bundle: str


@dataclass(frozen=True)
class NodeConfig:
    """The inputs of a node at each start. ``shared`` are folders shown at the same path, read-only.

    ``files`` are (path, mode, content) of what pip's settings name in folders of the system itself.
    """

    resolv_conf: str
    pip_conf: str
    environment: str
    shared: tuple[Path, ...]
    files: tuple[tuple[str, int, bytes], ...] = ()
    sshd_settings: str = ""


def image_config(release: str) -> ImageConfig:
    """Return the settings that the base image of a release inherits from this machine."""
    sources = tuple(_sources(names.debian(release)))
    dump = run(["apt-config", "dump"]) if shutil.which("apt-config") else ""
    settings = apt_settings(dump)
    paths = [Path(name) for name in find_named_files(sources, settings)]
    paths += [_APT / "auth.conf", *sorted((_APT / "auth.conf.d").glob("*.conf"))]
    own_keyrings = Path("/usr/share/keyrings/debian-archive-")
    files = _files(path for path in paths if not str(path).startswith(str(own_keyrings)))
    return ImageConfig(release, sources, settings, files, _text(_CA_BUNDLE))


def node_config(release: str) -> NodeConfig:
    """Return the settings that each node inherits from this machine at its start."""
    settings = pip_settings(_pip_listing())
    named = pip_paths(settings)
    shared = named + source_paths(_sources(names.debian(release)))
    names_of = (name for variable in _PROXIES for name in (variable, variable.upper()))
    every, roots = proxies({name: os.environ[name] for name in names_of if os.environ.get(name)})
    return NodeConfig(
        resolv_conf=resolv_conf(_text(Path("/etc/resolv.conf")), _text(_RESOLVED_UPSTREAM)),
        pip_conf=pip_conf(settings),
        environment=every,
        shared=tuple(path for path in dict.fromkeys(shared) if path.exists() and is_shareable(path)),
        files=_files(path for path in named if not is_shareable(path)),
        sshd_settings=roots,
    )


def _files(paths: Iterable[Path]) -> tuple[tuple[str, int, bytes], ...]:
    """Return path, mode and content of those that are files; the CA bundle is in the image.

    The folders are the real ones: a node's tree also has the links to them, but none is written through.
    """
    real = [path.parent.resolve() / path.name for path in paths]
    return tuple(
        (str(path), path.stat().st_mode & 0o777, path.read_bytes())
        for path in real
        if path.is_file() and path != _CA_BUNDLE
    )


def _sources(release: str) -> list[PackageSource]:
    system = dict(line.split("=", 1) for line in _text(Path("/etc/os-release")).splitlines() if "=" in line)
    own = system.get("VERSION_CODENAME", "").strip('"')
    if system.get("ID", "").strip('"') != "debian" or not own:
        return []
    sources = read_list(_text(_APT / "sources.list"))
    for path in sorted((_APT / "sources.list.d").glob("*")):
        if path.suffix == ".list":
            sources += read_list(_text(path))
        elif path.suffix == ".sources":
            sources += read_sources(_text(path))
    return translate(sources, own=own, release=release)


def _pip_listing() -> str:
    argv = [sys.executable, "-m", "pip", "config", "list"]
    done = process.run(argv, seconds=SECONDS, env=environment())
    return done.stdout if not done.returncode else ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
