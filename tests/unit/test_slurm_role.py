"""Role slurm: what each system and each host gets."""

import json
import socket
import sys

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from tests.contract.tree import ROOT, load
from tests.node import test_slurm as checks
from tests.node.lab import Node, WrongNodeError
from tests.unit.plays import play, program
from tests.unit.test_container_runtime import trusted

ROLE = ROOT / "roles/slurm"
HARDWARE = (
    "NodeName=g1 CPUs=64 Boards=1 SocketsPerBoard=2 CoresPerSocket=16 ThreadsPerCore=2 RealMemory=257000\n"
    "UpTime=3-04:05:06\n"
)
# The file of each system: what its daemons read, whether they have PMIx, and in which release.
SYSTEMS = {
    "Debian-12": ("/etc/slurm", "22.05", True),
    "Debian-13": ("/etc/slurm", "24.11", True),
    "Ubuntu-24.04": ("/etc/slurm", "23.11", True),
    "Ubuntu-22.04": ("/etc/slurm", "21.08", False),
    "Ubuntu-20.04": ("/etc/slurm-llnl", "19.05", True),
    "RedHat": ("/etc/slurm", "22.05", True),
}


def role(system, *, cgroup=2, container=False, slots=1, gpus=0, **wanted):
    """Return a function that gives a variable of the role on host g1, or the text of a template."""
    facts = {
        "architecture": "x86_64",
        "hostname": "g1",
        "processor_vcpus": 4,
        "memtotal_mb": 8000,
        "hvlab": {"container": container, "cgroup": cgroup, "packages": {}},
    }
    variables = {"ansible_facts": facts, "inventory_hostname": "g1", "ansible_play_hosts": ["g1"]}
    for path in (ROLE / "defaults/main.yml", ROLE / "vars/main.yml", ROLE / f"vars/{system}.yml"):
        variables |= trusted(yaml.safe_load(path.read_text("utf-8")))
    variables |= {
        "slurm_hosts": ["g1"],
        "slurm_addresses": {"g1": {"address": "10.0.0.1"}},
        "slurm_slots": slots,
        "slurm_gpus": gpus,
        "__slurm_hardware": {"stdout": HARDWARE},
        **wanted,
    }
    described = Templar(loader=DataLoader(), variables=variables).template(variables["__slurm_described"])
    variables["hostvars"] = {"g1": {"__slurm_node": described}}
    templar = Templar(loader=DataLoader(), variables=variables)

    def given(name):
        if name.endswith(".j2"):
            (file,) = (ROLE / "templates").rglob(name)
            text = file.read_text("utf-8")
            return templar.template(trusted(text))
        return templar.template(variables[name])

    return given


def test_every_system_of_the_role_is_listed_here():
    assert {path.stem for path in (ROLE / "vars").glob("*.yml")} - {"main"} == set(SYSTEMS)


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_system_gets_what_its_release_knows(system):
    folder, release, pmix = SYSTEMS[system]
    given = role(system)
    assert (given("__slurm_etc"), given("__slurm_version")) == (folder, release)
    assert given("__slurm_all_settings")["MpiDefault"] == ("pmix" if pmix else "none")
    assert given("__slurm_all_settings").get("TreeWidth") == ("2" if pmix else None)
    new = release >= "22.05"
    assert given("__slurm_mpi_conf") == (pmix and new)
    # With version 2 of control groups, older releases follow jobs by their processes.
    assert given("__slurm_all_settings")["ProctrackType"] == (
        "proctrack/cgroup" if new else "proctrack/linuxproc"
    )
    assert "CgroupPlugin" not in given("__slurm_cgroup_settings")


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_release_without_mpi_conf_gives_srun_and_slurmd_pmixs_settings(system):
    given = role(system)
    _, release, pmix = SYSTEMS[system]
    by_environment = pmix and release < "22.05"
    assert given("__slurm_pmix_by_environment") == by_environment
    unit = given("slurmd.service.d/hvlab.conf.j2")
    assert ("Environment=PMIX_MCA_psec=native" in unit) == by_environment
    assert "export SLURM_PMIX_DIRECT_CONN=false\nexport PMIX_MCA_psec=native" in given("hvlab-slurm.sh.j2")


def test_a_real_node_has_what_slurmd_counts():
    given = role("Debian-12", slots=8, gpus=8)
    assert (
        "\nNodeName=g1 NodeHostname=g1 NodeAddr=10.0.0.1 Boards=1 CoresPerSocket=16 CPUs=64 "
        "RealMemory=243968 SocketsPerBoard=2 ThreadsPerCore=2 Gres=gpu:8 State=UNKNOWN\n"
        "PartitionName=hvlab Nodes=g1 Default=YES MaxTime=INFINITE State=UP\n"
    ) in given("slurm.conf.j2")
    assert given("__slurm_all_settings")["GresTypes"] == "gpu"
    # Else root of one node is root of all.
    assert "\nDisableRootJobs=YES\n" in given("slurm.conf.j2")
    assert "SlurmdParameters" not in given("__slurm_all_settings")
    assert "NodeName=g1 Name=gpu File=/dev/nvidia[0-7]" in given("gres.conf.j2")
    assert "AutoDetect=nvml" in role("Debian-12", gpus=8, slurm_gpu_detection="nvml")("gres.conf.j2")
    assert given("__slurm_cgroup_settings")["ConstrainDevices"] == "yes"


def test_a_virtual_node_has_its_slots_and_no_control_groups():
    given = role("Debian-12", cgroup=1, container=True, slots=6)
    settings = given("__slurm_all_settings")
    assert given("__slurm_described")["resources"] == {"CPUs": 6, "RealMemory": 243968}
    assert settings["SlurmdParameters"] == "config_overrides"
    assert (settings["ProctrackType"], settings["TaskPlugin"]) == ("proctrack/linuxproc", "task/none")
    assert given("__slurm_cgroup_settings") == {"CgroupPlugin": "cgroup/v1"}


def test_real_hosts_share_memory_and_have_slurms_own_times_and_virtual_ones_do_not():
    names = ("SelectTypeParameters", "DefMemPerCPU", "SlurmdTimeout", "KillWait")
    real, virtual = (role("Debian-12", container=kind)("__slurm_all_settings") for kind in (False, True))
    # 257000 MB less a twentieth, in steps of 256 MB, for each of 64 CPUs.
    assert [real.get(name) for name in names] == ["CR_Core_Memory", "3812", "300", "30"]
    assert [virtual.get(name) for name in names] == ["CR_CPU", None, "30", "5"]


def test_a_kernel_that_leaves_less_memory_changes_no_configuration():
    other = {"stdout": HARDWARE.replace("257000", "256988")}
    texts = [
        role("Debian-12", **variables)("slurm.conf.j2") for variables in ({}, {"__slurm_hardware": other})
    ]
    assert texts[0] == texts[1]


def test_jobs_that_name_no_memory_have_the_share_of_the_node_with_the_least():
    small = role("Debian-12")("__slurm_described") | {"memory_per_cpu": 2000}
    large = small | {"memory_per_cpu": 9000}
    given = role("Debian-12", __slurm_nodes={"g1": large, "g2": small})
    assert given("__slurm_all_settings")["DefMemPerCPU"] == "2000"


def test_the_model_of_the_gpus_is_named_where_it_is_known():
    given = role("Debian-12", gpus=8, slurm_gpu_type="h100", slurm_features=["ib", "rack2"])
    assert "Gres=gpu:h100:8 Feature=ib,rack2 State=UNKNOWN" in given("slurm.conf.j2")
    assert "NodeName=g1 Name=gpu Type=h100 File=/dev/nvidia[0-7]" in given("gres.conf.j2")
    # A node without either is recorded as it always was.
    assert not {"gpu_type", "features"} & role("Debian-12", gpus=8)("__slurm_described").keys()


def test_a_node_that_is_left_out_of_a_run_has_the_same_line():
    """The record's names are in another order than those of a host that is asked."""
    given = role("Debian-12", gpus=8)
    recorded = json.loads(json.dumps({"g1": given("__slurm_described")}, sort_keys=True))
    assert role("Debian-12", gpus=8, __slurm_nodes=recorded)("slurm.conf.j2") == given("slurm.conf.j2")


def test_what_slurmd_read_is_older_than_its_start():
    given = role("Debian-13")
    files = load(ROLE / "vars/main.yml")
    loaded = {item.get("loaded") for item in files["__slurm_shared_files"] + files["__slurm_always_files"]}
    assert loaded == {"{{ __slurm_started_file }}", None}
    started = given("__slurm_started_file")
    assert f"\nExecStartPre=/bin/touch {started}\n" in given("slurmd.service.d/hvlab.conf.j2")


CONFIGURE = """
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: slurm, tasks_from: configure}
"""


@pytest.mark.parametrize(
    ("configuration", "state", "recorded", "refused"),
    [
        ("as it was", "idle", True, False),
        ("another", "idle", True, True),
        ("another", "", True, True),
        ("another", "down*", True, False),
        ("another", "drained*", True, False),
        ("another", "", False, False),
    ],
    ids=["no change", "idle", "slurmctld is away", "down", "not responding", "without Slurm"],
)
def test_settings_change_only_while_no_host_that_runs_slurm_is_left_out(
    tmp_path, configuration, state, recorded, refused
):
    (tmp_path / "configure.yml").write_text(CONFIGURE, "utf-8")
    programs = tmp_path / "programs"
    program(programs, "sinfo", f"#!/bin/sh\necho '{state and f'g2|{state}'}'\ntest -n '{state}'\n")
    nodes = {"g2": {}} if recorded else {}
    variables = {
        "ansible_facts": {
            "ansible_local": {"hvlab_slurm": {"nodes": nodes, "configuration": "as it was"}},
            "os_family": "Debian",
        },
        "slurm_hosts": ["localhost", "g2"],
        "__slurm_described": {},
        "__slurm_nodes": nodes,
        "__slurm_configuration": configuration,
        **{
            f"__slurm_{name}": []
            for name in ("amounts", "folders", "shared_files", "node_files", "other_files")
        },
    }
    printed = play(tmp_path / "configure.yml", programs, variables, expect=2 if refused else 0)
    assert ("slurm.conf names all nodes, would change, and g2 is not in this run" in printed) is refused
    changes = configuration != "as it was" and not refused
    assert ("slurm.conf changes without g2: down, or failed in this run" in printed) is changes


LOST = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.fail: {msg: away}
      when: inventory_hostname == 'g2'
    - ansible.builtin.include_role: {name: slurm, tasks_from: configure}
"""


@pytest.mark.parametrize("controller", ["localhost", "g2"])
def test_a_host_that_is_lost_keeps_no_other_from_a_change_unless_slurmctld_is_there(tmp_path, controller):
    (tmp_path / "configure.yml").write_text(LOST, "utf-8")
    slurm_conf = tmp_path / "slurm.conf"
    variables = {
        "ansible_facts": {
            "ansible_local": {"hvlab_slurm": {"nodes": {"g2": {"gpus": 0}}}},
            "os_family": "Debian",
        },
        "slurm_hosts": ["localhost", "g2"],
        "slurm_controller": controller,
        "__slurm_described": {"gpus": 0},
        "__slurm_configuration": "",
        "__slurm_shared_files": [{"path": str(slurm_conf), "content": "{{ __slurm_names | join(' ') }}"}],
        **{f"__slurm_{name}": [] for name in ("amounts", "folders", "node_files", "other_files")},
    }
    printed = play(tmp_path / "configure.yml", tmp_path / "programs", variables, "-i", "g2,", expect=2)
    if controller == "g2":
        assert (
            "g2, which runs slurmctld, failed or did not answer in this run. No slurm.conf was changed"
            in printed
        )
        assert not slurm_conf.exists()
    else:
        assert "slurm.conf changes without g2: down, or failed in this run" in printed
        assert slurm_conf.read_text() == "localhost g2"


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ({"gpus": 8}, "localhost: its line in slurm.conf says 8 GPUs, and the host has 7."),
        ({"counted": False, "resources": {"CPUs": 65}}, "says 65 CPUs, and the host has 64."),
        ({"resources": {"RealMemory": 257001}}, "says 257001 MB of memory, and the host has 257000."),
        ({"gpus": 7, "counted": True, "resources": {"CPUs": 65, "RealMemory": 243968}}, ""),
    ],
    ids=["GPUs", "CPUs", "memory", "as it was"],
)
def test_a_host_that_lost_hardware_keeps_its_line_unless_that_is_meant(tmp_path, line, refused):
    (tmp_path / "configure.yml").write_text(CONFIGURE, "utf-8")
    programs = tmp_path / "programs"
    program(programs, "slurmd", f"#!/bin/sh\nprintf '%s' '{HARDWARE}'\n")
    variables = {
        "ansible_facts": {
            "ansible_local": {"hvlab_slurm": {"nodes": {"localhost": line}}},
            "os_family": "Debian",
            "processor_vcpus": 64,
            "hvlab": {"packages": {}},
        },
        "slurm_hosts": ["localhost"],
        "slurm_gpus": 7,
        "__slurm_described": {},
        **{f"__slurm_{name}": [] for name in ("folders", "shared_files", "node_files", "other_files")},
    }
    printed = play(tmp_path / "configure.yml", programs, variables, expect=2 if refused else 0)
    assert refused in printed
    if refused:
        play(tmp_path / "configure.yml", programs, variables | {"slurm_less_hardware": True})


def test_a_partition_whose_hosts_are_all_lost_has_no_nodes():
    partitions = [{"name": "hvlab"}, {"name": "far", "hosts": ["g2"]}]
    given = role("Debian-12", slurm_hosts=["g1", "g2"], slurm_partitions=partitions)
    assert given("slurm.conf.j2").splitlines()[-2:] == [
        "PartitionName=hvlab Nodes=g1 Default=YES MaxTime=INFINITE State=UP",
        'PartitionName=far Nodes="" Default=NO MaxTime=INFINITE State=UP',
    ]


@pytest.mark.parametrize(
    ("names", "model"),
    [
        (["NVIDIA H100 80GB HBM3"] * 8, "h100"),
        (["GH100 [H100 SXM5 80GB]"], "h100"),
        (["NVIDIA A100-SXM4-80GB"], "a100"),
        (["TU104GL [Tesla T4]"], "t4"),
        (["NVIDIA GeForce RTX 4090"], "rtx_4090"),
        (["NVIDIA RTX A6000"], "rtx_a6000"),
        (["NVIDIA GH200 480GB"], "gh200"),
        (["NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"], ""),
        (["NVIDIA Graphics Device"], ""),
        ([None], ""),
        ([], ""),
    ],
)
def test_the_model_is_part_of_the_name_that_nvidias_library_gives(names, model):
    wiring = trusted(yaml.safe_load((ROOT / "group_vars/all.yml").read_text("utf-8")))
    facts = {"hvlab": {"gpus": [{"name": name} for name in names]}}
    variables = wiring | {"ansible_facts": facts, "group_names": ["gpu"]}
    assert Templar(loader=DataLoader(), variables=variables).template(wiring["slurm_gpu_type"]) == model


def test_partitions_are_data():
    partitions = [
        {"name": "long", "settings": {"MaxTime": "2-00:00:00", "AllowAccounts": "physics"}},
        {"name": "hvlab", "hosts": ["g1"]},
    ]
    given = role("Debian-12", slurm_partitions=partitions)
    assert given("slurm.conf.j2").splitlines()[-2:] == [
        "PartitionName=long Nodes=g1 Default=NO MaxTime=2-00:00:00 State=UP AllowAccounts=physics",
        "PartitionName=hvlab Nodes=g1 Default=YES MaxTime=INFINITE State=UP",
    ]
    assert given("__slurm_fact")["partitions"] == ["long", "hvlab"]
    elsewhere = role("Debian-12", slurm_partitions=[*partitions, {"name": "far", "hosts": ["g2"]}])
    assert "far" not in elsewhere("__slurm_fact")["partitions"]
    assert role("Debian-12")("__slurm_fact")["partitions"] == ["hvlab"]


def test_gpus_are_charged_where_there_are_accounts_and_gpus():
    given = role("Debian-12", gpus=8, slurm_accounting_enabled=True)
    settings = given("__slurm_all_settings")
    assert (settings["AccountingStorageTRES"], settings["PriorityFlags"]) == ("gres/gpu", "MAX_TRES")
    # 64 CPUs and 8 GPUs: who has half of the GPUs pays as for half of the CPUs.
    assert "TRESBillingWeights=CPU=1.0,GRES/gpu=8" in given("slurm.conf.j2")
    for other in ({"gpus": 8}, {"slurm_accounting_enabled": True}):
        without = role("Debian-12", **other)
        assert "AccountingStorageTRES" not in without("__slurm_all_settings")
        assert "TRESBillingWeights" not in without("slurm.conf.j2")


def test_settings_of_the_inventory_win_and_the_check_is_a_prolog_only_where_there_is_one():
    given = role("Debian-12", slurm_settings={"KillWait": 30, "MaxJobCount": 5}, slurm_health_check="/x")
    settings = given("__slurm_all_settings")
    assert (settings["KillWait"], settings["MaxJobCount"], settings["Prolog"]) == (
        30,
        5,
        "/etc/slurm/prolog.d/*",
    )
    # Without it Slurm holds a batch job that came upon a sick node, until somebody releases it.
    assert settings["SchedulerParameters"] == "nohold_on_prolog_fail"
    assert {"Prolog", "SchedulerParameters"}.isdisjoint(role("Debian-12")("__slurm_all_settings"))


def test_what_is_switched_off_by_a_word_is_off():
    words = {"slurm_accounting_enabled": "false", "slurm_rest_enabled": "no"}
    given = role("Debian-12", gpus="0", slurm_gpu_type="h100", __slurm_uid={}, **words)
    assert given("__slurm_daemons") == ["munge", "slurmctld", "slurmd"]
    assert given("__slurm_accounting_here") is False
    assert "AccountingStorageType" not in given("__slurm_all_settings")
    assert "Gres" not in given("slurm.conf.j2")
    known = {**given("__slurm_described"), "gpus": 0}
    assert known == given("__slurm_described")
    wiring = trusted(yaml.safe_load((ROOT / "group_vars/all.yml").read_text("utf-8")))
    templar = Templar(loader=DataLoader(), variables=wiring | {"lab_slurm": "false", "ansible_facts": {}})
    assert templar.template(wiring["slurm_enabled"]) is False
    assert templar.template(wiring["hwloc_purge_keep"]) == []


@pytest.mark.parametrize("controller", ["g1", "g2"])
def test_accounting_and_rest_run_beside_slurmctld_alone(controller):
    asked = {"slurm_accounting_enabled": True, "slurm_rest_enabled": True}
    given = role("Debian-12", slurm_lab_user="Ann", slurm_cluster="Lab", slurm_controller=controller, **asked)
    here = controller == "g1"
    assert given("__slurm_daemons") == (
        ["munge", "slurmctld", "slurmd", "slurmrestd"] if here else ["munge", "slurmd"]
    )
    assert role("Debian-12", slurm_controller="g1")("__slurm_daemons") == ["munge", "slurmctld", "slurmd"]
    # As slurmdbd lists them.
    assert [row["row"] for row in given("__slurm_associate")] == ["lab|root|", "lab|ann|", "lab|ann|Ann"]


def test_accounting_and_rest_are_reached_from_the_host_itself():
    given = role("Debian-12", slurm_accounting_enabled=True, slurm_rest_enabled=True)
    assert given("__slurm_all_settings")["AccountingStorageType"] == "accounting_storage/slurmdbd"
    assert given("__slurm_all_settings")["PriorityType"] == "priority/multifactor"
    assert "AccountingStorageType" not in role("Debian-12")("__slurm_all_settings")
    assert "StoragePass" not in given("__slurm_database_settings")
    database = given("90-hvlab-slurm.cnf.j2").splitlines()
    assert {"bind-address=127.0.0.1", "loose_innodb_snapshot_isolation=OFF"} <= set(database)
    unit = given("slurmrestd.service.d/hvlab.conf.j2")
    assert "User=slurmrestd" in unit
    assert "\nExecStart=\nExecStart=/usr/sbin/slurmrestd -a rest_auth/local unix:/run/slurmrestd/" in unit


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_system_with_slurmrestd_has_an_interface_of_its_release(system):
    given = role(system)
    assert not given("__slurm_rest_packages") or SYSTEMS[system][1] in given("__slurm_rest_apis")


ASSOCIATE = """
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: slurm, tasks_from: associate}
"""
LISTED = "lab|root||1\nlab|root|root|1\nlab|ann||1\nlab|ann|Ann|1\nlab|physics||3\nlab|physics|bob|1\n"


@pytest.mark.parametrize(
    ("accounts", "called"),
    [
        ([], []),
        ([{"name": "physics", "shares": 3, "users": ["bob"]}], []),
        (
            [
                {"name": "physics", "shares": 5, "users": ["bob", "eve"]},
                {"name": "biology", "users": ["eve"]},
            ],
            [
                "add account biology cluster=Lab fairshare=1",
                "modify account name=physics cluster=Lab set fairshare=5",
                "add user eve account=physics cluster=Lab",
                "add user eve account=biology cluster=Lab",
            ],
        ),
    ],
    ids=["none", "registered", "new"],
)
def test_accounts_are_data_and_registered_once(tmp_path, accounts, called):
    programs = tmp_path / "programs"
    (tmp_path / "listed").write_text(LISTED)
    show, other = f"cat {tmp_path}/listed", f'shift; echo "$*" >> {tmp_path}/called'
    program(programs, "sacctmgr", f'#!/bin/sh\ncase "$*" in *show*) {show};; *) {other};; esac\n')
    (tmp_path / "associate.yml").write_text(ASSOCIATE, "utf-8")
    variables = {"slurm_cluster": "Lab", "slurm_lab_user": "Ann", "slurm_accounts": accounts}
    play(tmp_path / "associate.yml", programs, variables)
    calls = tmp_path / "called"
    assert (calls.read_text().splitlines() if calls.exists() else []) == called


def test_the_lab_users_own_account_may_have_shares(tmp_path):
    """It was added twice; sacctmgr ends with 1 where nothing is new."""
    programs = tmp_path / "programs"
    call = f'shift; grep -qx "$*" {tmp_path}/called && exit 1; echo "$*" >> {tmp_path}/called'
    program(programs, "sacctmgr", f'#!/bin/sh\ncase "$*" in *show*) ;; *) {call};; esac\n')
    (tmp_path / "called").touch()
    (tmp_path / "associate.yml").write_text(ASSOCIATE, "utf-8")
    accounts = [{"name": "ann", "shares": 5, "users": ["Ann", "bob"]}]
    variables = {"slurm_cluster": "Lab", "slurm_lab_user": "Ann", "slurm_accounts": accounts}
    play(tmp_path / "associate.yml", programs, variables)
    assert (tmp_path / "called").read_text().splitlines() == [
        "add cluster Lab",
        "add account ann cluster=Lab fairshare=5",
        "add user Ann account=ann cluster=Lab",
        "add user bob account=ann cluster=Lab",
    ]


CHECK = """
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: slurm, tasks_from: check}
"""


# As Slurm 22.05 to 26.05 prints states of nodes that work; a job is planned there (-), or ends (+).
WORKING = (
    *("idle", "mixed", "allocated", "completing", "reserved", "planned", "blocked"),
    *("mixed-", "allocated+"),
)


@pytest.mark.parametrize("state", [*WORKING, "drained", "draining", "drained$", "mixed$", "idle@"])
def test_a_node_that_is_registered_is_up(state):
    up = role("Debian-12", __slurm_state={"rc": 0, "stdout": f"{state}|none"})
    assert up("__slurm_node_up") is True


@pytest.mark.parametrize("state", ["idle*", "drained*", "down", "unknown", "inval", "idle~", "idle^"])
def test_a_node_that_does_not_answer_is_not_up(state):
    up = role("Debian-12", __slurm_state={"rc": 0, "stdout": f"{state}|none"})
    assert up("__slurm_node_up") is False


@pytest.mark.parametrize("state", WORKING)
def test_verify_takes_a_node_that_works_as_it_is(state):
    answers = {"sinfo": {"rc": 0, "out": f"{state}|hvlab|none\n", "err": ""}}
    node = Node("n1", None, {}, answers=answers)
    checks.test_slurmctld_has_the_node(node, {"partitions": ["hvlab"], "controller": "n1"})


@pytest.mark.parametrize("state", ["idle*", "drained", "mixed$", "down"])
def test_verify_names_the_state_of_a_node_that_takes_no_jobs(state):
    answers = {"sinfo": {"rc": 0, "out": f"{state}|hvlab|a fan\n", "err": ""}}
    node = Node("n1", None, {}, answers=answers)
    with pytest.raises(WrongNodeError, match="Slurm says it is"):
        checks.test_slurmctld_has_the_node(node, {"partitions": ["hvlab"], "controller": "n1"})


@pytest.mark.parametrize("active", [True, False])
def test_a_node_that_does_not_register_names_the_ports_where_firewalld_runs(tmp_path, active):
    programs = tmp_path / "programs"
    program(programs, "sinfo", "#!/bin/sh\necho 'down*|Not responding'\n")
    program(programs, "journalctl", "#!/bin/sh\necho 'the log'\n")
    program(programs, "systemctl", f"#!/bin/sh\nexit {0 if active else 3}\n")
    (tmp_path / "check.yml").write_text(CHECK, "utf-8")
    variables = {
        "slurm_hosts": ["localhost"],
        "slurm_addresses": {"localhost": {"address": "10.0.0.1"}},
        "__slurm_log_dir": "/var/log/slurm",
        "__slurm_fact": {},
        "__slurm_record": str(tmp_path / "slurm.fact"),
        "__slurm_wait": {"retries": 1, "delay": 0},
    }
    printed = play(tmp_path / "check.yml", programs, variables, expect=2)
    assert "sinfo says down*|Not responding. the log" in printed
    assert ("slurmctld needs port 6817, slurmd 6818" in printed) is active
    assert ("--add-source=ADDRESS` for 10.0.0.1, then `firewall-cmd --reload`" in printed) is active


START = """
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: slurm, tasks_from: start}
"""


def test_a_node_that_did_not_register_is_waited_for_again(tmp_path):
    """What failed once was waited for only where something changed: the next run ended well."""
    programs, record = tmp_path / "programs", tmp_path / "slurm.fact"
    running = "LoadState=loaded\nActiveState=active\nUnitFileState=enabled"
    program(programs, "systemctl", f"#!/bin/sh\ncase $1 in show) echo '{running}';; esac\n")
    program(programs, "journalctl", "#!/bin/sh\necho 'the log'\n")
    (tmp_path / "start.yml").write_text(START, "utf-8")
    given = {
        "slurm_hosts": ["localhost"],
        "slurm_addresses": {"localhost": {"address": "10.0.0.1"}},
        "__slurm_daemons": ["munge"],
        "__slurm_log_dir": "/var/log/slurm",
        "__slurm_now": {},
        "__slurm_configuration": "as it was",
        "__slurm_pmix": False,
        "__slurm_uid": {"stdout": "1000"},
        "__slurm_record": str(record),
        "__slurm_version": "22.05",
        "__slurm_wait": {"retries": 1, "delay": 0},
    }

    def start(state, expect=0, changed="__slurm_own"):
        program(programs, "sinfo", f"#!/bin/sh\necho asked >> {tmp_path}/asked\necho '{state}'\n")
        local = {"hvlab_slurm": json.loads(record.read_text())} if record.exists() else {}
        reports = {
            name: {"changed": name == changed} for name in ("__slurm_key", "__slurm_shared", "__slurm_own")
        }
        facts = {"ansible_local": local, "hvlab": {"packages": {}}, "os_family": "Debian"}
        (tmp_path / "asked").unlink(missing_ok=True)
        printed = play(
            tmp_path / "start.yml", programs, given | reports | {"ansible_facts": facts}, expect=expect
        )
        return printed, (tmp_path / "asked").exists(), json.loads(record.read_text())["registered"]

    assert start("idle|none")[1:] == (True, True)
    for changed in ("__slurm_own", ""):
        printed, *found = start("down*|Not responding", expect=2, changed=changed)
        assert "localhost: should be a node of Slurm that is up; sinfo says down*|Not responding" in printed
        assert found == [True, False]
    assert start("idle|none", changed="")[1:] == (True, True)
    printed, *found = start("idle|none", changed="")
    assert found == [False, True]
    assert "changed=0" in printed


LISTENER = """
import socket, sys, time
time.sleep(1)
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server, open(sys.argv[2], "a") as calls:
    server.settimeout(60)
    print("slurmdbd listens", file=calls, flush=True)
    server.accept()
"""


def test_slurmctld_starts_once_slurmdbd_listens(tmp_path):
    programs, calls = tmp_path / "programs", tmp_path / "called"
    (tmp_path / "listener.py").write_text(LISTENER)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    listener = f"{sys.executable} {tmp_path}/listener.py {port} {calls} > /dev/null 2>&1 &"
    stopped = "LoadState=loaded\nActiveState=inactive\nUnitFileState=enabled"
    program(
        programs,
        "systemctl",
        f"""#!/bin/sh
case "$*" in
show*) echo '{stopped}' ;;
*start*) echo "$*" >> {calls} ;;
esac
case "$*" in *start*slurmdbd*) {listener} esac
""",
    )
    program(programs, "sinfo", "#!/bin/sh\necho 'idle|none'\n")
    [start] = yaml.safe_load(START)
    tasks = load(ROLE / "tasks/configure.yml")
    change = next(task for task in tasks if "Restart slurmctld" in task.get("notify", ""))
    start["tasks"].append({"ansible.builtin.command": "true", "notify": change["notify"]})
    (tmp_path / "start.yml").write_text(json.dumps([start]))
    variables = {
        "ansible_facts": {"ansible_local": {}, "hvlab": {"packages": {}}},
        "slurm_hosts": ["localhost"],
        "slurm_addresses": {"localhost": {"address": "127.0.0.1"}},
        "slurm_accounting_enabled": True,
        "__slurm_daemons": ["slurmctld"],
        "__slurm_database_port": port,
        "__slurm_fact": {},
        "__slurm_log_dir": "/var/log/slurm",
        "__slurm_checked": False,
        "__slurm_record": str(tmp_path / "slurm.fact"),
    }
    play(tmp_path / "start.yml", programs, variables)
    started = ["start slurmdbd", "slurmdbd listens"]
    assert calls.read_text().splitlines() == [
        *started,
        *("start slurmctld", *started, "start slurmctld", "start slurmd"),
    ]
