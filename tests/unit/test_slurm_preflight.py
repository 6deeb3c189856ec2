"""What role slurm refuses before it changes anything."""

import json

import pytest
import yaml

from tests.unit.plays import play, program
from tests.unit.test_slurm_role import role

PREFLIGHT = """
- hosts: localhost
  gather_facts: true
  tasks:
    - ansible.builtin.include_role: {name: slurm, tasks_from: preflight}
"""


@pytest.mark.parametrize(
    ("partitions", "observed"),
    [
        ([{"name": "long"}], "slurm_partition, is not among them: hvlab. What to do:"),
        (
            [{"name": "hvlab"}, {"name": "far", "hosts": ["g1", "g9"]}],
            "slurm_partitions: hosts that Slurm does not have: g9. What to do:",
        ),
        ([{"name": "hvlab", "hosts": ["g1"]}], "hosts that are in no partition: localhost. What to do:"),
    ],
)
def test_partitions_that_fit_nothing_are_refused(tmp_path, partitions, observed):
    (tmp_path / "preflight.yml").write_text(PREFLIGHT, "utf-8")
    variables = {
        "slurm_hosts": ["localhost", "g1"],
        "slurm_partitions": partitions,
        "__slurm_system_files": ["Debian-12.yml"],
    }
    assert observed in play(tmp_path / "preflight.yml", tmp_path / "programs", variables, expect=2)


@pytest.mark.parametrize(
    ("settings", "misread"),
    [
        ("{OverSubscribe: NO, PreemptMode: OFF}", ["OverSubscribe is False", "PreemptMode is False"]),
        ("{MaxTime: 1:30:00, PriorityMaxAge: 1:00:00}", ["MaxTime is 5400", "PriorityMaxAge is 3600"]),
        ('{MaxTime: "1:30:00", OverSubscribe: "NO", PriorityTier: 2, KillWait: 30, MinJobAge: 300}', []),
    ],
)
def test_settings_that_yaml_reads_otherwise_are_refused(settings, misread):
    given = {"slurm_settings": yaml.safe_load(settings)}
    partitions = [{"name": "hvlab", "settings": given["slurm_settings"]}, {"name": "long"}]
    for variables in (given, {"slurm_partitions": partitions}):
        assert role("Debian-12", **variables)("__slurm_checks")[0]["wrong"] == misread


def preflight(tmp_path, *, record=None, packages=(), refused="", system="Debian-12", **wanted):
    """Play the role's checks on this machine, with these records and packages."""
    (tmp_path / "preflight.yml").write_text(
        PREFLIGHT.replace("gather_facts: true", "gather_facts: false"), "utf-8"
    )
    distribution, _, version = system.partition("-")
    facts = {
        "ansible_local": {} if record is None else {"hvlab_slurm": record},
        "distribution": distribution,
        "distribution_version": version,
        "hvlab": {"packages": dict.fromkeys(packages, "1")},
    }
    variables = {
        "ansible_facts": facts,
        "slurm_hosts": ["localhost"],
        "__slurm_system_files": [f"{system}.yml"],
        **wanted,
    }
    printed = play(tmp_path / "preflight.yml", tmp_path / "programs", variables, expect=2 if refused else 0)
    assert refused in printed
    return printed


@pytest.mark.parametrize(
    ("record", "refused"),
    [
        ({"cluster": "physics"}, "slurm_cluster is hvlab, and on localhost Slurm was set up with physics"),
        ({"controller": "g1"}, "slurm_controller is localhost, and on localhost Slurm was set up with g1"),
        ({"cluster": "hvlab", "controller": "localhost"}, ""),
    ],
    ids=["cluster", "controller", "as it was"],
)
def test_a_cluster_keeps_the_name_and_the_host_of_its_queue(tmp_path, record, refused):
    key = tmp_path / "munge.key"
    key.touch()
    preflight(tmp_path, record=record, refused=refused, slurm_munge_key_file=str(key))


@pytest.mark.parametrize(
    ("daemons", "written", "record", "refused"),
    [
        ("inactive\\nactive", "ClusterName=physics", None, "localhost: slurmd of another Slurm"),
        ("active\\nactive", "", None, "localhost: slurmctld and slurmd of another Slurm"),
        ("active\\nactive", "# Written by hvlab, the same on every node.", None, ""),
        ("inactive\\nfailed", "ClusterName=cluster", None, ""),
        ("active\\nactive", "", {}, ""),
    ],
    ids=["slurmd", "no slurm.conf", "hvlab was killed", "a package's slurm.conf", "recorded"],
)
def test_a_slurm_that_hvlab_did_not_install_is_left_alone(tmp_path, daemons, written, record, refused):
    asked, key = tmp_path / "asked", tmp_path / "munge.key"
    key.touch()
    program(tmp_path / "programs", "systemctl", f"#!/bin/sh\ntouch {asked}\nprintf '{daemons}\\n'\n")
    if written:
        (tmp_path / "slurm.conf").write_text(f"{written}\n")
    variables = {"__slurm_etc": str(tmp_path), "slurm_munge_key_file": str(key)}
    preflight(tmp_path, record=record, refused=refused, **variables)
    assert asked.exists() is (record is None)


@pytest.mark.parametrize(
    ("packages", "configured", "refused"),
    [
        (["mariadb-server"], False, "localhost: mariadb-server, which hvlab did not install, is there"),
        (["mysql-server-8.0"], False, "localhost: mysql-server-8.0, which hvlab did not install, is there"),
        (["mariadb-server"], True, ""),
    ],
)
def test_a_database_that_hvlab_did_not_install_is_left_alone(tmp_path, packages, configured, refused):
    if configured:
        (tmp_path / "90-hvlab-slurm.cnf").touch()
    variables = {"slurm_accounting_enabled": True, "__slurm_mariadb_etc": str(tmp_path)}
    preflight(tmp_path, packages=packages, refused=refused, **variables)


@pytest.mark.parametrize(
    ("record", "hosts", "owner"),
    [({"version": "22.05"}, ["localhost"], "localhost"), (None, ["localhost", "g2"], "g2")],
)
def test_hosts_with_a_key_get_no_other_one(tmp_path, record, hosts, owner):
    key = tmp_path / "trust/munge.key"
    refused = f"{key} is not on this machine, and {owner} may have its key from hvlab."
    preflight(tmp_path, record=record, refused=refused, slurm_hosts=hosts, slurm_munge_key_file=str(key))


def test_a_system_without_slurmrestd_is_refused_before_anything_is_changed(tmp_path):
    refused = "localhost: Ubuntu 20.04 has no slurmrestd that hvlab knows (Slurm 19.05). Nothing was changed."
    preflight(tmp_path, system="Ubuntu-20.04", refused=refused, slurm_rest_enabled="true")


def test_systems_with_different_releases_of_slurm_are_refused(tmp_path):
    plays = yaml.safe_load(PREFLIGHT)
    second = {"ansible.builtin.add_host": {"name": "g2", "ansible_connection": "local"}}
    first = {"hosts": "localhost", "gather_facts": False, "tasks": [second]}
    (tmp_path / "preflight.yml").write_text(json.dumps([first, plays[0] | {"hosts": "all"}]))
    files = "{{ ['Debian-12.yml'] if inventory_hostname == 'g2' else ['Ubuntu-24.04.yml'] }}"
    variables = {"slurm_hosts": ["localhost", "g2"], "__slurm_system_files": files}
    printed = play(tmp_path / "preflight.yml", tmp_path / "programs", variables, expect=2)
    assert "different releases of it, g2 22.05, localhost 23.11: they need one slurm.conf" in printed


@pytest.mark.parametrize(
    ("names", "refused"),
    [
        (["physics", "bio_2", "high-energy.lab"], ""),
        (["physics", "Biology", "two words"], 'slurm_accounts: "Biology", "two words": slurmdbd keeps names'),
    ],
)
def test_accounts_that_slurmdbd_would_name_otherwise_are_refused(tmp_path, names, refused):
    (tmp_path / "preflight.yml").write_text(PREFLIGHT, "utf-8")
    variables = {
        "slurm_hosts": ["localhost"],
        "slurm_accounts": [{"name": name} for name in names],
        "__slurm_system_files": ["Debian-12.yml"],
    }
    printed = play(tmp_path / "preflight.yml", tmp_path / "programs", variables, expect=2 if refused else 0)
    assert refused in printed
