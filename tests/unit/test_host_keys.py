"""SSH host keys: known, new, changed, revoked, trusted; and the file that records them."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from paramiko.hostkeys import HostKeyEntry

from hvlab.base.errors import HvlabError, UsageError
from hvlab.remote.host_keys import ShownKeys, compare, find_shared_keys, read_fingerprints, select_trusted
from hvlab.remote.known_hosts import KnownKeys, entry_name, known_hosts_files, read_known_keys, record
from tests.unit.labs import lab

# Made by ssh-keygen; the fingerprints are those that `ssh-keygen -lf` prints of them.
ONE = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPOMMDcjvXwa1rTNMlGvyFU5lZNx/u5HDuaeO86uGQz5"
ONE_PRINT = "SHA256:OXi9Fr2+wOKhE2DeEX7fROiFBMA7eC4xGPxyMSl7+Ik"
ECDSA = (
    "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBHtn2/MCZKyiQenk1yr5t6CfQuL50g"
    "CcRnVti33UXbVbUkyz9FXKXpsRfHlR4RiIv0g/MbfMAcrxF99yINqr8HU="
)
ECDSA_PRINT = "SHA256:dbihckJTX4MvJwv/+NKfnTkxw/UbDB47n+qpd7k3aXU"
TWO = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILJimTjFF7x8NzTMzC0OluNp/bfTvc9ojfHZJxfR/Yxv"
TWO_PRINT = "SHA256:V/+mwcAsQg1bo3PZpcG701+aqp/c1xQxBR85r9ik7iY"

N1, N2, _ = lab(3).hosts
N1_ODD = replace(N1, port=2222)


def key(text):
    return HostKeyEntry.from_line(f"x {text}").key


@pytest.fixture
def file(tmp_path):
    return tmp_path / "known_hosts"


def test_a_fingerprint_is_written_as_ssh_keygen_does():
    assert [key(text).fingerprint for text in (ONE, ECDSA, TWO)] == [ONE_PRINT, ECDSA_PRINT, TWO_PRINT]


@pytest.mark.parametrize(
    ("line", "host"),
    [
        (f"10.0.0.1 {ONE}", N1),
        (f"gpu,10.0.0.1 {ONE} a comment", N1),
        (f"10.0.0.* {ONE}", N1),
        (f"[10.0.0.1]:2222 {ONE}", N1_ODD),
        # As `ssh-keygen -H` writes it.
        (
            f"|1|KRTS8ioIZlSjKmMynUS6C93B5UY=|Q2VH+5Uzp48FnsXOolwfGdSmwlA= {ONE}",
            replace(N1, address="192.168.1.61"),
        ),
    ],
)
def test_a_known_key_is_read_in_every_form(file, line, host):
    file.write_text(f"# comment\n\nbroken line\n10.0.0.1 ssh-ed25519 ====\n|1|x|y {TWO}\n{line}\n")
    assert read_known_keys([entry_name(host)], [file, Path("/no/such/file")]).keys == (key(ONE),)


@pytest.mark.parametrize(
    "line",
    [
        f"10.0.0.*,!10.0.0.1 {ONE}",
        f"10.0.0.2 {ONE}",
        f"[10.0.0.1]:2222 {ONE}",
        f"n1 {ONE}",
        f"10.0.0.11 {ONE}",
    ],
)
def test_the_key_of_another_address_is_none_of_its(file, line):
    file.write_text(line + "\n")
    assert read_known_keys([entry_name(N1)], [file]) == KnownKeys()


def test_marks_are_read(file):
    file.write_text(f"@cert-authority *.0.0.1 {TWO}\n@revoked\t* {ONE}\n")
    assert read_known_keys([entry_name(N1)], [file]) == KnownKeys(revoked=(key(ONE),), by_authority=True)


def test_a_file_in_the_inventorys_options_may_have_a_space(tmp_path):
    host = replace(N1, vars={"ansible_ssh_common_args": "-o 'UserKnownHostsFile=\"/a b/known_hosts\"'"})
    assert known_hosts_files(host) == [Path("/a b/known_hosts")]


def test_a_new_key_is_new_and_a_known_one_is_not(file):
    keys = [key(ONE), key(ECDSA)]
    assert compare(N1, keys, KnownKeys(), [file]) == ShownKeys(N1, new=tuple(keys))
    assert compare(N1, keys, KnownKeys((key(ECDSA),)), [file]) == ShownKeys(N1)
    assert compare(N1, keys, KnownKeys(by_authority=True), [file]) == ShownKeys(N1)


@pytest.mark.parametrize("before", [TWO, ECDSA])
def test_a_changed_key_is_refused_with_both_fingerprints(before, file):
    """Another kind of key than the known one is a change as well: ssh would not accept it either."""
    shown = compare(N1_ODD, [key(ONE)], KnownKeys((key(before),)), [file])
    assert shown.refused
    assert shown.new == ()
    assert "CHANGED" in shown.problem.observed
    assert ONE_PRINT in shown.problem.observed
    assert key(before).fingerprint in shown.problem.observed
    assert f"ssh-keygen -R '[10.0.0.1]:2222' -f {file}" in shown.problem.remedy


def test_a_revoked_key_is_refused_although_it_is_known(file):
    shown = compare(N1, [key(ONE)], KnownKeys((key(ONE),), revoked=(key(ONE),)), [file])
    assert shown.refused
    assert "revoked" in shown.problem.observed


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        (f"n1 {ONE_PRINT}", [ONE]),
        (f"10.0.0.1 {ONE_PRINT} # the console's\n\n", [ONE]),
        (f"n1 {ONE_PRINT}\nn1 {ECDSA_PRINT}", [ONE, ECDSA]),
        (ECDSA_PRINT, [ECDSA]),
        (f"256 {ONE_PRINT} root@image (ED25519)", [ONE]),
        # What a host has of its own outranks what holds for any.
        (f"n1 {ECDSA_PRINT}\n{ONE_PRINT}", [ECDSA]),
        (f"n2 {ONE_PRINT}", []),
        (f"n1 {TWO_PRINT}", []),
    ],
)
def test_only_trusted_keys_are_accepted(tmp_path, text, accepted):
    file = tmp_path / "fingerprints"
    file.write_text(text)
    shown = select_trusted(ShownKeys(N1, new=(key(ONE), key(ECDSA))), read_fingerprints(file))
    assert shown.new == tuple(map(key, accepted))
    assert shown.refused == (not accepted)
    if shown.refused:
        assert ONE_PRINT in shown.problem.observed
        assert str(file) in shown.problem.observed


@pytest.mark.parametrize("line", ["n1 MD5:aa:bb", "n1", f"n1 {ONE_PRINT[:-1]}", f"{ONE_PRINT} {TWO_PRINT}"])
def test_a_line_without_one_fingerprint_is_refused(tmp_path, line):
    file = tmp_path / "fingerprints"
    file.write_text(f"# mine\n{line}\n")
    with pytest.raises(UsageError, match="line 2: no SHA256 fingerprint"):
        read_fingerprints(file)


def test_a_fingerprint_may_name_the_host_with_its_port(tmp_path):
    """As known_hosts does; otherwise what holds for any host would count for it."""
    file = tmp_path / "fingerprints"
    file.write_text(f"[10.0.0.1]:2222 {TWO_PRINT}\n{ONE_PRINT}\n")
    assert select_trusted(ShownKeys(N1_ODD, new=(key(ONE),)), read_fingerprints(file)).refused


def test_a_key_of_two_hosts_is_named():
    other = ShownKeys(replace(N2, name="n3"), new=(key(TWO),))
    [problem] = find_shared_keys([ShownKeys(N1, new=(key(ONE),)), ShownKeys(N2, new=(key(ONE),)), other])
    assert problem.host == "n1, n2"
    assert ONE_PRINT in problem.observed


@pytest.mark.parametrize("hashed", [True, False])
def test_ssh_itself_reads_what_is_recorded(file, hashed):
    file.write_text("10.0.0.9 ssh-ed25519 AAAA")
    file.chmod(0o644)
    assert (
        record(file, [(N1, [key(ONE), key(ECDSA)]), (replace(N2, port=2222), [key(TWO)])], hashed=hashed) == 3
    )
    assert file.stat().st_mode & 0o777 == 0o644
    text = file.read_text()
    assert text.startswith("10.0.0.9 ssh-ed25519 AAAA\n")
    assert ("10.0.0.1" in text) != hashed
    for name, lines in (("10.0.0.1", [ONE, ECDSA]), ("[10.0.0.2]:2222", [TWO]), ("10.0.0.2", [])):
        argv = ["ssh-keygen", "-F", name, "-f", str(file)]
        shown = subprocess.run(argv, capture_output=True, text=True, check=False).stdout.splitlines()
        assert [line.split(" ", 1)[1] for line in shown if not line.startswith("#")] == lines
    assert read_known_keys([entry_name(N1)], [file]).keys == (key(ONE), key(ECDSA))


def test_a_new_file_is_the_owners_alone(tmp_path):
    file = tmp_path / "ssh/known_hosts"
    assert record(file, [(N1, [])], hashed=False) == 0
    assert not file.exists()
    record(file, [(N1, [key(ONE)])], hashed=False)
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert [path.name for path in file.parent.iterdir()] == ["known_hosts"]


def test_what_ssh_adds_meanwhile_stays(file):
    """The file was read, and replaced as a whole."""

    def add(number):
        with file.open("a") as known:
            known.write(f"10.0.1.{number} {TWO}\n")

    with ThreadPoolExecutor(1) as other:
        adding = other.map(add, range(200))
        for _ in range(50):
            record(file, [(N1, [key(ONE)])], hashed=False)
        list(adding)
    # Read while another adds, the end may look cut off; the empty line that follows then says nothing.
    lines = [line for line in file.read_text().splitlines() if line]
    assert sorted(lines) == sorted(
        [f"10.0.0.1 {ONE}"] * 50 + [f"10.0.1.{number} {TWO}" for number in range(200)]
    )


def test_a_link_stays_a_link(tmp_path, file):
    file.symlink_to(tmp_path / "elsewhere")
    record(file, [(N1, [key(ONE)])], hashed=False)
    assert file.is_symlink()
    assert (tmp_path / "elsewhere").read_text() == f"10.0.0.1 {ONE}\n"


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(HvlabError, match="cannot be recorded") as caught:
        record(tmp_path / "file/known_hosts", [(N1, [key(ONE)])], hashed=False)
    assert "--known-hosts" in caught.value.remedy
