"""`hvlab verify` and plain pytest: right machines pass, and a machine that is wrong is named."""

import json
import sys

import pytest

pytestmark = pytest.mark.site

LIBRARY = "/opt/hvlab/openmpi/current/lib/libopen-pal.so.40"
# What is done to t2, and the role whose checks must see it.
BREAKAGES = {
    "chmod 0644 /home/hvlab/.ssh/id_ed25519": "ssh_trust",
    f"echo broken > $(readlink -f {LIBRARY})": "openmpi",
    "sed -i /^198.18.251.11/d /etc/hosts": "common",
}


def test_plain_pytest_runs_the_same_checks(lab):
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "tests/node",
        "--hosts=t2",
        "-q",
        "-k",
        "common-",
        "-p",
        "no:cacheprovider",
    ]
    done = lab.run([*argv, f"--ansible-inventory={lab.inventory}"], 0)
    assert "passed" in done.stdout


@pytest.fixture(scope="module")
def broken(lab):
    """Return what `hvlab verify` finds wrong after everything was done to t2."""
    for command in BREAKAGES:
        lab.on("t2", command)
    rows = json.loads(lab.hvlab("verify", "--format", "json", expect=1).stdout)
    return [row for row in rows if row["outcome"] == "failed"]


@pytest.mark.parametrize("command", BREAKAGES)
def test_what_is_wrong_is_named_with_its_host(broken, command):
    assert ("t2", BREAKAGES[command]) in {(row["host"], row["role"]) for row in broken}


def test_the_playbook_mends_it_and_right_machines_pass(lab, broken):
    assert broken
    assert lab.site()["t2"] > 0
    rows = json.loads(lab.hvlab("verify", "--format", "json").stdout)
    assert {row["host"] for row in rows} == {"t1", "t2", "t3"}
    assert {row["outcome"] for row in rows} <= {"passed", "skipped"}
