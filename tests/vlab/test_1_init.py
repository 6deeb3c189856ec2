"""`hvlab init` on real sshds: what it writes is an inventory that plan and bench accept."""

import subprocess
import sys
from pathlib import Path

import pytest

from hvlab.lab.inventory import load

pytestmark = pytest.mark.site

SSH = "/var/lib/hvlab/vmain/ssh"
HOSTS = "t[1:3]=198.18.251.[11:13]"
# A user that t1 lets in, but without sudo; t2 knows no such user, and at .99 is nobody.
PLAIN = """
useradd --create-home plain && install -d -o plain -m 0700 ~plain/.ssh &&
install -o plain -m 0600 /root/.ssh/authorized_keys ~plain/.ssh/ """


@pytest.fixture
def init(bare, tmp_path):
    """Run `hvlab init` into tmp_path/mylab and return what it printed."""

    def run(*words, expect=0):
        argv = [sys.executable, "-m", "hvlab", "init", str(tmp_path / "mylab"), "--key", f"{SSH}/id_ed25519"]
        return bare.run([*argv, "--known-hosts", str(tmp_path / "known_hosts"), *words], expect)

    return run


def test_its_inventory_is_accepted(init, bare, tmp_path):
    listing = subprocess.check_output(["ssh-keygen", "-lf", f"{SSH}/known_hosts"], text=True)
    prints = [line.split() for line in listing.splitlines()]
    (tmp_path / "prints").write_text("".join(f"{words[2].split(',')[0]} {words[1]}\n" for words in prints))
    init(HOSTS, "--user", "root", "--fingerprints", str(tmp_path / "prints"))
    lab = load(tmp_path / "mylab")
    told = [(host.name, host.address, host.user, host.gpu) for host in lab.hosts]
    assert told == [(f"t{number}", f"198.18.251.1{number}", "root", False) for number in (1, 2, 3)]
    assert (lab.network, lab.interface) == ("198.18.251.0/24", "host0")
    assert {host.slots for host in lab.hosts} == {int(bare.on("t1", "nproc"))}
    for verb in (["plan"], ["bench", "--dry-run", "-v"]):
        done = bare.run([sys.executable, "-m", "hvlab", *verb, "-i", str(tmp_path / "mylab")], 0)
        assert "t3" in done.stdout or "198.18.251.13" in done.stdout


def test_every_host_that_is_not_in_order_is_named(init, bare, tmp_path):
    bare.on("t1", PLAIN)
    try:
        hosts = ["--hosts", f"{HOSTS},t4=198.18.251.99", "--user", "plain"]
        done = init(*hosts, "--accept-new-keys", expect=3)
    finally:
        # Ansible's connection is still open.
        bare.on("t1", "userdel --force --remove plain 2>/dev/null")
    assert "mylab is written without t2, t3, t4:" in done.stderr
    assert "t2: it refuses the login of plain: plain@198.18.251.12: Permission denied" in done.stderr
    assert "t4: 198.18.251.99:22" in done.stderr
    assert "t1: plain has no root rights through sudo" in done.stderr
    assert [host.name for host in load(tmp_path / "mylab").hosts] == ["t1"]


def test_a_changed_key_is_refused(init, tmp_path):
    _, second, *_ = (line.split() for line in Path(SSH, "known_hosts").read_text().splitlines())
    (tmp_path / "known_hosts").write_text(f"198.18.251.11 {' '.join(second[1:])}\n")
    done = init(HOSTS, "--user", "root", "--accept-new-keys", expect=3)
    assert "t1: ITS HOST KEY HAS CHANGED" in done.stderr
    assert not (tmp_path / "mylab").exists()
