"""Names and rates of a virtual lab."""

from ipaddress import IPv4Network

import pytest

from hvlab.base.errors import UsageError
from hvlab.vlab import names


@pytest.mark.parametrize("lab", ["lab", "a", "a-very-long-name-of-a-lab-0123456", "under_score"])
def test_links_and_machines_have_names_the_kernel_takes(lab):
    assert len(names.bridge(lab)) <= 15
    assert names.bridge(lab).startswith("hv-")
    assert len(names.machine(lab, "n" * 63)) <= 64


def test_names_of_different_labs_differ():
    labs = ["lab", "a_b", "a-b", "a-very-long-name-of-a-lab-1", "a-very-long-name-of-a-lab-2"]
    for name in (names.bridge, names.table, names.mac):
        assert len({name(lab) for lab in labs}) == len(labs)


def test_plain_names_stay_readable():
    assert names.bridge("lab") == "hv-lab"
    assert names.table("lab") == "hvlab_lab"
    assert names.machine("lab", "n1") == "lab-n1"


@pytest.mark.parametrize("lab", ["", "..", "a/b", "Lab", "-a", "a b", "x" * 32, "a\nb"])
def test_a_lab_name_that_cannot_name_files_is_refused(lab):
    with pytest.raises(UsageError, match="lab_name"):
        names.check_lab_name(lab)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("11", "bullseye"),
        ("12", "bookworm"),
        ("13", "trixie"),
        ("bookworm", "bookworm"),
        ("Trixie", "trixie"),
        ("el9", "el9"),
        ("EL10", "el10"),
        ("amzn2023", "amzn2023"),
    ],
)
def test_releases(wanted, expected):
    assert names.release(wanted) == expected


def test_an_unknown_release_names_the_known_ones():
    with pytest.raises(UsageError) as caught:
        names.release("jammy")
    assert "bookworm (12)" in str(caught.value.remedy)
    assert "el9" in str(caught.value.remedy)


def test_the_red_hat_family_stands_on_a_debian():
    assert {names.debian(release) for release in names.REDHAT} == {names.DEFAULT_RELEASE}
    assert names.debian("trixie") == "trixie"


@pytest.mark.parametrize(
    ("wanted", "bits"),
    [("1gbit", 10**9), ("100mbit", 10**8), ("1.5Gbit", 15 * 10**8), ("10mbps", 8 * 10**7), ("9600bit", 9600)],
)
def test_rates(wanted, bits):
    assert names.rate(wanted) == bits


@pytest.mark.parametrize(
    "wanted", ["fast", "1", "0gbit", "-1gbit", "1gbit; reboot", "1 gbit", "9" * 400 + "gbit"]
)
def test_a_wrong_rate_is_refused(wanted):
    with pytest.raises(UsageError, match="rate"):
        names.rate(wanted)


@pytest.mark.parametrize(("text", "size"), [("512m", 512 << 20), ("2g", 2 << 30), ("1.5 GiB", 3 << 29)])
def test_amounts_of_memory(text, size):
    assert names.memory(text) == size


@pytest.mark.parametrize("text", ["", "2", "much", "0g", "-1g", "9" * 400 + "g"])
def test_a_wrong_amount_of_memory_is_refused(text):
    with pytest.raises(UsageError, match="is not an amount of memory"):
        names.memory(text)


def test_the_bridge_has_the_first_address():
    assert names.gateway(IPv4Network("198.18.0.0/24")) == "198.18.0.1"


def test_a_mac_address_is_local_and_unicast():
    assert int(names.mac("lab").split(":")[0], 16) & 0b11 == 0b10
