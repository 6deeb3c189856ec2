"""The lab's certificate authorities, with the real ssh-keygen."""

import os
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from hvlab.base.errors import HvlabError
from hvlab.remote import ssh_keys, trust


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("HVLAB_DATA", str(tmp_path / "data"))


@pytest.fixture
def lab(data):
    return trust.ensure_lab_trust("lab1", user="ranks")


@pytest.fixture
def host_key(tmp_path):
    path = tmp_path / "host"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return (tmp_path / "host.pub").read_text().strip()


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_private_files_are_private(lab):
    assert mode(lab.folder) == 0o700
    assert {mode(path) for path in (lab.host_ca, lab.user_ca, lab.identity)} == {0o600}


def test_authorities_are_those_of_a_data_folder(lab, monkeypatch, tmp_path):
    """So a lab has one owner: hosts that trust another's authorities do not trust the first one's."""
    monkeypatch.setenv("HVLAB_DATA", str(tmp_path / "of another person"))
    other = trust.ensure_lab_trust("lab1", user="ranks")
    keys = {
        ssh_keys.public(each) for own in (lab, other) for each in (own.host_ca, own.user_ca, own.identity)
    }
    assert len(keys) == 6


def test_a_second_call_keeps_everything(lab):
    before = {path.name: path.read_bytes() for path in lab.folder.iterdir()}
    again = trust.ensure_lab_trust("lab1", user="ranks")
    assert {path.name: path.read_bytes() for path in again.folder.iterdir()} == before


def test_calls_at_one_time_make_one_trust(data):
    with ThreadPoolExecutor(6) as pool:
        keys = list(pool.map(lambda _: ssh_keys.public(trust.ensure_lab_trust("race").host_ca), range(6)))
    assert len(set(keys)) == 1


def test_a_lost_public_half_is_made_again(lab):
    public = lab.folder / "host_ca.pub"
    key = public.read_text().split()[:2]
    public.unlink()
    trust.ensure_lab_trust("lab1", user="ranks")
    assert public.read_text().split()[:2] == key


def test_nothing_is_there_before_it_is_made(data):
    assert trust.lab_trust("none") is None


def test_user_certificate_is_short_and_backdated(lab):
    held = ssh_keys.read_certificate(lab.certificate.read_text())
    assert held.principals == {"ranks"}
    assert held.ends - held.begins == trust.USER_LIFE + ssh_keys.BACKDATED
    assert timedelta(hours=23) < datetime.now(UTC) - held.begins < timedelta(hours=25)


def test_user_certificate_is_renewed_when_half_is_gone(lab):
    lab.certificate.unlink()
    assert lab.renew_user_certificate("ranks", life=timedelta(minutes=4))
    assert not lab.user_certificate_good("ranks")


def test_user_certificate_is_renewed_for_another_user(lab):
    assert not lab.renew_user_certificate("ranks")
    assert lab.renew_user_certificate("other")


def test_host_certificate_is_kept_while_it_does(lab, host_key):
    wanted = ["n1", "198.18.0.11"]
    first = lab.sign_host(host_key, name="n1", principals=wanted)
    assert lab.sign_host(host_key, name="n1", principals=wanted, current=first + "\n") == first
    held = ssh_keys.read_certificate(first)
    assert held.principals == set(wanted)
    assert held.authority == ssh_keys.fingerprint(ssh_keys.public(lab.host_ca))


@pytest.mark.parametrize("principals", [["n1"], ["n1", "198.18.0.11", "node"]])
def test_host_certificate_follows_the_names(lab, host_key, principals):
    first = lab.sign_host(host_key, name="n1", principals=["n1", "198.18.0.11"])
    assert lab.sign_host(host_key, name="n1", principals=principals, current=first) != first


def test_a_host_may_have_capitals_in_its_name(lab, host_key):
    """ssh looks for n1 in the certificate, and refused a host that had N1 there."""
    first = lab.sign_host(host_key, name="N1", principals=["N1", "FE80::1"])
    assert ssh_keys.read_certificate(first).principals == {"n1", "fe80::1"}
    assert trust.check_names(["::1", "N1"]) == ["::1", "n1"]
    assert lab.sign_host(host_key, name="N1", principals=["N1", "FE80::1"], current=first) == first


def test_certificate_of_another_key_or_rubbish_is_replaced(lab, host_key):
    other = lab.sign_host(ssh_keys.public(lab.identity), name="n1", principals=["n1"])
    for current in (other, "rubbish", host_key):
        new = lab.sign_host(host_key, name="n1", principals=["n1"], current=current)
        assert ssh_keys.read_certificate(new).key == ssh_keys.fingerprint(host_key)


def test_known_hosts_is_one_line_of_the_host_ca(lab):
    text = lab.known_hosts_text({"n1": ["198.18.0.11"], "n2": []}, ports=[22, 2222])
    mark, names, *key = text.split()
    assert mark == "@cert-authority"
    assert names.split(",") == [
        "198.18.0.11", "n1", "n2", "[198.18.0.11]:2222", "[n1]:2222", "[n2]:2222",
    ]  # fmt: skip
    assert key[:2] == ssh_keys.public(lab.host_ca).split()[:2]
    assert lab.write_known_hosts(text)
    assert not lab.write_known_hosts(text)


def test_an_old_ssh_can_read_the_known_hosts_of_many_hosts(lab):
    hosts = {f"gpu-node-{number:03}.cluster.example.com": [f"10.1.2.{number}"] for number in range(200)}
    lines = lab.known_hosts_text(hosts, ports=[2222]).splitlines()
    assert max(map(len, lines)) < 8192
    names = [name for line in lines for name in line.split()[1].split(",")]
    assert len(names) == len(set(names)) == 4 * len(hosts)


def test_a_bad_host_key_is_refused_with_what_ssh_keygen_says(lab):
    with pytest.raises(HvlabError, match="ssh-keygen refused"):
        lab.sign_host("ssh-ed25519 nonsense", name="n1", principals=["n1"])


def test_a_folder_that_cannot_be_made_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HVLAB_DATA", str(tmp_path / "file"))
    with pytest.raises(HvlabError, match="cannot be kept") as caught:
        trust.ensure_lab_trust("lab1")
    assert "HVLAB_DATA" in caught.value.remedy


def test_a_key_that_others_may_read_is_ours_alone_again(lab):
    for key in (lab.host_ca, lab.user_ca, lab.identity):
        key.chmod(0o644)
    trust.ensure_lab_trust("lab1", user="ranks")
    assert {mode(path) for path in (lab.host_ca, lab.user_ca, lab.identity)} == {0o600}
    lab.identity.chmod(0o644)
    assert trust.lab_trust("lab1") == lab
    assert mode(lab.identity) == 0o600


@pytest.mark.parametrize("name", ["host_ca", "user_ca", "id_ed25519"])
@pytest.mark.parametrize("harm", ["emptied", "cut", "other text"])
def test_a_damaged_key_is_named_and_made_anew_only_on_request(lab, name, harm):
    key = lab.folder / name
    public = ssh_keys.public(key)
    text = key.read_text()
    key.write_text({"emptied": "", "cut": text[: len(text) // 2], "other text": "no key\n"}[harm])
    for act in (lambda: trust.ensure_lab_trust("lab1", user="ranks"), lambda: trust.check_keys(lab)):
        with pytest.raises(HvlabError, match="damaged") as raised:
            act()
        assert str(key) in str(raised.value)
        assert "hvlab keys init" in raised.value.remedy
    trust.ensure_lab_trust("lab1", user="ranks", fresh=True)
    assert ssh_keys.public(key) != public
    assert trust.find_damaged(lab) == []
    assert lab.user_certificate_good("ranks")


def test_a_public_half_of_another_key_is_made_again(lab):
    key = ssh_keys.public(lab.host_ca).split()[:2]
    (lab.folder / "host_ca.pub").write_text(ssh_keys.public(lab.user_ca) + "\n")
    trust.ensure_lab_trust("lab1", user="ranks")
    assert ssh_keys.public(lab.host_ca).split()[:2] == key


def test_folders_of_keys_are_private_whatever_the_umask(tmp_path, monkeypatch):
    monkeypatch.setenv("HVLAB_DATA", str(tmp_path / "new/deep"))
    before = os.umask(0)
    try:
        made = trust.ensure_lab_trust("lab1", user="ranks")
    finally:
        os.umask(before)
    assert {mode(folder) for folder in (made.folder, *made.folder.parents[:3])} == {0o700}


def test_every_key_ever_signed_for_a_host_is_kept(lab, host_key):
    first = ssh_keys.public(lab.identity)
    for key in (first, host_key, host_key):
        lab.sign_host(key, name="n3", principals=["n3"])
    assert lab.host_keys("n3") == [" ".join(key.split()[:2]) for key in (first, host_key)]


def test_the_former_key_of_a_host_that_was_installed_anew_is_revoked(lab, host_key):
    lab.sign_host(host_key, name="n3", principals=["n3"])
    shown = {"n2": ssh_keys.public(lab.identity), "n3": host_key}
    assert trust.revoke_former(lab, shown) == []
    assert lab.revoked_text == ""
    assert trust.revoke_former(lab, shown | {"n3": shown["n2"]}) == ["n3"]
    assert lab.revoked_text.split() == host_key.split()[:2]
    lab.sign_host(shown["n2"], name="n3", principals=["n3"])
    assert trust.revoke_former(lab, shown | {"n3": shown["n2"]}) == []


def test_a_key_that_another_host_has_is_not_signed(lab, host_key):
    """It would be revoked with the host that showed it, and pass for the other one."""
    lab.sign_host(host_key, name="n2", principals=["n2"])
    assert lab.sign_host(host_key, name="n2", principals=["n2"], others=["n2", "n3"])
    # Also when n2 has a new one.
    lab.sign_host(ssh_keys.public(lab.identity), name="n2", principals=["n2"])
    with pytest.raises(ssh_keys.TrustError, match=r"its host key is one that n2 has or had"):
        lab.sign_host(host_key, name="n3", principals=["n3"], others=["n2", "n3"])
    assert lab.host_keys("n3") == []


@pytest.mark.parametrize("name", ["n3,n1", "n3\n* ssh-ed25519 AAAA", "n3 n1", "-n3", "*", "!n1"])
def test_what_is_no_name_is_neither_signed_nor_known(lab, host_key, name):
    with pytest.raises(ssh_keys.TrustError, match="neither a host name nor an address"):
        lab.sign_host(host_key, name="n3", principals=["n3", name])
    with pytest.raises(ssh_keys.TrustError, match="neither a host name nor an address"):
        lab.known_hosts_text({"n3": [name]})
