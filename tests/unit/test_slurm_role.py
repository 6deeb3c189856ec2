"""Role slurm: what each system and each host gets."""

import dataclasses
import json
import socket
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from hvlab.checks import slurm as checks
from hvlab.checks.provisioned import RoleHost, WrongNodeError
from hvlab.stack.provision.roles import choose_used_gpus, name_gpu_type
from hvlab.stack.provision.slurm.checks import check_absent, find_lost_hardware
from hvlab.stack.provision.slurm.host import SlurmHost, SlurmRequest, SlurmSystem, registrations
from hvlab.stack.provision.slurm.plan import REST_APIS, describe, plan
from hvlab.stack.resolver.catalogue import load as load_catalogue
from tests.contract.tree import ROOT, load
from tests.unit.plays import play, program
from tests.unit.test_container_runtime import trusted

pytestmark = pytest.mark.slow

ROLE = ROOT / "roles/slurm"
SUPPORTED = {system.name: system for system in load_catalogue().systems if "slurm" in system.packages}
HARDWARE = (
    "NodeName=g1 CPUs=64 Boards=1 SocketsPerBoard=2 CoresPerSocket=16 ThreadsPerCore=2 RealMemory=257000\n"
    "UpTime=3-04:05:06\n"
)
# The systems: what its daemons read, whether they have PMIx, and in which release.
SYSTEMS = {
    "debian12": ("/etc/slurm", "22.05", True),
    "debian13": ("/etc/slurm", "24.11", True),
    "ubuntu2404": ("/etc/slurm", "23.11", True),
    "ubuntu2204": ("/etc/slurm", "21.08", False),
    "ubuntu2004": ("/etc/slurm-llnl", "19.05", True),
    "rhel9": ("/etc/slurm", "22.05", True),
}


REQUEST = SlurmRequest(
    cluster="hvlab",
    controller="g1",
    hosts=["g1"],
    addresses={"g1": {"address": "10.0.0.1"}},
    partition="hvlab",
    partitions=[],
    settings={},
    lab_user="",
    munge_key_file="/keys/munge.key",
    health_check="",
    accounting=False,
    accounts=[],
    rest=False,
    slots=1,
    gpus=0,
    gpu_type="",
    features=[],
    less_hardware=False,
)


def request(**options):
    return dataclasses.replace(REQUEST, **options)


def names(system):
    """The role's variables of a system."""
    named = SUPPORTED[system].packages["slurm"]
    return named | {"pmix_link": named["pmix_link"].format(architecture="x86_64")}


def host(
    system="debian12",
    *,
    name="g1",
    cgroup=2,
    container=False,
    packages=(),
    record=None,
    text=HARDWARE,
    available="",
):
    entry = SUPPORTED[system]
    facts = {
        "architecture": "x86_64",
        "pkg_mgr": entry.manager,
        "hostname": name,
        "processor_vcpus": 4,
        "memtotal_mb": 8000,
        "distribution": entry.distributions[0],
        "distribution_version": entry.version,
        "hvlab": {"container": container, "cgroup": cgroup, "packages": dict.fromkeys(packages, "1")},
        "ansible_local": {} if record is None else {"hvlab_slurm": record},
    }
    fields = [field.name for field in dataclasses.fields(SlurmSystem) if field.name in names(system)]
    own = SlurmSystem(**{field: names(system)[field] for field in fields})
    return SlurmHost(name, facts, own, text, available)


def planned(system="debian12", *, last=None, now=None, kind=None, **options):
    g1, asked = host(system, **(kind or {})), request(**options)
    return plan(g1, asked, last=last or {}, now=now or {"g1": describe(g1, asked)}, uid="1000")


def written(name, decided, system="debian12", **variables):
    """Return the text of a template."""
    (file,) = (path for path in (ROLE / "templates").rglob("*.j2") if str(path).endswith(name))
    variables |= {
        "slurm_gpu_detection": variables.get("slurm_gpu_detection", "file"),
        "__slurm_plan": dataclasses.asdict(decided),
        "slurm_system": names(system),
        **{
            key: value for key, value in load(ROLE / "vars/main.yml").items() if key == "__slurm_started_file"
        },
    }
    return Templar(loader=DataLoader(), variables=variables).template(trusted(file.read_text("utf-8")))


def test_every_system_of_the_role_is_listed_here():
    assert {name for name in SUPPORTED if not name.startswith(("rhel", "amzn"))} | {"rhel9"} == set(SYSTEMS)


def test_the_role_asks_for_what_the_planner_takes():
    assert load(ROLE / "vars/main.yml")["__slurm_request"].keys() == {
        f.name for f in dataclasses.fields(SlurmRequest)
    }


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_system_gets_what_its_release_knows(system):
    folder, release, pmix = SYSTEMS[system]
    decided = planned(system)
    assert (names(system)["etc"], host(system).version) == (folder, release)
    assert decided.settings["MpiDefault"] == ("pmix" if pmix else "none")
    assert decided.settings.get("TreeWidth") == ("2" if pmix else None)
    new = release >= "22.05"
    assert bool(decided.mpi_conf) == (pmix and new)
    # With version 2 of control groups, older releases follow jobs by their processes.
    assert decided.settings["ProctrackType"] == ("proctrack/cgroup" if new else "proctrack/linuxproc")
    assert "CgroupPlugin" not in decided.cgroup
    assert not names(system)["rest_packages"] or release in REST_APIS


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_release_without_mpi_conf_gives_srun_and_slurmd_pmixs_settings(system):
    decided = planned(system)
    _, release, pmix = SYSTEMS[system]
    by_environment = pmix and release < "22.05"
    assert bool(decided.environment) == by_environment
    unit = written("slurmd.service.d/hvlab.conf.j2", decided)
    assert ("Environment=PMIX_MCA_psec=native" in unit) == by_environment
    exports = "export SLURM_PMIX_DIRECT_CONN=false\nexport PMIX_MCA_psec=native"
    assert (exports in written("hvlab-slurm.sh.j2", decided)) == by_environment


def test_a_real_node_has_what_slurmd_counts():
    decided = planned(slots=8, gpus=8)
    text = written("slurm.conf.j2", decided)
    assert (
        "\nNodeName=g1 NodeHostname=g1 NodeAddr=10.0.0.1 Boards=1 CoresPerSocket=16 CPUs=64 "
        "RealMemory=243968 SocketsPerBoard=2 ThreadsPerCore=2 Gres=gpu:8 State=UNKNOWN\n"
        "PartitionName=hvlab Nodes=g1 Default=YES MaxTime=INFINITE State=UP\n"
    ) in text
    assert decided.settings["GresTypes"] == "gpu"
    # Else root of one node is root of all.
    assert "\nDisableRootJobs=YES\n" in text
    assert "SlurmdParameters" not in decided.settings
    assert "NodeName=g1 Name=gpu File=/dev/nvidia[0-7]" in written("gres.conf.j2", decided)
    assert "AutoDetect=nvml" in written("gres.conf.j2", decided, slurm_gpu_detection="nvml")
    assert "\nConstrainDevices=yes\n" in written("cgroup.conf.j2", decided)
    assert "\nPMIxEnv=PMIX_MCA_psec=native\n" in written("mpi.conf.j2", decided)


def test_a_virtual_node_has_its_slots_and_no_control_groups():
    decided = planned(kind={"cgroup": 1, "container": True}, slots=6)
    assert decided.nodes["g1"]["resources"] == {"CPUs": 6, "RealMemory": 243968}
    assert decided.settings["SlurmdParameters"] == "config_overrides"
    assert decided.settings["ProctrackType"] == "proctrack/linuxproc"
    assert decided.settings["TaskPlugin"] == "task/none"
    assert decided.cgroup == {"CgroupPlugin": "cgroup/v1"}


def test_real_hosts_share_memory_and_have_slurms_own_times_and_virtual_ones_do_not():
    settings = ("SelectTypeParameters", "DefMemPerCPU", "SlurmdTimeout", "KillWait")
    real, virtual = (planned(kind={"container": kind}).settings for kind in (False, True))
    # 257000 MB less a twentieth, in steps of 256 MB, for each of 64 CPUs.
    assert [real.get(name) for name in settings] == ["CR_Core_Memory", "3812", "300", "30"]
    assert [virtual.get(name) for name in settings] == ["CR_CPU", None, "30", "5"]


def test_a_kernel_that_leaves_less_memory_changes_no_configuration():
    assert planned() == planned(kind={"text": HARDWARE.replace("257000", "256988")})


def test_jobs_that_name_no_memory_have_the_share_of_the_node_with_the_least():
    node = describe(host(), request())
    now = {"g1": {**node, "memory_per_cpu": 9000}, "g2": {**node, "memory_per_cpu": 2000}}
    assert planned(now=now, hosts=["g1", "g2"]).settings["DefMemPerCPU"] == "2000"


def test_the_model_of_the_gpus_is_named_where_it_is_known():
    decided = planned(gpus=8, gpu_type="h100", features=["ib", "rack2"])
    assert "Gres=gpu:h100:8 Feature=ib,rack2 State=UNKNOWN" in written("slurm.conf.j2", decided)
    assert "NodeName=g1 Name=gpu Type=h100 File=/dev/nvidia[0-7]" in written("gres.conf.j2", decided)
    # A node without either is recorded as it always was.
    assert not {"gpu_type", "features"} & describe(host(), request(gpus=8)).keys()


def test_a_node_that_is_left_out_of_a_run_has_the_same_line():
    """The record's names are in another order than those of a host that is asked."""
    decided = planned(gpus=8)
    last = json.loads(json.dumps(decided.record, sort_keys=True))
    again = planned(gpus=8, now=last["nodes"], last=last)
    assert written("slurm.conf.j2", again) == written("slurm.conf.j2", decided)
    assert (decided.changes, again.changes) == (True, False)


def test_what_slurmd_read_is_older_than_its_start():
    files = [
        item
        for name in ("configure", "write")
        for task in load(ROLE / f"tasks/{name}.yml")
        for item in task.get("hvlab_files", {}).get("files", [])
    ]
    read = {
        Path(item["template"]).stem for item in files if item.get("loaded") == "{{ __slurm_started_file }}"
    }
    assert read == {"slurm.conf", "gres.conf", "cgroup.conf", "mpi.conf", "hvlab.conf"}
    unit = written("slurmd.service.d/hvlab.conf.j2", planned())
    assert "\nExecStartPre=/bin/touch /run/hvlab-slurmd-started\n" in unit
    assert "[Unit]\nAfter=nvidia-persistenced.service\n" in unit


@pytest.mark.parametrize(
    ("states", "recorded", "refused"),
    [
        ("g2|idle", True, True),
        ("", True, True),
        ("g2|down*", True, False),
        ("g2|drained*", True, False),
        ("", False, False),
    ],
    ids=["idle", "slurmctld is away", "down", "not responding", "without Slurm"],
)
def test_settings_change_only_while_no_host_that_runs_slurm_is_left_out(states, recorded, refused):
    nodes = {"g2": {}} if recorded else {}
    problems = check_absent(request(hosts=["g1", "g2"]), nodes, present=["g1"], asked=["g1"], states=states)
    assert bool(problems) is refused
    assert all("would change, and g2 is not in this run" in problem.observed for problem in problems)


@pytest.mark.parametrize("controller", ["g1", "g2"])
def test_a_host_that_is_lost_keeps_no_other_from_a_change_unless_slurmctld_is_there(controller):
    asked = request(hosts=["g1", "g2"], controller=controller)
    problems = check_absent(asked, {"g2": {}}, present=["g1"], asked=["g1", "g2"], states="")
    assert bool(problems) is (controller == "g2")
    assert all(
        "g2, which runs slurmctld, failed or did not answer" in problem.observed for problem in problems
    )


def test_a_cluster_whose_slurmctld_is_left_out_changes_nothing():
    (problem,) = check_absent(
        request(controller="g2", hosts=["g1", "g2"]), {}, present=["g1"], asked=["g1"], states=""
    )
    assert "g2 is not in this run" in problem.observed


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ({"gpus": 8}, "its line in slurm.conf says 8 GPUs, and the host has 7."),
        ({"counted": False, "resources": {"CPUs": 65}}, "says 65 CPUs, and the host has 64."),
        ({"resources": {"RealMemory": 257001}}, "says 257001 MB of memory, and the host has 257000."),
        ({"gpus": 7, "counted": True, "resources": {"CPUs": 65, "RealMemory": 243968}}, ""),
    ],
    ids=["GPUs", "CPUs", "memory", "as it was"],
)
def test_a_host_that_lost_hardware_keeps_its_line_unless_that_is_meant(line, refused):
    problems = find_lost_hardware(host(), request(gpus=7), {"g1": line})
    assert [refused in problem.observed for problem in problems] == ([True] if refused else [])
    assert not find_lost_hardware(host(), request(gpus=7, less_hardware=True), {"g1": line})


CONFIGURE = """
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: slurm, tasks_from: configure}
"""


def test_the_hosts_answers_reach_the_decision_and_the_decision_the_files(tmp_path):
    (tmp_path / "configure.yml").write_text(CONFIGURE, "utf-8")
    programs, etc = tmp_path / "programs", tmp_path / "etc"
    program(programs, "slurmd", f"#!/bin/sh\nprintf '%s' '{HARDWARE}'\n")
    node = describe(host(), request()) | {"hostname": "g2"}
    facts = host(record={"nodes": {"g2": node}}).facts
    folders = {name: str(etc) for name in ("etc", "log_dir", "state_dir", "run_dir")}
    variables = {
        "ansible_facts": {**facts, "hvlab_managed": {}, "os_family": "Debian"},
        "slurm_hosts": ["localhost", "g2"],
        "slurm_addresses": {"localhost": {"address": "10.0.0.1"}},
        "slurm_lab_user": "",
        "slurm_system": names("debian12") | folders | {"pmix_link": ""},
        "__slurm_record": str(tmp_path / "slurm.fact"),
        "__slurm_checked": False,
    }
    for state, expect in (("idle", 2), ("down*", 0)):
        program(programs, "sinfo", f"#!/bin/sh\necho 'g2|{state}'\n")
        printed = play(tmp_path / "configure.yml", programs, variables, "--check", expect=expect)
        assert ("slurm.conf names all nodes, would change, and g2 is not in this run" in printed) is (
            expect == 2
        )


def test_a_partition_whose_hosts_are_all_lost_has_no_nodes():
    decided = planned(hosts=["g1", "g2"], partitions=[{"name": "hvlab"}, {"name": "far", "hosts": ["g2"]}])
    assert written("slurm.conf.j2", decided).splitlines()[-2:] == [
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
    assert name_gpu_type(gpus=[{"name": name} for name in names]) == model


@pytest.mark.parametrize(
    ("there", "named", "used"),
    [
        (["GA100 [A100 PCIe 40GB]"] * 2 + ["GK210GL [Tesla K80]"], ["NVIDIA A100 40GB"] * 2, 2),
        (["NVIDIA A100-PCIE-40GB"] * 2, ["A100"], 2),
        (["NVIDIA A100-PCIE-40GB"] * 2, ["Something"], 2),
        (["NVIDIA A100-PCIE-40GB"] * 2, ["NVIDIA H100"], 2),
        ([], ["NVIDIA H200"], 0),
        (["GA100 [A100 PCIe 40GB]", None], [], 2),
    ],
    ids=["an old card", "one named", "unknown", "other", "only builds", "none named"],
)
def test_a_card_that_lab_gpus_leaves_out_is_not_counted_before_the_driver_is_there(there, named, used):
    gpus, asked = ([{"name": name} for name in names] for names in (there, named))
    assert len(choose_used_gpus(there=gpus, named=asked)) == used


def test_partitions_are_data():
    partitions = [
        {"name": "long", "settings": {"MaxTime": "2-00:00:00", "AllowAccounts": "physics"}},
        {"name": "hvlab", "hosts": ["g1"]},
    ]
    decided = planned(partitions=partitions)
    assert written("slurm.conf.j2", decided).splitlines()[-2:] == [
        "PartitionName=long Nodes=g1 Default=NO MaxTime=2-00:00:00 State=UP AllowAccounts=physics",
        "PartitionName=hvlab Nodes=g1 Default=YES MaxTime=INFINITE State=UP",
    ]
    assert decided.record["partitions"] == ["long", "hvlab"]
    elsewhere = planned(partitions=[*partitions, {"name": "far", "hosts": ["g2"]}])
    assert "far" not in elsewhere.record["partitions"]
    assert planned().record["partitions"] == ["hvlab"]


def test_gpus_are_charged_where_there_are_accounts_and_gpus():
    decided = planned(gpus=8, accounting=True)
    assert decided.settings["AccountingStorageTRES"] == "gres/gpu"
    assert decided.settings["PriorityFlags"] == "MAX_TRES"
    # 64 CPUs and 8 GPUs: who has half of the GPUs pays as for half of the CPUs.
    assert "TRESBillingWeights=CPU=1.0,GRES/gpu=8" in written("slurm.conf.j2", decided)
    for other in ({"gpus": 8}, {"accounting": True}):
        without = planned(**other)
        assert "AccountingStorageTRES" not in without.settings
        assert "TRESBillingWeights" not in written("slurm.conf.j2", without)


def test_settings_of_the_inventory_win_and_the_check_is_a_prolog_only_where_there_is_one():
    settings = planned(settings={"KillWait": 30, "MaxJobCount": 5}, health_check="/x").settings
    assert (settings["KillWait"], settings["MaxJobCount"]) == (30, 5)
    assert settings["Prolog"] == "/etc/slurm/prolog.d/*"
    # Without it Slurm holds a batch job that came upon a sick node, until somebody releases it.
    assert settings["SchedulerParameters"] == "nohold_on_prolog_fail"
    assert {"Prolog", "SchedulerParameters"}.isdisjoint(planned().settings)


def test_what_is_switched_off_by_a_word_is_off():
    wiring = trusted(yaml.safe_load((ROOT / "group_vars/all.yml").read_text("utf-8")))
    templar = Templar(loader=DataLoader(), variables=wiring | {"lab_slurm": "false", "ansible_facts": {}})
    assert templar.template(wiring["slurm_enabled"]) is False
    assert templar.template(wiring["hwloc_purge_keep"]) == []
    chosen = {"stacks": {"n1": {"role_packages": {"hwloc_slurm": ["libhwloc15"]}}}}
    given = {"lab_slurm": True, "inventory_hostname": "n1", "__preflight_stacks": chosen}
    templar.available_variables = wiring | given
    assert templar.template(wiring["hwloc_purge_keep"]) == ["libhwloc15"]


@pytest.mark.parametrize(
    ("method", "flags", "purged"),
    [
        ("source", [], False),
        ("source", ["--with-hwloc=external"], False),
        ("source", ["--with-hwloc=/usr"], False),
        ("source", ["--without-verbs", "--with-hwloc=/opt/hwloc"], True),
        ("distro", ["--with-hwloc=/opt/hwloc"], False),
    ],
)
def test_the_distributions_hwloc_goes_only_where_open_mpi_was_built_with_another(method, flags, purged):
    wiring = trusted(yaml.safe_load((ROOT / "group_vars/all.yml").read_text("utf-8")))
    given = {"openmpi_method": method, "openmpi_configure_flags": flags, "ansible_facts": {}}
    templar = Templar(loader=DataLoader(), variables=wiring | given)
    assert templar.template(wiring["hwloc_purge_enabled"]) is purged


@pytest.mark.parametrize("controller", ["g1", "g2"])
def test_rest_runs_beside_slurmctld_alone(controller):
    decided = planned(controller=controller, hosts=["g1", "g2"], rest=True)
    own = ["munge", "slurmctld", "slurmd", "slurmrestd"] if controller == "g1" else ["munge", "slurmd"]
    assert decided.daemons == own
    assert planned().daemons == ["munge", "slurmctld", "slurmd"]


def test_accounting_and_rest_are_reached_from_the_host_itself():
    decided = planned(accounting=True, rest=True)
    assert decided.settings["AccountingStorageType"] == "accounting_storage/slurmdbd"
    assert decided.settings["PriorityType"] == "priority/multifactor"
    assert "AccountingStorageType" not in planned().settings
    variables = {
        "slurm_controller": "g1",
        "slurm_addresses": REQUEST.addresses,
        "ansible_facts": host().facts,
    }
    assert "StoragePass" not in written("slurmdbd.conf.j2", decided, **variables)
    database = written("90-hvlab-slurm.cnf.j2", decided).splitlines()
    assert {"bind-address=127.0.0.1", "loose_innodb_snapshot_isolation=OFF"} <= set(database)
    unit = written("slurmrestd.service.d/hvlab.conf.j2", decided)
    assert "User=slurmrestd" in unit
    socket_ = decided.record["rest"]["socket"]
    assert f"\nExecStart=\nExecStart=/usr/sbin/slurmrestd -a rest_auth/local unix:{socket_}\n" in unit


LISTED = "lab|root||1\nlab|root|root|1\nlab|ann||1\nlab|ann|Ann|1\nlab|physics||3\nlab|physics|bob|1\n"


@pytest.mark.parametrize(
    ("listed", "accounts", "commands"),
    [
        (LISTED, [], []),
        (LISTED, [{"name": "physics", "shares": 3, "users": ["bob"]}], []),
        (
            LISTED,
            [
                {"name": "physics", "shares": 5, "users": ["bob", "eve"]},
                {"name": "biology", "users": ["eve"]},
            ],
            [
                "modify account name=physics cluster=Lab set fairshare=5",
                "add account biology cluster=Lab fairshare=1",
                "add user eve account=physics cluster=Lab",
                "add user eve account=biology cluster=Lab",
            ],
        ),
        # The lab user's own account was added twice; sacctmgr ends with 1 where nothing is new.
        (
            "",
            [{"name": "ann", "shares": 5, "users": ["Ann", "bob"]}],
            [
                "add cluster Lab",
                "add account ann cluster=Lab fairshare=5",
                "add user Ann account=ann cluster=Lab",
                "add user bob account=ann cluster=Lab",
            ],
        ),
    ],
    ids=["none", "registered", "new", "own"],
)
def test_accounts_are_data_and_registered_once(listed, accounts, commands):
    asked = request(cluster="Lab", lab_user="Ann", accounts=accounts)
    assert [" ".join(words) for words in registrations(asked, listed)] == commands


ASSOCIATE = """
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: slurm, tasks_from: associate}
"""


def test_slurmdbd_is_told_what_it_lacks(tmp_path):
    programs = tmp_path / "programs"
    call = f'shift; echo "$*" >> {tmp_path}/called'
    program(
        programs, "sacctmgr", f"#!/bin/sh\ncase \"$*\" in *show*) echo 'lab|root||1';; *) {call};; esac\n"
    )
    (tmp_path / "associate.yml").write_text(ASSOCIATE, "utf-8")
    variables = {
        "slurm_hosts": ["localhost"],
        "slurm_cluster": "Lab",
        "slurm_lab_user": "Ann",
        "ansible_facts": {},
        "slurm_system": names("debian12") | {"pmix_link": ""},
    }
    play(tmp_path / "associate.yml", programs, variables)
    assert (tmp_path / "called").read_text().splitlines() == [
        "add account ann cluster=Lab",
        "add user Ann account=ann cluster=Lab",
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


def up(state):
    variables = trusted(load(ROLE / "vars/main.yml")) | {
        "__slurm_state": {"rc": 0, "stdout": f"{state}|none"}
    }
    return Templar(loader=DataLoader(), variables=variables).template(variables["__slurm_node_up"])


@pytest.mark.parametrize("state", [*WORKING, "drained", "draining", "drained$", "mixed$", "idle@"])
def test_a_node_that_is_registered_is_up(state):
    assert up(state) is True


@pytest.mark.parametrize("state", ["idle*", "drained*", "down", "unknown", "inval", "idle~", "idle^"])
def test_a_node_that_does_not_answer_is_not_up(state):
    assert up(state) is False


@pytest.mark.parametrize("state", [*WORKING, "idle*", "drained", "mixed$", "down"])
def test_verify_takes_a_node_that_works_as_it_is_and_names_another_state(state):
    answers = {"sinfo": {"rc": 0, "out": f"{state}|hvlab|a fan\n", "err": ""}}
    node = RoleHost("n1", None, {}, answers=answers)
    wrong = pytest.raises(WrongNodeError, match="Slurm says it is")
    with nullcontext() if state in WORKING else wrong:
        checks.slurmctld_has_the_node(node, {"partitions": ["hvlab"], "controller": "n1"})


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
        "slurm_system": {"log_dir": "/var/log/slurm"},
        "__slurm_plan": {"record": {}},
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
        "slurm_system": {"log_dir": "/var/log/slurm", "controller_packages": []},
        "__slurm_plan": {"daemons": ["munge"], "record": {}},
        "__slurm_record": str(record),
        "__slurm_wait": {"retries": 1, "delay": 0},
    }

    def start(state, expect=0, changed="__slurm_own"):
        program(programs, "sinfo", f"#!/bin/sh\necho asked >> {tmp_path}/asked\necho '{state}'\n")
        local = {"hvlab_slurm": json.loads(record.read_text())} if record.exists() else {}
        reports = {
            f"__slurm_{name}": {"changed": f"__slurm_{name}" == changed}
            for name in ("key", "shared", "own", "link")
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
    tasks = load(ROLE / "tasks/write.yml")
    change = next(task for task in tasks if "Restart slurmctld" in task.get("notify", ""))
    start["tasks"].append({"ansible.builtin.command": "true", "notify": change["notify"]})
    (tmp_path / "start.yml").write_text(json.dumps([start]))
    variables = {
        "ansible_facts": {"ansible_local": {}, "hvlab": {"packages": {}}},
        "slurm_hosts": ["localhost"],
        "slurm_addresses": {"localhost": {"address": "127.0.0.1"}},
        "slurm_accounting_enabled": True,
        "slurm_system": {"log_dir": "/var/log/slurm", "controller_packages": []},
        "__slurm_plan": {"daemons": ["slurmctld"], "record": {}},
        "__slurm_database_port": port,
        "__slurm_checked": False,
        "__slurm_record": str(tmp_path / "slurm.fact"),
    }
    play(tmp_path / "start.yml", programs, variables)
    started = ["start slurmdbd", "slurmdbd listens"]
    assert calls.read_text().splitlines() == [
        *started,
        *("start slurmctld", *started, "start slurmctld", "start slurmd"),
    ]


@pytest.mark.parametrize(
    ("written", "stopped"),
    [
        (["slurm.conf"], ["slurmctld"]),
        (["slurm.conf", "slurmdbd.conf"], ["slurmctld", "slurmdbd"]),
        ([], []),
    ],
)
def test_where_the_controller_was_hvlabs_daemons_stop(tmp_path, written, stopped):
    """MariaDB and the daemons of others stay."""
    programs, calls = tmp_path / "programs", tmp_path / "called"
    calls.touch()
    running = "LoadState=loaded\\nActiveState=active\\nUnitFileState=disabled"
    program(
        programs,
        "systemctl",
        f'#!/bin/sh\ncase $1 in show) printf "{running}\\n" ;; stop) echo "$2" >> {calls} ;; esac\n',
    )
    [start] = yaml.safe_load(START)
    (tmp_path / "start.yml").write_text(json.dumps([start]))
    packages = {"slurmctld": "1", "slurmdbd": "1", "slurmrestd": "1", "mariadb-server": "1"}
    variables = {
        "ansible_facts": {
            "ansible_local": {},
            "hvlab": {"packages": packages},
            "hvlab_managed": {"paths": [f"/etc/slurm/{name}" for name in written]},
        },
        "slurm_hosts": ["localhost", "n2"],
        "slurm_controller": "n2",
        "slurm_system": names("debian12"),
        "__slurm_plan": {"daemons": [], "record": {}},
        "__slurm_checked": True,
    }
    play(tmp_path / "start.yml", programs, variables)
    assert calls.read_text().split() == stopped


@pytest.mark.parametrize(
    ("before", "made", "recorded"),
    [(None, {}, []), (None, {"changed": True}, ["slurm"]), (["slurm"], {"changed": False}, ["slurm"])],
)
def test_users_that_the_role_made_are_recorded(before, made, recorded):
    """For `hvlab remove`."""
    local = {"hvlab_slurm": {"users": before}} if before else {}
    variables = {
        "ansible_facts": {"ansible_local": local},
        "__slurm_user_made": made,
        "__slurm_plan": {"record": {"cluster": "lab"}},
        "__slurm_registered": True,
    }
    file = ROLE / "templates/etc/ansible/facts.d/hvlab_slurm.fact.j2"
    text = Templar(loader=DataLoader(), variables=variables).template(
        trust_as_template(file.read_text("utf-8"))
    )
    assert json.loads(text) == {"cluster": "lab", "registered": True, "users": recorded}
