"""What links may carry, as commands of tc; what the kernel must have for it; and when it was lost."""

import pytest

from hvlab.base.errors import UsageError
from hvlab.vlab import boot, links, reality
from hvlab.vlab.topology import LinkLimits, PairLimit, Rack, Topology


@pytest.mark.parametrize(
    ("rate", "burst", "limit"), [("100mbit", 131072, 756072), ("1gbit", 250000, 6500000)]
)
def test_a_bucket_holds_2_ms_and_queues_50_ms(rate, burst, limit):
    words = links.bucket(rate)
    assert words[words.index("burst") + 1] == str(burst)
    assert words[words.index("limit") + 1] == str(limit)


def test_a_link_without_limits_needs_no_command():
    assert links.egress("host0", None, LinkLimits()) == []


def test_delay_and_loss_stand_above_the_rate():
    link = LinkLimits(delay="2ms", loss="0.1%")
    first, second = links.egress("host0", "100mbit", link)
    start = ["qdisc", "add", "dev", "host0"]
    assert first[:7] == [*start, "root", "handle", "1:"]
    assert first[7:] == ["netem", "limit", "10000", "delay", "2ms", "loss", "0.1%"]
    assert second[:9] == [*start, "parent", "1:1", "handle", "10:", "tbf"]


def value(words, name):
    return int(words[words.index(name) + 1].removesuffix("bit"))


def test_a_pair_has_a_class_of_its_own_below_that_of_all():
    commands = links.egress(
        "host0", "90mbit", LinkLimits(), pairs={"198.18.0.12": "20mbit", "198.18.0.13": "80mbit"}
    )
    classes = {words[words.index("classid") + 1]: words for words in commands if words[0] == "class"}
    filters = {words[words.index("dst") + 1]: words[-1] for words in commands if words[0] == "filter"}
    assert filters == {"198.18.0.12/32": "10:3", "198.18.0.13/32": "10:4"}
    ceilings = {name: value(words, "ceil") / 1e6 for name, words in classes.items()}
    assert ceilings == {"10:1": 90, "10:2": 90, "10:3": 20, "10:4": 80}
    # What each class may always send is not more than all may send together.
    assured = sum(value(words, "rate") for name, words in classes.items() if name != "10:1")
    assert assured <= 90e6
    assert commands[0][-2:] == ["default", "2"]


def test_what_a_topology_needs_names_hosts_and_links():
    topology = Topology(
        link=LinkLimits("1gbit", "1gbit"),
        racks=(Rack("a", ("n1",), LinkLimits("100mbit", delay="1ms")),),
        links={"n3": LinkLimits(loss="1%")},
        pairs=(PairLimit("n1", "n2", "10mbit"),),
    )
    assert links.needs(topology) == {
        "tbf": ["the rate of every host", "the rate of the uplink of rack a"],
        "netem": ["the loss of n3", "the delay of the uplink of rack a"],
        "htb": ["the rate from n1 to n2"],
        "u32": ["the rate from n1 to n2"],
    }
    assert links.needs(Topology()) == {}


def test_what_the_kernel_lacks_is_told_before_anything_changes(monkeypatch):
    monkeypatch.setattr(links, "_has", lambda feature: feature != "netem")
    with pytest.raises(UsageError) as caught:
        links.check(Topology(links={"n3": LinkLimits(up="1gbit", delay="1ms", loss="1%")}))
    assert "the delay of n3, the loss of n3: it has no netem (CONFIG_NET_SCH_NETEM)" in str(caught.value)
    assert "tbf" not in str(caught.value)
    links.check(Topology(links={"n3": LinkLimits(up="1gbit")}))


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A node's PID 1 with its end of a link, and the links of this machine, among them what is none."""
    inside = tmp_path / "proc/7/root/sys/class/net/host0"
    inside.mkdir(parents=True)
    (inside / "iflink").write_text("12\n")
    net = tmp_path / "net"
    for name, number in {"eth0": 2, "vb-lab-n1": 12}.items():
        (net / name).mkdir(parents=True)
        (net / name / "ifindex").write_text(f"{number}\n")
    (net / "bonding_masters").write_text("bond0\n")
    (net / "gone").mkdir()
    (net / "hv-lab/brif/vb-lab-n1").mkdir(parents=True)
    monkeypatch.setattr(reality, "PROC", tmp_path / "proc")
    monkeypatch.setattr(links, "_LINKS", net)
    return net


def test_a_port_is_found_among_files_and_links_that_go(machine):
    assert links.port_of(7) == "vb-lab-n1"
    (machine / "vb-lab-n1/ifindex").unlink()
    assert links.port_of(7) is None


KEPT = {"up": "1gbit", "rack": None, "port": "vb-lab-n1", "port_index": 12, "bridge": "hv-lab"}


@pytest.mark.parametrize(
    ("kept", "lost"),
    [
        (KEPT, False),
        # A host that rebooted has another link.
        ({**KEPT, "port_index": 11}, True),
        ({**KEPT, "port": "vb-other"}, True),
        ({**KEPT, "port": None, "port_index": None}, True),
        ({**KEPT, "up": None, "rack": "a", "bridge": "hv1r-lab"}, True),
        ({**KEPT, "up": None, "pairs": {"198.18.0.12": "1mbit"}, "port_index": 11}, True),
        # Nothing was limited, or nothing is known of the link: an earlier hvlab kept less.
        ({**KEPT, "up": None, "pairs": {}, "port_index": 11}, False),
        ({"up": "1gbit", "rack": None}, False),
        ({}, False),
    ],
)
def test_a_link_that_is_not_the_limited_one_has_lost_its_limits(machine, kept, lost):
    assert boot.has_lost_link(kept) is lost
