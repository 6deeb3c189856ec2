"""What every host needs before anything is installed."""

from __future__ import annotations

import pytest

from tests.node.lab import Node, Question, run, stat


def asks(node: Node) -> dict[str, Question]:
    own = node.variables["inventory_hostname"]
    return {
        "hostname": run(["hostname"]),
        "own address": run(["getent", "ahostsv4", own]),
        "addresses": run(["ip", "-o", "-4", "addr", "show", "dev", node.variables["lab_interface"]]),
        "tmp": stat("/tmp"),
        "tmp options": run(["findmnt", "--noheadings", "--output", "OPTIONS", "--target", "/tmp"]),
    }


@pytest.fixture
def asked_for(node: Node) -> None:
    """Skip what other hosts need of a host's name."""
    if node.alone:
        pytest.skip("no other host asks for its name")


@pytest.mark.usefixtures("asked_for")
def test_host_name_matches_the_inventory(node: Node) -> None:
    name = node.output("hostname", "install the package hostname").strip()
    node.expect(
        node.name in (name, name.partition(".")[0]) or name == node.name.partition(".")[0],
        f"its host name is {name}",
        f"`hostnamectl set-hostname {node.name}`, or rename it in the inventory",
    )


@pytest.mark.usefixtures("asked_for")
def test_own_name_is_no_loopback(node: Node) -> None:
    addresses = {line.split()[0] for line in node["own address"]["out"].splitlines()}
    node.expect(
        addresses and not any(address.startswith("127.") for address in addresses),
        f"its own name {node.name} resolves to {', '.join(sorted(addresses)) or 'nothing'}",
        "take the name out of the 127.* lines of /etc/hosts, then run role common",
    )


def test_lab_interface_has_an_address(node: Node) -> None:
    interface = node.variables["lab_interface"]
    node.expect(
        "inet " in node["addresses"]["out"],
        f"interface {interface} has no IPv4 address: {node['addresses']['err'].strip()}",
        "set lab_interface to the interface the ranks talk over; `ip -br addr` lists them",
    )


def test_tmp_can_be_used(node: Node) -> None:
    mode = node["tmp"]["/tmp"]["mode"]
    node.expect(mode == "1777", f"/tmp has mode {mode}", "`chmod 1777 /tmp`")
    options = node["tmp options"]["out"].strip().split(",")
    node.expect(
        "noexec" not in options, "/tmp is mounted noexec", "`mount -o remount,exec /tmp`, and in /etc/fstab"
    )
