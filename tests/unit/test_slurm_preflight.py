"""What role slurm refuses before it changes anything."""

import pytest
import yaml

from hvlab.base.errors import report
from hvlab.stack.provision.slurm.checks import check_cluster, check_host, holes, misread
from tests.unit.plays import play, program
from tests.unit.test_slurm_role import host, names, request


def agreed(*hosts, key=True, uids=None, own_uids=None, **options):
    given = {"key": key, "uids": uids or {}, "own_uids": own_uids or {}}
    return report(check_cluster(hosts or [host()], request(**options), **given))


def test_a_cluster_that_fits_together_is_not_refused():
    accounts = [{"name": name} for name in ("physics", "bio_2", "high-energy.lab")]
    assert agreed(accounts=accounts, uids={"g1": "1000", "g2": "1000", "g3": ""}, rest=True) == ""


def test_the_name_that_slurm_keeps_for_itself_is_refused():
    assert "is called default, under which" in agreed(partition="default")
    assert "is called DEFAULT, under which" in agreed(hosts=["g1", "DEFAULT"])


@pytest.mark.parametrize(
    ("partitions", "observed"),
    [
        ([{"name": "long"}], "slurm_partition, is not among them: hvlab\n"),
        (
            [{"name": "hvlab"}, {"name": "far", "hosts": ["g1", "g9"]}],
            "slurm_partitions: hosts that Slurm does not have: g9\n",
        ),
        ([{"name": "hvlab", "hosts": ["g2"]}], "hosts that are in no partition: g1\n"),
    ],
)
def test_partitions_that_fit_nothing_are_refused(partitions, observed):
    assert observed in agreed(hosts=["g1", "g2"], partitions=partitions)


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ("{OverSubscribe: NO, PreemptMode: OFF}", ["OverSubscribe is False", "PreemptMode is False"]),
        ("{MaxTime: 1:30:00, PriorityMaxAge: 1:00:00}", ["MaxTime is 5400", "PriorityMaxAge is 3600"]),
        ('{MaxTime: "1:30:00", OverSubscribe: "NO", PriorityTier: 2, KillWait: 30, MinJobAge: 300}', []),
    ],
)
def test_settings_that_yaml_reads_otherwise_are_refused(settings, wrong):
    given = yaml.safe_load(settings)
    assert misread(request(settings=given)) == wrong
    assert misread(request(partitions=[{"name": "hvlab", "settings": given}, {"name": "long"}])) == wrong
    assert all(text in agreed(settings=given) for text in wrong)


def checked(record=None, packages=(), *, active="", configured="none", database=False, came=(), **options):
    there = host(record=record, packages=packages)
    there.facts["hvlab"]["installed_own"] = list(came)
    given = {"active": active, "configured": configured, "database": database}
    return report(check_host(there, request(**options), **given))


@pytest.mark.parametrize(
    ("record", "refused"),
    [
        ({"cluster": "physics"}, "g1: slurm_cluster is hvlab, and Slurm was set up there with physics"),
        ({"controller": "g2"}, "g1: slurm_controller is g1, and Slurm was set up there with g2"),
        ({"cluster": "hvlab", "controller": "g1"}, ""),
    ],
    ids=["cluster", "controller", "as it was"],
)
def test_a_cluster_keeps_the_name_and_the_host_of_its_queue(record, refused):
    problems = checked(record)
    assert refused in problems
    assert bool(problems) is bool(refused)


@pytest.mark.parametrize(
    ("daemons", "configured", "came", "refused"),
    [
        ("inactive\nactive", "other", [], "g1: slurmd of another Slurm"),
        ("active\nactive", "none", [], "g1: slurmctld and slurmd of another Slurm"),
        ("active\nactive", "hvlab", [], ""),
        ("inactive\ninactive\nactive", "none", [], "g1: munge, which hvlab did not install, runs there"),
        ("inactive\ninactive\nactive", "none", ["munge"], ""),
        ("inactive\ninactive\ninactive", "none", [], ""),
        ("inactive\ninactive\nactive", "hvlab", [], ""),
        (
            "inactive\ninactive",
            "other",
            [],
            "g1: /etc/slurm/slurm.conf of another Slurm is there, whose daemons",
        ),
        ("inactive\nfailed", "other", ["slurmd"], ""),
        ("inactive\ninactive", "none", [], ""),
        ("", "none", [], ""),
    ],
    ids=[
        *("slurmd", "both", "hvlab was killed", "munge", "hvlab's munge", "a stopped munge", "killed"),
        *("stopped", "a package's slurm.conf", "new", "recorded"),
    ],
)
def test_a_slurm_that_hvlab_did_not_install_is_left_alone(daemons, configured, came, refused):
    problems = checked(active=daemons, configured=configured, came=came)
    assert refused in problems
    assert bool(problems) is bool(refused)


@pytest.mark.parametrize(
    ("packages", "record", "database", "refused"),
    [
        (["mariadb-server"], None, False, "g1: mariadb-server, which hvlab did not install, is there"),
        (["mysql-server-8.0"], None, False, "g1: mysql-server-8.0, which hvlab did not install, is there"),
        (["mariadb-server"], None, True, ""),
        (["mariadb-server"], {"accounting": True}, False, ""),
        (["mariadb-client"], None, False, ""),
    ],
)
def test_a_database_that_hvlab_did_not_install_is_left_alone(packages, record, database, refused):
    problems = checked(record, packages, database=database, accounting=True)
    assert refused in problems
    assert bool(problems) is bool(refused)
    assert checked(record, packages, database=database, accounting=True, controller="g2", hosts=["g1"]) == ""


@pytest.mark.parametrize(
    ("record", "hosts", "owner"), [({"version": "22.05"}, ["g1"], "g1"), (None, ["g1", "g2"], "g2")]
)
def test_hosts_with_a_key_get_no_other_one(record, hosts, owner):
    there = host(record=record)
    refused = f"/keys/munge.key is not on this machine, and {owner} may have its key from hvlab."
    assert refused in agreed(there, key=False, hosts=hosts)
    assert agreed(there, hosts=hosts) == ""


def test_a_system_without_slurmrestd_is_refused_before_anything_is_changed():
    refused = "Ubuntu 20.04 has no slurmrestd that hvlab knows (Slurm 19.05). Nothing was changed"
    assert refused in agreed(host("ubuntu2004"), rest=True)


def test_systems_with_different_releases_of_slurm_are_refused():
    observed = agreed(host("debian12"), host("ubuntu2404", name="g2"), hosts=["g1", "g2"])
    assert "different releases of Slurm, g1 22.05, g2 23.11: they need one slurm.conf" in observed


EPEL8, EPEL9, EPEL10 = (
    f"Available Packages\nslurm.x86_64   {version}   epel"
    for version in ("20.11.9-1.el8", "22.05.9-1.el9", "26.05.1-2.el10")
)
APT = "slurmd:\n  Installed: (none)\n  Candidate: 22.05.8-4+deb12u3\n"


@pytest.mark.parametrize(
    ("hosts", "refused"),
    [
        ([("rhel8", EPEL8), ("rhel9", EPEL9)], "different releases of Slurm, g1 20.11, g2 22.05"),
        # Nothing is known of what would come: the system's usual release counts.
        ([("rhel8", ""), ("rhel9", "")], "different releases of Slurm, g1 20.11, g2 22.05"),
        ([("rhel9", EPEL9), ("rhel9", EPEL10)], "different releases of Slurm, g1 22.05, g2 26.05"),
        ([("debian12", APT), ("rhel9", EPEL9)], "different folders, g1 /var/lib/slurm, g2 /var/spool/slurm"),
        ([("rhel8", EPEL9), ("rhel9", EPEL9)], ""),
        ([("debian12", APT), ("debian12", "Candidate: (none)")], ""),
    ],
)
def test_the_release_that_would_come_counts(hosts, refused):
    there = [host(system, name=f"g{i}", available=text) for i, (system, text) in enumerate(hosts, start=1)]
    observed = agreed(*there, hosts=["g1", "g2"])
    assert refused in observed
    assert bool(observed) is bool(refused)


@pytest.mark.parametrize(
    ("system", "available", "named"),
    [
        ("rhel9", EPEL9, ["g1: Slurm 22.05.9 lacks the fixes of CVE-2023-41914", "CVE-2025-43904"]),
        ("rhel8", EPEL8, ["Slurm 20.11.9 lacks"]),
        ("rhel10", EPEL10, []),
        ("rhel9", "", []),
        # Debian's get fixes of their own.
        ("debian12", APT, []),
    ],
)
def test_packages_with_known_holes_are_named(system, available, named):
    text = holes(host(system, available=available))
    assert all(word in text for word in named)
    assert bool(text) is bool(named)


def test_a_release_of_slurmrestd_that_hvlab_does_not_know_is_refused_before_anything_is_changed():
    there = host("rhel10", available=EPEL10)
    assert "RedHat 10 has no slurmrestd that hvlab knows (Slurm 26.05)" in agreed(there, rest=True)


def test_accounts_that_slurmdbd_would_name_otherwise_are_refused():
    accounts = [{"name": name} for name in ("physics", "Biology", "two words")]
    assert 'slurm_accounts: "Biology", "two words": slurmdbd keeps names' in agreed(accounts=accounts)


def test_a_user_with_two_uids_is_refused():
    observed = agreed(uids={"g1": "1000", "g2": "1001"}, lab_user="ann")
    assert "ann has UID 1000 on g1, UID 1001 on g2, and Slurm knows users by their UID" in observed


@pytest.mark.parametrize(
    ("own", "refused"),
    [
        ({"g1": "981", "g2": ""}, "user slurm has, or gets, UID 981 on g1, UID 64030 on g2"),
        ({"g1": "981", "g2": "981"}, ""),
        ({"g1": "64030", "g2": ""}, ""),
        ({"g2": "981"}, ""),
    ],
)
def test_slurms_user_has_one_uid(own, refused):
    problems = agreed(own_uids=own)
    assert refused in problems
    assert bool(problems) is bool(refused)


def test_a_slurmctld_on_a_host_without_slurm_is_refused():
    assert "slurm_controller is g9, and Slurm's hosts are g1" in agreed(controller="g9")


PREFLIGHT = """
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: slurm, tasks_from: preflight}
"""


@pytest.mark.parametrize(
    ("record", "daemons", "slurm_conf", "refused"),
    [
        (None, "active\\nactive", "ClusterName=physics", "localhost: slurmctld and slurmd of another Slurm"),
        (None, "active\\nactive", "# Written by hvlab, the same on every node.", ""),
        (None, "inactive\\ninactive", "ClusterName=physics", "slurm.conf of another Slurm is there"),
        ({}, "active\\nactive", "", ""),
        ({}, "", "", "may have its key from hvlab"),
    ],
    ids=["another", "hvlab was killed", "stopped", "recorded", "key"],
)
def test_the_role_asks_the_host(tmp_path, record, daemons, slurm_conf, refused):
    """What the tasks ask, and whom they ask, reaches the checks."""
    (tmp_path / "preflight.yml").write_text(PREFLIGHT, "utf-8")
    asked, key = tmp_path / "asked", tmp_path / "munge.key"
    program(
        # In the language of the host, unless it is asked otherwise.
        tmp_path / "programs",
        "apt-cache",
        '#!/bin/sh\necho "$LC_ALL" > "${0%/*}/spoken"\nprintf \'%s %s\\n  Candidate: 23.02.1-1\\n\' "$@"\n',
    )
    program(tmp_path / "programs", "systemctl", f"#!/bin/sh\ntouch {asked}\nprintf '{daemons}\\n'\n")
    (tmp_path / "slurm.conf").write_text(f"{slurm_conf}\n")
    if "key" not in refused:
        key.touch()
    facts = host(record=record and {**record, "cluster": "hvlab"} if record is not None else None).facts
    local = {"ansible_local": {} if record is None else {"hvlab_slurm": {"cluster": "hvlab"}}}
    variables = {
        "ansible_facts": {**facts, **local},
        "slurm_hosts": ["localhost"],
        "slurm_munge_key_file": str(key),
        "slurm_system": names("debian12") | {"etc": str(tmp_path)},
    }
    printed = play(tmp_path / "preflight.yml", tmp_path / "programs", variables, expect=2 if refused else 0)
    assert refused in printed
    assert asked.exists() is (record is None)
    assert (tmp_path / "programs/spoken").read_text().startswith("C")
