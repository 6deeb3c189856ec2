"""SSH to the nodes of a virtual lab: its known_hosts, and whether a node is ours and lets us in."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import paramiko

from hvlab.base.errors import UnreachableError
from hvlab.base.sudo import hand_over
from hvlab.vlab.controller import write
from hvlab.vlab.node import Node

logging.getLogger("paramiko").setLevel(logging.CRITICAL)

KNOWN_HOSTS = "known_hosts"
_PAUSE_S = 0.2


def write_known_hosts(directory: Path, nodes: Iterable[Node]) -> None:
    """Write the host keys of the nodes, each under its address and its name."""
    path = directory / KNOWN_HOSTS
    write(path, "".join(f"{line}\n" for line in map(read_known_hosts_line, nodes) if line))
    hand_over(path)


def read_known_hosts_line(node: Node) -> str:
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


def listens(node: Node, *, seconds: float = 1.0, patience: float = 0.0) -> bool:
    """Whether an SSH server answers on the node's port, each time within ``seconds``.

    If none does, retry for ``patience`` seconds: a server that reloads its keys is away for an instant.
    """
    begun = time.monotonic()
    while True:
        with (
            suppress(OSError),
            socket.create_connection((node.address, node.port), timeout=seconds) as connection,
        ):
            if connection.recv(4) == b"SSH-":
                return True
        if time.monotonic() - begun >= patience:
            return False
        time.sleep(_PAUSE_S)


def log_in(node: Node, key: Path, *, seconds: float = 10.0) -> bool:
    """Log in as root and out again; return False when the node is not that far yet.

    Raises UnreachableError when the endpoint shows another host key than the one the node was given.
    """
    public = node.host_key.with_suffix(".pub").read_text(encoding="utf-8").split()[1]
    try:
        with socket.create_connection((node.address, node.port), timeout=seconds) as connection:
            transport = paramiko.Transport(connection)
            try:
                transport.get_security_options().key_types = ("ssh-ed25519",)
                transport.start_client(timeout=seconds)
                presented = transport.get_remote_server_key().get_base64()
                if presented == public:
                    transport.auth_publickey("root", paramiko.Ed25519Key.from_private_key_file(str(key)))
                    return True
            finally:
                transport.close()
    except (OSError, EOFError, paramiko.SSHException):
        return False
    raise UnreachableError(
        f"{node.name}: {node.address} shows another host key than the one this node was given",
        remedy=f"find out which machine has {node.address}, or set another lab_network",
    )
