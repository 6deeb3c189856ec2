"""A first inventory: the list of hosts, the ranks' network, and the files."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from hvlab.base.errors import InventoryError, Problem, UsageError
from hvlab.lab import new_inventory
from hvlab.lab.host_patterns import ListedHost, expand
from hvlab.lab.inventory import load
from tests.unit.labs import lab

NUMBERED = ("node2", "10.0.0.1", None), ("node3", "10.0.0.2", None)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("gpu1", [("gpu1", "gpu1", None)]),
        ("a, b\n c", [("a", "a", None), ("b", "b", None), ("c", "c", None)]),
        ("gpu[09:10]", [("gpu09", "gpu09", None), ("gpu10", "gpu10", None)]),
        ("gpu[1:2]:2222", [("gpu1", "gpu1", 2222), ("gpu2", "gpu2", 2222)]),
        ("n[a:b]=10.0.0.[11:12]:23", [("na", "10.0.0.11", 23), ("nb", "10.0.0.12", 23)]),
        ("node1=n,10.0.0.[1:2]", [("node1", "n", None), *NUMBERED]),
        ("r[a:b]-[1:1]", [("ra-1", "ra-1", None), ("rb-1", "rb-1", None)]),
        ("v6=[fe80::1]:22", [("v6", "fe80::1", 22)]),
    ],
)  # fmt: skip
def test_a_list_of_hosts(text, hosts):
    assert expand(text) == [ListedHost(*host) for host in hosts]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "no hosts"),
        ("gpu[1:3", "no host"),
        ("gpu[3:1]", "is empty"),
        ("gpu[1:3]=10.0.0.[1:2]", "3 names for 2 addresses"),
        ("gpu1:22=10.0.0.1", "port before"),
        ("-oProxyCommand=x", "no host"),
        ("gpu1:0", "no port"),
        ("gpu[1:100000]", "100000 hosts"),
        ("gpu[1:999999999999]", "999999999999 hosts"),
        ("r[1:900]n[1:900]", "810000 hosts"),
        ("n[1:1234567890123456789]", "1234567890123456789 hosts"),
        ("[a:z][a:z][a:z]", "17576 hosts"),
        ("gpu[1:5:0]", "no host"),
    ],
)
def test_a_wrong_list_is_refused(text, match):
    with pytest.raises(UsageError, match=match):
        expand(text)


def facts(*links, gpus=(), speeds=None, **changes):
    """Return facts of a host with these (interface, address/prefix)."""
    interfaces = {}
    for name, cidr in links:
        interfaces.setdefault(name, {"up": True, "cidrs": []})["cidrs"].append(cidr)
    nics = [{"name": name, "speed_mbit": speed} for name, speed in (speeds or {}).items()]
    return {
        "distribution": "Debian",
        "distribution_version": "12.11",
        "kernel": "6.1.0",
        "python_version": "3.11.2",
        "processor_vcpus": 64,
        "hvlab": {"interfaces": interfaces, "nics": nics, "gpus": list(gpus)},
        **changes,
    }


def test_the_common_network_is_the_one_the_hosts_are_reached_in():
    """The bridge of docker is not one: it has the same address on every host."""
    docker = ("docker0", "172.17.0.1/16")
    hosts = {
        "a": facts(docker, ("ib0", "10.9.0.1/24"), ("eth0", "10.0.0.1/24")),
        "b": facts(docker, ("eth0", "10.0.0.2/24"), ("ib0", "10.9.0.2/24"), ("eth7", "10.7.0.2/24")),
    }
    network = new_inventory.choose(hosts, {"a": "10.0.0.1", "b": "10.0.0.2"})
    assert (str(network.network), network.interface, network.problems) == ("10.0.0.0/24", "eth0", ())
    assert [(name, str(other)) for name, other in network.others] == [("ib0", "10.9.0.0/24")]


def test_the_fastest_is_taken_where_all_speeds_are_known():
    speeds = {"eth0": 1000, "ib0": 200000}
    hosts = {
        f"n{number}": facts(("eth0", f"10.0.0.{number}/24"), ("ib0", f"10.9.0.{number}/24"), speeds=speeds)
        for number in (1, 2)
    }
    assert new_inventory.choose(hosts, {"n1": "10.0.0.1", "n2": "10.0.0.2"}).interface == "ib0"
    hosts["n2"]["hvlab"]["nics"].pop()
    assert new_inventory.choose(hosts, {"n1": "10.0.0.1", "n2": "10.0.0.2"}).interface == "eth0"


def test_an_interface_of_another_name_is_named():
    hosts = {f"n{i}": facts(("eno1", f"10.0.0.{i}/24")) for i in (1, 2)} | {
        "n3": facts(("ens3", "10.0.0.3/24"))
    }
    network = new_inventory.choose(hosts, {})
    assert (str(network.network), network.interface) == ("10.0.0.0/24", "eno1")
    assert [(problem.host, problem.observed) for problem in network.problems] == [
        ("n3", "it is on ens3 in 10.0.0.0/24, most hosts on eno1")
    ]


def test_hosts_of_a_cloud_have_a_network_each():
    hosts = {"a": facts(("ens4", "10.128.0.2/32")), "b": facts(("ens4", "10.128.0.9/32"))}
    network = new_inventory.choose(hosts, {})
    assert (str(network.network), network.interface, network.problems) == ("10.128.0.0/28", "ens4", ())


def test_hosts_in_different_networks_are_named():
    hosts = {"a": facts(("eth0", "10.0.1.5/24")), "b": facts(("eth0", "10.0.2.5/24"))}
    network = new_inventory.choose(hosts, {})
    assert str(network.network) == "10.0.0.0/22"
    assert "they share no network: 10.0.1.0/24, 10.0.2.0/24" in network.routed[0].observed
    assert network.problems == ()


def test_of_interfaces_that_lead_to_other_networks_the_fastest_on_all_hosts_counts():
    """A network for each rack, with routers between them."""
    hosts = {
        f"h{i}": facts(
            ("eno1", f"192.168.{i}.9/24"), ("ib0", f"10.1.{i}.7/24"), speeds={"eno1": 1000, "ib0": 200000}
        )
        for i in (0, 1)
    }
    network = new_inventory.choose(hosts, {"h0": "192.168.0.9", "h1": "192.168.1.9"})
    assert (str(network.network), network.interface) == ("10.1.0.0/23", "ib0")


def test_hosts_with_one_address_are_named():
    """As virtual machines behind the NAT of their hypervisor."""
    hosts = {name: facts(("eth0", "10.0.2.15/24")) for name in ("a", "b")}
    [problem] = new_inventory.choose(hosts, {}).problems
    assert (problem.host, problem.observed) == ("a, b", "they have one address on eth0: 10.0.2.15")


def test_hosts_without_a_usable_interface_are_named():
    down = facts(("eth0", "10.0.0.2/24"))
    down["hvlab"]["interfaces"]["eth0"]["up"] = False
    none = facts() | {"hvlab": {"interfaces": None}}
    network = new_inventory.choose({"a": facts(("eth0", "10.0.0.1/24")), "b": down, "c": none}, {})
    assert [problem.host for problem in network.problems] == ["b", "c"]
    assert new_inventory.choose({"b": down}, {}) is None


def test_an_interface_whose_name_is_a_template_is_never_taken():
    hosts = {"a": facts(("{{1+1}}", "10.0.0.1/24"), ("eth0", "10.1.0.1/24"))}
    assert new_inventory.choose(hosts, {"a": "10.0.0.1"}).interface == "eth0"


@pytest.mark.parametrize(
    ("of_host", "slots"), [(facts(gpus=[{}] * 8), 8), (facts(), 64), ({"hvlab": {"gpus": None}}, 1)]
)
def test_slots_are_gpus_or_cores(of_host, slots):
    assert new_inventory.slots(of_host) == slots


A100 = {"name": "NVIDIA A100-SXM4-80GB", "memory_mib": 81920}


PYTHON = {"ansible_python_interpreter": "/usr/bin/python3.11"}


@pytest.fixture
def files():
    """The inventory of a host with GPUs, an odd one, and one without."""
    first, second, third = lab(3).hosts
    common = {
        "ansible_ssh_private_key_file": "/home/me/my key",
        "ansible_ssh_common_args": "-o UserKnownHostsFile=/k",
    }
    hosts = (
        replace(first, slots=2, groups=frozenset(["gpu"]), vars=common),
        replace(second, slots=2, port=2222, user="admin", groups=frozenset(["gpu"]), vars=common),
        replace(third, slots=64, groups=frozenset(["cpu"]), vars=common | PYTHON),
    )  # fmt: skip
    evil = facts(gpus=[], distribution="Debian\nlab_name: evil")
    of_hosts = {"n3": evil, "n1": facts(gpus=[A100] * 2), "n2": facts(gpus=[A100] * 2)}
    absent = replace(first, name="n4", address="10.0.0.4"), Problem("n4", "it refuses\nall: {}", "ask")
    return new_inventory.texts(
        replace(lab(3), name="my-lab", hosts=hosts),
        of_hosts,
        others=[("ib0", "10.9.0.0/24")],
        left_out=[absent],
    )


def test_hvlab_reads_the_inventory_as_it_was_meant(files, tmp_path):
    folder = tmp_path / "new/mylab"
    assert new_inventory.write(folder, files) is None
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*.*")) == [
        "group_vars/all.yml",
        "hosts.yml",
    ]
    read = load(folder)
    assert (read.name, read.network, read.interface) == ("my-lab", "10.0.0.0/24", "eth0")
    told = [(host.name, host.address, host.port, host.user, host.slots, host.gpu) for host in read.hosts]
    assert told == [
        ("n1", "10.0.0.1", 22, "root", 2, True),
        ("n2", "10.0.0.2", 2222, "admin", 2, True),
        ("n3", "10.0.0.3", 22, "root", 64, False),
    ]
    assert read.vars["ansible_ssh_private_key_file"] == "/home/me/my key"
    assert read.host("n3").vars["ansible_python_interpreter"] == "/usr/bin/python3.11"
    assert "ansible_python_interpreter" not in read.host("n1").vars


def test_comments_say_what_the_hosts_have_and_hosts_add_no_line(files):
    variables, hosts = files["group_vars/all.yml"], files["hosts.yml"]
    assert "GPU: none (n3); 2 x NVIDIA A100-SXM4-80GB, 80 GiB (n1, n2)" in variables
    assert "CUDA" not in variables.partition("# Pins:")[0]
    assert "# 10.9.0.0/24 on ib0 would do as well." in variables
    assert "# lab_cuda: " in variables
    assert yaml.safe_load(variables)["lab_name"] == "my-lab"
    assert "#   n4, 10.0.0.4: it refuses all: {}" in hosts
    assert list(yaml.safe_load(hosts)) == ["all"]


def test_an_inventory_that_is_there_is_refused_or_kept(files, tmp_path):
    folder = tmp_path / "mylab"
    folder.mkdir()
    new_inventory.check_free(folder, force=False)
    (folder / "hosts.yml").write_text("mine")
    with pytest.raises(UsageError, match="nothing was changed"):
        new_inventory.check_free(folder, force=False)
    new_inventory.check_free(folder, force=True)
    kept = new_inventory.write(folder, files)
    assert kept.name.startswith("mylab.bak-")
    assert (kept / "hosts.yml").read_text() == "mine"
    assert load(folder).hosts
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["mylab", kept.name])


def test_a_file_of_that_name_is_never_replaced(tmp_path):
    (tmp_path / "mylab").write_text("mine")
    with pytest.raises(UsageError, match="already exists"):
        new_inventory.check_free(tmp_path / "mylab", force=True)


def test_what_would_not_be_accepted_is_not_left_behind(files, tmp_path):
    (tmp_path / "mylab").mkdir()
    (tmp_path / "mylab/hosts.yml").write_text("mine")
    broken = files | {"group_vars/all.yml": "lab_name: x\n"}
    with pytest.raises(InventoryError):
        new_inventory.write(tmp_path / "mylab", broken)
    assert [path.name for path in tmp_path.iterdir()] == ["mylab"]
    assert (tmp_path / "mylab/hosts.yml").read_text() == "mine"


@pytest.mark.parametrize(
    ("folder", "name"),
    [("inventory/mylab", "mylab"), ("my lab_2", "my-lab-2"), ("..lab", "lab"), ("/x/___", "lab")],
)
def test_the_lab_is_called_as_its_folder(folder, name):
    assert new_inventory.lab_name(Path(folder)) == name
