"""The host keys of a virtual lab's nodes, as ssh reads them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from hvlab.base.sudo import hand_over
from hvlab.vlab.files import write
from hvlab.vlab.node import Node

FILE = "known_hosts"


def write_known_hosts(directory: Path, nodes: Iterable[Node]) -> None:
    """Write the host keys of the nodes, each under its address and its name."""
    path = directory / FILE
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
