"""The probe of SSH endpoints, against small servers on this machine."""

import os
import shutil
import socket
import threading
from contextlib import contextmanager
from dataclasses import replace

import paramiko
import pytest

from hvlab.base.errors import UnreachableError
from hvlab.remote.known_hosts import known_hosts_files
from hvlab.remote.probe import probe
from tests.unit.labs import lab
from tests.unit.plays import program

KEY, OTHER = paramiko.ECDSAKey.generate(), paramiko.ECDSAKey.generate()
RSA = paramiko.RSAKey.generate(2048)
# The real ssh reads the settings; a sshd refuses the login.
LOGIN = """\
#!/bin/sh
case "$*" in *-G*) exec {ssh} "$@";; esac
echo "u@h: Permission denied (publickey)." >&2
exit 255
"""


def host(port: int, **variables: str):
    return replace(lab(1).hosts[0], address="127.0.0.1", port=port, vars=variables)


@contextmanager
def server(greeting: bytes | None = None, keys: tuple[paramiko.PKey, ...] = (KEY,)):
    """Listen on a free port: an SSH server with these keys, or something that only says ``greeting``."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            link, _ = listening.accept()
            if greeting is not None:
                link.sendall(greeting)
                link.close()
                return
            transport = paramiko.Transport(link)
            for key in keys:
                transport.add_server_key(key)
            transport.start_server(event=threading.Event(), server=paramiko.ServerInterface())
            transport.join(5)

        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]


@pytest.fixture
def known(tmp_path):
    """Write a known_hosts file; hosts on other ports than 22 stand there as [address]:port."""

    def write(port: int, key: paramiko.PKey | None, *, authority: bool = False):
        path = tmp_path / "known_hosts"
        mark = "@cert-authority " if authority else ""
        line = f"{mark}[127.0.0.1]:{port} {key.get_name()} {key.get_base64()}\n" if key else ""
        path.write_text(f"# hosts\nbroken line\n{line}")
        return path

    return write


def test_a_known_key_is_fine(known):
    with server() as port:
        probe([host(port)], known_hosts=known(port, KEY))


def test_an_rsa_key_that_is_known_is_asked_for(known):
    with server(keys=(KEY, RSA)) as port:
        probe([host(port)], known_hosts=known(port, RSA))


def test_a_host_that_ssh_reaches_another_way_is_left_to_ssh(monkeypatch, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(UnreachableError, match="refuses the connection"):
        probe([host(port)])
    for options in ("-J gate", "-o ProxyJump=gate", "-oProxyCommand='nc gate 22'"):
        probe([host(port, ansible_ssh_extra_args=options)])
    settings = tmp_path / "config"
    settings.write_text("Host 127.0.0.1\n  HostName 127.0.0.2\n")
    with pytest.raises(UnreachableError):
        probe([host(port, ansible_ssh_common_args="-F /dev/null -o LogLevel=QUIET")])
    with pytest.raises(UnreachableError):
        probe([host(port, ansible_ssh_common_args=f"-F {settings}")])
    program(tmp_path, "ssh", LOGIN.format(ssh=shutil.which("ssh")))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    probe([host(port, ansible_ssh_common_args=f"-F {settings}")])


@pytest.mark.parametrize(("key", "told"), [(None, "is unknown"), (OTHER, "has changed")])
def test_another_key_is_refused(known, key, told):
    with server() as port, pytest.raises(UnreachableError, match=told) as caught:
        probe([host(port)], known_hosts=known(port, key))
    remedy = str(caught.value)
    assert f">> {known(port, key)}`" in remedy, "the very command that records the key"
    assert (f"ssh-keygen -R '[127.0.0.1]:{port}' -f" in remedy) == (told == "has changed")
    assert caught.value.exit_code == 3


def test_where_an_authority_vouches_an_answer_is_enough(known):
    with server() as port:
        probe([host(port)], known_hosts=known(port, OTHER, authority=True))


@pytest.mark.parametrize("authority", [True, False])
def test_something_else_answers(known, authority):
    with server(b"220 mail\r\n") as port, pytest.raises(UnreachableError, match="does not speak SSH"):
        probe([host(port)], known_hosts=known(port, KEY, authority=authority))


def test_every_host_that_fails_is_named(known, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        closed = listening.getsockname()[1]
    hosts = [replace(host(closed), name="a"), replace(host(closed), name="b", address="no.such.name.invalid")]
    with pytest.raises(UnreachableError, match="2 of 2 hosts") as caught:
        probe(hosts, known_hosts=known(closed, KEY))
    assert "a: 127.0.0.1" in str(caught.value)
    assert "refuses the connection" in str(caught.value)
    assert "b: the name no.such.name.invalid does not resolve" in str(caught.value)


def test_a_host_behind_another_is_left_to_ssh():
    probe([host(1, ansible_ssh_common_args="-o ProxyJump=gate")])


@pytest.mark.parametrize(
    ("options", "files"),
    [
        ("-o UserKnownHostsFile=/x/t/k", ["/x/t/k"]),
        ("-oUserKnownHostsFile=/x -o Other=1", ["/x"]),
        ('-o "UserKnownHostsFile=/x /y"', ["/x", "/y"]),
    ],
)
def test_the_file_in_force_is_the_inventorys(options, files):
    there = host(22, ansible_ssh_common_args=options)
    assert [str(path) for path in known_hosts_files(there)] == files


def test_else_it_is_the_users():
    assert [path.name for path in known_hosts_files(host(22))] == ["known_hosts", "ssh_known_hosts"]
