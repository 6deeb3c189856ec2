"""What is read from /proc, and the files and locks the lab writes."""

import os
import subprocess
import sys
import threading
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from hvlab.base.errors import HvlabError
from hvlab.base.files import lock
from hvlab.vlab import controller, keys, lab, node, packages, reality, ssh
from hvlab.vlab.controller import run
from hvlab.vlab.node import Node
from hvlab.vlab.packages import NodeConfig

NODES = Path("/var/lib/hvlab/lab/nodes")
MOUNTS = """\
29 1 254:0 / / rw,relatime - ext4 /dev/vda rw
701 29 0:99 / /var/lib/hvlab/lab/nodes/n1/root rw - overlay lab-n1 rw,lowerdir=/i,upperdir={upper},workdir=/w
"""
INSIDE = (
    "1 0 0:99 / / rw - overlay lab-n1 rw,lowerdir=/i,upperdir=/var/lib/hvlab/lab/nodes/n1/upper,workdir=/w\n"
)


def test_only_what_has_a_node_as_its_root_is_inside():
    assert reality._node_of(INSIDE.encode(), NODES) == "n1"
    assert reality._node_of(MOUNTS.format(upper=NODES / "n1/upper").encode(), NODES) is None
    assert reality._node_of(INSIDE.encode(), Path("/var/lib/hvlab/other/nodes")) is None


def test_mounts_come_the_deepest_first(tmp_path, monkeypatch):
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mountinfo").write_text(
        "1 0 0:1 / /a rw - ext4 x rw\n2 1 0:2 / /a/b\\040c rw - ext4 x rw\n3 1 0:3 / /ab rw - ext4 x rw\n"
    )
    monkeypatch.setattr(reality, "PROC", tmp_path)
    assert reality.mounts(Path("/a")) == [Path("/a/b c"), Path("/a")]


def test_names_of_mounts_may_be_any_bytes(tmp_path, monkeypatch):
    (tmp_path / "self").mkdir()
    odd = b"1 0 0:1 / /a/caf\xe9 rw - ext4 x rw\n2 0 0:2 / /a/\xc2\xa0\x0cb rw - ext4 x rw\n"
    (tmp_path / "self/mountinfo").write_bytes(odd + "3 0 0:3 / /a/\xe4\\040b rw - ext4 x rw\n".encode())
    monkeypatch.setattr(reality, "PROC", tmp_path)
    names = [os.fsencode(path) for path in reality.mounts(Path("/a"))]
    assert names == ["/a/\xe4 b".encode(), b"/a/\xc2\xa0\x0cb", b"/a/caf\xe9"]
    assert reality._node_of(odd + INSIDE.encode(), NODES) == "n1"


def test_a_process_of_another_user_is_no_supervisor(tmp_path, monkeypatch):
    me = os.geteuid()
    uids = {11: (me, me), 12: (0, 0), 13: (me + 1000, me + 1000), 14: (me + 1000, 0), 15: (0, me + 1000)}
    for pid, (real, effective) in uids.items():
        process = tmp_path / str(pid)
        process.mkdir()
        (process / "cmdline").write_text(f"x\0{reality.root_option(NODES / 'n1/root')}\0")
        (process / "stat").write_text(f"{pid} (x) S" + " 1" * 20)
        (process / "status").write_bytes(
            f"Name:\tx\nUid:\t{real}\t{effective}\t0\t0\n".encode() + b"X:\t\xe9\n"
        )
    monkeypatch.setattr(reality, "PROC", tmp_path)
    assert reality.supervisors(NODES) == {"n1": [11, 12]}


def test_the_first_process_of_a_node_may_have_any_name(tmp_path, monkeypatch):
    for path, content in {"7/task/7/children": b"9 ", "9/status": b"Name:\tcaf\xe9\nNSpid:\t9\t1\n"}.items():
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_bytes(content)
    monkeypatch.setattr(reality, "PROC", tmp_path)
    assert reality.leader(7) == 9


def test_a_node_is_known_by_a_whole_argument_of_its_process(tmp_path):
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
    nodes = tmp_path / "nodes"
    with (
        subprocess.Popen([*sleeper, reality.root_option(nodes / "n1/root")]) as ours,
        subprocess.Popen([*sleeper, f"ls {reality.root_option(nodes / 'n1/root')}"]) as other,
    ):
        try:
            assert reality.supervisors(nodes) == {"n1": [ours.pid]}
            assert reality.age(ours.pid) < 60
            assert reality.kill({ours.pid}) == set()
            assert reality.supervisors(nodes) == {}
            assert other.poll() is None
        finally:
            ours.kill()
            other.kill()


def test_modes_do_not_depend_on_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        controller.write(tmp_path / "a/open", "text\n")
        controller.write(tmp_path / "a/secret", b"text\n", mode=0o600)
    finally:
        os.umask(before)
    assert (tmp_path / "a/open").stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "a/secret").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["open", "secret"]


def test_who_waits_for_a_directory_that_is_removed_gets_a_new_one(tmp_path):
    directory = tmp_path / "lab"
    waits, done = threading.Event(), []

    def second() -> None:
        with lock(directory, waiting=waits.set):
            done.append(directory.is_dir())

    with lock(directory):
        thread = threading.Thread(target=second)
        thread.start()
        assert waits.wait(5)
        assert done == []
        directory.rmdir()
    thread.join(5)
    assert done == [True]


def test_keys_are_made_once_and_the_private_one_is_ours_alone(tmp_path):
    machine = Node("lab", "n1", "198.18.0.11", 22, tmp_path)
    line = keys.ensure(machine.host_key, comment="n1")
    assert keys.ensure(machine.host_key, comment="n1") == line
    assert machine.host_key.stat().st_mode & 0o777 == 0o600
    assert ssh.read_known_hosts_line(machine) == f"198.18.0.11,n1 {' '.join(line.split()[:2])}"
    other = Node("lab", "n1", "198.18.0.11", 2222, tmp_path)
    assert ssh.read_known_hosts_line(other).startswith("[198.18.0.11]:2222,[n1]:2222 ssh-ed25519 ")


def test_a_login_key_is_written_through_no_link_of_the_caller(tmp_path, monkeypatch):
    folder, target, handed = tmp_path / "ssh", tmp_path / "target", []
    folder.mkdir()
    target.write_text("of root")
    for name in ("id_ed25519.part.pub", "id_ed25519"):
        (folder / name).symlink_to(target)
    # The folder is somebody else's than root's, as an earlier hvlab left it.
    me = os.geteuid()
    monkeypatch.setattr(keys.os, "geteuid", lambda: me + 1)
    monkeypatch.setattr(keys, "hand_over", handed.append)
    line = keys.login(folder, lab="lab")
    assert target.read_text() == "of root"
    assert (folder / "id_ed25519.pub").read_text().strip() == line
    assert [path.name for path in handed] == ["id_ed25519", "id_ed25519.pub"]
    assert [path.stat().st_mode & 0o777 for path in (folder, handed[0])] == [0o755, 0o600]


def test_keys_that_are_lost_or_damaged_are_made_again(tmp_path):
    machine = Node("lab", "n1", "198.18.0.11", 22, tmp_path)
    line = keys.ensure(machine.host_key, comment="n1")
    machine.host_key.with_suffix(".pub").unlink()
    machine.host_key.chmod(0o644)
    assert keys.ensure(machine.host_key, comment="n1").split()[:2] == line.split()[:2]
    assert machine.host_key.stat().st_mode & 0o777 == 0o600
    machine.host_key.write_text("")
    assert keys.ensure(machine.host_key, comment="n1") != line


@pytest.mark.parametrize("here", ["lost", "another"])
def test_the_host_key_of_a_node_is_the_one_that_it_has(tmp_path, here):
    machine = Node("lab", "n1", "198.18.0.11", 22, tmp_path)
    own = machine.root / "etc/ssh/ssh_host_ed25519_key"
    own.parent.mkdir(parents=True)
    line = keys.ensure(own, comment="n1")
    if here == "another":
        assert keys.ensure(machine.host_key, comment="n1") != line
    node.recover_host_key(machine)
    assert keys.ensure(machine.host_key, comment="n1").split()[:2] == line.split()[:2]
    edges = (f"-----{edge} OPENSSH PRIVATE KEY-----" for edge in ("BEGIN", "END"))
    own.write_text("\nAAAA\n".join(edges))
    node.recover_host_key(machine)
    assert keys.ensure(machine.host_key, comment="n1").split()[:2] == line.split()[:2]


def test_a_new_login_key_replaces_the_former_one_alone(tmp_path):
    machine = Node("lab", "n1", "198.18.0.11", 22, tmp_path)
    file = machine.root / "root/.ssh/authorized_keys"
    controller.write(file, "ssh-ed25519 AAAA me@home\nssh-ed25519 BBBB hvlab lab\n")
    for _ in range(2):
        node.admit(machine, "ssh-ed25519 CCCC hvlab lab")
        assert file.read_text() == "ssh-ed25519 AAAA me@home\nssh-ed25519 CCCC hvlab lab\n"
    file.unlink()
    file.symlink_to(tmp_path / "elsewhere")
    node.admit(machine, "ssh-ed25519 DDDD hvlab lab")
    assert not (tmp_path / "elsewhere").exists()


CONFIG = NodeConfig("nameserver 192.0.2.1\n", "", "", (), (("/etc/ssl/own.pem", 0o644, b"PEM"),))
NETWORK = IPv4Network("198.18.0.0/24")


def test_a_node_gets_its_own_files_and_at_its_first_start_the_controllers(tmp_path):
    machine = Node("lab", "n1", "198.18.0.11", 2222, tmp_path)
    (machine.root / "etc").mkdir(parents=True)
    (machine.root / "etc/resolv.conf").symlink_to(tmp_path / "elsewhere")
    node.configure(machine, NETWORK, CONFIG, login="ssh-ed25519 CCCC hvlab lab")
    etc = machine.root / "etc"
    assert (etc / "ssh/ssh_host_ed25519_key").read_bytes() == machine.host_key.read_bytes()
    assert (etc / "ssh/ssh_host_ed25519_key").stat().st_mode & 0o777 == 0o600
    assert (etc / "ssh/sshd_config.d/05-port.conf").read_text() == "Port 2222\n"
    assert (etc / "resolv.conf").read_text() == CONFIG.resolv_conf
    assert (etc / "ssl/own.pem").read_text() == "PEM"
    assert not (tmp_path / "elsewhere").exists()
    identity = (etc / "machine-id").read_text()
    (etc / "hosts").write_text("its own\n")
    node.configure(machine, NETWORK, CONFIG, login="ssh-ed25519 CCCC hvlab lab")
    assert ((etc / "hosts").read_text(), (etc / "machine-id").read_text()) == ("its own\n", identity)


def test_a_password_of_the_controller_is_roots_alone_on_a_node(tmp_path, monkeypatch):
    """PAM gives every login what is in /etc/environment, whoever may read the file."""
    monkeypatch.setenv("https_proxy", "http://me:pw@proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "localhost")
    config = packages.node_config("bookworm")
    index = "[global]\nindex-url = https://token@x.example\n"
    for name, given, mode in (
        ("n1", replace(CONFIG, pip_conf=index, sshd_settings=config.sshd_settings), 0o600),
        ("n2", replace(CONFIG, environment=config.environment), 0o644),
    ):
        machine = Node("lab", name, "198.18.0.11", 22, tmp_path / name)
        (machine.root / "etc").mkdir(parents=True)
        node.configure(machine, NETWORK, given, login="ssh-ed25519 CCCC hvlab lab")
        files_of = [machine.root / "etc" / file for file in ("pip.conf", "ssh/sshd_config.d/05-port.conf")]
        assert [path.stat().st_mode & 0o777 for path in files_of] == [mode, mode]
    sshd = (tmp_path / "n1/root/etc/ssh/sshd_config.d/05-port.conf").read_text()
    assert sshd == 'Port 22\nMatch User root\nSetEnv "https_proxy=http://me:pw@proxy.example:3128"\n'
    environment = (tmp_path / "n2/root/etc/environment").read_text().splitlines()
    assert 'NO_PROXY="localhost"' in environment
    assert not [line for line in environment if "@" in line]


@pytest.mark.parametrize(
    "link", ["etc", "etc/ssh", "etc/ssh/sshd_config.d", "etc/systemd", "etc/systemd/network"]
)
def test_a_link_of_a_node_leads_to_no_file_of_this_machine(tmp_path, link):
    machine = Node("lab", "n1", "198.18.0.11", 22, tmp_path / "n1")
    outside = tmp_path / "outside"
    for folder in (outside, (machine.root / link).parent):
        folder.mkdir(parents=True)
    (machine.root / link).symlink_to(outside)
    with pytest.raises(HvlabError, match=rf"n1: .*/{link} is a link"):
        node.configure(machine, NETWORK, CONFIG, login="ssh-ed25519 CCCC hvlab lab")
    assert list(outside.iterdir()) == []


def test_no_key_is_written_or_read_through_a_link_of_a_node(tmp_path):
    machine = Node("lab", "n1", "198.18.0.11", 22, tmp_path / "n1")
    outside = tmp_path / "outside"
    (outside / "ssh").mkdir(parents=True)
    keys.ensure(outside / "ssh/ssh_host_ed25519_key", comment="of this machine")
    machine.root.mkdir(parents=True)
    for name in ("root", "etc"):
        (machine.root / name).symlink_to(outside)
    node.admit(machine, "ssh-ed25519 CCCC hvlab lab")
    node.recover_host_key(machine)
    assert [path.name for path in outside.iterdir()] == ["ssh"]
    assert not machine.host_key.exists()


def test_a_pipe_in_the_place_of_a_key_blocks_nothing(tmp_path):
    machine = Node("lab", "n1", "198.18.0.11", 22, tmp_path)
    for name in ("root/.ssh/authorized_keys", "etc/ssh/ssh_host_ed25519_key"):
        (machine.root / name).parent.mkdir(parents=True)
        os.mkfifo(machine.root / name)
    node.admit(machine, "ssh-ed25519 CCCC hvlab lab")
    node.recover_host_key(machine)
    assert (machine.root / "root/.ssh/authorized_keys").is_fifo()
    assert keys.ensure(machine.host_key, comment="n1").endswith(" n1")


def test_a_console_is_shown_without_control_characters(tmp_path):
    machine = Node("lab", "n1", "198.18.0.11", 22, tmp_path)
    assert node.tail(machine) == "(it wrote nothing)"
    machine.console.write_text("one\n[\x1b[0;32m  OK  \x1b[0m] Started.\r\r\n\x1b[2J\x07two\n")
    assert node.tail(machine, 2) == "[  OK  ] Started.\ntwo"


@pytest.fixture
def started(tmp_path, monkeypatch):
    """Start a stand-in for systemd-nspawn; return its process, the one of its console, and the file."""
    machine = Node("lab", "n1", "198.18.0.11", 22, tmp_path)
    monkeypatch.setattr(node, "SYSTEMD_RUNS", tmp_path)
    monkeypatch.setattr(node, "CONSOLE_MOST", 64 << 10)
    monkeypatch.setattr(node, "environment", lambda **_: {"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    monkeypatch.chdir(tmp_path)
    os.mkfifo("go")
    nspawn = tmp_path / "systemd-nspawn"
    nspawn.touch(mode=0o755)
    machine.console.write_text("of an earlier start")

    def start(script):
        nspawn.write_text(f"#!/bin/sh\necho begin; read line <go; {script}\n")
        child, reader = node.start(machine, CONFIG)
        while machine.console.read_bytes() != b"begin\n":
            assert reader.poll() is None
        return child, reader, machine.console

    return start


def test_a_console_keeps_its_end_however_much_its_host_writes(started):
    """It was emptied by the next call of hvlab alone."""
    child, reader, console = started("seq 100000; echo later")
    Path("go").write_text("on\n")
    assert (child.wait(20), reader.wait(20)) == (0, 0)
    written = console.read_bytes()
    assert written.endswith(b"\n99999\n100000\nlater\n")
    assert node.CONSOLE_MOST // 4 < len(written) <= node.CONSOLE_MOST


def test_a_host_outlives_what_writes_its_console(started):
    child, reader, _ = started("echo later && echo still")
    reader.kill()
    reader.wait(20)
    Path("go").write_text("on\n")
    assert child.wait(20) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="acts as another user")
def test_what_root_forgets_of_a_lab_is_the_callers(tmp_path, monkeypatch):
    """In the caller's home a link may lead anywhere."""
    for above in (tmp_path, *tmp_path.parents):
        above.chmod(above.stat().st_mode | 0o111)
    for name, user in (("trust/own", 65534), ("roots/lab", 0)):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "key").touch()
        for path in ((tmp_path / name).parent, tmp_path / name, tmp_path / name / "key"):
            os.chown(path, user, user)
    monkeypatch.setenv("HVLAB_DATA", str(tmp_path))
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("SUDO_GID", "65534")
    groups = os.getgroups()
    lab.forget("own")
    assert not (tmp_path / "trust/own").exists()
    (tmp_path / "trust").rmdir()
    (tmp_path / "trust").symlink_to(tmp_path / "roots")
    lab.forget("lab")
    assert (tmp_path / "roots/lab/key").exists()
    assert (os.geteuid(), os.getegid(), os.getgroups()) == (0, 0, groups)


def test_what_a_node_wrote_without_end_is_read_in_part(tmp_path):
    machine = Node("lab", "n1", "198.18.0.11", 22, tmp_path)
    file = machine.root / "root/.ssh/authorized_keys"
    file.parent.mkdir(parents=True)
    for path in (machine.console, file):
        with path.open("wb") as endless:
            endless.seek(1 << 40)
            endless.write(b"\nthe end\n")
    assert node.tail(machine, 1) == "the end"
    node.admit(machine, "ssh-ed25519 CCCC hvlab lab")
    assert file.stat().st_size > 1 << 40


def test_a_failed_command_is_told_with_what_it_said():
    with pytest.raises(HvlabError, match=r"(?s)`ls /no/such/place` ended with 2:.*No such file"):
        run(["ls", "/no/such/place"])
    with pytest.raises(HvlabError, match="cannot run no-such-program"):
        run(["no-such-program"], remedy="install it")
