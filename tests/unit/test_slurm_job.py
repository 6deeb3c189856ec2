"""The Slurm job that hvlab runs in, as an inventory. The environment is that of a job of Slurm 22.05."""

import pytest

from hvlab.base.errors import CheckError, UsageError
from hvlab.lab import slurm_job, unprepared
from hvlab.lab.unprepared import Installed
from tests.unit.programs import program

ENVIRONMENT = {
    "SLURM_JOB_ID": "6",
    "SLURM_JOB_NODELIST": "h[1-3]",
    "SLURM_JOB_CPUS_PER_NODE": "2(x2),4",
    "SLURM_CLUSTER_NAME": "my_cluster.1",
    "SLURMD_NODENAME": "h2",
    "SLURM_CONF": "/etc/slurm/slurm.conf",
    # In a step, such as a shell on a host: the step's own.
    "SLURM_NTASKS": "1",
    "SLURM_TASKS_PER_NODE": "1",
    "SLURM_STEP_TASKS_PER_NODE": "1",
    "SLURM_PROCID": "0",
    "PMIX_RANK": "0",
    "PMIX_MCA_psec": "native",
    "PATH": "/bin",
}
NODES = ["h1", "h2", "h3"]
CHECKED = """\
Horovod v0.28.1:

Available Frameworks:
    [ ] TensorFlow
    [X] PyTorch
    [ ] MXNet

Available Controllers:
    [X] MPI
    [X] Gloo

Available Tensor Operations:
    [ ] NCCL
    [ ] DDL
    [X] CCL
    [X] MPI
    [X] Gloo
"""


# What the steps of a job do not have, or another way.
SCRIPT = {"SLURM_NTASKS": "12", "SLURM_TASKS_PER_NODE": "3(x2),6"}


def job(**changes):
    return slurm_job.of_environment(ENVIRONMENT | changes, "h2.example.org", "hvlab bench --here")


def script(**changes):
    environment = {name: value for name, value in ENVIRONMENT.items() if "_STEP_" not in name}
    return slurm_job.of_environment(environment | SCRIPT | changes, "h2", "hvlab bench --here")


def facts(number, *, gpus=0, interface="ib0", cores=64):
    return {
        "processor_count": 2,
        "processor_cores": cores // 2,
        "processor_vcpus": 2 * cores,
        "hvlab": {
            "interfaces": {interface: {"up": True, "cidrs": [f"fe80::{number}/64", f"10.1.0.{number}/24"]}},
            "nics": [],
            "gpus": [{"uuid": f"GPU-{index}"} for index in range(gpus)],
        },
    }


def installed(prefix="/home/u/envs/hvd", operations=("MPI", "Gloo", "NCCL"), frameworks=("PyTorch",)):
    build = {"frameworks": list(frameworks), "operations": list(operations)}
    variant = prefix.rpartition("/")[2]
    environments = {"torch": {"framework": "torch", "version": "2.4.0", "build": "cu121"}}
    return Installed(
        prefix,
        {"hvlab_horovod": {"variants": {variant: build}}, "hvlab_python_env": {"environments": environments}},
    )


def inventory(given=None, gpus=0, prefixes=("/home/u/envs/hvd",) * 3, cores=64, **changes):
    counts = gpus if isinstance(gpus, tuple) else (gpus,) * 3
    known = {
        node: facts(number, gpus=count, cores=cores)
        for number, (node, count) in enumerate(zip(NODES, counts, strict=True), 1)
    }
    has = {node: installed(prefix, **changes) for node, prefix in zip(NODES, prefixes, strict=True)}
    return listing(given or job(), known, has)


def listing(given, known, has):
    slots = slurm_job.slots(given, NODES, known)
    hosts = {node: {"ansible_connection": "hvlab_prefix", "lab_slots": slots[node]} for node in slots}
    made = unprepared.inventory(known, has, hosts=hosts, variables={"lab_slurm": True}, remedy="others")
    return made["all"]


def test_ranks_meet_at_addresses_whatever_ssh_calls_the_hosts():
    known, has = {"a": facts(1), "b": facts(2)}, dict.fromkeys("ab", installed())
    hosts = {name: {"ansible_host": name} for name in known}
    made = unprepared.inventory(known, has, hosts=hosts, variables={}, remedy="others")["all"]["hosts"]
    assert [each["hvlab_rank_address"] for each in made.values()] == ["10.1.0.1", "10.1.0.2"]
    with pytest.raises(CheckError, match=r"one address on ib0: 10\.1\.0\.1$"):
        unprepared.inventory(dict.fromkeys("ab", facts(1)), has, hosts=hosts, variables={}, remedy="others")
    # A machine alone is the same one in any network.
    alone = {"a": {"ansible_connection": "local"}}
    made = unprepared.inventory({"a": facts(1)}, has, hosts=alone, variables={}, remedy="others")["all"]
    assert (made["vars"]["lab_interface"], made["hosts"]["a"]["ansible_host"]) == ("lo", "a")


def slots(given, **changes):
    return {name: host["lab_slots"] for name, host in inventory(given, **changes)["hosts"].items()}


def test_a_job_is_read_from_its_environment():
    assert job() == slurm_job.SlurmJob("6", "my-cluster-1", "h[1-3]", (2, 2, 4), (), 0, "h2")
    assert job(SLURMD_NODENAME="").node == "h2"


def test_tasks_are_those_that_the_job_asked_for():
    assert job(SLURM_NTASKS_PER_NODE="8").tasks == (8,)
    assert script().tasks == (3, 3, 6)
    # Slurm counts some where nobody asked for any, and a step has its own.
    without = {name: value for name, value in (ENVIRONMENT | SCRIPT).items() if name != "SLURM_NTASKS"}
    assert slurm_job.of_environment(without, "h2", "").tasks == ()
    assert job(**SCRIPT).tasks == ()


@pytest.mark.parametrize(
    ("environment", "gpus"),
    [
        ({"SLURM_GPUS_ON_NODE": "8", "SLURM_JOB_GPUS": "0,1,2,3,4,5,6,7"}, 8),
        ({"SLURM_JOB_GPUS": "2,3"}, 2),
        ({"SLURM_GPUS_ON_NODE": "0"}, 0),
        ({}, 0),
    ],
)
def test_steps_ask_for_the_gpus_of_the_job(environment, gpus):
    there = job(**environment)
    plain = slurm_job.step(there, (23, 11))
    words = slurm_job.step(there, (23, 11), options=there.gres)
    assert words == (*plain[:-1], *([f"--gres=gpu:{gpus}"] if gpus else []), "--nodelist")


def test_outside_of_a_job_it_says_how_to_get_into_one():
    with pytest.raises(UsageError, match="SLURM_JOB_ID is not set") as raised:
        slurm_job.of_environment({}, "login1", "/home/u/hvlab/bin/hvlab bench --here --backend mpi")
    assert (
        "  sbatch --nodes=2 --exclusive --gpus-per-node=8 --time=60 "
        "--wrap '/home/u/hvlab/bin/hvlab bench --here --backend mpi'\n" in raised.value.remedy
    )
    assert "  salloc --nodes=2 --exclusive --gpus-per-node=8 --time=60 srun --pty" in raised.value.remedy


def test_a_heterogeneous_job_is_refused():
    with pytest.raises(UsageError, match="job 6 is heterogeneous, with 2 components"):
        job(SLURM_HET_SIZE="2")


def test_a_heterogeneous_job_of_an_old_slurm_is_refused():
    with pytest.raises(UsageError, match="heterogeneous"):
        slurm_job.of_environment({**ENVIRONMENT, "SLURM_PACK_SIZE": "2"}, "h2", "hvlab")


def test_a_machine_that_is_no_host_of_the_job_is_refused():
    with pytest.raises(UsageError, match="this machine, login1, is no host of job 6, which has h1, h2, h3"):
        slurm_job.put_own_first(job(SLURMD_NODENAME="login1"), NODES)


def test_what_describes_this_process_is_dropped_and_what_names_the_job_stays():
    assert slurm_job.to_drop(ENVIRONMENT) == [
        *("SLURM_JOB_CPUS_PER_NODE", "SLURM_CLUSTER_NAME", "SLURM_NTASKS", "SLURM_TASKS_PER_NODE"),
        *("SLURM_STEP_TASKS_PER_NODE", "SLURM_PROCID", "PMIX_RANK"),
    ]


def test_how_a_sites_pmix_works_is_no_place_in_the_job():
    site = {"SLURM_PMIX_DIRECT_CONN": "false", "SLURM_PMIX_TMPDIR": "/run/pmix", "PMIX_MCA_psec": "native"}
    step = {"SLURM_PMIX_MAPPING_SERV": "(vector,(0,1,1))", "SLURM_PMIXP_ABORT_AGENT_PORT": "41234"}
    assert slurm_job.to_drop(site | step) == list(step)


@pytest.mark.parametrize(("version", "overlap"), [((20, 2, 7), False), ((20, 11, 9), True), ((23, 11), True)])
def test_a_step_runs_beside_others(version, overlap):
    words = slurm_job.step(job(), version)
    assert ("--overlap" in words) is overlap
    assert words[:2] == ("srun", "--jobid=6")
    assert words[-1] == "--nodelist"


def test_hosts_have_the_slots_addresses_and_build_that_were_seen():
    made = inventory()
    assert list(made["hosts"]) == ["h2", "h1", "h3"]
    assert {name: host["lab_slots"] for name, host in made["hosts"].items()} == {"h1": 2, "h2": 2, "h3": 4}
    assert made["hosts"]["h3"]["ansible_host"] == "10.1.0.3"
    assert made["vars"] == {
        "lab_network": "10.1.0.0/24",
        "lab_interface": "ib0",
        "lab_slurm": True,
        "horovod_prefix": "/home/u/envs",
        "horovod_variants": {
            "hvd": {
                "frameworks": ["torch"],
                "mpi": True,
                "gloo": True,
                "ccl": False,
                "gpu_operations": "nccl",
            }
        },
    }
    assert made["children"]["gpu"]["hosts"] == {}


def test_gpus_are_slots_unless_the_job_asked_for_tasks():
    assert list(inventory(gpus=8)["children"]["gpu"]["hosts"]) == ["h2", "h1", "h3"]
    assert slots(job(), gpus=8) == {"h1": 8, "h2": 8, "h3": 8}
    assert slots(job(SLURM_NTASKS_PER_NODE="4"), gpus=8) == {"h1": 4, "h2": 4, "h3": 4}
    assert slots(script(), gpus=8) == {"h1": 3, "h2": 3, "h3": 6}
    # Without control groups, hosts show the GPUs of others, too.
    assert slots(job(SLURM_GPUS_ON_NODE="4"), gpus=8) == {"h1": 4, "h2": 4, "h3": 4}


def test_without_gpus_cores_are_slots_and_not_hardware_threads():
    assert slots(job(SLURM_JOB_CPUS_PER_NODE="128(x2),16"), cores=64) == {"h1": 64, "h2": 64, "h3": 16}
    assert slots(job(SLURM_JOB_CPUS_PER_NODE=""), cores=64) == {"h1": 64, "h2": 64, "h3": 64}


def test_hosts_with_another_number_of_gpus_are_named():
    with pytest.raises(CheckError, match="h1 has 0, h3 has 7 usable GPUs, h2 has 8") as raised:
        inventory(gpus=(0, 8, 7))
    assert "--gpus-per-node=8" in raised.value.remedy


def test_torch_alone_is_enough_for_ddp():
    made = inventory(prefixes=("/home/u/envs/torch",) * 3, operations=(), frameworks=())["vars"]
    build = made["horovod_variants"]["torch"]
    assert build == {"frameworks": ["torch"], "mpi": False, "gloo": False, "ccl": False, "gpu_operations": ""}
    assert made["lab_horovod"] == "torch"


def test_hosts_need_one_python_and_one_network():
    with pytest.raises(CheckError, match="the Python of h2 is in /home/u/envs/hvd, that of h3 in /opt/hvd"):
        inventory(prefixes=("/home/u/envs/hvd", "/home/u/envs/hvd", "/opt/hvd"))
    known = {node: facts(number, interface=f"eth{number}") for number, node in enumerate(NODES, 1)}
    has = dict.fromkeys(NODES, installed())
    with pytest.raises(CheckError, match="share no network") as raised:
        listing(job(), known, has)
    assert raised.value.remedy == "others"


def test_hosts_whose_networks_are_routed_are_measured():
    """As with a network for each rack."""
    known = {node: facts(number) for number, node in enumerate(NODES, 1)}
    known[NODES[2]]["hvlab"]["interfaces"]["ib0"]["cidrs"] = ["10.1.1.9/24"]
    has = dict.fromkeys(NODES, installed())
    made = listing(job(), known, has)
    assert made["vars"]["lab_network"] == "10.1.0.0/23"
    assert made["hosts"][NODES[2]]["ansible_host"] == "10.1.1.9"


def test_what_horovod_was_built_with_is_read(monkeypatch):
    build = program(monkeypatch, "installed").parse_build(CHECKED)
    assert build == {
        "frameworks": ["PyTorch"],
        "controllers": ["MPI", "Gloo"],
        "operations": ["CCL", "MPI", "Gloo"],
    }
    assert program(monkeypatch, "installed").parse_build("No module named horovod") == {
        "frameworks": [],
        "controllers": [],
        "operations": [],
    }
