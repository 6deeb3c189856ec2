"""`hvlab keys` on three virtual hosts: nobody is locked out while keys are replaced, and a lost host is."""

import subprocess
import sys
import threading
import time

import pytest

from tests.vlab.labs import PROJECT, booted

pytestmark = pytest.mark.keys

HOSTS = ("y1", "y2", "y3")
LOG_IN = "runuser -u hvlab -- ssh -o ControlPath=none {} hostname"


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with booted("keys", tmp_path_factory) as booted_lab:
        booted_lab.playbook("playbooks/base.yml")
        yield booted_lab


def logins(lab):
    """Try each host from each other one; return those that failed."""
    return [
        (host, peer)
        for host in HOSTS
        for peer in HOSTS
        if peer != host and lab.on(host, f"{LOG_IN.format(peer)} || true").strip() != peer
    ]


def refused(lab):
    """Try each host from each other one; return what ssh said where a key was not accepted.

    A login that begins in the instant in which a host's key and certificate are replaced may fail: it is
    tried again, once. On a busy machine a login may time out, which says nothing about keys.
    """
    again = 'out=$({0} 2>&1) || {{ sleep 1; out=$({0} 2>&1); }}; echo "$out"'
    printed = [
        lab.on(host, again.format(LOG_IN.format(peer))) for host in HOSTS for peer in HOSTS if peer != host
    ]
    return [
        text for text in printed if "denied" in text or "verification failed" in text or "revoked" in text
    ]


def authorities(lab):
    return {lab.on(host, "cat /etc/ssh/hvlab_user_ca.pub") for host in HOSTS}


def test_hosts_log_in_all_the_time_while_keys_are_replaced(lab):
    before, identity = authorities(lab), lab.on("y1", "cat /home/hvlab/.ssh/id_ed25519.pub")
    failures, count, ended = [], 0, threading.Event()

    def try_on():
        nonlocal count
        while not ended.is_set():
            failures.extend(refused(lab))
            count += 1

    trying = threading.Thread(target=try_on)
    trying.start()
    try:
        lab.hvlab("keys rotate")
    finally:
        ended.set()
        trying.join()
    assert count > 0
    assert failures == []
    assert logins(lab) == []
    after = authorities(lab)
    assert len(before) == len(after) == 1
    assert before != after
    assert len(after.pop().splitlines()) == 1
    assert lab.on("y1", "cat /home/hvlab/.ssh/id_ed25519.pub") != identity
    assert "none under way" in lab.hvlab("keys status").stdout


@pytest.mark.parametrize("step", ["2 of 3", "3 of 3"])
def test_a_rotation_that_is_killed_locks_nobody_out_and_goes_on(lab, step):
    before = authorities(lab)
    argv = lab.argv("keys rotate")
    with subprocess.Popen(
        argv, cwd=PROJECT, env=lab.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as rotation:
        for line in rotation.stderr:
            if line.startswith(step):
                break
        time.sleep(3 if step == "2 of 3" else 1)
        rotation.kill()
    children = subprocess.run(["pkill", "-f", f"{lab.inventory}.*ssh_trust"], check=False)
    assert children.returncode in (0, 1)
    assert logins(lab) == []
    assert "begun" in lab.hvlab("keys status").stdout
    lab.hvlab("keys rotate")
    assert logins(lab) == []
    assert authorities(lab) != before
    assert "none under way" in lab.hvlab("keys status").stdout


def test_lost_authorities_are_made_anew(lab):
    folder = lab.data / "trust/vkeys"
    for name in ("host_ca", "host_ca.pub", "user_ca", "user_ca.pub"):
        (folder / name).unlink()
    assert "has no keys" in lab.hvlab("keys status", expect=1).stderr
    lab.hvlab("keys init")
    lab.hvlab("keys issue")
    assert logins(lab) == []


def test_a_host_that_was_lost_is_let_in_nowhere_and_nobody_trusts_it(lab):
    lab.hvlab("keys revoke", "y3")
    assert set(logins(lab)) == {("y1", "y3"), ("y2", "y3"), ("y3", "y1"), ("y3", "y2")}
    said = lab.run([sys.executable, "-m", "hvlab", "keys", "issue", "-i", str(lab.inventory), "-l", "y3"], 1)
    assert "y3: its host key was revoked" in said.stdout
    lab.hvlab("keys issue", "-l", "y1,y2")
    assert set(logins(lab)) == {("y1", "y3"), ("y2", "y3"), ("y3", "y1"), ("y3", "y2")}
