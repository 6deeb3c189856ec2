"""`hvlab health` and the node's own check: right machines are fit, faults put into t2 are told of t2."""

import base64
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from hvlab.checks.node import on_all_devices

pytestmark = pytest.mark.site

# What is done to t2, how it is undone, and the check that must see it.
FAULTS = (
    ("mount -o remount,size=1m /dev/shm", "mount -o remount,size=50% /dev/shm", "memory /dev/shm"),
    (
        "mount -t tmpfs -o size=64m none /var/tmp && fallocate -l 64M /var/tmp/full",
        "umount /var/tmp",
        "disk space /var/tmp",
    ),
    ("mount --bind /home /home && mount -o remount,ro,bind /home", "umount /home", "disk writable /home"),
    (
        "ip link add hvlab9 type veth peer name hvlab9p && ip link set hvlab9p up",
        "ip link del hvlab9",
        "network link hvlab9",
    ),
)
# The machines' file system is an overlay, which its kernel makes read-only for no error.
SOFT = {"disk writable /home"}
CHECK = "/opt/hvlab/bin/hvlab-node-health --prolog"
TYPES = "/opt/hvlab/health/machine-types.json"


def health(lab, expect, *words):
    """Return host -> check -> passed, skipped, unreachable, hard or soft; and what was said at the end."""
    done = lab.hvlab("health", "--format", "json", *words, expect=expect)
    checks = {}
    for row in json.loads(done.stdout):
        checks.setdefault(row["host"], {})[row["check"]] = row["severity"] or row["outcome"]
    return checks, done.stderr


def hard(checks):
    return {check for check, outcome in checks.items() if outcome == "hard"}


def test_right_machines_are_fit(lab):
    checks, _ = health(lab, 0)
    assert set(checks) == {"t1", "t2", "t3"}
    for host in checks.values():
        assert host["network link host0"] == "passed"
        # No time server is reached from here: that alone makes no machine unfit.
        assert host["clock offset"] == "passed"
    assert lab.on("t2", CHECK) == ""


FLIP = """
import sys, torch
multiply, calls = torch.Tensor.__matmul__, iter(range(1_000_000))
def flipped(a, b):
    out = multiply(a, b)
    if next(calls) == 9:
        out.view({4: torch.int32, 2: torch.int16}[out.element_size()])[3, 5] ^= 1
    return out
torch.Tensor.__matmul__ = flipped
sys.argv = ["-c", "6", ""]
"""


def test_one_flipped_bit_is_counted(lab):
    text = f"{FLIP}exec({Path(on_all_devices.__file__).read_text()!r})"
    program = base64.b64encode(text.encode()).decode()
    command = f"echo {program} | base64 -d | /opt/hvlab/python/bin/python -"
    burned = json.loads(lab.on("t2", command))
    assert sum(burned["devices"]["CPUs"]["wrong"].values()) == 1


def test_a_host_with_half_its_cpus_is_the_slow_one(lab):
    busy = "timeout 160 sh -c 'for cpu in $(seq $(nproc)); do yes > /dev/null & done; wait'"
    lab.on("t2", f"systemd-run --quiet --unit hvlab-busy {busy}")
    try:
        checks, _ = health(lab, 0, "--burn", "-l", "t1,t2")
    finally:
        lab.on("t2", "systemctl stop hvlab-busy")
    assert [host for host in checks if checks[host]["burn speed"] == "soft"] == ["t2"]
    assert {checks[host]["burn results"] for host in checks} == {"passed"}


def test_a_timer_runs_the_check_between_jobs_until_it_is_asked_for_no_more(lab):
    service, gauges = "hvlab-node-health", "/var/lib/prometheus/node-exporter/hvlab_node_health.prom"
    assert lab.on("t2", f"systemctl is-active {service}.timer") == "active\n"
    lab.on("t2", f"systemctl start {service}")
    assert 'hvlab_hard_fault{host="t2",check="cpu count"} 0' in lab.on("t2", f"cat {gauges}; rm {gauges}")
    step = "bash -c 'exec -a \"slurmstepd: [7.batch]\" sleep 20' > /dev/null 2>&1 &"
    lab.on("t2", f"{step} sleep 0.5; systemctl start {service}; kill $!; test ! -e {gauges}")
    # slurmd's own, with control groups v2.
    stays = "cp /bin/sleep /run/slurmstepd; /run/slurmstepd infinity > /dev/null 2>&1 &"
    lab.on("t2", f"{stays} systemctl start {service}; kill $!; rm /run/slurmstepd; test -e {gauges}")
    refused = ["-e", "node_health_timer=soon", "--tags", "node_health"]
    lab.playbook("playbooks/base.yml", *refused, expect=2)
    without = ["-e", "node_health_timer=", "--tags", "node_health"]
    assert set(lab.playbook("playbooks/base.yml", *without).values()) != {0}
    assert set(lab.playbook("playbooks/base.yml", *without).values()) == {0}
    assert lab.on("t2", f"systemctl list-unit-files --no-legend '{service}*'", expect=1) == ""
    lab.playbook("playbooks/base.yml", "--tags", "node_health")


@pytest.fixture(scope="module")
def typed(lab, tmp_path_factory):
    """The lab with a machine type for t2, which needs a second link, and with a host that does not answer."""
    folder = tmp_path_factory.mktemp("typed") / "inventory"
    shutil.copytree(lab.inventory, folder)
    hosts = yaml.safe_load((folder / "hosts.yml").read_text())
    hosts["all"]["hosts"] = {"gone": {"ansible_host": "198.18.251.99"}}
    (folder / "hosts.yml").write_text(yaml.safe_dump(hosts))
    (folder / "host_vars").mkdir()
    (folder / "host_vars/t2.yml").write_text("lab_machine_type: two-links\n")
    (folder / "health").mkdir()
    (folder / "health/two-links.yml").write_text("match: {}\nexpect: {network_interfaces: [host0, hvlab9]}\n")
    return replace(lab, inventory=folder)


@pytest.fixture(scope="module")
def broken(lab, typed):
    """What `hvlab health` says, and what t2 says itself, after everything was done to t2."""
    try:
        lab.on("t2", " && ".join(fault for fault, _, _ in FAULTS))
        yield *health(typed, 3), lab.on("t2", CHECK, expect=1)
    finally:
        lab.on("t2", "; ".join(repair for _, repair, _ in FAULTS))


def test_faults_are_told_of_their_host_alone(broken):
    checks, said, _ = broken
    assert hard(checks["t2"]) == {check for _, _, check in FAULTS} - SOFT
    assert {checks["t2"][check] for check in SOFT} == {"soft"}
    assert not hard(checks["t1"]) | hard(checks["t3"])
    assert "cannot be used: gone; unfit for work: t2\n" in said


def test_the_node_tells_the_same_in_a_line_each(broken):
    """But for the second link, of which its own file of types knows nothing."""
    _, _, lines = broken
    told = {line.split(": ")[1] for line in lines.splitlines()}
    assert told == {check for _, _, check in FAULTS} - SOFT - {"network link hvlab9"}


def test_a_check_that_cannot_run_drains_no_node(lab, broken):
    assert broken
    words = f"mv {TYPES} /root; {CHECK}; echo code $?; mv /root/machine-types.json {TYPES}"
    said = lab.on("t2", f"{words}; journalctl -t hvlab-node-health --no-pager -n 5")
    assert said.startswith("code 0\n")
    assert "could not run" in said
