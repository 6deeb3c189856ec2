"""SSH keys of a virtual lab: one to log in with, and each node's host key, made before its first boot."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from hvlab.vlab.command import run
from hvlab.vlab.files import hand_over, write

if TYPE_CHECKING:
    from hvlab.vlab.node import Node

KNOWN_HOSTS = "known_hosts"
LOGIN_KEY = "id_ed25519"


def ensure(path: Path, *, comment: str) -> str:
    """Make an ed25519 key pair unless it is there; return the line of its public key."""
    public = path.with_name(f"{path.name}.pub")
    if not path.is_file():
        part = path.with_name(f"{path.name}.part")
        part.unlink(missing_ok=True)
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", part])
        part.with_name(f"{part.name}.pub").replace(public)
        part.replace(path)
    return public.read_text(encoding="utf-8").strip()


def login(directory: Path, *, lab: str) -> str:
    """Make the lab's login key in ``directory`` (0700, of the person under sudo); return its public line."""
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o700)
    line = ensure(directory / LOGIN_KEY, comment=f"hvlab {lab}")
    for path in (directory, directory / LOGIN_KEY, directory / f"{LOGIN_KEY}.pub"):
        hand_over(path)
    return line


def write_known_hosts(directory: Path, nodes: Iterable[Node]) -> None:
    """Write the host keys of the nodes, each under its address and its name."""
    path = directory / KNOWN_HOSTS
    write(path, "".join(f"{line}\n" for line in map(known_hosts_line, nodes) if line))
    hand_over(path)


def known_hosts_line(node: Node) -> str:
    """Return a node's line of known_hosts; empty while it has no key."""
    try:
        kind, key = node.host_key.with_suffix(".pub").read_text(encoding="utf-8").split()[:2]
    except FileNotFoundError:
        return ""
    ssh_port = 22
    hosts = [node.address, node.name]
    if node.port != ssh_port:
        hosts = [f"[{host}]:{node.port}" for host in hosts]
    return f"{','.join(hosts)} {kind} {key}"
