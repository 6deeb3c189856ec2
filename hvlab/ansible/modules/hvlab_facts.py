#!/usr/bin/python
# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Gather in one round trip what the roles ask of a host."""

from __future__ import annotations

import glob
import json
import os
import platform
import re
import socket
import stat
import subprocess
import tempfile
import threading
import time
from typing import Any, Callable

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.facts import ansible_collector
from ansible.module_utils.facts.collector import BaseFactCollector
from ansible.module_utils.facts.namespace import PrefixFactNamespace
from ansible.module_utils.facts.system.distribution import DistributionFactCollector
from ansible.module_utils.facts.system.local import LocalFactCollector
from ansible.module_utils.facts.system.pkg_mgr import PkgMgrFactCollector
from ansible.module_utils.facts.system.python import PythonFactCollector
from ansible.module_utils.facts.system.service_mgr import ServiceMgrFactCollector

DOCUMENTATION = """
module: hvlab_facts
short_description: Gather in one round trip what the roles ask of a host
description:
  - Returns the usual facts on distribution, Python, package manager and local facts, and a dict C(hvlab).
  - A probe that fails gives null and never fails the module.
options:
  names:
    description: Host names to look up, besides the host's own.
    type: list
    elements: str
    default: []
  sent:
    description: The controller's clock when the task was sent, in seconds since the epoch.
    type: float
  disk_paths:
    description: Paths whose file systems are asked for free space.
    type: list
    elements: str
    default: [/, /opt, /usr, /var, /var/tmp, /tmp, /home]
  pack_root:
    description: Folder below which packed software is looked for.
    type: path
    default: /opt/hvlab
  fact_path:
    description: Folder of the local facts.
    type: path
    default: /etc/ansible/facts.d
author: [the hvlab authors]
"""

RESOLVE_SECONDS = 1.5
NVIDIA = "0x10de"


class PlatformCollector(BaseFactCollector):  # type: ignore[misc]
    """Kernel, names, memory and processors. Unlike Ansible's own it asks no name server, which could hang."""

    name = "platform"

    def collect(self, module: Any = None, collected_facts: Any = None) -> dict[str, Any]:  # noqa: ARG002
        """Return the facts without prefix."""
        name = socket.gethostname()
        return {
            "system": platform.system(),
            "kernel": platform.release(),
            "machine": platform.machine(),
            "architecture": platform.machine(),
            "python_version": platform.python_version(),
            "nodename": name,
            "hostname": name.split(".")[0],
            "processor_vcpus": len(os.sched_getaffinity(0)),
            "memtotal_mb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
            "date_time": {"epoch": str(int(time.time()))},
        }


COLLECTORS = [
    DistributionFactCollector,
    LocalFactCollector,
    PkgMgrFactCollector,
    PlatformCollector,
    PythonFactCollector,
    ServiceMgrFactCollector,
]


def standard_facts(module: AnsibleModule) -> dict[str, Any]:
    """Return what Ansible's own collectors say, under the names the setup module gives."""
    collector = ansible_collector.get_ansible_collector(
        all_collector_classes=COLLECTORS,
        namespace=PrefixFactNamespace(namespace_name="ansible", prefix="ansible_"),
        gather_subset=["all"],
    )
    return dict(collector.collect(module=module))


def run(*argv: str) -> str:
    """Return the standard output of a command; raise OSError or CalledProcessError."""
    done = subprocess.run(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
        timeout=20,
        universal_newlines=True,
        env=dict(os.environ, LC_ALL="C"),
    )
    return done.stdout


def read(path: str) -> str | None:
    """Return the stripped text of a file, None when it is not there."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return None


def interfaces() -> dict[str, Any]:
    """Return ``{name: {mac, cidrs, up}}``, loopback left out."""
    found = {}
    for link in json.loads(run("ip", "-j", "addr", "show")):
        if "LOOPBACK" in link["flags"]:
            continue
        addresses = [a for a in link.get("addr_info", []) if a.get("scope") == "global" and "local" in a]
        found[link["ifname"]] = {
            "mac": link.get("address"),
            "cidrs": ["{}/{}".format(a["local"], a["prefixlen"]) for a in addresses],
            "up": "UP" in link["flags"] and link.get("operstate") in ("UP", "UNKNOWN"),
            "mtu": link.get("mtu"),
        }
    return found


def default_ipv4() -> dict[str, Any]:
    """Return address, gateway and interface of the default route; an empty dict when there is none."""
    routes = json.loads(run("ip", "-j", "-4", "route", "get", "192.0.2.1"))
    if not routes:
        return {}
    route = routes[0]
    return {"address": route.get("prefsrc"), "gateway": route.get("gateway"), "interface": route.get("dev")}


def resolves(names: list[str]) -> dict[str, Any]:
    """Return ``{name: [IPv4 addresses]}``: empty when unknown, None when nothing answered in time."""
    answers: dict[str, Any] = dict.fromkeys(names)

    def ask(name: str) -> None:
        try:
            infos = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
            answers[name] = sorted({info[4][0] for info in infos})
        except OSError:
            answers[name] = []

    threads = [threading.Thread(target=ask, args=(name,), daemon=True) for name in names]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + RESOLVE_SECONDS
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return dict(answers)


def free_mb(path: str) -> int:
    """Return the MiB a user may still write at a path, or at its nearest parent that exists."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    room = os.statvfs(path)
    return room.f_bavail * room.f_frsize // 2**20


def tmp() -> dict[str, Any]:
    """Return whether /tmp can be written and run from, its mode and free MiB."""
    writable = True
    try:
        with tempfile.TemporaryFile(dir="/tmp"):
            pass
    except OSError:
        writable = False
    return {
        "writable": writable,
        "noexec": bool(os.statvfs("/tmp").f_flag & os.ST_NOEXEC),  # noqa: S108
        "mode": "{:04o}".format(stat.S_IMODE(os.stat("/tmp").st_mode)),  # noqa: S108
        "free_mb": free_mb("/tmp"),  # noqa: S108
    }


def packages() -> dict[str, str]:
    """Return ``{name: version}`` of the installed packages of dpkg or rpm."""
    if os.path.exists("/var/lib/dpkg/status"):
        lines = run("dpkg-query", "-W", "-f", "${db:Status-Status} ${Package} ${Version}\\n").splitlines()
        return {name: version for state, name, version in map(str.split, lines) if state == "installed"}
    lines = run("rpm", "-qa", "--qf", "%{NAME} %{VERSION}-%{RELEASE}\\n").splitlines()
    return dict(line.split() for line in lines)


def gcc() -> str:
    """Return the version of the C compiler; raise FileNotFoundError when there is none."""
    return run("gcc", "-dumpfullversion", "-dumpversion").strip()


def host_key() -> str | None:
    """Return type and key of the Ed25519 host key, without its comment."""
    key = read("/etc/ssh/ssh_host_ed25519_key.pub")
    return " ".join(key.split()[:2]) if key else None


def cuda_home() -> str | None:
    """Return the folder of the CUDA toolkit or of its headers, None when there is none."""
    candidates = [os.environ.get("CUDA_HOME"), "/usr/local/cuda"]
    candidates += [*sorted(glob.glob("/usr/local/cuda-*"), reverse=True), "/usr/lib/cuda", "/usr"]
    for path in candidates:
        if path and any(os.path.exists(os.path.join(path, sign)) for sign in ("include/cuda.h", "bin/nvcc")):
            return path
    return None


def gpus() -> list[str]:
    """Return the PCI addresses and device ids of NVIDIA's display and compute controllers."""
    found = []
    for device in sorted(glob.glob("/sys/bus/pci/devices/*")):
        if read(device + "/vendor") == NVIDIA and (read(device + "/class") or "").startswith("0x03"):
            found.append("{} {}".format(os.path.basename(device), read(device + "/device")))
    return found


def users() -> dict[str, Any]:
    """Return the users of /etc/passwd that can log in, with their groups and whether they are locked."""
    members: dict[str, list[str]] = {}
    primary = {}
    for line in (read("/etc/group") or "").splitlines():
        group, _, gid, listed = line.split(":")[:4]
        primary[gid] = group
        for user in filter(None, listed.split(",")):
            members.setdefault(user, []).append(group)
    shadow = dict(line.split(":")[:2] for line in (read("/etc/shadow") or "").splitlines() if ":" in line)
    found = {}
    for line in (read("/etc/passwd") or "").splitlines():
        if line.count(":") != 6 or line.endswith(("/nologin", "/false", "/sync")):
            continue
        name, _, uid, gid, _, home, shell = line.split(":")
        found[name] = {
            "uid": int(uid),
            "group": primary.get(gid),
            "groups": sorted(members.get(name, [])),
            "home": home,
            "shell": shell,
            "locked": shadow.get(name, "").startswith("!"),
        }
    return found


def packs(root: str) -> dict[str, Any]:
    """Return ``{folder: marker}`` of the packed software at most three folders below ``root``."""
    found = {}
    for depth in ("*", "*/*", "*/*/*"):
        for path in glob.glob(os.path.join(root, depth, ".hvlab-pack.json")):
            found[os.path.dirname(path)] = json.loads(read(path) or "null")
    return found


def probe(warn: Callable[[str], None], function: Callable[..., Any], *args: Any) -> Any:
    """Return what a probe found; None when it failed."""
    try:
        return function(*args)
    except FileNotFoundError:
        return None
    except Exception as error:
        warn("hvlab_facts: {} failed: {}".format(function.__name__, error))
        return None


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "names": {"type": "list", "elements": "str", "default": []},
            "sent": {"type": "float"},
            "disk_paths": {
                "type": "list",
                "elements": "str",
                "default": ["/", "/opt", "/usr", "/var", "/var/tmp", "/tmp", "/home"],  # noqa: S108
            },
            "pack_root": {"type": "path", "default": "/opt/hvlab"},
            "fact_path": {"type": "path", "default": "/etc/ansible/facts.d"},
        },
        supports_check_mode=True,
    )

    def ask(function: Callable[..., Any], *args: Any) -> Any:
        return probe(module.warn, function, *args)

    now = time.time()
    names = [name for name in module.params["names"] if re.match(r"^[A-Za-z0-9]", name)]
    facts = standard_facts(module)
    facts["ansible_default_ipv4"] = ask(default_ipv4) or {}
    facts["ansible_hvlab"] = {
        "now": now,
        "sent": module.params["sent"],
        "resolves": ask(resolves, sorted({socket.gethostname(), *names})),
        "interfaces": ask(interfaces),
        "tmp": ask(tmp),
        "disk_free_mb": {path: ask(free_mb, path) for path in module.params["disk_paths"]},
        "gcc": ask(gcc),
        "packages": ask(packages),
        "ssh_host_key": ask(host_key),
        "ssh_host_cert": read("/etc/ssh/ssh_host_ed25519_key-cert.pub"),
        "cuda_home": ask(cuda_home),
        "gpus": ask(gpus),
        "users": ask(users),
        "packs": ask(packs, module.params["pack_root"]),
    }
    module.exit_json(ansible_facts=facts)


if __name__ == "__main__":
    main()
