"""Launchers: case in, argv out. Parametrised from the registries: a new entry needs an expectation."""

import re
import shlex
from dataclasses import replace

import pytest

from hvlab.base.errors import UsageError
from hvlab.bench.matrix import expand
from hvlab.lab.backends import BACKENDS, HOROVOD
from hvlab.workloads.launchers import LAUNCHERS, command, recipe
from tests.unit.labs import case, lab, spec

PROGRAM = ("collective.py", "--x", "1")
RANK = (
    "timeout --kill-after=5 915 {prefix}/bin/python3 /opt/hvlab/workloads/collective.py --x 1 "
    "--output '~/.hvlab/runs/R/{id}/result.json'"
)
SSH = (
    "ssh -o BatchMode=yes -o StrictHostKeyChecking=yes -o ConnectTimeout=10 "
    "-o ServerAliveInterval=5 -o ServerAliveCountMax=3"
)
MPIRUN = (
    "/opt/hvlab/openmpi/current/bin/mpirun -np 2 -H n1:1,n2:1 --bind-to none --map-by slot "
    f"-mca oob_tcp_if_include 10.0.0.0/24 -mca plm_rsh_agent '{SSH}' "
    "-mca pml ^cm -mca btl ^openib,ofi -mca btl_tcp_if_include 10.0.0.0/24"
)
# Open MPI 5.0.7 was seen to pass over these parameters under Open MPI 4's names, and to take them so.
PRRTE = {"PRTE_MCA_prte_if_include": "10.0.0.0/24", "PRTE_MCA_plm_ssh_agent": SSH}
NO_CUDA = " -mca opal_warn_on_missing_libcuda 0"
ALONE = {"HVLAB_CASE": "R/{id}", "OMP_NUM_THREADS": "1"}
COMMON = {
    **ALONE,
    "HOROVOD_STALL_CHECK_TIME_SECONDS": "20",
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "60",
    "HOROVOD_TIMELINE": "DYNAMIC",
}
GPU_VARIANTS = {"nccl": {"gpu_operations": "nccl"}}
FIRST_HOST = {"MASTER_ADDR": "10.0.0.1"}
ENV = {
    "serial": {},
    "mpi": {"HOROVOD_CONTROLLER": "mpi", "HOROVOD_CPU_OPERATIONS": "MPI"},
    "gloo": {"HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "GLOO"},
    "nccl": {"HOROVOD_CONTROLLER": "mpi", "NCCL_SOCKET_IFNAME": "eth0", "HVLAB_DEVICE": "cuda"},
    "ccl": {
        "HOROVOD_CONTROLLER": "mpi",
        "HOROVOD_CPU_OPERATIONS": "CCL",
        "CCL_ATL_TRANSPORT": "ofi",
        "FI_PROVIDER": "tcp",
        "FI_TCP_IFACE": "eth0",
        "CCL_KVS_IFACE": "eth0",
        "CCL_OFI_LIBRARY_PATH": "libfabric.so.1",
        "CCL_LOG_LEVEL": "error",
    },
    "ddp-mpi": FIRST_HOST,
    "ddp-gloo": {**FIRST_HOST, "GLOO_SOCKET_IFNAME": "eth0"},
    "ddp-nccl": {
        **FIRST_HOST,
        "NCCL_SOCKET_IFNAME": "eth0",
        "GLOO_SOCKET_IFNAME": "eth0",
        "HVLAB_DEVICE": "cuda",
    },
}
ENV |= {name.replace("ddp", "fsdp"): ENV[name] for name in ("ddp-gloo", "ddp-nccl")}
_ALIAS = {"PYTHONPATH": "/opt/hvlab/workloads/hvlab_horovod"}
ENV["horovod-on-ddp-gloo"] = {**ENV["ddp-gloo"], **_ALIAS}
ENV["horovod-on-ddp-nccl"] = dict(
    sorted({**ENV["ddp-nccl"], **_ALIAS}.items(), key=lambda item: item[0] == "HVLAB_DEVICE")
)
HORUN = (
    "/opt/hvlab/horovod/{variant}/bin/horovodrun --gloo --disable-cache "
    "--network-interfaces eth0 --start-timeout 60 -np 2 -H n1:1,n2:1"
)
SRUN = (
    "srun --job-name=hvlab-R/{{id}} --mpi={mpi} --distribution=arbitrary --nodelist=n1,n2 "
    "--ntasks=2 --cpu-bind=none --overcommit --export=ALL --kill-on-bad-exit=1 --wait=30 --chdir=/tmp"
)
TORCHRUN = (
    f"python3 /opt/hvlab/workloads/nodes.py n1,n2 '{SSH}' NAMES /opt/hvlab/horovod/{{variant}}/bin/python3 "
    "-m torch.distributed.run --nnodes=2 --nproc-per-node=1 --master-addr=10.0.0.1 --master-port=PORT "
    "--node-rank={{{{node}}}} --log-dir ~/.hvlab/runs/R/{{id}}/torchrun --no-python"
)
MEETING = "/opt/hvlab/workloads/meeting.py"
GLOO_BY_SRUN = f"python3 {MEETING} start /opt/hvlab/horovod/cpu/bin/python3 n1:1,n2:1 eth0 "
GLOO_RANK = f" python3 {MEETING} rank"
STEP = ["srun", "--jobid=4", "--overlap", "--nodelist"]
TRANSPORT = {"pml": "^cm", "btl": "^openib,ofi", "btl_tcp_if_include": "10.0.0.0/24"}
START = {
    ("mpi", "mpirun"): MPIRUN + NO_CUDA,
    ("ccl", "mpirun"): MPIRUN + NO_CUDA,
    ("nccl", "mpirun"): MPIRUN,
    ("gloo", "horovodrun"): HORUN.format(variant="cpu"),
    ("ddp-mpi", "mpirun"): MPIRUN + NO_CUDA,
    ("ddp-gloo", "mpirun"): MPIRUN + NO_CUDA,
    ("ddp-gloo", "horovodrun"): HORUN.format(variant="cpu"),
    ("ddp-nccl", "mpirun"): MPIRUN,
    ("ddp-nccl", "horovodrun"): HORUN.format(variant="nccl"),
    ("ddp-gloo", "torchrun"): TORCHRUN.format(variant="cpu"),
    ("ddp-nccl", "torchrun"): TORCHRUN.format(variant="nccl"),
    ("horovod-on-ddp-gloo", "mpirun"): MPIRUN + NO_CUDA,
    ("horovod-on-ddp-nccl", "mpirun"): MPIRUN,
    ("horovod-on-ddp-gloo", "torchrun"): TORCHRUN.format(variant="cpu"),
    ("horovod-on-ddp-nccl", "torchrun"): TORCHRUN.format(variant="nccl"),
    ("fsdp-gloo", "mpirun"): MPIRUN + NO_CUDA,
    ("fsdp-gloo", "horovodrun"): HORUN.format(variant="cpu"),
    ("fsdp-nccl", "mpirun"): MPIRUN,
    ("fsdp-nccl", "horovodrun"): HORUN.format(variant="nccl"),
    ("fsdp-gloo", "torchrun"): TORCHRUN.format(variant="cpu"),
    ("fsdp-nccl", "torchrun"): TORCHRUN.format(variant="nccl"),
    ("serial", "local"): "",
    **{
        (backend.name, "srun"): (GLOO_BY_SRUN + SRUN.format(mpi="none") + GLOO_RANK)
        if backend.name == "gloo"
        else SRUN.format(mpi="pmix")
        for backend in BACKENDS.values()
        if backend.parallel
    },
    # In a Slurm job that hvlab runs in, so is one process alone.
    ("serial", "srun"): SRUN.format(mpi="none")
    .replace("n1,n2", "n1")
    .replace("nodes=2", "nodes=1")
    .replace("ntasks=2", "ntasks=1"),
}
PAIRS = [(backend.name, launcher) for backend in BACKENDS.values() for launcher in backend.launchers]


def of(backend, there, **changes):
    """The one case of a backend on a lab; one process alone trains."""
    alone = {} if BACKENDS[backend].parallel else {"workload": "mnist", "hosts": (1,)}
    alone |= {"workload": "lm"} if BACKENDS[backend].framework == "fsdp" else {}
    return expand(spec(backend, **alone, **changes), there)[0][0]


@pytest.mark.parametrize(("backend", "launcher"), PAIRS)
def test_argv_and_environment(backend, launcher):
    gpu = BACKENDS[backend].gpu
    there = lab(gpu=("n1", "n2", "n3"), horovod_variants=GPU_VARIANTS) if gpu else lab()
    if (backend, launcher) == ("serial", "srun"):
        there = lab(hvlab_step=STEP)
    one = of(backend, there, launcher=launcher)
    made = command(one, there, "R", PROGRAM)
    common = COMMON if BACKENDS[backend].framework == HOROVOD else ALONE
    env = {name: value.format(id=one.id) for name, value in (common | ENV[backend]).items()}
    if BACKENDS[backend].group:
        port = re.search(r"MASTER_PORT=(\d+)", made.line()).group(1)
        assert 29500 <= int(port) < 30000
        at = list(env).index("MASTER_ADDR") + 1
        env = dict([*list(env.items())[:at], ("MASTER_PORT", port), *list(env.items())[at:]])
    rank = RANK.format(prefix=f"/opt/hvlab/horovod/{'nccl' if gpu else 'cpu'}", id=one.id)
    start = shlex.split(START[backend, launcher].format(id=one.id))
    if launcher == "mpirun":
        start += [word for name, value in env.items() for word in ("-x", f"{name}={value}")]
        assert made.env == PRRTE
    elif launcher == "torchrun":
        variable = {"NAMES": ",".join(env), "--master-port=PORT": f"--master-port={port}"}
        start = [variable.get(word, word) for word in start]
        assert made.env == env
    elif launcher == "srun" and BACKENDS[backend].parallel and backend != "gloo":
        mca = TRANSPORT if gpu else TRANSPORT | {"opal_warn_on_missing_libcuda": "0"}
        # For Slurm before 22.05, whose PMIx reads it there alone.
        pmix = {"PMIX_MCA_psec": "native", "SLURM_PMIX_DIRECT_CONN": "false"}
        assert made.env == pmix | {f"OMPI_MCA_{name}": value for name, value in mca.items()} | env
    else:
        assert made.env == env
    assert list(made.argv) == start + shlex.split(rank)
    assert made.step == (f"hvlab-R/{one.id}" if launcher == "srun" else "")


def test_ranks_meet_at_the_address_that_a_list_of_hosts_has_for_its_ssh_alias():
    there = lab()
    first = replace(there.hosts[0], address="alias", vars={"hvlab_rank_address": "10.0.0.1"})
    there = replace(there, hosts=(first, *there.hosts[1:]))
    assert command(of("ddp-gloo", there), there, "R", PROGRAM).env["MASTER_ADDR"] == "10.0.0.1"


def test_the_open_mpi_of_somebody_elses_cluster_chooses_its_own_transport():
    """Omni-Path, EFA and Slingshot are reached by cm alone; modules set what fits the site."""
    there = lab(hvlab_step=STEP, hvlab_rank_python="/home/u/env/bin/python", hvlab_rank_mpi="/usr")
    made = command(of("mpi", there, launcher="srun"), there, "R", PROGRAM)
    assert {"OMPI_MCA_pml", "OMPI_MCA_btl"}.isdisjoint(made.env)
    assert made.env["OMPI_MCA_btl_tcp_if_include"] == "10.0.0.0/24"
    assert "SLURM_PMIX_DIRECT_CONN" not in made.env
    by_ssh = command(of("mpi", there, launcher="mpirun"), there, "R", PROGRAM).argv
    assert by_ssh[0] == "/usr/bin/mpirun"
    assert not {"pml", "btl"} & set(by_ssh)


TUNED = {"fusion_threshold": 2**20, "cycle_time": 2.5, "threads": 2}


@pytest.mark.parametrize(("backend", "launcher"), PAIRS)
def test_ranks_are_told_how_horovod_is_tuned(backend, launcher):
    there = lab(gpu=("n1", "n2", "n3"), horovod_variants=GPU_VARIANTS) if BACKENDS[backend].gpu else lab()
    settings = {"threads": 2} if BACKENDS[backend].group else TUNED
    made = command(of(backend, there, launcher=launcher, **settings), there, "R", PROGRAM)
    given = dict(made.env)
    given |= dict(made.argv[at + 1].split("=", 1) for at, word in enumerate(made.argv) if word == "-x")
    tuned = {name: given.get(f"HOROVOD_{name}") for name in ("FUSION_THRESHOLD", "CYCLE_TIME")}
    assert given["OMP_NUM_THREADS"] == "2"
    parallel = {"FUSION_THRESHOLD": "1048576", "CYCLE_TIME": "2.5"}
    assert tuned == (parallel if BACKENDS[backend].framework == HOROVOD else dict.fromkeys(tuned))
    assert "HOROVOD_CACHE_CAPACITY" not in given


def test_every_launcher_is_used_and_every_pair_expected():
    assert {launcher for _, launcher in PAIRS} == set(LAUNCHERS)
    assert set(START) == set(PAIRS)


def test_gloo_on_one_host_names_no_interface():
    assert "--network-interfaces" not in command(case("gloo", hosts=(1,)), lab(), "R", PROGRAM).argv


@pytest.mark.parametrize("virtual", [True, False])
def test_ranks_of_virtual_hosts_yield_to_one_another(virtual):
    argv = command(case("mpi"), lab(virtual=virtual), "R", PROGRAM).argv
    assert ("mpi_yield_when_idle" in argv) is virtual


def test_gloo_has_patience_with_virtual_hosts_which_start_slowly():
    argv = command(case("gloo"), lab(virtual=True), "R", PROGRAM).argv
    assert argv[argv.index("--start-timeout") + 1] == argv[argv.index("--gloo-timeout-seconds") + 1] == "90"
    assert "--gloo-timeout-seconds" not in command(case("gloo"), lab(), "R", PROGRAM).argv


def test_by_srun_rank_0_is_on_the_first_host_whatever_slurms_order():
    there = lab()
    one = replace(of("mpi", there, launcher="srun", slots=(2,)), hosts=("n3", "n1"))
    argv = command(one, there, "R", PROGRAM).argv
    assert {"--distribution=arbitrary", "--nodelist=n3,n3,n1,n1"} <= set(argv)


def test_slots_and_hosts():
    argv = command(case("mpi", hosts=(3,), slots=(2,)), lab(), "R", PROGRAM).argv
    assert argv[argv.index("-np") + 1] == "6"
    assert argv[argv.index("-H") + 1] == "n1:2,n2:2,n3:2"


def test_the_line_is_for_a_shell():
    made = command(case("gloo"), lab(), "R", PROGRAM)
    words = shlex.split(made.line())
    assert words[0] == "env"
    assert tuple(words[-len(made.argv) :]) == made.argv
    assert set(words[1 : -len(made.argv)]) == {f"{k}={v}" for k, v in made.env.items()}


@pytest.mark.parametrize("backend", list(BACKENDS))
def test_no_command_weakens_ssh_or_carries_a_key(backend):
    there = lab(gpu=("n1", "n2", "n3"), horovod_variants=GPU_VARIANTS) if BACKENDS[backend].gpu else lab()
    line = command(of(backend, there), there, "R", PROGRAM).line()
    assert set(re.findall(r"StrictHostKeyChecking=(\w+)", line)) <= {"yes"}
    assert "known_hosts" not in line.lower()


@pytest.mark.parametrize("backend", ["mpi", "gloo"])
def test_a_machine_alone_is_called_localhost(backend):
    alone = lab(1, ansible_connection="local")
    argv = command(case(backend, hosts=(1,), slots=(2,)), alone, "R", PROGRAM).argv
    assert argv[argv.index("-H") + 1] == "localhost:2"


@pytest.mark.parametrize(
    ("backend", "launcher"), [("mpi", "mpirun"), ("mpi", "srun"), ("gloo", "horovodrun")]
)
def test_a_stack_has_a_parameter_file_of_its_own(backend, launcher):
    files = (
        "OMPI_MCA_mca_base_param_files",
        "~/.openmpi/mca-params.conf,/opt/hvlab/stacks/s1/openmpi-mca-params.conf",
    )
    made = command(of(backend, lab(), launcher=launcher, stack="s1"), lab(), "R", PROGRAM)
    given = dict(made.env) | dict(word.split("=", 1) for word in made.argv if word.startswith("OMPI_MCA_"))
    assert given[files[0]] == files[1]
    assert files[0] not in command(of(backend, lab(), launcher=launcher), lab(), "R", PROGRAM).line()


def test_the_labs_own_environment_reaches_the_ranks_and_outranks_what_hvlab_sets():
    own = {"UCX_NET_DEVICES": "mlx5_0:1", "OMPI_MCA_pml": "ucx", "HOROVOD_STALL_CHECK_TIME_SECONDS": 5}
    argv = command(of("mpi", lab(lab_rank_env=own)), lab(lab_rank_env=own), "R", PROGRAM).argv
    given = dict(argv[at + 1].split("=", 1) for at, word in enumerate(argv) if word == "-x")
    assert given | {name: str(value) for name, value in own.items()} == given
    assert "pml" not in argv
    assert "btl" in argv


def test_mpirun_has_secrets_of_ranks_in_its_environment_and_not_in_its_arguments():
    own = {"HF_TOKEN": "tok", "NCCL_ALGO": "Ring"}
    launch = command(of("mpi", lab(lab_rank_env=own)), lab(lab_rank_env=own), "R", PROGRAM)
    assert launch.env == PRRTE | {"HF_TOKEN": "tok"}
    assert "tok" not in " ".join(launch.argv)
    passed = [launch.argv[at + 1] for at, word in enumerate(launch.argv) if word == "-x"]
    assert "HF_TOKEN" in passed
    assert "NCCL_ALGO=Ring" in passed


SET_BY_BOTH = {"HOROVOD_CYCLE_TIME": 5, "OMP_NUM_THREADS": "4", "NCCL_ALGO": "Ring"}


def _ranks(there, **changes):
    one = of("mpi", there, **changes)
    argv = command(one, there, "R", PROGRAM).argv
    return one, dict(argv[at + 1].split("=", 1) for at, word in enumerate(argv) if word == "-x")


def test_the_labs_own_environment_is_that_of_cases_that_set_nothing():
    one, given = _ranks(lab(lab_rank_env=SET_BY_BOTH))
    assert given | {name: str(value) for name, value in SET_BY_BOTH.items()} == given
    assert (one.params["cycle_time"], one.params["threads"]) == (5.0, 4)


def test_what_a_case_sets_outranks_the_labs_own_environment_even_where_it_is_hvlabs_default():
    settings = {"cycle_time": 1.0, "threads": 2, "env": "NCCL_ALGO=Tree"}
    one, given = _ranks(lab(lab_rank_env=SET_BY_BOTH), **settings)
    assert one.params["cycle_time"] == 1.0
    assert given | {"HOROVOD_CYCLE_TIME": "1", "OMP_NUM_THREADS": "2", "NCCL_ALGO": "Tree"} == given


def test_a_lab_that_sets_horovods_variables_has_no_ddp_or_gloo_that_is_infeasible_for_it():
    there = lab(lab_rank_env={"HOROVOD_CYCLE_TIME": 5, "HOROVOD_HIERARCHICAL_ALLREDUCE": 1})
    assert of("ddp-gloo", there).params["cycle_time"] == 1
    assert of("gloo", there).params["hierarchical_allreduce"] is False


def test_a_wrong_value_of_the_lab_is_named_with_its_variable():
    with pytest.raises(UsageError, match="lab_rank_env: HOROVOD_CYCLE_TIME: cycle_time=soon"):
        of("mpi", lab(lab_rank_env={"HOROVOD_CYCLE_TIME": "soon"}))


@pytest.mark.parametrize(("backend", "launcher"), PAIRS)
def test_a_recipe_starts_a_job_as_the_case_was_started(backend, launcher):
    """Every word and variable of it is one of the command's own, and only hvlab's own are left out."""
    there = lab(gpu=("n1", "n2", "n3"), horovod_variants=GPU_VARIANTS) if BACKENDS[backend].gpu else lab()
    one = of(backend, there, launcher=launcher)
    made = command(one, there, "R", PROGRAM)
    *exports, start = recipe(one, there)
    env = dict(shlex.split(line)[1].split("=", 1) for line in exports)
    given = dict(made.env) | dict(
        made.argv[at + 1].split("=", 1) for at, word in enumerate(made.argv) if word == "-x"
    )
    assert {name for name in given.keys() - env.keys() if not name.startswith("HVLAB_")} <= {
        *COMMON, "MASTER_ADDR", "MASTER_PORT", *PRRTE
    }  # fmt: skip
    assert env.items() <= given.items()
    assert env["OMP_NUM_THREADS"] == "1"
    words = shlex.split(start)
    assert words[-1] == "..."
    passed = [words[at + 1] for at, word in enumerate(words) if word == "-x"]
    assert passed == (list(env) if one.launcher == "mpirun" else [])
    assert not words[:-1] or words[0] == one.launcher
    assert set(words[1:-1]) - set(passed) <= set(made.argv)
    placed = {"mpirun": "--bind-to none --map-by slot -mca pml ^cm", "srun": "--cpu-bind=none --overcommit"}
    assert placed.get(one.launcher, "") in " ".join(words)


def test_a_recipe_has_the_settings_of_the_case_and_names_the_rules_file():
    there = lab(lab_rank_env={"HOROVOD_CYCLE_TIME": 5})
    settings = {"cycle_time": 1.0, "mpirun": "--bind-to core", "rules": "1 2 1 2 1 0 4 0 0", "env": "A='x y'"}
    *exports, start = recipe(of("mpi", there, **settings), there)
    assert {"export HOROVOD_CYCLE_TIME=1", "export A='x y'"} <= set(exports)
    assert "export OMPI_MCA_coll_tuned_dynamic_rules_filename=RULES" in exports
    assert start.startswith("mpirun --bind-to core -mca pml '^cm'")
    assert "--map-by" not in start


def test_a_recipe_by_srun_has_the_options_of_the_steps_of_its_lab():
    there = lab(hvlab_step_options=["--gres=gpu:2"])
    assert recipe(of("mpi", there, launcher="srun"), there)[-1] == (
        "srun --mpi=pmix --cpu-bind=none --overcommit --gres=gpu:2 ..."
    )
