"""One virtual machine: an overlay over the base image, booted by systemd-nspawn."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from pathlib import Path

from hvlab.errors import HvlabError
from hvlab.key_files import key_whole
from hvlab.vlab import enter_cgroup, image, keys, names, reality
from hvlab.vlab.command import environment, run, succeeds
from hvlab.vlab.controller import NodeConfig
from hvlab.vlab.files import write

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
        """What it wrote on its console."""
        return self.directory / "console.log"

    @property
    def group(self) -> str:
        """Its control group, where PID 1 of this machine is not systemd."""
        return f"hvlab/{self.lab}/{self.name}"

    def record(self) -> dict[str, str]:
        """Return what it was made with: image, address; empty when it never was."""
        try:
            recorded: dict[str, str] = json.loads((self.directory / "node.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return recorded


def assemble(node: Node, base: Path) -> None:
    """Mount the node's overlay; its upper directory keeps what the node wrote before."""
    image.check_path(base)
    for name in ("upper", "work", "root"):
        (node.directory / name).mkdir(parents=True, exist_ok=True)
    (node.directory / "upper").chmod(0o755)
    built_from = {"image": str(base), "address": node.address, "port": str(node.port)}
    write(node.directory / "node.json", json.dumps(built_from) + "\n")
    if node.root in reality.mounts(node.directory):
        return
    options = f"lowerdir={base},upperdir={node.directory / 'upper'},workdir={node.directory / 'work'}"
    source = names.machine(node.lab, node.name)
    run(
        ["mount", "-t", "overlay", "-o", options, source, node.root],
        remedy="it takes a kernel with overlayfs and, under /var/lib, a file system like ext4 or xfs",
    )


def configure(node: Node, network: IPv4Network, config: NodeConfig, *, login: str) -> None:
    """Write who the node is and where it is; at its first start also what it inherits from the controller."""
    etc = node.root / "etc"
    host_key = keys.ensure(node.host_key, comment=node.name)
    write(etc / "ssh/ssh_host_ed25519_key", node.host_key.read_bytes(), mode=0o600)
    write(etc / "ssh/ssh_host_ed25519_key.pub", host_key + "\n")
    write(etc / "ssh/sshd_config.d/05-port.conf", f"Port {node.port}\n")
    write(etc / "hostname", node.name + "\n")
    address = _NETWORK.format(address=node.address, prefix=network.prefixlen, gateway=names.gateway(network))
    write(etc / "systemd/network/10-host0.network", address)
    (etc / "resolv.conf").unlink(missing_ok=True)
    write(etc / "resolv.conf", config.resolv_conf)
    admit(node, login)
    if not (etc / "machine-id").exists():
        write(etc / "hosts", _HOSTS)
        write(etc / "pip.conf", config.pip_conf)
        for path, mode, content in config.files:
            write(node.root / path.lstrip("/"), content, mode=mode)
        write(etc / "environment", config.environment)
        write(etc / "machine-id", uuid.uuid4().hex + "\n", mode=0o444)


def admit(node: Node, login: str) -> None:
    """Let the lab's login key in; a former one, with the same comment, no longer."""
    ssh = node.root / "root/.ssh"
    ssh.mkdir(exist_ok=True)
    # What a link there points to is a path of the node, not of this machine.
    file = ssh / "authorized_keys"
    if ssh.is_symlink() or file.is_symlink():
        return
    comment = login.split(maxsplit=2)[2]
    before = file.read_text("utf-8", errors="replace").splitlines() if file.is_file() else []
    lines = [line for line in before if not line.endswith(comment)] + [login]
    if before[-1:] != [login] or len(lines) != len(before):
        ssh.chmod(0o700)
        write(file, "".join(line + "\n" for line in lines), mode=0o600)


def recover_host_key(node: Node) -> None:
    """Take a host key that was lost here back from the node, which goes on with it."""
    kept = node.root / "etc/ssh/ssh_host_ed25519_key"
    if not key_whole(node.host_key) and not kept.is_symlink() and key_whole(kept):
        write(node.host_key, kept.read_bytes(), mode=0o600)


def start(node: Node, config: NodeConfig) -> subprocess.Popen[bytes]:
    """Boot the node in a session of its own, so that the terminal's Ctrl-C does not reach it."""
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
    with node.console.open("wb") as log:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            # Debian 13 has no cgroup v1 any more; the others take what there is.
            env=environment(SYSTEMD_NSPAWN_UNIFIED_HIERARCHY="1", SYSTEMD_NSPAWN_TMPFS_TMP="0"),
        )


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
        text = node.console.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    plain = [_ESCAPE.sub("", line).strip() for line in text.splitlines()]
    return "\n".join([line for line in plain if line][-lines:]) or "(it wrote nothing)"
