"""site.yml on bare machines: what it changes, what it leaves, what it repairs."""

import json
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.site, pytest.mark.bench]

HOSTS = ("t1", "t2", "t3")


def test_check_mode_changes_nothing(bare):
    before = [
        bare.on(host, "ls /opt /etc/ansible /etc/ssh; cat /etc/hosts; id hvlab 2>&1 || true")
        for host in HOSTS
    ]
    assert set(bare.site("--check")) == set(HOSTS)
    after = [
        bare.on(host, "ls /opt /etc/ansible /etc/ssh; cat /etc/hosts; id hvlab 2>&1 || true")
        for host in HOSTS
    ]
    assert after == before


def test_a_problem_stops_every_host_before_the_first_change(bare):
    bare.on("t2", "chmod 0755 /tmp")
    done = bare.run([*bare.argv("provision")], 1)
    assert "t2: /tmp has mode 0755" in done.stdout
    assert "chmod 1777 /tmp" in done.stdout
    assert "/opt/hvlab" not in bare.on("t1", "ls -d /opt/*")
    bare.on("t2", "chmod 1777 /tmp")


def test_open_mpi_alone_on_bare_machines(bare):
    """Without the lab user, whom base.yml makes."""
    assert all(bare.playbook("playbooks/mpi.yml").values())
    assert bare.playbook("playbooks/mpi.yml") == dict.fromkeys(HOSTS, 0)


def test_only_one_machine_compiled(lab):
    compilers = [lab.on(host, "command -v gcc || true").strip() for host in HOSTS]
    assert len([path for path in compilers if path]) <= 1
    keys = {
        lab.on(host, "cat /opt/hvlab/*/.hvlab-pack.json /opt/hvlab/*/*/.hvlab-pack.json") for host in HOSTS
    }
    assert len(keys) == 1


@pytest.mark.parametrize(
    "name",
    [
        "accelerators",
        "frameworks",
        "base",
        "mpi",
        "containers",
    ],
)
def test_every_playbook_runs_by_itself(lab, name):
    assert lab.playbook(f"playbooks/{name}.yml") == dict.fromkeys(HOSTS, 0)


def test_a_playbook_takes_the_options_of_ansible(lab, tmp_path):
    """A vault says what to change. Check mode shows it on the one host asked for, and leaves it."""
    password, secret = tmp_path / "password", tmp_path / "secret.yml"
    password.write_text("secret\n")
    secret.write_text("common_limit_nofile: 4242\n")
    vault = ["--vault-password-file", str(password)]
    lab.run([str(Path(sys.executable).parent / "ansible-vault"), "encrypt", *vault, str(secret)], 0)
    options = ["--limit", "t1", "--tags", "common", "--check", "--diff", "-e", f"@{secret}", *vault]
    assert lab.playbook("playbooks/base.yml", *options)["t1"] == 1
    assert lab.site("--limit", "t1", "--tags", "common") == {"t1": 0}


def test_what_was_damaged_is_repaired(lab):
    lab.on("t3", "rm /opt/hvlab/openmpi/current/bin/orted && sed -i /t1/d /etc/hosts")
    changed = lab.site()
    assert (changed["t1"], changed["t2"], changed["t3"] > 0) == (0, 0, True)
    assert (
        lab.on("t3", "ls /opt/hvlab/openmpi/current/bin/orted && getent hosts t1").split()[1]
        == "198.18.251.11"
    )


def test_the_facts_tell_what_is_there(lab):
    facts = json.loads(lab.on("t1", "cat /etc/ansible/facts.d/hvlab_horovod.fact"))
    assert facts["version"] == "0.28.1"
