"""What a call wants of the lab, and what is refused before anything is changed."""

import os
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from hvlab.base.errors import HvlabError, UsageError
from hvlab.lab.inventory import Host, Lab
from hvlab.vlab import image
from hvlab.vlab import lab as virtual
from hvlab.vlab import node as nodes
from hvlab.vlab.boot import Boot
from hvlab.vlab.node import Node
from hvlab.vlab.packages import ImageConfig, PackageSource
from hvlab.vlab.plan import LabPlan, check_machine, check_names, make_plan


def host(name: str, address: str, *, virtual: bool = True, **variables: str) -> Host:
    groups = frozenset({"all", "virtual"} if virtual else {"all"})
    return Host(name, address, 22, "root", 2, groups, {"lab_interface": "host0", **variables})


def lab(*hosts: Host) -> Lab:
    return Lab("lab", Path("inventory/lab"), "198.18.0.0/24", "host0", hosts, {})


THREE = [host(f"n{number}", f"198.18.0.1{number}") for number in (1, 2, 3)]


def test_a_plan_takes_the_virtual_hosts_in_order():
    plan = make_plan(lab(host("real", "192.0.2.1", virtual=False), *THREE), count=2)
    assert [(node.name, node.address) for node in plan.nodes] == [
        ("n1", "198.18.0.11"),
        ("n2", "198.18.0.12"),
    ]
    assert plan.nodes[0].directory == Path("/var/lib/hvlab/lab/nodes/n1")
    assert (plan.release, plan.rate) == (None, None)


def test_the_inventory_gives_release_and_rate_and_options_win():
    hosts = [replace(node, vars={**node.vars, "lab_release": 11, "lab_rate": "1gbit"}) for node in THREE]
    assert make_plan(lab(*hosts)).release == "bullseye"
    assert make_plan(lab(*hosts)).rate == "1gbit"
    assert make_plan(lab(*hosts), release="trixie", rate="100mbit").release == "trixie"
    assert make_plan(lab(*hosts), release="trixie", rate="100mbit").rate == "100mbit"


@pytest.mark.parametrize(
    ("hosts", "observed"),
    [
        ([host("real", "192.0.2.1", virtual=False)], "has no virtual hosts"),
        ([host("n1", "n1.example")], "n1: ansible_host is n1.example, not an IPv4 address"),
        ([host("n1", "198.18.1.11")], "n1: 198.18.1.11 is not in lab_network 198.18.0.0/24"),
        ([host("n1", "198.18.0.1")], "n1: 198.18.0.1 is the bridge's address"),
        ([host("n1", "198.18.0.255")], "broadcast"),
        ([host("n1", "198.18.0.11", lab_interface="eth0")], "lab_interface is eth0"),
    ],
)
def test_what_cannot_be_booted_is_refused(hosts, observed):
    with pytest.raises(UsageError, match=observed):
        make_plan(lab(*hosts))


def test_all_wrong_hosts_stand_in_one_report():
    with pytest.raises(UsageError) as caught:
        make_plan(lab(host("n1", "192.0.2.1"), host("n2", "192.0.2.2")))
    assert "n1:" in str(caught.value)
    assert "n2:" in str(caught.value)


@pytest.mark.parametrize(
    ("other", "node", "ours"),
    [("lab", "gpu-n1", ("lab-gpu", "n1")), ("a_b", "n2", ("a-b", "n2")), ("a-b", "n2", ("a_b", "n2"))],
)
def test_a_machine_of_another_lab_with_the_same_name_is_named(tmp_path, other, node, ours):
    (tmp_path / other / "nodes" / node).mkdir(parents=True)
    (tmp_path / ours[0] / "nodes" / ours[1]).mkdir(parents=True)
    (tmp_path / "a-file").touch()
    plan = replace(make_plan(lab(host(ours[1], "198.18.0.11"))), lab=ours[0], runtime=tmp_path / ours[0])
    with pytest.raises(UsageError, match=rf"{ours[1]} of lab {ours[0]} and {node} of lab {other} would both"):
        check_names(plan)
    check_names(replace(plan, lab="c", runtime=tmp_path / "c"))


def test_more_nodes_than_hosts_are_refused():
    with pytest.raises(UsageError, match="the inventory has 3 virtual hosts"):
        make_plan(lab(*THREE), count=4)


def test_many_hosts_are_advised_to_share_their_packs():
    many = lab(*(host(f"n{number}", f"198.18.0.1{number}") for number in range(1, 9)))
    assert "lab_shared_packs" in make_plan(many).advice()[0]
    assert make_plan(many, count=7).advice() == []
    assert make_plan(replace(many, vars={"lab_shared_packs": "/nfs/hvlab"})).advice() == []


def test_without_root_the_command_that_helps_is_named():
    with pytest.raises(UsageError, match="needs root") as caught:
        check_machine(root=False)
    assert "sudo -E" in str(caught.value.remedy)
    assert "-m hvlab" in str(caught.value.remedy)


def test_missing_programs_are_named_with_their_packages(tmp_path):
    (tmp_path / "ip").touch(mode=0o755)
    with pytest.raises(UsageError, match="systemd-nspawn, mmdebstrap, nft") as caught:
        check_machine(root=True, path=os.fspath(tmp_path))
    assert "apt-get install systemd-container mmdebstrap nftables" in str(caught.value.remedy)


def test_an_image_is_named_after_all_that_goes_into_it():
    config = ImageConfig("bookworm", (), "", (), "")
    others = [
        replace(config, release="trixie"),
        replace(config, apt_settings='Acquire::Retries "3";\n'),
        replace(config, files=(("/etc/apt/auth.conf", 0o600, b"secret"),)),
        replace(config, ca_bundle="pem"),
    ]
    assert len({image.key(one) for one in [config, *others]}) == len(others) + 1
    assert image.key(config) == image.key(replace(config))
    assert image.key(config).startswith("bookworm-")


def test_users_of_hosts_have_ids_that_are_nobodys_on_the_machine(tmp_path):
    settings = tmp_path / "login.defs"
    settings.write_text("# UID_MIN 1\nUID_MIN\t\t\t 1000\nUID_MAX\t60000\nSYS_UID_MIN 101\nGID_MIN 1000\n")
    image._number_users(settings)
    told = ["# UID_MIN 1", "UID_MIN 70000", "UID_MAX 79999", "SYS_UID_MIN 101", "GID_MIN 70000"]
    assert settings.read_text().splitlines() == told


def test_passwords_of_package_sources_are_roots_alone_in_an_image(tmp_path, monkeypatch):
    proxy = 'Acquire::http::Proxy "http://me:pw@proxy.example:3128";\n'
    source = PackageSource(("http://me:pw@mirror.example/debian",), ("bookworm",), ("main",))
    monkeypatch.setattr(image, "_finish", lambda *_: None)
    monkeypatch.setattr(image, "run", lambda *_, **__: "")
    monkeypatch.setattr(image, "discard", lambda _: None)
    for name, config, mode in (
        ("open", ImageConfig("bookworm", (), "", (), ""), 0o644),
        ("closed", ImageConfig("bookworm", (source,), proxy, (), ""), 0o600),
    ):
        work = tmp_path / name
        monkeypatch.setattr(image, "stream", lambda *_, place=work, **__: (place / "root").mkdir())
        image._build(config, work, tmp_path / f"image-{name}", lambda _: None)
        assert (work / "config/etc/apt/apt.conf.d/90hvlab").stat().st_mode & 0o777 == mode
        assert work.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("sources", "there", "told"),
    [
        (1, ("gpg", "keyring.gpg"), "`apt-get update` works on this machine"),
        (0, ("gpg", "apt-config"), "apt-get install debian-archive-keyring gpg"),
        (0, ("keyring.gpg", "apt-config"), "apt-get install debian-archive-keyring gpg"),
        (0, ("keyring.gpg", "gpg", "apt-config"), "reaches Debian's mirror of bookworm"),
    ],
)
def test_what_to_do_where_no_image_is_built(tmp_path, monkeypatch, sources, there, told):
    """Ubuntu has apt, and neither sources of Debian nor its keyring."""
    source = PackageSource(("http://mirror.example/debian",), ("bookworm",), ("main",))
    config = ImageConfig("bookworm", (source,) * sources, "", (), "")
    for name in there:
        (tmp_path / name).touch(mode=0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(image, "_KEYRING", tmp_path / "keyring.gpg")
    (tmp_path / "work").mkdir()
    monkeypatch.setattr(image, "_argv", lambda *_: [sys.executable, "-c", "raise SystemExit(100)"])
    with pytest.raises(HvlabError, match="ended with 100") as caught:
        image._build(config, tmp_path / "work", tmp_path / "image", lambda _: None)
    assert told in (caught.value.remedy or "")


@pytest.mark.parametrize(
    ("command", "printed"),
    [
        (("printf", "<%s>", "a  b", "$HOME", "it's"), "<a  b><$HOME><it's>"),
        (("echo one; echo two",), "one\ntwo\n"),
    ],
)
def test_a_command_reaches_the_host_as_typed(tmp_path, monkeypatch, command, printed):
    (tmp_path / "ssh").mkdir()
    (tmp_path / "ssh/id_ed25519").touch()
    monkeypatch.setattr(virtual.reality, "supervisors", lambda nodes: {"n1": [7]})
    # A busy machine: it answers, but not within a second.
    monkeypatch.setattr(virtual.ssh, "listens", lambda node, seconds, patience: seconds > 10)
    argv = virtual.ssh_argv(replace(make_plan(lab(*THREE)), runtime=tmp_path), "n1", command)
    words = argv[argv.index("root@198.18.0.11") + 1 :]
    # What ssh and the host's sshd do with the words.
    done = subprocess.run(["sh", "-c", " ".join(words)], capture_output=True, text=True, check=True)
    assert done.stdout == printed


def test_limits_come_from_variables_options_and_the_topology(tmp_path):
    (tmp_path / "racks.yml").write_text("{rate: 1gbit, hosts: {n2: {up: 10mbit, cpu_weight: 50}}}")
    variables = {"lab_topology": "racks.yml", "lab_memory": "2g", "lab_cpus": 1}
    hosts = [replace(node, vars={**node.vars, **variables}) for node in THREE]
    inventory = replace(lab(*hosts), source=tmp_path)
    plan = make_plan(inventory)
    assert (plan.rate, plan.link("n1").up, plan.link("n2").up, plan.link("n2").down) == (
        "1gbit",
        "1gbit",
        "10mbit",
        "1gbit",
    )
    limits = plan.limits((0, 1))
    assert [own.cpus for own in limits.values()] == [(0,), (1,), (0,)]
    assert {own.memory for own in limits.values()} == {2 * 2**30}
    assert [own.weight for own in limits.values()] == [100, 50, 100]
    changed = make_plan(inventory, rate="100mbit", memory="512m", cpus="all")
    assert (changed.link("n1").up, changed.link("n2").up) == ("100mbit", "10mbit")
    assert {(own.cpus, own.memory) for own in changed.limits((0, 1)).values()} == {((0, 1), 512 * 2**20)}


def test_pairs_are_limited_by_address(tmp_path):
    (tmp_path / "pairs.yml").write_text("{pairs: [{between: [n1, n3], rate: 5mbit}]}")
    plan = make_plan(lab(*THREE), topology_file=tmp_path / "pairs.yml")
    assert plan.pairs("n1") == {"198.18.0.13": "5mbit"}
    assert plan.pairs("n2") == {}
    assert make_plan(lab(*THREE), topology_file=tmp_path / "pairs.yml", count=2).pairs("n1") == {}


@pytest.mark.parametrize("option", [{"cpus": "0"}, {"cpus": "two"}, {"cpus": "²"}, {"memory": "much"}])
def test_an_amount_that_is_none_is_refused(option):
    with pytest.raises(UsageError, match=r"'(two|much|0|²)'"):
        make_plan(lab(*THREE), **option)


def test_a_server_that_begins_anew_just_then_is_waited_for(tmp_path):
    """sshd that reads new keys refused a login for an instant, and the host was said to be down."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        node = Node("t", "n1", "127.0.0.1", server.getsockname()[1], tmp_path)
        assert not virtual.ssh.listens(node)

        def begin():
            server.listen()
            connection, _ = server.accept()
            connection.sendall(b"SSH-2.0-x\r\n")
            connection.close()

        beginning = threading.Timer(0.6, begin)
        beginning.start()
        try:
            assert virtual.ssh.listens(node, seconds=30, patience=20)
        finally:
            beginning.join()


def test_only_root_reaches_the_trees_of_hosts_and_images(tmp_path, monkeypatch):
    """They hold private keys, and programs that run as root for whoever starts them."""
    images, runtime = tmp_path / "images", tmp_path / "lab"
    base, home = images / "bookworm-0123456789abcdef", runtime / "shared/home"
    (base / "usr/lib").mkdir(parents=True)
    (base / "usr/lib/os-release").write_text("VERSION_CODENAME=bookworm\n")
    # As an earlier hvlab left them.
    for folder in ("nodes/n1", "home/hvlab"):
        (runtime / folder).mkdir(parents=True)
    monkeypatch.setenv("HVLAB_IMAGES", str(images))
    monkeypatch.setattr(nodes, "run", lambda *_, **__: None)
    node = Node("lab", "n1", "198.18.0.11", 22, runtime / "nodes/n1", {"/home": home})
    Boot(LabPlan("lab", runtime, IPv4Network("198.18.0.0/24"), (node,)), {}, print)._close()
    nodes.assemble(node, base)
    closed = (runtime / "nodes", runtime / "shared", base)
    assert [oct(folder.stat().st_mode & 0o777) for folder in closed] == ["0o700"] * 3
    assert [path.name for path in home.iterdir()] == ["hvlab"]
    # They may have been told to lie where others have files.
    assert images.stat().st_mode & 0o055 == 0o055
    # What a plain user may read of it.
    assert node.recorded.parent == runtime / "hosts"
    assert node.record()["release"] == "bookworm"
