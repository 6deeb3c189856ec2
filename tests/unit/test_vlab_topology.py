"""Topology files: what they say, and everything that is wrong in one report."""

import pytest
import yaml

from hvlab.base.errors import UsageError
from hvlab.vlab.topology import LinkLimits, PairLimit, Topology, load, parse

HOSTS = [f"n{number}" for number in range(1, 9)]
TWO_RACKS = """
rate: 1gbit
racks:
  a: {hosts: [n1, n2, n3, n4], uplink: {rate: 100mbit}}
  b: {hosts: [n5, n6, n7, n8], uplink: {up: 100mbit, down: 50mbit, delay: 1ms, loss: 0.1 %}}
hosts:
  n3: {up: 20mbit}
  n4: {down: 20mbit, cpu_weight: 50}
pairs:
  - {from: n1, to: n2, rate: 10mbit}
  - {between: [n5, n6], rate: 30mbit}
"""


def test_a_file_says_racks_links_weights_and_pairs(tmp_path):
    (tmp_path / "racks.yml").write_text(TWO_RACKS)
    topology = load(tmp_path / "racks.yml", HOSTS)
    assert topology.link == LinkLimits("1gbit", "1gbit")
    assert [rack.hosts for rack in topology.racks] == [tuple(HOSTS[:4]), tuple(HOSTS[4:])]
    assert topology.racks[0].uplink == LinkLimits("100mbit", "100mbit")
    assert topology.racks[1].uplink == LinkLimits("100mbit", "50mbit", "1ms", "0.1%")
    assert topology.links == {"n3": LinkLimits(up="20mbit"), "n4": LinkLimits(down="20mbit")}
    assert topology.weights == {"n4": 50}
    assert topology.pairs == (
        PairLimit("n1", "n2", "10mbit"),
        PairLimit("n5", "n6", "30mbit"),
        PairLimit("n6", "n5", "30mbit"),
    )
    assert [topology.rack_of(host) for host in ("n4", "n5", "n9")] == [1, 2, None]


def test_an_empty_file_limits_nothing():
    assert parse(None, HOSTS) == Topology()


def test_a_hosts_own_limits_come_before_those_of_all():
    assert LinkLimits(up="20mbit").over(LinkLimits("1gbit", "1gbit", "1ms")) == LinkLimits(
        "20mbit", "1gbit", "1ms"
    )


@pytest.mark.parametrize(
    ("text", "observed"),
    [
        ("[n1]", "it is not a mapping"),
        ("{speed: 1gbit}", "it has no key speed, only rate, racks, hosts, pairs"),
        ("{rate: fast}", "rate: 'fast' is not a rate"),
        ("{hosts: {n9: {up: 1gbit}}}", "hosts: n9 is not a virtual host"),
        ("{hosts: {n1: {cpu_weight: 0}}}", "hosts: n1: cpu_weight 0 is not"),
        ("{hosts: {n1: {delay: 5}}}", "hosts: n1: delay '5' is not a time"),
        ("{hosts: {n1: {loss: 100%}}}", "hosts: n1: loss '100%' is not a share"),
        ("{racks: {a: {hosts: [n1]}, b: {hosts: [n1]}}}", "racks: b: n1 is in rack a, too"),
        ("{racks: {a: {uplink: {rate: 1gbit}}}}", "racks: a: it has no hosts"),
        ("{pairs: [{from: n1, to: n1, rate: 1mbit}]}", "pairs: entry 1: write"),
        ("{pairs: [{from: n1, to: n2}]}", "pairs: entry 1: write"),
        (
            "{pairs: [{from: n1, to: n2, rate: 1mbit}, {between: [n2, n1], rate: 2mbit}]}",
            "pairs: entry 2: n1 to n2 is limited twice",
        ),
    ],
)
def test_what_is_wrong_is_named(text, observed):
    with pytest.raises(UsageError) as caught:
        parse(yaml.safe_load(text), HOSTS)
    assert observed in str(caught.value)


def test_all_problems_stand_in_one_report():
    with pytest.raises(UsageError) as caught:
        parse({"rate": "fast", "hosts": {"n9": {}}, "pairs": [{}]}, HOSTS, name="racks.yml")
    assert len(str(caught.value).splitlines()) == 4
    assert "racks.yml" in str(caught.value)
