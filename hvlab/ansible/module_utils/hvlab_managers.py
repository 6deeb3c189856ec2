# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""How apt, and how dnf and yum, write down a package source, ask it, and trust its key."""

from __future__ import annotations

import glob
import re
import shutil
from typing import Any
from urllib.parse import urlsplit

from ansible.module_utils import hvlab_openpgp
from ansible.module_utils.basic import AnsibleModule

SECONDS = 20
_REACH = "see that the host reaches {url}: name server, firewall, proxy, or a mirror of it"
# From what a package manager says to what to do about it.
REMEDIES = (
    (
        r"A4B469963BF863CC|7FA2AF80|F60F4B3D7FA2AF80",
        "NVIDIA signs with a new key since April 2022 (7fa2af80 is retired): take the key 3bf863cc.pub",
    ),
    (
        r"NO_PUBKEY|EXPKEYSIG|BADSIG|not signed|signature|GPG|Signing key",
        "see who signs {url} now; take that key and its fingerprint only if you know they are the right ones",
    ),
    (r"Could not (connect|resolve)|refused|timed out|Curl error \((5|6|7|28)\)", _REACH),
    (
        r"404|403|does not have a Release file|repomd\.xml",
        "see that {url} is right: it has to hold {lists}; not every system has a folder there",
    ),
    (r"certificate|SSL|TLS", "see that the host knows the authority of the certificate (ca-certificates)"),
    (r"", _REACH),
)


class Apt:
    """Sources of apt."""

    lists = "InRelease or Release"
    patterns = (
        "/etc/apt/sources.list",
        "/etc/apt/sources.list.d/*.list",
        "/etc/apt/sources.list.d/*.sources",
    )

    def __init__(self, params: dict[str, Any]) -> None:
        self.params, name = params, params["name"]
        self.url = (params["url"] or "").rstrip("/") + "/"
        self.key_path = "/etc/apt/keyrings/{}.gpg".format(name)
        self.path = "/etc/apt/sources.list.d/{}.sources".format(name)
        self.pin_path = "/etc/apt/preferences.d/{}".format(name)

    def key_file(self, packets: bytes) -> bytes:
        """Return a key as apt reads it."""
        return packets

    def files(self) -> dict[str, str]:
        """Return the text of each file but the key; an empty one shall not be there."""
        lines = ["Types: deb", "URIs: " + self.url, "Suites: " + self.params["suite"]]
        if self.params["components"]:
            lines.append("Components: " + " ".join(self.params["components"]))
        lines += ["Signed-By: " + self.key_path, "Enabled: " + ("yes" if self.params["enabled"] else "no")]
        pin = "Package: *\nPin: origin {}\nPin-Priority: {}\n".format(
            urlsplit(self.url).hostname, self.params["priority"]
        )
        return {
            self.path: "\n".join([*lines, ""]),
            self.pin_path: "" if self.params["priority"] is None else pin,
        }

    def known(self) -> bool:
        """Return whether the lists of this source have been read."""
        address = re.sub(r"^\w+://", "", self.url)
        quoted = re.sub(r"[\\|{}\[\]<>\"^~_=!@#$%&*]", lambda m: "%{:02x}".format(ord(m[0])), address)
        return bool(glob.glob("/var/lib/apt/lists/{}*Release".format(quoted.replace("/", "_"))))

    def refresh(self) -> list[str]:
        """Return the command that reads the lists of this source alone."""
        options = {
            "Dir::Etc::sourcelist": self.path,
            "Dir::Etc::sourceparts": "-",
            "APT::Get::List-Cleanup": "0",
            "Acquire::Retries": "1",
            "Acquire::http::Timeout": str(SECONDS),
            "Acquire::https::Timeout": str(SECONDS),
        }
        return ["apt-get", "-q", "update", *(w for item in options.items() for w in ("-o", "=".join(item)))]

    def trust(self, module: AnsibleModule) -> None:
        """The source names its key itself."""

    forget = trust


class Rpm:
    """Sources of dnf and yum."""

    lists = "repodata/repomd.xml"
    patterns = ("/etc/yum.repos.d/*.repo",)

    def __init__(self, params: dict[str, Any]) -> None:
        self.params, self.name = params, params["name"]
        self.url = (params["url"] or "").rstrip("/") + "/"
        self.key_path = "/etc/pki/rpm-gpg/RPM-GPG-KEY-" + self.name
        self.path = "/etc/yum.repos.d/{}.repo".format(self.name)

    def key_file(self, packets: bytes) -> bytes:
        """Return a key as rpm reads it."""
        return bytes(hvlab_openpgp.armor(packets))

    def files(self) -> dict[str, str]:
        """Return the text of each file but the key."""
        values = {
            "name": self.name,
            "baseurl": self.url,
            "enabled": int(self.params["enabled"]),
            "gpgcheck": int(self.params["gpgcheck"]),
            "repo_gpgcheck": int(self.params["repo_gpgcheck"]),
            "gpgkey": "file://" + self.key_path,
        }
        lines = ["[{}]".format(self.name), *("{}={}".format(*item) for item in values.items()), ""]
        return {self.path: "\n".join(lines)}

    def known(self) -> bool:
        """Return whether the metadata of this source have been read."""
        folders = ("dnf/{}-*/repodata", "yum/*/*/{}", "libdnf5/{}-*/repodata")
        return any(glob.glob("/var/cache/" + folder.format(self.name)) for folder in folders)

    def refresh(self) -> list[str]:
        """Return the command that reads the lists of this source alone."""
        manager = "dnf" if shutil.which("dnf") else "yum"
        options = ["timeout={}".format(SECONDS), "retries=2"]
        only = ["--disablerepo=*", "--enablerepo=" + self.name]
        settings = ["--setopt={}.{}".format(self.name, option) for option in [*options, "metadata_expire=0"]]
        return [manager, "-y", *only, *settings, "--setopt=skip_if_unavailable=0", "makecache"]

    def trust(self, module: AnsibleModule) -> None:
        """Give the key to rpm, so that no package asks for it."""
        module.run_command(["rpm", "--import", self.key_path], check_rc=True)

    def forget(self, module: AnsibleModule) -> None:
        """Take the key away from rpm."""
        with open(self.key_path, "rb") as file:
            found = hvlab_openpgp.keys(file.read())
        ids = {fingerprint[-8:].lower() for fingerprint in found}
        _, out, _ = module.run_command(["rpm", "-qa", "gpg-pubkey*"])
        for package in out.split():
            if package.split("-")[2] in ids:
                module.run_command(["rpm", "-e", package])


def remedy(text: str, kind: Apt | Rpm) -> str:
    """Return what to do about a failure."""
    for pattern, advice in REMEDIES:
        if re.search(pattern, text, re.IGNORECASE):
            return advice.format(url=kind.url, lists=kind.lists)
    raise AssertionError("the last pattern matches everything")
