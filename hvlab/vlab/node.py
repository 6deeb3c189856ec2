"""One virtual machine: an overlay over the base image, booted by systemd-nspawn."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from pathlib import Path

from hvlab.base.errors import HvlabError
from hvlab.base.files import is_key_whole
from hvlab.vlab import console, enter_cgroup, image, keys, names, packages, reality
from hvlab.vlab.controller import close, environment, folder_within, read_in, run, succeeds, write, write_in
from hvlab.vlab.packages import NodeConfig

_NETWORK = """\
[Match]
Name=host0
[Network]
Address={address}/{prefix}
Gateway={gateway}
LinkLocalAddressing=no
LLDP=no
"""
_HOSTS = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")
_TAIL = 64 * 1024
CONSOLE_MOST = 4 << 20
# There once systemd runs this machine.
SYSTEMD_RUNS = Path("/run/systemd/system")
_NSPAWN_STATE = Path("/run/systemd/nspawn")


@dataclass(frozen=True)
class Node:
    """A node and the directory it lives in (``<runtime>/nodes/<name>``).

    ``shared`` has the folders that are the same on all nodes, each with its directory on this machine.
    """

    lab: str
    name: str
    address: str
    port: int
    directory: Path
    shared: Mapping[str, Path] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        """Where its root file system is mounted."""
        return self.directory / "root"

    @property
    def host_key(self) -> Path:
        """Its SSH host key, which stays over restarts."""
        return self.directory / "host_key"

    @property
    def console(self) -> Path:
        """The file with its console's output."""
        return self.directory / "console.log"

    @property
    def recorded(self) -> Path:
        """The record of its image and address; everybody may read it."""
        return self.directory.parent.with_name("hosts") / f"{self.name}.json"

    @property
    def group(self) -> str:
        """Its control group, where PID 1 of this machine is not systemd."""
        return f"hvlab/{self.lab}/{self.name}"

    def record(self) -> dict[str, str]:
        """Return the image and address it was made with; empty if it never was."""
        # Its folder is root's alone, and had the record in earlier versions.
        for place in (self.recorded, self.directory / "node.json"):
            with suppress(OSError, ValueError):
                recorded: dict[str, str] = json.loads(place.read_text(encoding="utf-8"))
                return recorded
        return {}


def assemble(node: Node, base: Path) -> None:
    """Mount the node's overlay; its upper directory keeps what the node wrote before."""
    image.check_path(base)
    close(node.directory.parent)
    for name in ("upper", "work", "root"):
        (node.directory / name).mkdir(parents=True, exist_ok=True)
    (node.directory / "upper").chmod(0o755)
    release = image.release_of(base)
    built_from = {"image": str(base), "release": release, "address": node.address, "port": str(node.port)}
    write(node.recorded, json.dumps(built_from) + "\n")
    if node.root in reality.mounts(node.directory):
        return
    options = f"lowerdir={base},upperdir={node.directory / 'upper'},workdir={node.directory / 'work'}"
    source = names.machine(node.lab, node.name)
    run(
        ["mount", "-t", "overlay", "-o", options, source, node.root],
        remedy="it takes a kernel with overlayfs and, under /var/lib, a file system like ext4 or xfs",
    )


def configure(node: Node, network: IPv4Network, config: NodeConfig, *, login: str) -> None:
    """Write the node's identity and network; at its first start also what it inherits from the controller.

    Raises HvlabError if its tree has a link in the place of a folder: hvlab writes through none.
    """
    host_key = keys.ensure(node.host_key, comment=node.name)
    address = _NETWORK.format(address=node.address, prefix=network.prefixlen, gateway=names.gateway(network))
    sshd = f"Port {node.port}\n{config.sshd_settings}"
    contents = [
        ("etc/ssh/ssh_host_ed25519_key", 0o600, node.host_key.read_bytes()),
        ("etc/ssh/ssh_host_ed25519_key.pub", 0o644, f"{host_key}\n".encode()),
        ("etc/ssh/sshd_config.d/05-port.conf", packages.mode(sshd), sshd.encode()),
        ("etc/hostname", 0o644, f"{node.name}\n".encode()),
        ("etc/systemd/network/10-host0.network", 0o644, address.encode()),
        ("etc/resolv.conf", 0o644, config.resolv_conf.encode()),
    ]
    first = [
        ("etc/hosts", 0o644, _HOSTS.encode()),
        ("etc/pip.conf", packages.mode(config.pip_conf), config.pip_conf.encode()),
        *((path.lstrip("/"), mode, content) for path, mode, content in config.files),
        ("etc/environment", 0o644, config.environment.encode()),
        ("etc/machine-id", 0o444, f"{uuid.uuid4().hex}\n".encode()),
    ]
    try:
        with folder_within(node.root, "etc") as etc:
            is_first = "machine-id" not in os.listdir(etc)  # noqa: PTH208 - a descriptor
        for path, mode, content in contents + (first if is_first else []):
            with folder_within(node.root, str(Path(path).parent)) as folder:
                write_in(folder, Path(path).name, content, mode=mode)
    except NotADirectoryError as error:
        raise HvlabError(
            f"{node.name}: {error.filename} is a link, or no folder; hvlab writes through no link of a host",
            remedy="make the host again: `hvlab lab down`, then `hvlab lab up`",
        ) from error
    admit(node, login)


def admit(node: Node, login: str) -> None:
    """Authorise the lab's login key, and no longer a former one with the same comment."""
    # What a link there points to is a path of the node, not of this machine.
    with suppress(NotADirectoryError), folder_within(node.root, "root/.ssh") as ssh:
        text = read_in(ssh, "authorized_keys")
        if text is None:
            return
        comment = login.split(maxsplit=2)[2]
        before = text.decode("utf-8", "replace").splitlines()
        lines = [line for line in before if not line.endswith(comment)] + [login]
        if before[-1:] != [login] or len(lines) != len(before):
            os.fchmod(ssh, 0o700)
            write_in(ssh, "authorized_keys", "".join(f"{line}\n" for line in lines), mode=0o600)


def recover_host_key(node: Node) -> None:
    """Adopt the node's own key: the one here was lost, or somebody gave the node another."""
    absent = suppress(FileNotFoundError, NotADirectoryError)
    with absent, folder_within(node.root, "etc/ssh", make=False) as ssh:
        key = read_in(ssh, "ssh_host_ed25519_key") or b""
        if node.host_key.exists() and node.host_key.read_bytes() == key:
            return
        part = node.host_key.with_name(f"{node.host_key.name}.part")
        write(part, key, mode=0o600)
        if is_key_whole(part) and succeeds(["ssh-keygen", "-y", "-P", "", "-f", str(part)]):
            part.replace(node.host_key)
        part.unlink(missing_ok=True)


def start(node: Node, config: NodeConfig) -> tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]:
    """Boot the node in a session of its own, so that the terminal's Ctrl-C does not reach it.

    Return the processes of systemd-nspawn and of what writes its console.
    """
    argv = [
        "systemd-nspawn",
        reality.root_option(node.root),
        f"--machine={names.machine(node.lab, node.name)}",
    ]
    argv += [f"--hostname={node.name}", f"--network-bridge={names.bridge(node.lab)}", "--boot", "--quiet"]
    argv += ["--register=no", "--console=read-only", "--settings=no", "--resolv-conf=off", "--timezone=off"]
    argv += ["--link-journal=no"]
    argv += [f"--bind-ro={str(path).replace(':', chr(92) + ':')}" for path in config.shared]
    for folder, directory in node.shared.items():
        directory.mkdir(mode=0o755, exist_ok=True)
        argv.append(f"--bind={directory}:{folder}")
    if not SYSTEMD_RUNS.is_dir():
        argv = [sys.executable, "-I", "-S", enter_cgroup.__file__, node.group, *argv, "--keep-unit"]
    argv += ["--", "systemd.show_status=yes", "systemd.log_color=no"]
    # It ends with systemd-nspawn, whose output has no other end.
    reader = subprocess.Popen(
        [sys.executable, "-I", "-S", console.__file__, str(node.console), str(CONSOLE_MOST)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
    )
    assert reader.stdin  # noqa: S101 - for mypy
    # Also open for reading: else the node would end with its reader.
    with reader.stdin, Path(f"/proc/self/fd/{reader.stdin.fileno()}").open("r+b", buffering=0) as log:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            # Debian 13 no longer supports cgroup v1; the others use the machine's version.
            env=environment(SYSTEMD_NSPAWN_UNIFIED_HIERARCHY="1", SYSTEMD_NSPAWN_TMPFS_TMP="0"),
        )
    return child, reader


def stop(node: Node) -> None:
    """End the node at once and clear what its systemd-nspawn leaves behind; its files stay.

    Only processes are ended whose command line or whose root file system is this node's.
    """
    nodes = node.directory.parent
    supervisors = reality.supervisors(nodes).get(node.name, [])
    left = reality.kill(reality.members(nodes).get(node.name, set()))
    left |= reality.wait_gone(set(supervisors), 3.0)
    left = reality.kill(left | set(reality.supervisors(nodes).get(node.name, [])))
    left |= reality.kill(reality.members(nodes).get(node.name, set()))
    if left:
        raise HvlabError(
            f"{node.name}: processes {sorted(left)} of the node do not end",
            remedy="they wait for the kernel or a disk; try `hvlab lab down` again",
        )
    machine = names.machine(node.lab, node.name)
    if node.root in reality.mounts(node.directory):
        root = node.root.stat()
        (_NSPAWN_STATE / "locks" / f"inode-{root.st_dev}:{root.st_ino}").unlink(missing_ok=True)
    for kind in ("propagate", "unix-export"):
        shutil.rmtree(_NSPAWN_STATE / kind / machine, ignore_errors=True)
    (node.directory / ".#root.lck").unlink(missing_ok=True)
    for hierarchy in enter_cgroup.hierarchies():
        remove_group(hierarchy / node.group)


def remove_group(group: Path) -> None:
    """Remove an empty control group and those below it."""
    if group.is_dir():
        for path in sorted(group.glob("**/"), reverse=True):
            path.rmdir()


def unmount(directory: Path) -> None:
    """Unmount everything at or below a directory."""
    for point in reality.mounts(directory):
        if not succeeds(["umount", str(point)]):
            run(["umount", "--lazy", point])


def tail(node: Node, lines: int = 15) -> str:
    """Return the end of the node's console, without its control characters."""
    try:
        # The node decides its length.
        with node.console.open("rb") as console:
            console.seek(max(0, console.seek(0, os.SEEK_END) - _TAIL))
            text = console.read(_TAIL).decode("utf-8", "replace")
    except OSError:
        text = ""
    plain = [_ESCAPE.sub("", line).strip() for line in text.splitlines()]
    return "\n".join([line for line in plain if line][-lines:]) or "(it wrote nothing)"
