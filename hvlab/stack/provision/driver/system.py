"""An operating system's names for NVIDIA's driver and its companions, and a host's other kernels. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hvlab.base.errors import Problem
from hvlab.stack.provision.driver.host import DriverHost, DriverRequest, find_installed_version
from hvlab.stack.provision.names import from_release, naming, numbers, of_system

Package = dict[str, str | None]
# From this branch on a separate package pins the branch; other names lack it.
_UNSUFFIXED = 580
_NEWEST = 999
# NVIDIA's installer renamed its option for the open modules.
_KERNEL_MODULE_TYPE = (560,)
# Packages that pull in kernel updates: linux-image-amd64, linux-image-generic-hwe-22.04.
_IMAGE = re.compile(r"linux-image-(?!unsigned-|extra-)[a-z].*(?<!-dbg)$")
_ARCHITECTURE = re.compile(r"[.](x86_64|aarch64)([+].*)?$")


@dataclass(frozen=True, kw_only=True)
class DriverNames:
    """The driver requested on a host: Ansible's facts without prefix, and options of the role.

    ``links``: whether the fabric manager or IMEX is requested.
    """

    facts: Mapping[str, Any]
    method: str
    version: str
    kernel: str
    opened: bool
    links: bool

    @property
    def branch(self) -> str:
        """The branch; empty if any will do."""
        return self.version.partition(".")[0]

    @property
    def number(self) -> int:
        """The branch as a number; the newest if any will do."""
        return int(self.branch) if self.branch.isdigit() else _NEWEST


def find_names(asked: DriverNames) -> dict[str, Any]:
    """Return the fields of a DriverRequest that depend on the system; method none for an unknown system."""
    data = of_system("driver", asked.facts)
    if not data:
        return {"methods": ("none",)}
    values = {"branch": asked.branch, **_kernel(asked.kernel)}
    release = str(asked.facts.get("distribution_major_version", ""))
    suffixed = bool(asked.branch) and (
        asked.number < _UNSUFFIXED or (asked.method == "distro" and data.get("distro_by_branch", False))
    )
    dracut = "dracut" in ((asked.facts.get("hvlab") or {}).get("packages") or {})
    headers = next(iter(_other_headers(asked, data)), data["headers"])
    streams = release in data.get("streams", ()) and asked.method == "repo" and asked.branch
    return {
        "methods": tuple(data["methods"]),
        "packages": tuple(_packages(asked, data)),
        "headers_packages": ({"name": headers.format(**values), "version": None},),
        "headers_following": tuple(_following(asked, data, values)),
        "build_packages": tuple(data["build"]),
        "compiler_package": data.get("compiler", ""),
        "components": (
            *data.get("components", ()),
            *from_release(data.get("components_from", {}), release),
            *(data.get("components_links", ()) if asked.links else ()),
        ),
        "fabric_manager_package": data["fabric_manager"][0 if suffixed else 1].format(**values),
        "imex_package": data["imex"][0 if suffixed else 1].format(**values),
        "subnet_manager_packages": tuple(data["subnet_manager"]),
        "fabric_kernel_packages": tuple(name.format(**values) for name in data.get("fabric_kernel", ())),
        "stream": _rule(asked, data, packaged=False)["module"].format(branch=asked.branch) if streams else "",
        "initramfs": tuple((dracut and data.get("initramfs_dracut")) or data["initramfs"]),
        "old": tuple(data["old"]),
        "keep": tuple(data["keep"]),
    }


def module_kind(version: str, *, opened: bool) -> list[str]:
    """Return the option of NVIDIA's installer that selects its modules."""
    if numbers(version) >= _KERNEL_MODULE_TYPE:
        return [f"--kernel-module-type={'open' if opened else 'proprietary'}"]
    return ["-m=kernel-open"] if opened else []


def _packages(asked: DriverNames, data: Mapping[str, Any]) -> list[Package]:
    if asked.method in ("distro", "elrepo"):
        names = data.get("distro_open" if asked.method == "distro" and asked.opened else asked.method, ())
        return [
            {"name": name.format(branch=asked.branch), "version": None}
            for name in _select_known(asked, names)
        ]
    if asked.method not in ("repo", "local_repo"):
        return []
    names = _select_known(asked, _rule(asked, data, packaged=True)["packages"])
    pinned = any("pinning" in name for name in names)
    packages: list[Package] = []
    for template in names:
        if "." in asked.version:
            version = f"{asked.version}-*"
        else:
            # By version, if neither the name nor a separate package pins the branch.
            loose = asked.branch and not pinned and "{branch}" not in template
            version = f"{asked.branch}.*" if loose else ""
        own = "pinning" in template
        packages.append({"name": template.format(branch=asked.branch), "version": "" if own else version})
    return packages


def _select_known(asked: DriverNames, names: Sequence[str]) -> list[str]:
    return [name for name in names if asked.branch or "{branch}" not in name]


def _rule(asked: DriverNames, data: Mapping[str, Any], *, packaged: bool) -> Mapping[str, Any]:
    """Return the rule for the branch and its modules; if none covers the branch, the nearest."""
    kind = "open" if asked.opened else "proprietary"
    rules = [rule for rule in naming(data["naming"])["driver"] if rule["modules"] == kind]
    rules = [rule for rule in rules if rule["packages"] or not packaged]
    return next((rule for rule in rules if asked.number <= int(rule["to"] or _NEWEST)), rules[-1])


def _kernel(kernel: str) -> dict[str, str]:
    """Return a kernel's names: kernel-64k for 5.14.0-427.el9.aarch64+64k, kernel-uek for 5.15.0-209.el9uek.

    The first kernel of Amazon Linux 2023 has no number in its packages' names; later ones are kernel6.12.
    """
    flavours = [*re.findall(r"uek(?=[.])|(?<=[.])rt(?=\d)", kernel), kernel.partition("+")[2]]
    amazon = re.match(r"(?!6[.]1[.])\d+[.]\d+(?=[.].*amzn2023)", kernel)
    return {
        "kernel": kernel,
        "kind": amazon[0] if amazon else "".join(f"-{flavour}" for flavour in flavours if flavour),
        "release": _ARCHITECTURE.sub("", kernel),
    }


def _other_headers(asked: DriverNames, data: Mapping[str, Any]) -> list[str]:
    """Return the packages of headers for another maker's kernel, and what follows its updates."""
    named = data.get("headers_of", {}).items()
    return next((names for end, names in named if asked.kernel.endswith(end)), [])


def _following(asked: DriverNames, data: Mapping[str, Any], values: Mapping[str, str]) -> list[Package]:
    """Return the packages that pull in each update's headers: counterparts of those for the kernel."""
    release = str(asked.facts.get("distribution_major_version", ""))
    if "headers_follow" not in data:
        matched = [] if "uek" in asked.kernel else from_release(data["headers_match"], release)
        return [{"name": name.format(**values), "version": values["release"]} for name in matched]
    if other := _other_headers(asked, data):
        return [{"name": name, "version": None} for name in other[1:]]
    installed = (asked.facts.get("hvlab") or {}).get("packages") or {}
    flavour = re.search(data["headers_follow"], asked.kernel)
    images = sorted(name for name in installed if _IMAGE.match(name))
    kinds = [name.removeprefix("linux-image-") for name in images] or ([flavour[0]] if flavour else [])
    return [{"name": f"linux-headers-{kind}", "version": None} for kind in dict.fromkeys(kinds)]


def list_newer_kernels(host: DriverHost, request: DriverRequest) -> list[str]:
    """Return the installed kernels newer than the driver's: the next boot uses one."""
    kernels = host.state.get("kernels", [])
    return sorted((k for k in kernels if numbers(k) > numbers(request.kernel)), key=numbers)


def kernels_to_build(host: DriverHost, request: DriverRequest) -> list[str]:
    """Return the kernels to build modules for: the requested one, and newer ones with headers."""
    headers = host.state.get("headers", [])
    return [request.kernel, *(kernel for kernel in list_newer_kernels(host, request) if kernel in headers)]


def bare_kernels(host: DriverHost, request: DriverRequest) -> list[Problem]:
    """Return a problem for each newer kernel without a module of the installed driver."""
    if request.method == "none" or find_installed_version(host, request.kernel) is None:
        return []
    built = host.state.get("module_kernels", [])
    return [
        Problem(
            host.name,
            f"kernel {kernel} is installed and has no module of the driver: booted, it has no GPU",
            f"{_remedy(host, request, kernel)}, or remove that kernel before the next reboot",
        )
        for kernel in list_newer_kernels(host, request)
        if kernel not in built
    ]


def _remedy(host: DriverHost, request: DriverRequest, kernel: str) -> str:
    if kernel in host.state.get("headers", []):
        return "see make.log below /var/lib/dkms there for why DKMS could not build it"
    requested, other = (_ARCHITECTURE.sub("", release) for release in (request.kernel, kernel))
    names = [package["name"].replace(requested, other) for package in request.headers_packages]
    return f"install {' '.join(names)} there and run this again"
