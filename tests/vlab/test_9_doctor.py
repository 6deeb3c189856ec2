"""`hvlab doctor` on two virtual hosts: nothing where all is well, and each of the faults planted at once."""

import json

import pytest

from tests.vlab.labs import booted

pytestmark = pytest.mark.doctor

# The name of another machine, a folder without room for others, a closed port; what roles fix; the rest.
PLANTED = {
    "p1": "sed -i '1i 198.18.61.99 p2' /etc/hosts; chmod 0755 /tmp",
    "p2": "chmod 0644 /home/hvlab/.ssh/id_ed25519; rm /opt/hvlab/openmpi/current/bin/orted; "
    "mount -o remount,size=32m /dev/shm; ip link set host0 mtu 1400; "
    # What p2 answers from the ports that hvlab tries is dropped; 6 is TCP.
    "ip rule add ipproto 6 sport 20000-29999 blackhole",
}
TAKEN_BACK = {
    "p1": "sed -i '/^198.18.61.99 p2/d' /etc/hosts; chmod 1777 /tmp",
    "p2": "mount -o remount,size=1g /dev/shm; ip link set host0 mtu 1500; "
    "ip rule del ipproto 6 sport 20000-29999 blackhole",
}
# What is seen, on which hosts, and whether a role fixes it.
OBSERVED = {
    ("name-wrong-address", "p1", None),
    ("session-dir", "p1", None),
    ("ssh-key-modes", "p2", "ssh_trust"),
    ("orted-not-found", "p2", "openmpi"),
    ("shm-too-small", "p2", None),
    ("mtu-differs", "p1,p2", None),
    ("tcp-firewall", "p1", None),
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with booted("doctor", tmp_path_factory) as booted_lab:
        booted_lab.playbook("playbooks/base.yml")
        booted_lab.playbook("playbooks/mpi.yml")
        yield booted_lab


def findings(lab, expect):
    printed = json.loads(lab.hvlab("doctor", "--format", "json", expect=expect).stdout)
    return {
        (each["id"], ",".join(each["hosts"]), each["role"]): each["observed"] for each in printed["findings"]
    }


def test_faults_are_named_mended_and_gone(lab):
    assert findings(lab, 0) == {}
    for host, command in PLANTED.items():
        lab.on(host, command)
    observed = findings(lab, 1)
    assert set(observed) == OBSERVED
    assert "from p1 to p2 (198.18.61.12)" in observed["tcp-firewall", "p1", None]
    assert "from p2 to p1 it passes" in observed["tcp-firewall", "p1", None]

    assert "add --yes" in lab.hvlab("doctor", "--fix", expect=2).stderr
    printed = lab.hvlab("doctor", "--fix", "--yes", expect=1).stdout
    assert "--fix runs: hvlab provision -l p2 -t ssh_trust,openmpi" in printed
    assert "no role fixes: p2: /dev/shm is too small" in printed
    gone = [line for line in printed.splitlines() if line.startswith("gone: ")]
    assert len(gone) == 2
    assert all(line.startswith("gone: p2: ") for line in gone)
    left = printed.partition("\nleft:\n")[2]
    assert left.count("\n  observed: ") == len([each for each in OBSERVED if each[2] is None])
    assert "--fix runs" not in left

    for host, command in TAKEN_BACK.items():
        lab.on(host, command)
    assert "nothing known is wrong on p1, p2" in lab.hvlab("doctor").stdout


def test_a_host_that_no_longer_knows_the_users_ca_is_mended(lab):
    """The host that logs in has all it needs: provisioning it alone would change nothing."""
    lab.on("p2", "rm /etc/ssh/hvlab_user_ca.pub")
    observed = findings(lab, 1)
    assert set(observed) == {("ssh-denied", "p1,p2", "ssh_trust")}
    assert "from p1 to p2" in observed["ssh-denied", "p1,p2", "ssh_trust"]
    assert "nothing is left" in lab.hvlab("doctor", "--fix", "--yes").stdout
