#!/usr/bin/python
# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Gather in one round trip the facts of a host that the roles use."""

from __future__ import annotations

import json
import os
import platform
import re
import socket
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
from ansible.module_utils.hvlab_disk import find_leftovers, free_mb, initramfs_mb, tmp
from ansible.module_utils.hvlab_gpu import (
    cuda,
    cuda_home,
    cudnn,
    driver,
    has_open_modules,
    nccl,
    nvidia,
    nvswitches,
    others,
    read_driver_version,
)
from ansible.module_utils.hvlab_kernel import (
    cgroup,
    has_kernel_headers,
    has_nouveau,
    has_secure_boot,
    is_container,
    kernel_gcc,
)
from ansible.module_utils.hvlab_lock import take
from ansible.module_utils.hvlab_managed import RECORD
from ansible.module_utils.hvlab_managed import files as managed_files
from ansible.module_utils.hvlab_managed import record as recorded
from ansible.module_utils.hvlab_network import default_ipv4, hosts_template, interfaces, nics, resolves
from ansible.module_utils.hvlab_packed import folders
from ansible.module_utils.hvlab_packed import packs as managed_packs
from ansible.module_utils.hvlab_probe import probe, read
from ansible.module_utils.hvlab_processes import runs
from ansible.module_utils.hvlab_rdma import rdma, ucx
from ansible.module_utils.hvlab_system import (
    gcc,
    host_key,
    installed_own,
    list_held,
    list_held_own,
    list_unfinished,
    lists_age,
    module_streams,
    packages,
    users,
)


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
            "processor_model": processor_model(),
            "processor_vcpus": len(os.sched_getaffinity(0)),
            "memtotal_mb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
            "date_time": {"epoch": str(int(time.time()))},
        }


def processor_model(path: str = "/proc/cpuinfo") -> str | None:
    """Return the name of the first processor, where the kernel gives one: not on Arm."""
    with open(path, encoding="utf-8", errors="replace") as file:
        rows = [line.partition(":") for line in file]
    return next((value.strip() for name, _, value in rows if name.strip() == "model name"), None)


COLLECTORS = [
    DistributionFactCollector,
    LocalFactCollector,
    PkgMgrFactCollector,
    PlatformCollector,
    PythonFactCollector,
    ServiceMgrFactCollector,
]


def standard_facts(module: AnsibleModule) -> dict[str, Any]:
    """Return the results of Ansible's own collectors, under the setup module's names."""
    collector = ansible_collector.get_ansible_collector(
        all_collector_classes=COLLECTORS,
        namespace=PrefixFactNamespace(namespace_name="ansible", prefix="ansible_"),
        gather_subset=["all"],
    )
    facts = dict(collector.collect(module=module))
    # Ansible no longer knows yum, the manager of CentOS 7 and Amazon Linux 2.
    if facts.get("ansible_pkg_mgr") == "unknown" and os.path.exists("/usr/bin/yum"):
        facts["ansible_pkg_mgr"] = "yum"
    return facts


def without_hosts(fact: Any) -> Any:
    """Return a role's record without the lab's hosts."""
    return {key: value for key, value in fact.items() if key != "hosts"} if isinstance(fact, dict) else fact


def gpu_facts(ask: Callable[..., Any]) -> dict[str, Any]:
    """Return facts on GPUs, their driver and libraries, and the cards they could send through."""
    home = ask(cuda_home)
    gpus = ask(nvidia) or {"gpus": None, "driver_error": None, "topology": None}
    return {
        **gpus,
        "other_gpus": ask(others),
        "driver": ask(driver),
        "driver_installed": ask(read_driver_version),
        "open_modules": ask(has_open_modules),
        "nouveau": ask(has_nouveau),
        "nvswitches": ask(nvswitches),
        "kernel_headers": ask(has_kernel_headers),
        "secure_boot": ask(has_secure_boot),
        "container": ask(is_container),
        "cgroup": ask(cgroup),
        "cuda_home": home,
        "cuda": ask(cuda, home),
        "cudnn": ask(cudnn, home),
        "nccl": ask(nccl, home),
        "nics": ask(nics),
        "rdma": ask(rdma, gpus["gpus"]),
    }


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "names": {"type": "list", "elements": "str", "default": []},
            "sent": {"type": "float"},
            "recorded_hosts": {"type": "bool", "default": False},
            "disk_paths": {
                "type": "list",
                "elements": "str",
                "default": ["/", "/boot", "/opt", "/usr", "/var", "/var/tmp", "/tmp", "/home"],  # noqa: S108
            },
            "pack_root": {"type": "path", "default": "/opt/hvlab"},
            "fact_path": {"type": "path", "default": "/etc/ansible/facts.d"},
            "managed": {"type": "bool", "default": False},
            "record": {"type": "path", "default": RECORD},
            "lock": {"type": "str", "default": "", "no_log": True},
        },
        supports_check_mode=True,
    )

    def ask(function: Callable[..., Any], *args: Any) -> Any:
        return probe(module.warn, function, *args)

    if module.params["lock"] and not module.check_mode:
        holder = take(**json.loads(module.params["lock"]))
        if holder:
            module.fail_json(msg="another run has this host", holder=holder)
    now = time.time()
    names = [name for name in module.params["names"] if re.match(r"^[A-Za-z0-9]", name)]
    facts = standard_facts(module)
    if not module.params["recorded_hosts"]:
        facts["ansible_local"] = {name: without_hosts(fact) for name, fact in facts["ansible_local"].items()}
    facts["ansible_default_ipv4"] = ask(default_ipv4) or {}
    facts["ansible_hvlab"] = {
        "now": now,
        "sent": module.params["sent"],
        # One text, however many names there are: a value that Ansible copies at no cost.
        "resolves": json.dumps(ask(resolves, sorted({socket.gethostname(), *names}))),
        "interfaces": ask(interfaces),
        "hosts_template": ask(hosts_template),
        "tmp": ask(tmp),
        "left_behind": ask(find_leftovers, module._tmpdir),
        "disk_free_mb": {path: ask(free_mb, path) for path in module.params["disk_paths"]},
        "initramfs_mb": ask(initramfs_mb),
        "gcc": ask(gcc),
        "kernel_gcc": ask(kernel_gcc),
        "packages": ask(packages),
        "held": ask(list_held),
        "unfinished": ask(list_unfinished),
        "held_own": ask(list_held_own),
        "installed_own": ask(installed_own),
        "lists_age": ask(lists_age),
        "module_streams": ask(module_streams),
        "ssh_host_key": ask(host_key),
        "ssh_host_cert": read("/etc/ssh/ssh_host_ed25519_key-cert.pub"),
        "users": ask(users),
        "ucx": ask(ucx),
        "slurmd": ask(runs, "slurmd"),
        "packs": dict.fromkeys(ask(folders, module.params["pack_root"]) or ()),
        **gpu_facts(ask),
    }
    if module.params["managed"]:
        written = [path for path, kept in recorded(module.params["record"]).items() if kept is not None]
        facts["ansible_hvlab_managed"] = {
            "record": module.params["record"],
            "paths": sorted(filter(os.path.lexists, written)),
            "files": ask(managed_files, module.params["record"]) or {},
            "packs": ask(managed_packs, module.params["pack_root"], not module.check_mode) or {},
        }
    module.exit_json(ansible_facts=facts)


if __name__ == "__main__":
    main()
