#!/usr/bin/python
# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Report the state of NVIDIA's driver on a host, build its modules for a kernel, load and unload them."""

from __future__ import annotations

import glob
import os
import re
import subprocess
import tempfile
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hvlab_kernel import has_nouveau, rivals
from ansible.module_utils.hvlab_processes import gpu_users, work
from ansible.module_utils.hvlab_system import ask_manager

# The driver's module by its names in NVIDIA's and the distributions' packages, and not the kernel's nvidiafb.
MODULE = re.compile(r"nvidia(-current)?(-tesla(-\d+)?)?(-open)?[.]ko")
MODULES = ("nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia_peermem", "nvidia")
INFINIBAND = ("ib_umad", "mlx5_ib")
DRAINED = "/var/lib/hvlab-nvidia-driver-drained"
LIBRARIES = ("/usr/lib/*-linux-gnu", "/usr/lib/*-linux-gnu/nvidia/current", "/usr/lib64", "/usr/lib")
# "nvidia/550.54.14, 6.1.0-9-amd64, x86_64: installed", or with a comma in front of the version.
DKMS = re.compile(
    r"^(?P<name>[^,/]+)[/,]\s*(?P<version>[^,:]+)(?:,\s*(?P<kernel>[^,]+),[^:]*)?:\s*(?P<state>\w+)"
)
# GPUDirect Storage: a module of its own, whose versions are not the driver's.
STORAGE = "nvidia-fs"
LAST_LINES = 15
# Where the package managers leave what they fetched.
FETCHED = (
    "/var/cache/apt/archives/*.deb",
    "/var/cache/*dnf*/*/packages/*.rpm",
    "/var/cache/yum/**/packages/*.rpm",
)
# With the modules' sources: nvidia-kernel-open-dkms, nvidia-kernel-source-550, kmod-nvidia-open-dkms.
SOURCES = re.compile(r"(?=.*nvidia).*(dkms|kernel-source)")


def run(module: AnsibleModule, *argv: str) -> tuple[int, str, str]:
    """Return exit code, output and errors of a command; code 127 if it does not exist."""
    if not module.get_bin_path(argv[0]):
        return 127, "", "there is no " + argv[0]
    code, out, err = module.run_command(
        list(argv), environ_update={"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    )
    return int(code), out, err


def read(path: str) -> str:
    """Return the text of a file, empty when it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def dkms(module: AnsibleModule) -> list[dict[str, str]]:
    """Return DKMS's entries of NVIDIA's driver: name, version, kernel (empty: not built for any) and state.

    If the library's version is among them, others are leftovers of earlier drivers: built, they would replace
    it.
    """
    entries = []
    for line in run(module, "dkms", "status")[1].splitlines():
        match = DKMS.match(line.strip())
        if match and match["name"].startswith("nvidia") and match["name"] != STORAGE:
            entries.append({key: value or "" for key, value in match.groupdict().items()})
    current = library()
    return [entry for entry in entries if entry["version"] == current] or entries


def headers() -> list[str]:
    """Return the kernels a module can be built for."""
    built = [path.split("/")[3] for path in glob.glob("/lib/modules/*/build/Makefile")]
    return sorted({*built, *(path.split("/")[4] for path in glob.glob("/usr/src/kernels/*/Makefile"))})


def library() -> str | None:
    """Return the version of the installed driver library; None without one."""
    for folder in LIBRARIES:
        for path in sorted(glob.glob(folder + "/libnvidia-ml.so.*.*"), reverse=True):
            return path.rpartition(".so.")[2]
    return None


def read_loaded_version() -> str | None:
    """Return the version of the loaded module; None without one."""
    match = re.search(r"Module[^\n]*?\s(\d+\.\d+(?:\.\d+)?)\s", read("/proc/driver/nvidia/version"))
    return match[1] if match else None


def compiler(kernel: str) -> str | None:
    """Return the major version of the gcc that built a kernel, None when its configuration does not tell."""
    folders = ("/lib/modules/{}/build".format(kernel), "/usr/src/kernels/" + kernel)
    for path in [folder + "/.config" for folder in folders] + ["/boot/config-" + kernel]:
        match = re.search(r"^CONFIG_GCC_VERSION=(\d+)", read(path), re.MULTILINE)
        if match and int(match[1]):
            return str(int(match[1]) // 10000)
    return None


def has_module(kernel: str) -> bool:
    """Whether there is a module of the driver for a kernel."""
    paths = glob.glob("/lib/modules/{}/**/nvidia*.ko*".format(kernel), recursive=True)
    return any(MODULE.match(os.path.basename(path)) for path in paths)


def infiniband(kernel: str) -> list[str] | None:
    """Return a kernel's modules that reach NVSwitches; None if the kernel is missing.

    Without it a folder may hold modules all the same: those that DKMS built for it.
    """
    folder = "/lib/modules/{}/".format(kernel)
    builtin = read(folder + "modules.builtin")
    if not builtin:
        return None
    text = builtin + read(folder + "modules.dep")
    return [name for name in INFINIBAND if re.search(r"(?m)(^|/){}\.ko\b".format(name), text)]


def service(module: AnsibleModule, name: str) -> dict[str, bool]:
    """Whether a service exists, is enabled and active."""
    out = run(module, "systemctl", "show", "--property=LoadState,UnitFileState,ActiveState", name)[1]
    state = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
    return {
        "there": state.get("LoadState") == "loaded",
        "enabled": state.get("UnitFileState") in ("enabled", "static", "enabled-runtime"),
        "active": state.get("ActiveState") == "active",
    }


def candidates(module: AnsibleModule, names: list[str]) -> dict[str, list[str]]:
    """Return the available versions of each package, the newest first."""
    versions: dict[str, list[str]] = {name: [] for name in names}
    if not names:
        return versions
    if module.get_bin_path("apt-cache"):
        for line in run(module, "apt-cache", "madison", *names)[1].splitlines():
            cells = [cell.strip() for cell in line.split("|")]
            if (
                len(cells) == 3
                and cells[2].endswith("Packages")
                and cells[1] not in versions.get(cells[0], [])
            ):
                versions.setdefault(cells[0], []).append(cells[1])
        return versions
    tool, query = "dnf", ["repoquery", "--quiet", "--queryformat", "%{name} %{epoch}:%{version}-%{release}\n"]
    if not module.get_bin_path("dnf"):
        tool, query = "yum", ["list", "--quiet", "--showduplicates", "available"]
    for line in reversed(run(module, tool, *query, *names)[1].splitlines()):
        words = line.split()
        if len(words) < 2 or not re.match(r"(\d+:)?\d", words[1]):
            continue
        name = words[0] if tool == "dnf" else words[0].rpartition(".")[0]
        version = words[1][2:] if words[1].startswith("0:") else words[1]
        for requested in names:
            full = "{}-{}".format(name, version.partition(":")[2] or version)
            named = requested in (name, full) or full.startswith(requested + ".")
            if named and version not in versions[requested]:
                versions[requested].append(version)
    return versions


def look_up(module: AnsibleModule, names: list[str]) -> tuple[dict[str, list[str]], str]:
    """Return the candidates, and the error of refreshing the lists, if any."""
    versions = candidates(module, names)
    if all(versions.values()) or module.check_mode:
        return versions, ""
    fresh = ["apt-get", "-qq", "update"]
    if not module.get_bin_path("apt-get"):
        fresh = ["dnf" if module.get_bin_path("dnf") else "yum", "-q", "makecache"]
    code, output = ask_manager(module, fresh)
    return candidates(module, names), output.strip()[-600:] if code else ""


def one_line(path: str) -> list[dict[str, Any]]:
    """Return the entries of a file of one-line sources."""
    entries = []
    for line in read(path).splitlines():
        match = re.match(
            r"\s*deb\s+(?:\[(?P<options>[^]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s*(?P<parts>[^#]*)", line
        )
        if match:
            options = dict(
                option.split("=", 1) for option in (match["options"] or "").split() if "=" in option
            )
            entry = {"file": path, "uris": [match["uri"]], "suites": [match["suite"]]}
            entries.append(
                {**entry, "components": match["parts"].split(), "signed_by": options.get("signed-by", "")}
            )
    return entries


def sources() -> list[dict[str, Any]]:
    """Return apt's sources of binary packages: file, uris, suites, components, signed_by."""
    entries = []
    for path in ["/etc/apt/sources.list", *sorted(glob.glob("/etc/apt/sources.list.d/*.list"))]:
        entries += one_line(path)
    for path in sorted(glob.glob("/etc/apt/sources.list.d/*.sources")):
        text = re.sub(r"(?m)^#.*\n?", "", read(path))
        for paragraph in re.split(r"\n\s*\n", text):
            fields = re.findall(r"(?m)^([\w-]+):[ \t]*(.*(?:\n[ \t].*)*)", paragraph)
            entry = {key.lower(): value.strip() for key, value in fields}
            if "deb" in entry.get("types", "").split() and entry.get("enabled", "yes") != "no":
                lists = {key: entry.get(key, "").split() for key in ("uris", "suites", "components")}
                entries.append({"file": path, **lists, "signed_by": entry.get("signed-by", "")})
    return entries


def inspect(module: AnsibleModule) -> dict[str, Any]:
    """Return the state of the driver on a host, and the facts that decide about it."""
    kernel = module.params["kernel"]
    gcc, names = compiler(kernel), list(module.params["packages"])
    if gcc and module.params["compiler_package"]:
        names.append(module.params["compiler_package"].format(gcc))
    versions, trouble = look_up(module, names)
    modules = glob.glob("/lib/modules/{}/**/nvidia*.ko*".format(kernel), recursive=True)
    kernels = sorted(path.partition("vmlinuz-")[2] for path in glob.glob("/boot/vmlinuz-*"))
    return {
        "headers": headers(),
        "kernels": kernels,
        "module_kernels": [name for name in kernels if has_module(name)],
        "compiler": gcc,
        "dkms": dkms(module),
        "modules": sorted({os.path.basename(path).partition(".")[0] for path in modules}),
        "kernel_modules": infiniband(kernel),
        "modules_loaded": [name for name in INFINIBAND if os.path.isdir("/sys/module/" + name)],
        "drained": os.path.exists(DRAINED),
        "loaded": read_loaded_version(),
        "nouveau": has_nouveau(),
        "rivals": rivals(),
        "library": library(),
        "uninstaller": os.path.exists("/usr/bin/nvidia-uninstall"),
        "smi": module.get_bin_path("nvidia-smi"),
        "users": gpu_users(),
        "work": work(module.warn),
        "services": {name: service(module, name) for name in module.params["services"]},
        "initramfs": [
            p
            for p in ("/boot/initrd.img-" + kernel, "/boot/initramfs-{}.img".format(kernel))
            if os.path.exists(p)
        ],
        "versions": versions,
        "trouble": trouble,
        "unsure": module.check_mode,
        "own_sources": read("/etc/apt/sources.list.d/hvlab-nvidia-driver.sources"),
        "pin": read("/etc/apt/preferences.d/hvlab-nvidia-driver"),
        "sources": sources(),
    }


def build(module: AnsibleModule) -> list[str]:
    """Let DKMS build missing modules for the kernels; return those built.

    Fails if it cannot build for the first one; kernels not booted yet do not stop a run.
    """
    kernel, also = module.params["kernel"], module.params["also"]
    known, done = dkms(module), []
    for release in (kernel, *also):
        for name, version in sorted({(entry["name"], entry["version"]) for entry in known}):
            states = [
                e["state"]
                for e in known
                if (e["name"], e["version"], e["kernel"]) == (name, version, release)
            ]
            if "installed" in states:
                continue
            built = "{}/{}".format(name, version)
            code, out, err = 0, "", ""
            if not module.check_mode:
                code, out, err = run(module, "dkms", "install", "--force", built, "-k", release)
            if not code:
                done.append(built if release == kernel else "{} for {}".format(built, release))
            elif release == kernel:
                log = "/var/lib/dkms/{}/build/make.log".format(built)
                said = last_lines(read(log) or out + err)
                module.fail_json(
                    msg="DKMS could not build {} for kernel {}:{}".format(built, kernel, said), log=log
                )
    return done


def last_lines(text: str) -> str:
    """Return the end of a log, indented."""
    lines = [line for line in text.splitlines() if line.strip()][-LAST_LINES:]
    return "".join("\n  " + line[:300] for line in lines)


def unpack(module: AnsibleModule, folder: str) -> list[tuple[str, str]]:
    """Unpack the fetched sources of the requested version; return DKMS's names and versions of them."""
    paths = [path for pattern in FETCHED for path in glob.glob(pattern, recursive=True)]
    for path in paths:
        name = os.path.basename(path)
        if SOURCES.match(name) and module.params["version"] in name:
            # GNU cpio and rpm2cpio come with rpm's own systems, as dpkg-deb with Debian's.
            script = 'rpm2cpio "$1" | cpio --quiet -idm --directory "$2"'
            argv = (
                ["dpkg-deb", "-x", path, folder]
                if path.endswith(".deb")
                else ["sh", "-c", script, "-", path, folder]
            )
            code, _, error = run(module, *argv)
            if code:
                module.warn("{}: {} cannot be unpacked: {}".format(os.uname()[1], name, error.strip()[-300:]))
    sources = []
    for path in glob.glob(folder + "/usr/src/*/dkms.conf"):
        fields = dict(re.findall(r"(?m)^(PACKAGE_NAME|PACKAGE_VERSION)=[\"']?([^\"'\s]+)", read(path)))
        if len(fields) == 2:
            sources.append((fields["PACKAGE_NAME"], fields["PACKAGE_VERSION"]))
    return sources


def attempt(module: AnsibleModule) -> list[str]:
    """Build the modules of the fetched packages, and keep nothing; fail where one does not build."""
    kernel, done = module.params["kernel"], []
    if module.check_mode or not module.get_bin_path("dkms"):
        return []
    with tempfile.TemporaryDirectory(prefix="hvlab-driver-") as folder:
        tree = folder + "/tree"
        os.mkdir(tree)
        for name, version in unpack(module, folder):
            built = "{}/{}".format(name, version)
            trees = ["--dkmstree", tree, "--sourcetree", folder + "/usr/src"]
            code, out, err = run(module, "nice", "-n", "19", "dkms", "build", built, "-k", kernel, *trees)
            if code:
                log = read("{}/{}/build/make.log".format(tree, built)) or out + err
                module.fail_json(
                    msg="{} does not build for kernel {}:{}".format(built, kernel, last_lines(log))
                )
            done.append(built)
    if not done:
        module.warn(
            os.uname()[1]
            + ": whether the modules build was not tried: no package with their sources was fetched"
        )
    return done


def unload(module: AnsibleModule) -> list[str]:
    """Unload NVIDIA's modules; return those that were loaded. Fails when one is in use."""
    present = [name for name in MODULES if os.path.isdir("/sys/module/" + name)]
    if present and not module.check_mode:
        code, _, error = run(module, "modprobe", "-r", *present)
        if code:
            module.fail_json(msg="the modules cannot be unloaded: " + error.strip(), in_use=True)
    return present


def load(module: AnsibleModule) -> list[str]:
    """Load the modules that programs need and those that were loaded, after unloading other versions."""
    done = unload(module)
    if not module.check_mode:
        code, _, error = run(module, "modprobe", "nvidia")
        if code:
            module.fail_json(msg="modprobe nvidia: " + error.strip())
        for name in ("nvidia_uvm", *(name for name in done if name not in ("nvidia", "nvidia_uvm"))):
            run(module, "modprobe", name)
    return done or ["nvidia"]


def without_services(module: AnsibleModule) -> list[str]:
    """Load or unload while the services that hold the GPU are stopped; unloaded, they stay so."""
    if module.check_mode:
        return load(module) if module.params["state"] == "loaded" else unload(module)
    running = [name for name in module.params["services"] if service(module, name)["active"]]
    for name in running:
        run(module, "systemctl", "stop", name)
    unloaded: list[str] | None = None
    try:
        if module.params["state"] == "unloaded":
            unloaded = unload(module)
            return unloaded
        return load(module)
    finally:
        for name in running if unloaded is None else []:
            run(module, "systemctl", "start", name)


def main() -> None:
    """Run as an Ansible module."""
    names = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        argument_spec={
            "state": {
                "type": "str",
                "choices": ["inspected", "tried", "built", "loaded", "unloaded"],
                "default": "inspected",
            },
            "kernel": {"type": "str", "required": True},
            "also": names,
            "packages": names,
            "version": {"type": "str", "default": ""},
            "compiler_package": {"type": "str", "default": ""},
            "services": names,
        },
        supports_check_mode=True,
    )
    state = module.params["state"]
    try:
        if state == "inspected":
            module.exit_json(changed=False, driver_state=inspect(module))
        if state == "tried":
            module.exit_json(changed=False, done=attempt(module))
        if state == "built":
            done = build(module)
            module.exit_json(changed=bool(done), done=done)
        done = without_services(module)
        module.exit_json(changed=bool(done), done=done)
    except (OSError, subprocess.SubprocessError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
