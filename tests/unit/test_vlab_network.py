"""The lab's network: what collides with it, its firewall table, the kernel's settings."""

import json
from concurrent.futures import ProcessPoolExecutor
from ipaddress import IPv4Network

import pytest

from hvlab.base.files import lock
from hvlab.vlab import network

LAB = IPv4Network("198.18.0.0/24")


def address(link: str, local: str, prefix: int) -> dict:
    return {"ifname": link, "addr_info": [{"local": local, "prefixlen": prefix}]}


@pytest.mark.parametrize(
    ("addresses", "routes", "observed"),
    [
        ([address("eth0", "192.0.2.10", 24)], [{"dst": "default", "dev": "eth0"}], None),
        ([address("hv-lab", "198.18.0.1", 24)], [{"dst": "198.18.0.0/24", "dev": "hv-lab"}], None),
        ([address("hv-lab", "198.18.7.1", 24)], [], "the lab is up with 198.18.7.1/24 on hv-lab"),
        ([address("hv-other", "198.18.0.1", 24)], [], "hv-other has 198.18.0.1/24"),
        ([address("tun0", "198.18.0.77", 32)], [], "tun0 has 198.18.0.77/32"),
        (
            [{"ifname": "lo"}],
            [{"dst": "198.18.0.0/15", "dev": "tun0"}],
            "a route to 198.18.0.0/15 goes over tun0",
        ),
        ([], [{"dst": "198.18.0.9", "dev": "tun0"}], "a route to 198.18.0.9 goes over tun0"),
    ],
)
def test_conflicts(addresses, routes, observed):
    assert network.conflict(addresses, routes, LAB, bridge="hv-lab") == observed


def test_the_table_replaces_itself_in_one_step():
    lines = network.ruleset("lab", LAB, routes=True).splitlines()
    assert lines[:3] == ["add table ip hvlab_lab", "delete table ip hvlab_lab", "table ip hvlab_lab {"]
    # Where bridged packets pass this table, too, those from rack to rack keep their address.
    assert '    ip saddr 198.18.0.0/24 ip daddr != 198.18.0.0/24 oifname != "hv-lab" masquerade' in lines
    # This machine routes while a lab is up: nobody else begins a connection into it.
    into = [line.strip() for line in lines if line.strip().startswith("oifname")]
    assert into == ['oifname "hv-lab" ct state established,related accept', 'oifname "hv-lab" drop']


def test_a_machine_that_is_no_router_forwards_for_labs_alone(tmp_path, settings):
    refused = '    iifname != "hv*" oifname != "hv*" drop'
    lines = [network.ruleset("lab", LAB, routes=routes).splitlines() for routes in (True, False)]
    assert [refused in of_table for of_table in lines] == [False, True]
    assert not network.is_router(tmp_path, settings=settings)
    network.set_kernel(tmp_path, settings=settings)
    assert not network.is_router(tmp_path, settings=settings)
    (tmp_path / "kernel.json").unlink()
    assert network.is_router(tmp_path, settings=settings)


def test_uplinks_that_no_bridge_has_yet_are_removed(tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(network, "_LINKS", tmp_path)
    monkeypatch.setattr(network, "run", ran.append)
    monkeypatch.setattr(network, "succeeds", lambda argv: argv[0] == "ip")
    for link in ("hv-lab", "hv1r-lab", "hv2u-lab"):
        (tmp_path / link).mkdir()
    network.remove("lab")
    assert [argv[-1] for argv in ran] == ["hv2u-lab", "hv1r-lab", "hv-lab"]


# What Linux has at first.
BEFORE = [0, 128, 128, 512, 1024]


@pytest.fixture
def settings(tmp_path):
    root = tmp_path / "sys"
    for name, value in zip(network.LEAST, BEFORE, strict=True):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{value}\n")
    return root


def values(settings):
    return [int((settings / name).read_text()) for name in network.LEAST]


def test_kernel_settings_come_back_with_the_last_lab(tmp_path, settings):
    runtime = tmp_path / "labs"
    (runtime / "one").mkdir(parents=True)
    (runtime / "two").mkdir()
    network.set_kernel(runtime, settings=settings)
    network.set_kernel(runtime, settings=settings)
    assert values(settings) == list(network.LEAST.values())
    (runtime / "one").rmdir()
    network.restore_kernel(runtime, settings=settings)
    assert values(settings) == list(network.LEAST.values())
    (runtime / "two").rmdir()
    network.restore_kernel(runtime, settings=settings)
    assert values(settings) == BEFORE
    assert not runtime.exists()


def test_kernel_settings_that_suffice_or_were_changed_since_stay(tmp_path, settings):
    (settings / "net/ipv4/ip_forward").write_text("1\n")
    network.set_kernel(tmp_path, settings=settings)
    recorded = dict(zip(list(network.LEAST)[1:], BEFORE[1:], strict=True))
    assert json.loads((tmp_path / "kernel.json").read_text()) == recorded
    (settings / "fs/inotify/max_user_instances").write_text("65536\n")
    settings.rename(tmp_path.with_name("elsewhere"))
    network.restore_kernel(tmp_path, settings=tmp_path.with_name("elsewhere"))
    assert values(tmp_path.with_name("elsewhere")) == [1, 65536, *BEFORE[2:]]


def come_and_go(runtime, settings, name):
    for _ in range(200):
        with lock(runtime / name):
            network.set_kernel(runtime, settings=settings)
            (runtime / name).rmdir()
            network.restore_kernel(runtime, settings=settings)


def test_labs_may_come_and_go_at_the_same_time(tmp_path, settings):
    runtime = tmp_path / "labs"
    with ProcessPoolExecutor(max_workers=2) as pool:
        for lab in [pool.submit(come_and_go, runtime, settings, name) for name in ("one", "two")]:
            lab.result()
    assert values(settings) == BEFORE
    assert not runtime.exists()


def test_an_error_under_a_lock_is_told_as_it_is(tmp_path):
    with pytest.raises(FileNotFoundError, match="gone"), lock(tmp_path / "lab"):
        raise FileNotFoundError("gone")
