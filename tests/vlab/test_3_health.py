"""`hvlab health` and the node's own check: right machines are fit, faults put into t2 are told of t2."""

import json
import shutil
import sys
from dataclasses import replace

import pytest
import yaml

# What is done to t2, how it is undone, and the check that must see it.
FAULTS = {
    "mount -o remount,size=1m /dev/shm": ("mount -o remount,size=50% /dev/shm", "memory /dev/shm"),
    "mount -t tmpfs -o size=64m none /var/tmp && fallocate -l 64M /var/tmp/full": (
        "umount /var/tmp",
        "disk space /var/tmp",
    ),
    "mount --bind /home /home && mount -o remount,ro,bind /home": ("umount /home", "disk writable /home"),
    "ip link set hvlab9 down": ("ip link set hvlab9 up", "network link hvlab9"),
}


@pytest.fixture(scope="module")
def second_link(lab):
    """t2 has a second interface, whose link can be taken down."""
    lab.on(
        "t2",
        "ip link add hvlab9 type veth peer name hvlab9p && ip link set hvlab9 up && ip link set hvlab9p up",
    )
    yield
    lab.on("t2", "ip link del hvlab9")


@pytest.fixture(scope="module")
def typed(lab, second_link, tmp_path_factory):
    """The lab with a machine type for t2, which needs both links, and a host that does not answer."""
    folder = tmp_path_factory.mktemp("typed") / "inventory"
    shutil.copytree(lab.inventory, folder)
    hosts = yaml.safe_load((folder / "hosts.yml").read_text())
    hosts["all"]["hosts"] = {"gone": {"ansible_host": "198.18.251.99"}}
    (folder / "hosts.yml").write_text(yaml.safe_dump(hosts))
    (folder / "host_vars").mkdir()
    (folder / "host_vars/t2.yml").write_text("lab_machine_type: two-links\nlab_node_health: true\n")
    (folder / "health").mkdir()
    (folder / "health/two-links.yml").write_text("match: {}\nexpect: {network_interfaces: [host0, hvlab9]}\n")
    return replace(lab, inventory=folder)


def health(lab, *words, expect):
    """Return host -> check -> passed, skipped, unreachable, hard or soft."""
    done = lab.hvlab("health", "--format", "json", *words, expect=expect)
    checks = {}
    for row in json.loads(done.stdout):
        checks.setdefault(row["host"], {})[row["check"]] = row["severity"] or row["outcome"]
    return checks, done.stderr


def hard(checks):
    return {check for check, outcome in checks.items() if outcome == "hard"}


def test_right_machines_are_fit(lab):
    checks, _ = health(lab, expect=0)
    assert set(checks) == {"t1", "t2", "t3"}
    for host in checks.values():
        assert host["network link host0"] == "passed"
        assert host["disk space /"] in ("passed", "soft")
        # No time server is reached from here: that alone makes no machine unfit.
        assert host["clock offset"] == "passed"


def test_a_silent_host_is_named_and_the_others_are_judged(typed):
    checks, said = health(typed, "-l", "t1,gone", expect=3)
    assert checks["gone"] == {"host answers": "unreachable"}
    assert checks["t1"]["memory size"] == "passed"
    assert "no answer from gone" in said


def test_the_node_checks_itself(typed):
    words = ("--tags", "node_health", "--limit", "t2")
    assert typed.playbook("playbooks/base.yml", *words)["t2"] == 1
    assert typed.playbook("playbooks/base.yml", *words)["t2"] == 0
    argv = [sys.executable, "-m", "pytest", "tests/node/test_node_health.py", "--hosts=t2", "-q"]
    done = typed.run([*argv, "-p", "no:cacheprovider", f"--ansible-inventory={typed.inventory}"], 0)
    assert "3 passed" in done.stdout
    assert typed.on("t2", "/opt/hvlab/bin/hvlab-node-health --prolog") == ""


@pytest.fixture(scope="module")
def broken(typed):
    """What `hvlab health` says, and what the node says itself, after everything was done to t2."""
    done = []
    try:
        for fault, (repair, _) in FAULTS.items():
            done.append(repair)
            typed.on("t2", fault)
        checks, said = health(typed, "-l", "t1,t2", expect=1)
        yield checks, said, typed.on("t2", "/opt/hvlab/bin/hvlab-node-health --prolog", expect=1)
    finally:
        for repair in reversed(done):
            typed.on("t2", repair)


def test_faults_are_told_of_their_host_alone(broken):
    checks, said, _ = broken
    assert hard(checks["t2"]) == {check for _, check in FAULTS.values()}
    assert not hard(checks["t1"])
    assert "unfit for work: t2\n" in said


def test_the_node_tells_the_same_in_a_line_each(broken):
    _, _, lines = broken
    assert sorted(line.split(": ")[1] for line in lines.splitlines()) == sorted(
        check for _, check in FAULTS.values()
    )


def test_a_check_that_is_broken_drains_no_node(typed, broken):
    assert broken
    typed.on("t2", "mv /opt/hvlab/health/machine-types.json /root")
    try:
        assert typed.on("t2", "/opt/hvlab/bin/hvlab-node-health --prolog") == ""
        assert "could not run" in typed.on("t2", "journalctl -t hvlab-node-health --no-pager -n 5")
    finally:
        typed.on("t2", "mv /root/machine-types.json /opt/hvlab/health")
