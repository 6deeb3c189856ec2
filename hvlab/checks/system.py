"""The lab user, hwloc, Docker and NVIDIA's package repository match the inventory."""

from __future__ import annotations

import json
import re
from typing import Any

from hvlab.checks.provisioned import NotApplicable, Question, Role, RoleHost, read, run, unless, without_mpi
from hvlab.stack.provision.names import hwloc_packages


def asks_of_lab_user(node: RoleHost) -> dict[str, Question]:
    return {
        "account": run(["getent", "passwd", node.user]),
        "identity": run(["id", "-u"], user=node.user),
        "groups": run(["id", "-nG", node.user]),
        "sudo": run(["sudo", "-n", "true"], user=node.user),
        "home": run(["stat", "--format=%U", "."], user=node.user),
    }


LAB_USER = Role("lab_user", asks_of_lab_user)


@LAB_USER.check
def exists(node: RoleHost) -> None:
    node.expect(node["account"]["rc"] == 0, f"there is no user {node.user}")


@LAB_USER.check
def is_unprivileged(node: RoleHost) -> None:
    number = node.output("identity").strip()
    node.expect(number != "0", f"{node.user} is root", "set lab_user_name to a user of its own")
    if node.variables["lab_user_sudo"] == "none":
        node.expect(
            node["sudo"]["rc"] != 0, f"{node.user} can use sudo", "run role lab_user; look in /etc/sudoers.d"
        )
        strong = {"root", "sudo", "wheel", "docker", "disk"} - set(node.variables["lab_user_groups"]) & set(
            node["groups"]["out"].split()
        )
        if node.variables["container_runtime_user_in_group"]:
            strong.discard("docker")
        node.expect(
            not strong, f"{node.user} is in {', '.join(sorted(strong))}", f"`gpasswd -d {node.user} GROUP`"
        )


@LAB_USER.check
def owns_its_home(node: RoleHost) -> None:
    home = node.output("account").split(":")[5]
    owner = node.output("home", f"make {home}, or run role lab_user").strip()
    node.expect(owner == node.user, f"{home} belongs to {owner}", f"`chown -R {node.user}: {home}`")


def asks_of_hwloc_purge(node: RoleHost) -> dict[str, Question]:
    folder = f"{node.variables['openmpi_prefix']}/current/bin"
    show = ["dpkg-query", "--show", "--showformat", "${Package} ${db:Status-Abbrev}\\n"]
    return {
        "hwloc packages": run([*show, *hwloc_packages("Debian")]),
        "hwloc rpms": run(["rpm", "-q", "--qf", "%{NAME} rpm\\n", *hwloc_packages("RedHat")]),
        "mpirun libraries": run(["ldd", f"{folder}/mpirun"]),
        # prted in Open MPI 5.
        "orted libraries": run(["sh", "-c", f"ldd {folder}/[op]rted"]),
    }


HWLOC_PURGE = Role("hwloc_purge", asks_of_hwloc_purge, skip=without_mpi)


@HWLOC_PURGE.check
def no_package_conflicts(node: RoleHost) -> None:
    installed = re.findall(r"^(\S+) .i ", node["hwloc packages"]["out"], re.MULTILINE)
    installed += re.findall(r"^(\S+) rpm$", node["hwloc rpms"]["out"], re.MULTILINE)
    kept = node.fact("hwloc_purge").get("keep", [])
    installed = [name for name in installed if name not in kept]
    node.expect(
        not installed or not node.variables["hwloc_purge_enabled"],
        f"the distribution's hwloc is installed: {', '.join(installed)}",
        "run role hwloc_purge; it says what depends on them",
    )


@HWLOC_PURGE.check
def programs_use_their_own_hwloc(node: RoleHost) -> None:
    flags = [flag for flag in node.variables["openmpi_configure_flags"] if flag.startswith("--with-hwloc=")]
    folder = flags[-1].partition("=")[2] if flags else "internal"
    # Open MPI 5 keeps its internal one as a library beside its own.
    own = (f"=> {folder}/", f"=> {node.variables['openmpi_prefix']}/")
    for program in ("mpirun", "orted"):
        output = node.output(f"{program} libraries", "run role openmpi")
        libraries = [line.strip() for line in output.splitlines() if "libhwloc" in line]
        foreign = [line for line in libraries if not any(place in line for place in own)]
        node.expect(
            not foreign or folder in ("external", "yes") or node.variables["openmpi_method"] != "source",
            f"{program} uses {'; '.join(foreign)}",
            "set hwloc_purge_enabled: true, or build Open MPI with its own (--with-hwloc=internal)",
        )


SETTINGS = "/etc/docker/daemon.json"
VERSION = ["dpkg-query", "--show", "--showformat", "${Version}"]
RPM_VERSION = ["rpm", "--query", "--queryformat", "%{VERSION}-%{RELEASE}"]
ALONE = "run role container_runtime; `journalctl -u docker` tells more"


def asks_of_container_runtime(node: RoleHost) -> dict[str, Question]:
    toolkit = "nvidia-container-toolkit"
    return {
        "docker info": run(["docker", "info", "--format", "{{json .}}"]),
        "docker at boot": run(["systemctl", "is-enabled", "docker"]),
        "docker settings": read(SETTINGS),
        "docker group": run(["getent", "group", "docker"]),
        "toolkit deb": run([*VERSION, toolkit]),
        "toolkit rpm": run([*RPM_VERSION, toolkit]),
        "toolkit held": run(["apt-mark", "showhold"]),
    }


def find_missing_settings(expected: Any, actual: Any, place: str = "") -> list[str]:
    """Return the settings of ``expected`` that ``actual`` lacks; extra ones are allowed."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        return [
            item
            for key in expected
            for item in find_missing_settings(expected[key], actual.get(key), f"{place}.{key}".strip("."))
        ]
    if isinstance(expected, list) and isinstance(actual, list):
        return [] if all(item in actual for item in expected) else [place]
    return [] if expected == actual else [place]


CONTAINER_RUNTIME = Role(
    "container_runtime",
    asks_of_container_runtime,
    skip=unless("container_runtime_enabled", "docker is not enabled for this host"),
)


@CONTAINER_RUNTIME.check
def docker_runs(node: RoleHost) -> None:
    info = json.loads(node.output("docker info", ALONE))
    node.expect(
        not info.get("ServerErrors"), f"docker says {info.get('ServerErrors')}", "`systemctl restart docker`"
    )
    node.output("docker at boot", "`systemctl enable docker`")


@CONTAINER_RUNTIME.check
def settings_are_in_the_file_and_in_force(node: RoleHost) -> None:
    text = node["docker settings"].get(SETTINGS, "{}")
    missing = find_missing_settings(dict(node.variables["container_runtime_daemon"]), json.loads(text))
    node.expect(not missing, f"{SETTINGS} does not match the inventory in {', '.join(missing)}")
    info = json.loads(node.output("docker info", ALONE))
    recorded = node.fact("container_runtime")
    node.expect(
        info["DockerRootDir"] == recorded["data_root"],
        f"docker keeps its data in {info['DockerRootDir']}, not in {recorded['data_root']}",
        "`systemctl restart docker`",
    )
    mirrors = [mirror.rstrip("/") for mirror in info["RegistryConfig"]["Mirrors"] or []]
    missing = [mirror for mirror in recorded["mirrors"] if mirror.rstrip("/") not in mirrors]
    node.expect(not missing, f"docker does not use {', '.join(missing)}", "`systemctl restart docker`")


@CONTAINER_RUNTIME.check
def only_the_chosen_user_reaches_docker(node: RoleHost) -> None:
    members = node["docker group"]["out"].strip().rpartition(":")[2].split(",")
    user = str(node.variables["container_runtime_user"])
    allowed = bool(node.variables["container_runtime_user_in_group"])
    if user:
        node.expect(
            (user in members) == allowed,
            f"{user} is {'not ' if allowed else ''}in group docker",
            "run role container_runtime" if allowed else f"`gpasswd -d {user} docker`: it can become root",
        )


@CONTAINER_RUNTIME.check
def toolkit_is_pinned(node: RoleHost) -> None:
    if not node.variables["container_runtime_nvidia_enabled"]:
        raise NotApplicable("NVIDIA's toolkit is not enabled for this host")
    version = str(node.variables["container_runtime_nvidia_version"])
    debian = node["toolkit deb"]["rc"] != 127
    installed = node["toolkit deb" if debian else "toolkit rpm"]["out"].strip()
    node.expect(
        installed == version,
        f"the container toolkit is {installed or 'missing'}, the inventory asks for {version}",
    )
    if debian:
        held = node["toolkit held"]["out"].split()
        node.expect("nvidia-container-toolkit" in held, "the toolkit is not held at its version")
    info = json.loads(node.output("docker info", ALONE))
    node.expect("nvidia" in info["Runtimes"], "docker has no runtime nvidia")


APT, RPM = "/etc/apt/sources.list.d/nvidia-cuda.sources", "/etc/yum.repos.d/nvidia-cuda.repo"


def asks_of_nvidia_repository(node: RoleHost) -> dict[str, Question]:
    # Another's file that was kept.
    file = read_record(node).get("file") or ""
    return {
        "nvidia source": read(APT if file.endswith(".repo") else file or APT),
        "nvidia repo": read(file if file.endswith(".repo") else RPM),
        "nvidia known": run(["apt-cache", "policy"]),
        "nvidia rpm keys": run(["rpm", "-qa", "gpg-pubkey*"]),
    }


def read_record(node: RoleHost) -> dict[str, str]:
    """The role's record; empty if the host has no such repository."""
    enabled = "gpu" in node.variables["group_names"] and node.variables["nvidia_repository_enabled"]
    return node.fact("nvidia_repository") if enabled else {}


def source(node: RoleHost) -> str:
    """The text of the source's file."""
    return "".join([*node["nvidia source"].values(), *node["nvidia repo"].values()])


NVIDIA_REPOSITORY = Role("nvidia_repository", asks_of_nvidia_repository)


@NVIDIA_REPOSITORY.check
def the_source_is_the_recorded_one(node: RoleHost) -> None:
    fact = read_record(node)
    if not fact:
        return
    text = source(node)
    node.expect(fact["url"] in text, f"the source is {text or 'missing'!r}, not {fact['url']}")
    off = "Enabled: no" in text or "enabled=0" in text
    node.expect(not off, "NVIDIA's repository is switched off")


@NVIDIA_REPOSITORY.check
def signatures_are_checked(node: RoleHost) -> None:
    if not read_record(node):
        return
    text = source(node)
    checked = re.search(r"(?i)signed-by(: |=)/", text) or "gpgcheck=1" in text.splitlines()
    node.expect(checked, "packages of NVIDIA's repository are installed without a check of their signatures")


@NVIDIA_REPOSITORY.check
def the_package_manager_knows_it(node: RoleHost) -> None:
    fact = read_record(node)
    if not fact:
        return
    if node["nvidia source"]:
        output = node.output("nvidia known")
        node.expect(
            fact["url"] in output,
            f"apt does not know {fact['url']}",
            "`apt-get update`, or run role nvidia_repository",
        )
    else:
        output, short = node.output("nvidia rpm keys"), fact["fingerprint"][-8:].lower()
        node.expect(f"gpg-pubkey-{short}-" in output, f"rpm does not trust the key {short}")
