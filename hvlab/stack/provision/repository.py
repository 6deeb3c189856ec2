"""A signed package repository of apt, dnf or yum: its files, its key, and conflicting entries. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pysequoia import Cert

from hvlab.base import remedies
from hvlab.base.errors import CheckError, UsageError

SECONDS = 20
MARK = "# switched off by hvlab: "
# OpenPGP versions 4 and 6.
_FINGERPRINT = re.compile(r"[0-9A-F]{40}|[0-9A-F]{64}")
_SCHEME = re.compile(r"^[a-z+]+://", re.IGNORECASE)
TROUBLE = re.compile(
    r"^(?:E:|Err:|Error:| *- (?:Curl error|Status code)"
    r"|W: (?:Failed to fetch|Some index|An error|GPG error|The repository)).*",
    re.MULTILINE,
)
_REACH = "check that the host reaches {url}: name server, firewall, proxy, or a mirror of it"


@dataclass(frozen=True, kw_only=True)
class Repository:
    """A repository as its package manager has it.

    ``files`` maps each of its paths to its text; an empty text means no file. ``others`` are globs of the
    files with other sources, ``read`` globs of the lists that exist once they were read. ``refresh`` reads
    the lists of this source alone, and ``trust`` makes the package manager trust the key if naming it in the
    source is not enough. ``label``: the label of the lists, if it sets apt's priority.
    """

    url: str
    files: Mapping[str, str]
    path: str
    key_path: str
    armored: bool
    others: tuple[str, ...]
    read: tuple[str, ...]
    lists: str
    refresh: tuple[str, ...]
    trust: tuple[str, ...] = ()
    label: str = ""

    def key_file(self, key: Cert) -> bytes:
        """Return a key as the package manager reads it."""
        return str(key).encode() if self.armored else bytes(key)

    def remedy(self, text: str) -> str:
        """Return the remedy for a failure."""
        return remedies.remedy("repository", text, _REACH, url=self.url, lists=self.lists)

    def refusal(self, output: str) -> CheckError:
        """Return the error of a source that cannot be used, from the output of its refresh."""
        trouble = [line.strip() for line in TROUBLE.findall(output)]
        lines = trouble or [line.strip() for line in output.splitlines() if line.strip()][-3:]
        short = "\n  ".join(dict.fromkeys(line[:300] for line in lines[:4]))
        return CheckError(f"{self.url} cannot be used:\n  {short}", remedy=self.remedy("\n".join(lines)))


def repository(manager: str, options: Mapping[str, Any]) -> Repository:
    """Return the repository of a task of hvlab_repository, as apt, dnf or yum has it."""
    if manager == "apt":
        return _apt(options)
    if manager in ("dnf", "dnf5", "yum"):
        return _rpm(manager, options)
    raise CheckError(f"packages are managed by {manager}", remedy="add the repository there yourself")


def _apt(options: Mapping[str, Any]) -> Repository:
    name, url = options["name"], options["url"].rstrip("/") + "/"
    path, key_path = f"/etc/apt/sources.list.d/{name}.sources", f"/etc/apt/keyrings/{name}.gpg"
    lines = ["Types: deb", f"URIs: {url}", f"Suites: {options['suite']}"]
    lines += [f"Components: {' '.join(options['components'])}"] if options["components"] else []
    lines += [f"Signed-By: {key_path}", f"Enabled: {'yes' if options['enabled'] else 'no'}", ""]
    priority, label = options["priority"], options["label"]
    # Not the host: a mirror hosts other repositories too, and all their packages would get the priority.
    pin = f"Package: *\nPin: release l={label}\nPin-Priority: {priority}\n"
    settings = {
        "Dir::Etc::sourcelist": path,
        "Dir::Etc::sourceparts": "-",
        "APT::Get::List-Cleanup": "0",
        "Acquire::Retries": "1",
        "Acquire::http::Timeout": str(SECONDS),
        "Acquire::https::Timeout": str(SECONDS),
    }
    # How apt turns an address into a file name.
    address = re.sub(r"[\\|{}\[\]<>\"^~_=!@#$%&*]", lambda m: f"%{ord(m[0]):02x}", _SCHEME.sub("", url))
    return Repository(
        url=url,
        files={path: "\n".join(lines), f"/etc/apt/preferences.d/{name}": "" if priority is None else pin},
        path=path,
        key_path=key_path,
        armored=False,
        others=(
            "/etc/apt/sources.list",
            *(f"/etc/apt/sources.list.d/*.{end}" for end in ("list", "sources")),
        ),
        read=(f"/var/lib/apt/lists/{address.replace('/', '_')}*Release",),
        lists="InRelease or Release",
        refresh=(
            *("apt-get", "-q", "update"),
            *(word for item in settings.items() for word in ("-o", "=".join(item))),
        ),
        label="" if priority is None else label,
    )


def _rpm(manager: str, options: Mapping[str, Any]) -> Repository:
    name, url = options["name"], options["url"].rstrip("/") + "/"
    path, key_path = f"/etc/yum.repos.d/{name}.repo", f"/etc/pki/rpm-gpg/RPM-GPG-KEY-{name}"
    values = {
        "name": name,
        "baseurl": url,
        "enabled": int(options["enabled"]),
        "gpgcheck": int(options["gpgcheck"]),
        "repo_gpgcheck": int(options["repo_gpgcheck"]),
        "gpgkey": f"file://{key_path}",
    }
    own = [f"timeout={SECONDS}", "retries=2", "metadata_expire=0"]
    return Repository(
        url=url,
        files={path: "\n".join([f"[{name}]", *(f"{key}={value}" for key, value in values.items()), ""])},
        path=path,
        key_path=key_path,
        armored=True,
        others=("/etc/yum.repos.d/*.repo",),
        read=tuple(
            f"/var/cache/{folder}"
            for folder in (f"dnf/{name}-*/repodata", f"yum/*/*/{name}", f"libdnf5/{name}-*/repodata")
        ),
        lists="repodata/repomd.xml",
        refresh=(
            *(manager, "-y", "--disablerepo=*", f"--enablerepo={name}"),
            *(f"--setopt={name}.{setting}" for setting in own),
            *("--setopt=skip_if_unavailable=0", "makecache"),
        ),
        trust=("rpm", "--import", key_path),
    )


def fingerprint(text: str) -> str:
    """Return a fingerprint in upper case without blanks; empty for an empty text.

    Raises UsageError for a partial one, such as a key id: other keys can be made to match it.
    """
    digits = re.sub(r"\s|^0x", "", text).upper()
    if digits and not _FINGERPRINT.fullmatch(digits):
        raise UsageError(f"{text!r} is not a whole fingerprint", remedy="give all its 40 hexadecimal digits")
    return digits


def keys(data: bytes, origin: str) -> list[Cert]:
    """Return the public keys of a binary or armored file. Raises CheckError if it holds none."""
    try:
        certificates = Cert.split_bytes(data)
        why = "it holds no public key"
    except RuntimeError as error:
        certificates, why = [], str(error).splitlines()[0]
    if not certificates:
        raise CheckError(f"{origin} is not an OpenPGP public key: {why}", remedy="check its address")
    return certificates


def choose(certificates: Iterable[Cert], expected: str, origin: str) -> Cert:
    """Return the key with the expected fingerprint. Raises CheckError if none has it or none is given."""
    prints = {key.fingerprint.upper(): key for key in certificates}
    if expected in prints:
        return prints[expected]
    other = f"not {expected}" if expected else "and none is set to compare it with"
    raise CheckError(
        f"{origin} has the fingerprint {', '.join(prints)}, {other}",
        remedy="find out whose key that is; only if it is right, set the fingerprint to it "
        "(in a role, its variable that ends in _fingerprint)",
    )


def switch_off(path: str, text: str, addresses: list[str]) -> str:
    """Return the text of a .list, .sources or .repo file with the entries that lead to an address disabled.

    The text is unchanged if there are none, or all are disabled already.
    """
    if path.endswith(".sources"):
        stanzas = re.split(r"(\n[ \t]*\n+)", text)
        return "".join(_stanza(part, addresses) for part in stanzas)
    if path.endswith(".repo"):
        return "".join(_section(part, addresses) for part in re.split(r"(?m)^(?=\[)", text))
    lines = text.splitlines(keepends=True)
    return "".join(
        MARK + line if re.match(r"\s*deb(-src)?\s", line) and _leads_to(line, addresses) else line
        for line in lines
    )


def list_own_keys(path: str, text: str) -> list[str]:
    """Return the keys that verify entries of apt's or dnf's sources: files, or URLs of dnf's keys."""
    if not path.endswith(".repo"):
        return re.findall(r"(?i)\bsigned-by(?:=|:[ \t]*)(/[^\s\],]+)", text)
    checks = {value.lower() for value in re.findall(r"(?mi)^\s*gpgcheck\s*=\s*(\w+)", text)}
    checked = bool(checks) and checks <= {"1", "yes", "true", "on"}
    keys = re.findall(r"(?mi)^\s*gpgkey\s*=\s*(\S+)", text)
    return [key.removeprefix("file://") for key in keys if checked]


def _leads_to(text: str, addresses: list[str]) -> bool:
    return any(_SCHEME.sub("", address).rstrip("/") in text for address in addresses)


def _stanza(text: str, addresses: list[str]) -> str:
    live = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    off = re.search(r"(?mi)^Enabled:\s*(no|false|0|off)\s*$", live)
    if off or not re.search(r"(?mi)^URIs:", live) or not _leads_to(live, addresses):
        return text
    rest = re.sub(r"(?mi)^Enabled:.*\n?", "", text)
    return re.sub(r"(?mi)^(?=URIs:)", "Enabled: no\n", rest, count=1)


def _section(text: str, addresses: list[str]) -> str:
    live = "".join(line for line in text.splitlines(keepends=True) if not re.match(r"\s*[#;]", line))
    urls = "".join(re.findall(r"(?mi)^\s*(?:baseurl|mirrorlist|metalink)\s*=.*(?:\n[ \t]+\S.*)*", live))
    off = re.search(r"(?mi)^\s*enabled\s*=\s*(0|no|false|off)\s*$", live)
    if off or not text.startswith("[") or not _leads_to(urls, addresses):
        return text
    unset = re.sub(r"(?mi)^\s*enabled\s*=.*\n?", "", text)
    head, _, rest = unset.partition("\n")
    return f"{head}\nenabled=0\n{rest}"
