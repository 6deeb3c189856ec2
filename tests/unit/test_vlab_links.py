"""What links may carry, as commands of tc; and what the kernel must have for that."""

import pytest

from hvlab.errors import UsageError
from hvlab.vlab import links
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
