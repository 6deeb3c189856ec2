"""Parsers, on files as the programs write them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hvlab.doctor import knowledge
from hvlab.doctor.reading import LOST
from hvlab.lab.backends import BACKENDS, DDP_BACKENDS, PARALLEL
from hvlab.lab.inventory import ROOT
from hvlab.workloads import WORKLOADS, argv, data, outcome
from hvlab.workloads.metrics import METRICS
from hvlab.workloads.operations import OPERATIONS
from hvlab.workloads.outcome import last_words, launcher_error
from tests.unit.labs import case
from tests.unit.test_doctor_endings import TORCHRUN

# What libevent in mpirun adds where a rank was killed.
EPOLL = "".join(
    f"[warn] Epoll MOD({number}) on fd 19 failed.  Old events were 6; {change}: Bad file descriptor\n"
    for number, change in (
        (1, "read change was 0 (none); write change was 2 (del)"),
        (4, "read change was 2 (del); write change was 0 (none)"),
    )
)
ISSUE = (
    "run `hvlab keys issue`: it signs every host again, and writes what each trusts; where that does not "
    "help, `hvlab doctor`, and `journalctl -t sshd` there, say why (no such user, AllowUsers, a wrong clock)"
)
# What mpirun adds whatever kept its daemons from starting.
NO_DAEMONS = """ORTE was unable to reliably start one or more daemons.
This usually is caused by:
* an inability to create a connection back to mpirun due to a
  lack of common network interfaces and/or no route found between
  them. Please check network connectivity (including firewalls
  and network routing requirements).
"""
UNREACHABLE = next(cause for cause in knowledge.CAUSES if cause.id == "host-unreachable")
HOST_KEY = next(cause for cause in knowledge.CAUSES if cause.id == "host-key")
ENDED = {"started_at": 100.0, "ended_at": 103.5, "rc": 0, "timed_out": False, "error": None, "reaped": {}}
RESULT = {
    "checks": [],
    "world": {"size": 2, "placement": [[0, 0, "n1", 2], [1, 0, "n2", 2]]},
    "device": "cpu",
    "sizes": [
        {"size_bytes": 1024, "count": 256, "wrong": 0, "mean_s": [0.001, 0.003], "max_s": [0.002, 0.003]},
        {"size_bytes": 4096, "count": 1024, "wrong": 0, "mean_s": [0.004, 0.004], "max_s": [0.004, 0.004]},
    ],
    "proof": {"timeline": "timeline.json", "activities": ["MPI_ALLREDUCE", "NEGOTIATE_ALLREDUCE"]},
    "state": {"horovod": {}, "versions": {"torch": "2.9.0"}, "environment": {}},
}
# Ten steps, of which the first three are slow.
STEPS = [0.5, 0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]
TRAINED = {
    "checks": [],
    "world": RESULT["world"],
    "device": "cpu",
    "model": {"name": "cnn", "parameters": 10, "gradient_bytes": 40, "flops_per_sample": 1e6},
    "data": {"name": "digits", "train": 1438, "test": 359},
    "batch": {"per_rank": 64, "global": 128},
    "steps": {"mean_s": STEPS, "max_s": STEPS, "samples": [128] * (len(STEPS) - 1) + [64]},
    "compute": {"by_host_s": {"n1": 0.07, "n2": 0.08}},
    "epochs": [{"loss": 1.0, "accuracy": 90.0}, {"loss": 0.5, "accuracy": 95.0}],
    "accuracy": 95.0,
    "loss": 0.5,
    "times": {"training_s": 2.3, "first_step_at": 101.25, "user_s": 6.0, "sys_s": 1.0},
    "sent_bytes": 40,
    "proof": RESULT["proof"],
    "state": RESULT["state"],
}
SERIAL = {"workload": "mnist", "hosts": (1,)}
ALONE = {"world": {"size": 1}, "proof": None}


def files(folder: Path, ended: dict | None = None, result: dict | None = None, **texts: str) -> Path:
    (folder / "case.json").write_text(json.dumps(ENDED | (ended or {})))
    if result is not None:
        (folder / "result.json").write_text(json.dumps(RESULT | result))
    for name, text in texts.items():
        (folder / name).write_text(text)
    return folder


def trained(folder: Path, result: dict | None = None, **asked):
    wanted = {"workload": "mnist", **asked}
    return outcome(
        case(wanted.pop("backend", "mpi"), **wanted), files(folder, result=TRAINED | (result or {}))
    )


def values(found, size=None):
    return {
        figure.metric: figure.value
        for figure in found.figures
        if "host" not in figure.params and figure.params.get("size_bytes") == size
    }


def test_figures_follow_the_conventions_of_nccl_tests(tmp_path):
    found = outcome(case(), files(tmp_path, result={}))
    assert (found.error, found.proved_backend, found.world_size) == (None, "mpi", 2)
    assert (found.started_at, found.seconds) == (100.0, 3.5)
    assert found.versions == {"torch": "2.9.0"}
    assert values(found, 1024) == {
        "time": pytest.approx(2000),
        "time_median": pytest.approx(2000),
        "time_low": pytest.approx(1000),
        "time_high": pytest.approx(3000),
        "time_min": pytest.approx(1000),
        "time_max": pytest.approx(3000),
        "algbw": pytest.approx(1024 / 0.002 / 1e9),
        "busbw": pytest.approx(1024 / 0.002 / 1e9),
        "warmup": 0,
    }
    assert found.figures[0].params == {"size_bytes": 1024}


def test_what_carried_the_data_is_kept(tmp_path):
    wire = {"sent_bytes": {"n1": {"mlx5_0:1": 9000}}, "carriers": ["mlx5_0:1"]}
    state = {**RESULT["state"], "pml": "ucx"}
    kept = outcome(case("mpi"), files(tmp_path, result={"wire": wire, "state": state})).versions
    assert kept == {"torch": "2.9.0", "pml": "ucx", "transport": "mlx5_0:1"}


def test_the_warm_up_does_not_count(tmp_path):
    slow = {"size_bytes": 1024, "mean_s": [0.05, 0.02, 0.01] + [0.001, 0.0011, 0.0009] * 8}
    sizes = [slow, {**slow, "size_bytes": 4096}]
    found = values(outcome(case(), files(tmp_path, result={"sizes": sizes})), 1024)
    assert found["warmup"] == 3
    assert found["time_max"] == pytest.approx(1100)
    assert found["time"] == pytest.approx(1000)


@pytest.mark.parametrize(
    ("workload", "ranks", "factor"),
    [
        ("allreduce", 1, 0),
        ("allreduce", 2, 1),
        ("allreduce", 4, 1.5),
        ("allgather", 4, 0.75),
        ("reducescatter", 4, 0.75),
        ("alltoall", 4, 0.75),
        ("alltoall", 1, 0),
        ("broadcast", 4, 1),
        ("reduce", 8, 1),
        ("sendrecv", 2, 1),
    ],
)
def test_bus_bandwidth(workload, ranks, factor):
    assert OPERATIONS[workload].busbw(ranks) == factor


def test_every_metric_is_known_with_its_unit(tmp_path):
    (tmp_path / "a").mkdir()
    for found in (outcome(case(), files(tmp_path / "a", result={})), trained(tmp_path)):
        assert {figure.metric: figure.unit for figure in found.figures} == {
            figure.metric: METRICS[figure.metric].unit for figure in found.figures
        }
        assert all(isinstance(figure.value, float) for figure in found.figures)


@pytest.mark.parametrize("workload", list(WORKLOADS))
def test_the_primary_metric_is_one_that_is_measured(tmp_path, workload):
    assert METRICS[WORKLOADS[workload].primary].better == "low"


# What the timeline of horovod 0.28.1 shows (common/common.h).
SHOWN = {
    "allreduce": {name: f"{name.upper()}_ALLREDUCE" for name in PARALLEL},
    "broadcast": {name: f"{name.upper()}_BCAST" for name in PARALLEL},
    "allgather": {name: f"{name.upper()}_ALLGATHER" for name in PARALLEL},
    "alltoall": {**{name: f"{name.upper()}_ALLTOALL" for name in PARALLEL}, "gloo": "MPI_ALLTOALL"},
    "reducescatter": {name: f"{name.upper()}_REDUCESCATTER" for name in PARALLEL if name != "ccl"},
    "mnist": {name: f"{name.upper()}_ALLREDUCE" for name in PARALLEL},
}
# What torch's profiler shows (torch 2.13, as measured).
DDP_SHOWN = {
    "allreduce": "all_reduce",
    "broadcast": "broadcast",
    "allgather": "_all_gather_base",
    "alltoall": "all_to_all",
    "mnist": "all_reduce",
}
ENABLED = {"mpi_enabled": 1, "gloo_enabled": 0}
GLOO_ENABLED = {"mpi_enabled": 0, "gloo_enabled": 1}
PAIRS = [(workload, backend) for workload, found in SHOWN.items() for backend in found]


def shown(*activities: str, gloo: bool = False) -> dict:
    state = {"horovod": GLOO_ENABLED if gloo else ENABLED, "versions": {}}
    return {"proof": {"activities": list(activities)}, "state": state}


@pytest.mark.parametrize(("workload", "backend"), PAIRS)
def test_each_backend_is_proved_by_its_activity(tmp_path, workload, backend):
    wanted = case(backend, workload=workload)
    told = shown("QUEUE", SHOWN[workload][backend], gloo=backend == "gloo")
    result = {**(TRAINED if workload == "mnist" else {}), **told, "device": wanted.params["device"]}
    found = outcome(wanted, files(tmp_path, result=result))
    assert (found.error, found.proved_backend) == (None, backend)


@pytest.mark.parametrize(("workload", "event"), DDP_SHOWN.items())
@pytest.mark.parametrize("backend", DDP_BACKENDS)
def test_ddp_is_proved_by_what_the_profiler_shows(tmp_path, workload, event, backend):
    wanted = case(backend, workload=workload)
    told = {"proof": {"activities": ["c10d::x", BACKENDS[backend].proof + event]}}
    base = (TRAINED if workload == "mnist" else {}) | {"device": wanted.params["device"]}
    found = outcome(wanted, files(tmp_path, result={**base, **told}))
    assert (found.error, found.proved_backend) == (None, backend)
    other = next(name for name in DDP_BACKENDS if name != backend)
    told = {"proof": {"activities": [BACKENDS[other].proof + event]}}
    found = outcome(wanted, files(tmp_path, result={**base, **told}))
    assert f"asked for {backend}, but {other} carried it (torch's profiler shows" in str(found.error)


@pytest.mark.parametrize(
    ("backend", "libraries", "stranger"),
    [
        ("horovod-on-ddp-gloo", ["hvlab_horovod"], None),
        ("horovod-on-ddp-gloo", ["horovod", "hvlab_horovod"], "horovod and hvlab_horovod"),
        ("horovod-on-ddp-gloo", ["torch"], "torch"),
        ("horovod-on-ddp-gloo", [], "no known library"),
        ("ddp-gloo", ["torch"], None),
        ("ddp-gloo", ["hvlab_horovod"], "hvlab_horovod"),
    ],
)
def test_the_library_that_ranks_import_tells_hvlab_horovod_from_ddp(tmp_path, backend, libraries, stranger):
    told = {"proof": {"activities": ["gloo:all_reduce"]}, "state": {"libraries": libraries}}
    found = outcome(case(backend), files(tmp_path, result=told))
    error = f"asked for {backend}, but {stranger} answered the ranks' imports" if stranger else None
    assert (found.error, found.proved_backend) == (error, stranger or backend)
    expected = {"answered_by": ", ".join(libraries)} if backend.startswith("horovod-on") else {}
    assert {name: it for name, it in found.versions.items() if name == "answered_by"} == expected


# Counted by torch 2.13 over Gloo with four blocks: each twice gathered, and what is left of the model once.
@pytest.mark.parametrize(
    ("counts", "figures", "error"),
    [
        ({"c10d::_allgather_base_": 9.0, "c10d::_reduce_scatter_base_": 5.0}, [9.0, 5.0], None),
        ({"c10d::allreduce_": 1.0}, [], "counts 0 all_gathers, 0 reduce_scatters in a step"),
    ],
)
def test_a_sharded_training_is_proved_by_its_counted_collectives(tmp_path, counts, figures, error):
    wanted = case("fsdp-gloo", workload="lm")
    told = {"proof": {"activities": ["gloo:all_gather"], "counts": counts}, "device": "cpu"}
    steps = {"mean_s": [0.5] * 30, "samples": [16] * 30}
    found = outcome(wanted, files(tmp_path, result={**TRAINED, "steps": steps, "epochs": None, **told}))
    counted = [it.value for it in found.figures if it.metric in ("all_gathers", "reduce_scatters")]
    assert (counted, error is None) == (figures, found.error is None)
    assert (error or "") in str(found.error)
    rate = [it.value for it in found.figures if it.metric == "token_rate"]
    assert rate == ([] if error else [16 * wanted.params["length"] / 0.5])


@pytest.mark.parametrize(
    ("activity", "proved"), [("FSDP::post_backward_reduce", True), ("AddmmBackward0", False)]
)
def test_fsdp_on_one_rank_sends_nothing(tmp_path, activity, proved):
    """As torch 2.13 over Gloo: without it no speed-up has a base."""
    wanted = case("fsdp-gloo", workload="lm", hosts=(1,), slots=(1,))
    told = {"proof": {"activities": [activity], "counts": {}}, "device": "cpu"}
    told |= {"world": {"size": 1, "placement": [[0, 0, "n1", 1]]}}
    steps = {"mean_s": [0.5] * 30, "samples": [16] * 30}
    found = outcome(wanted, files(tmp_path, result={**TRAINED, "steps": steps, "epochs": None, **told}))
    assert (found.error is None, found.proved_backend == "fsdp-gloo") == (proved, proved)
    if proved:
        assert {it.metric for it in found.figures} >= {"step_time", "token_rate"}


def test_what_torch_was_built_without_is_skipped(tmp_path):
    found = outcome(case("ddp-mpi"), files(tmp_path, result={"unavailable": "torch was built without mpi"}))
    assert (found.skipped, found.error) == (True, "torch was built without mpi")


def test_no_workload_and_no_backend_is_without_its_proof():
    collectives = {name for name, workload in WORKLOADS.items() if workload.collective == name}
    assert set(SHOWN) - {"mnist"} == collectives
    assert all(BACKENDS[name].proof for name in (*PARALLEL, *DDP_BACKENDS))


@pytest.mark.parametrize(
    ("workload", "result", "told"),
    [
        (
            "allreduce",
            shown("GLOO_ALLREDUCE"),
            "asked for mpi, but gloo carried it (Horovod's timeline shows GLOO_ALLREDUCE)",
        ),
        ("allreduce", shown("MPI_ALLREDUCE", "GLOO_ALLREDUCE"), "asked for mpi, but mpi+gloo carried it"),
        ("allreduce", shown("MPI_ALLREDUCE", "GLOO_BCAST"), "asked for mpi, but mpi+gloo carried it"),
        ("allreduce", shown("MPI_ALLREDUCE", "NCCL_REDUCE"), "asked for mpi, but mpi+nccl carried it"),
        (
            "allreduce",
            shown(),
            "asked for mpi, but no known backend carried it (Horovod's timeline shows nothing)",
        ),
        ("allreduce", {"proof": None}, "but no known backend carried it"),
        ("allreduce", shown("INIT_MPI_ALLREDUCE"), "but no known backend carried it"),
        (
            "broadcast",
            shown("MPI_ALLREDUCE"),
            "asked for broadcast, but Horovod's timeline shows MPI_ALLREDUCE",
        ),
        ("alltoall", shown("MPI_ALLTOALL", gloo=True), "asked for mpi, but gloo carried it"),
        ("mnist", shown("MPI_BCAST"), "asked for mnist, but Horovod's timeline shows MPI_BCAST"),
    ],
)
def test_a_case_without_its_proof_fails(tmp_path, workload, result, told):
    base = TRAINED if workload == "mnist" else {}
    found = outcome(case(workload=workload), files(tmp_path, result=base | result))
    assert told in str(found.error)
    assert found.figures == ()


def test_adasum_and_compressed_gradients_have_their_own_activities(tmp_path):
    found = outcome(case(op="adasum"), files(tmp_path, result=shown("MPI_ADASUM_ALLREDUCE")))
    assert (found.error, found.proved_backend) == (None, "mpi")
    told = shown("MPI_ALLTOALL", "GLOO_ALLGATHER", gloo=True)
    found = trained(tmp_path, told, backend="gloo", compression="bf16")
    assert (found.error, found.proved_backend) == (None, "gloo")


@pytest.mark.parametrize(
    ("hosts", "activities", "error"),
    [
        (2, ["NCCL_REDUCESCATTER", "MPI_ALLREDUCE", "NCCL_ALLGATHER"], False),
        (2, ["MPI_ALLREDUCE"], True),
        (2, ["NCCL_ALLREDUCE"], True),
        (1, ["NCCL_ALLREDUCE"], False),
    ],
)
def test_a_hierarchical_allreduce_is_nccl_inside_and_mpi_between_hosts(tmp_path, hosts, activities, error):
    slots = 2 // hosts
    wanted = case("nccl", hierarchical_allreduce=True, hosts=(hosts,), slots=(slots,))
    found = outcome(wanted, files(tmp_path, result={**shown(*activities), "device": "cuda:0"}))
    assert (found.error is not None) is error, found.error


@pytest.mark.parametrize(
    ("ended", "result", "texts", "told"),
    [
        (
            {},
            {"checks": ["sums: 3 wrong elements at 1024 bytes"]},
            {},
            "sums: 3 wrong elements at 1024 bytes",
        ),
        (
            {"rc": 255, "reaped": {"n1": [], "n2": "ssh: No route to host"}},
            None,
            {"stderr": "lost\n"},
            "mpirun ended with exit status 255: lost: n2 is unreachable (ssh: No route to host)",
        ),
        (
            {"rc": 1},
            None,
            {"stderr": f"Host key verification failed.\n{NO_DAEMONS}"},
            f"from n1 to n2: {HOST_KEY.title} (Host key verification failed.); what to do: {ISSUE}; "
            "mpirun ended with exit status 1",
        ),
        (
            {"rc": 255, "reaped": {"n1": [], "n2": "ssh: connect to host n2 port 22: Connection timed out"}},
            None,
            {"stderr": NO_DAEMONS},
            f"{UNREACHABLE.title} (ssh: connect to host n2 port 22: Connection timed out); what to do: "
            f"{UNREACHABLE.remedy.rstrip('.')}; mpirun ended with exit status 255",
        ),
        (
            {"rc": 1, "reaped": {"n1": [], "n2": "Host key verification failed."}},
            None,
            {"stderr": "ValueError: No interface is found for address 127.0.0.1.\n"},
            f"{HOST_KEY.title} (Host key verification failed.); what to do: {ISSUE}; mpirun ended with exit "
            "status 1: ValueError: No interface is found for address 127.0.0.1.",
        ),
        ({}, None, {}, "the program wrote no result"),
        (
            {"rc": 137},
            None,
            {},
            "mpirun ended with exit status 137: a rank was ended by SIGKILL; what to do: `dmesg` on its host "
            "tells whether memory was used up (SIGKILL) or the program crashed (SIGSEGV, SIGBUS)",
        ),
        (
            {"rc": 137},
            None,
            {"stderr": EPOLL + "hvlab: something else\n"},
            "mpirun ended with exit status 137: a rank was ended by SIGKILL; what to do: `dmesg` on its host "
            "tells whether memory was used up (SIGKILL) or the program crashed (SIGSEGV, SIGBUS)",
        ),
        ({"rc": 1}, None, {"stderr": EPOLL}, "mpirun ended with exit status 1"),
        ({"error": "mpirun: No such file"}, None, {}, "mpirun: No such file"),
        (
            {"rc": 1, "timed_out": True},
            None,
            {},
            "ran over its 900 s and was ended; what to do: `hvlab find-slow` tries each pair of hosts (a "
            "firewall, packets too large for a link); a case that was only slow needs a longer --timeout",
        ),
        (
            {"rc": 1, "timed_out": True},
            None,
            {"stderr": "[W] One or more tensors\nMissing ranks:\n1: [allreduce.x]\n"},
            "ran over its 900 s and was ended: Horovod waited for ranks 1: [allreduce.x]",
        ),
        # Its end is hvlab's own doing.
        (
            {"rc": 137, "timed_out": True},
            None,
            {"stderr": "Missing ranks:\n1: [x]\nKilled\n"},
            "ran over its 900 s and was ended: Horovod waited for ranks 1: [x]",
        ),
        ({}, {"sizes": []}, {}, "asked for the sizes [1024, 4096], measured []"),
        ({}, {"device": "cuda:0"}, {}, "asked for the device cpu, the tensors were on cuda"),
        ({}, {"world": {"size": 1}}, {}, "asked for 2 ranks, 1 took part"),
    ],
)
def test_why_a_case_failed(tmp_path, ended, result, texts, told):
    assert outcome(case(), files(tmp_path, ended, result, **texts)).error == told


def test_a_training_tells_its_steps_its_times_and_what_it_learnt(tmp_path):
    found = trained(tmp_path)
    assert (found.error, found.proved_backend, found.world_size) == (None, "mpi", 2)
    assert values(found) == {
        "step_time": pytest.approx(0.1),
        "step_time_median": pytest.approx(0.1),
        "step_time_low": pytest.approx(0.1),
        "step_time_high": pytest.approx(0.1),
        "step_time_min": pytest.approx(0.1),
        "step_time_max": pytest.approx(0.1),
        "step_time_sd": pytest.approx(0),
        "throughput": pytest.approx((12 * 128 + 64) / 1.3),
        "warmup": 3,
        "accuracy": 95.0,
        "loss": 0.5,
        "real": 3.5,
        "user": 6.0,
        "sys": 1.0,
        "training_time": 2.3,
        "startup": pytest.approx(1.25),
        "compute_time": 0.08,
        "gradient_bytes": 40,
        "sent_bytes": 40,
        "flops": 1e6,
    }
    hosts = {f.params["host"]: f.value for f in found.figures if f.metric == "host_compute_time"}
    assert hosts == {"n1": 0.07, "n2": 0.08}


def test_hosts_are_called_as_the_inventory_does(tmp_path):
    world = {"size": 2, "placement": [[0, 0, "node-a.lan", 2], [1, 0, "node-b.lan", 2]]}
    compute = {"by_host_s": {"node-b.lan": 0.08, "node-a.lan": 0.07}}
    found = trained(tmp_path, {"world": world, "compute": compute})
    hosts = {f.params["host"]: f.value for f in found.figures if f.metric == "host_compute_time"}
    assert hosts == {"n1": 0.07, "n2": 0.08}


def test_throughput_is_all_samples_over_all_time_not_the_mean_of_rates(tmp_path):
    steps = {"mean_s": [0.1, 0.3], "max_s": [0.1, 0.3], "samples": [100, 100]}
    result = {"steps": steps, "accuracy": None}
    found = trained(tmp_path, result | {"epochs": TRAINED["epochs"]})
    assert values(found)["throughput"] == pytest.approx(500)
    assert "accuracy" not in values(found)


def test_one_process_alone_needs_no_proof(tmp_path):
    found = trained(tmp_path, ALONE, backend="serial", hosts=(1,), device="cpu")
    assert (found.error, found.proved_backend, found.world_size) == (None, "serial", 1)
    assert "ranks" in str(trained(tmp_path, backend="serial", hosts=(1,), device="cpu").error)


@pytest.mark.parametrize(
    ("asked", "result", "told"),
    [
        ({"epochs": 3}, {}, "asked for 3 epochs, trained 2"),
        ({"workload": "rnn"}, {"epochs": []}, "asked for 30 steps, trained 16"),
        ({}, {"steps": {"mean_s": [], "samples": []}}, "0 steps were timed, 0 counted"),
        ({}, {"steps": {"mean_s": [1.0], "samples": []}}, "1 steps were timed, 0 counted"),
    ],
)
def test_a_training_that_is_not_what_was_asked_for_fails(tmp_path, asked, result, told):
    assert trained(tmp_path, result, **asked).error == told


def test_no_files(tmp_path):
    assert "no case.json" in str(outcome(case(), tmp_path).error)


def test_a_case_left_out_is_no_failure(tmp_path):
    (tmp_path / "case.json").write_text(json.dumps({"skipped": "not built", "started_at": 1.0}))
    found = outcome(case(), tmp_path)
    assert (found.skipped, found.error) == (True, "not built")


@pytest.mark.parametrize(
    ("stderr", "stdout", "told"),
    [
        (
            "WARNING: x\n-----\nPrimary job  terminated normally, but\n"
            "mpirun noticed that process rank 1 with PID 9 on node n2 exited on signal 9 (Killed).\n-----\n",
            "",
            "mpirun noticed that process rank 1 with PID 9 on node n2 exited on signal 9 (Killed).",
        ),
        (
            '[0]<stderr>:Traceback (most recent call last):\n[0]<stderr>:  File "x", line 1\n'
            "[0]<stderr>:horovod.common.exceptions.HorovodInternalError: shut down\n"
            "RuntimeError: Horovod detected that one or more processes exited with non-zero status\n",
            "Process 1 exit with status code 255.\n",
            "HorovodInternalError: shut down",
        ),
        (
            "RuntimeError: Horovod detected that one or more processes exited with\nProcess name: 1\n",
            "Process 1 exit with status code 255.\n",
            "Process 1 exit with status code 255.",
        ),
        (
            "terminate called after throwing an instance of 'ccl::v1::exception'\n"
            "  what():  oneCCL: could not initialize any transport library\n"
            "mpirun noticed that process rank 0 with PID 0 on node n1 exited on signal 6 (Aborted).\n",
            "",
            "oneCCL: could not initialize any transport library",
        ),
        (
            "srun: error: n2: task 1: Exited with exit code 3\n"
            "srun: launch/slurm: _step_signal: Terminating StepId=1.2\nTerminated\n"
            "srun: error: n3: task 2: Exited with exit code 143\n"
            "slurmstepd-n1: error: *** STEP 1.2 ON n1 CANCELLED AT 2026-11-22T16:08:43 ***\n"
            "srun: error: n1: task 0: Terminated\nsrun: Force Terminated StepId=1.2\n",
            "",
            "n2: task 1: Exited with exit code 3",
        ),
        (
            "srun: error: n2: task 1: Segmentation fault (core dumped)\n"
            "srun: launch/slurm: _step_signal: Terminating StepId=1.3\n"
            "srun: error: n1: task 0: Exited with exit code 143\n",
            "",
            "n2: task 1: Segmentation fault (core dumped)",
        ),
        (
            "srun: error: Task launch for StepId=18.0 failed on node f2: Communication connection failure\n"
            "srun: error: Application launch failed: Communication connection failure\n"
            "slurmstepd-f1: error: *** STEP 18.0 ON f1 CANCELLED AT 2026-11-22T23:48:22 ***\n"
            "srun: error: f1: task 0: Killed\n",
            "",
            "Task launch for StepId=18.0 failed on node f2: Communication connection failure",
        ),
        (
            "srun: First task exited 3s ago\nsrun: StepId=1.4 tasks 0,2: running\n"
            "srun: StepId=1.4 task 1: exited\nsrun: error: n3: task 2: Killed\n",
            "",
            "First task exited 3s ago",
        ),
        (
            "[1]<stderr>:[rank1]: Traceback (most recent call last):\n"
            '[1]<stderr>:[rank1]:   File "/opt/hvlab/workloads/train.py", line 3, in leave\n'
            "[1]<stderr>:[rank1]: torch.distributed.DistNetworkError: Broken pipe\n",
            "Process 1 exit with status code 1.\nTerminating remaining workers after failure of Process 1.\n"
            "Process 0 exit with status code 143.\n",
            "DistNetworkError: Broken pipe",
        ),
        (
            "",
            "Process 2 exit with status code 139.\n"
            "Terminating remaining workers after failure of Process 2.\n"
            "Process 1 exit with status code 143.\nProcess 0 exit with status code 1.\n",
            "Process 2 exit with status code 139.",
        ),
        ("", "Process 0 exit with status code 143.\n", "Process 0 exit with status code 143."),
        ("one\ntwo\n\n", "", "one | two"),
        ("", "", ""),
    ],
)
def test_last_words(tmp_path, stderr, stdout, told):
    (tmp_path / "stderr").write_text(stderr)
    (tmp_path / "stdout").write_text(stdout)
    assert last_words(tmp_path) == told


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (
            {"slots": (2,)},
            "collective.py --workload allreduce --world-size 4 --hosts 2 --sizes 1024,4096 --iterations 25 "
            "--dtype float32 --op sum --form single --tensors 1 --in-place true",
        ),
        (
            {"workload": "mnist", "lr": 0.001},
            "train.py --workload mnist --world-size 2 --hosts 2 --data ~/.hvlab/data/abc --batch 64 "
            "--epochs 2 --lr 0.001 --seed 42 --compression none --scaling weak --framework torch",
        ),
        (
            {"workload": "mnist", "data": "synthetic"},
            "train.py --workload mnist --world-size 2 --hosts 2 --data synthetic --batch 64 --epochs 2 "
            "--lr 0.05 --seed 42 --compression none --scaling weak --framework torch",
        ),
    ],
)
def test_the_program_gets_all_it_must_check(wanted, told):
    assert " ".join(argv(case(**wanted), {"digits": "abc"})) == told


def test_each_repeat_has_a_seed_of_its_own():
    words = [argv(replace(case(workload="mnist", seed=7), repeat=repeat)) for repeat in (1, 2, 3)]
    assert [one[one.index("--seed") + 1] for one in words] == ["7", "8", "9"]


def test_one_process_alone_is_told_so():
    assert argv(case("serial", **SERIAL))[-1] == "--serial"
    assert "--serial" not in argv(case(workload="mnist"))


def test_the_data_a_case_needs():
    assert data(case()) == ()
    assert data(case(workload="mnist")) == ("digits",)
    assert data(case(workload="mnist", data="synthetic")) == ()
    assert data(case(workload="mnist", data="/data/mine")) == ("/data/mine",)


ORTE = """--------------------------------------------------------------------------
ORTE was unable to reliably start one or more daemons.
This usually is caused by:

* not finding the required libraries and/or binaries on
  one or more nodes. Please check your PATH and LD_LIBRARY_PATH

* lack of common network interfaces and/or no route found between
  them. Please check network connectivity (including firewalls
  and network routing requirements).
--------------------------------------------------------------------------
"""


@pytest.mark.parametrize(
    ("line", "known"),
    [
        ("Host key verification failed.", "the host key is unknown"),
        ("hvlab@n2: Permission denied (publickey).", "the host refuses the login"),
        ("ssh: connect to host n2 port 22: No route to host", "a host does not answer"),
        (
            "orted: error while loading shared libraries: libopen-rte.so.40: cannot open shared object file: "
            "No such file or directory",
            "the loader does not find Open MPI's libraries",
        ),
    ],
)
def test_the_cause_is_told_and_not_all_that_mpirun_can_think_of(
    tmp_path: Path, line: str, known: str
) -> None:
    (tmp_path / "stderr").write_text(f"{line}\n{ORTE}")
    words = launcher_error(case(), {"rc": 1}, tmp_path)
    assert words.removeprefix("from n1 to n2: ").startswith(known)
    assert f"({line})" in words
    assert "network connectivity" not in words


PRTE = """--------------------------------------------------------------------------
PRTE has lost communication with a remote daemon.

  HNP daemon   : [prterun-n1-144@0,0] on node n1
  Remote daemon: [prterun-n1-144@0,1] on node n2

This is usually due to either a failure of the TCP network
connection to the node, or possibly an internal failure of
the daemon itself. We cannot recover from this failure, and
therefore will terminate the job.
--------------------------------------------------------------------------
"""
_ENDED_FIRST = "The first process to do so was:\n\n  Process name: [[4615,1],1]\n  Exit code:    1\n"


@pytest.mark.parametrize(
    ("ended", "printed", "host"),
    [
        (
            {"rc": 1},
            f"ImportError: libmpi.so.40: cannot open shared object file: No such\n{_ENDED_FIRST}",
            "n2",
        ),
        ({"rc": 1}, f"ImportError: {ROOT}/x/mpi_lib_v2.so: invalid ELF header\n{_ENDED_FIRST}", "n2"),
        ({"rc": 1}, f"ImportError: dynamic module does not define module export\n{_ENDED_FIRST}", "n2"),
        ({"rc": 127}, f"timeout: failed to run command '{ROOT}/x/python3': No such\n{_ENDED_FIRST}", "n2"),
        ({"rc": 1}, "Process 1 exit with status code 127.\nProcess 0 exit with status code 143.\n", "n2"),
        ({"rc": 127}, f"bash: line 1: {ROOT}/bin/orted: No such file or directory\n{ORTE}", "n2"),
        ({"rc": 127}, f"bash: line 1: {ROOT}/bin/prted: No such file or directory\n{PRTE}", "n2"),
        (
            {"rc": 1},
            f"ImportError: {ROOT}/x/mpi_lib_v2.so: invalid ELF header\n"
            "   Process name: [prterun-n1-119@1,1]\n   Exit code:    1\n",
            "n2",
        ),
        ({"rc": None, "error": f"{ROOT}/bin/mpirun: No such file or directory"}, "", "n1"),
        ({"rc": 1}, "ValueError: Gloo support has not been built. If this is not expected,\n", "n1"),
        ({"rc": 1}, f"ModuleNotFoundError: No module named 'horovod'\n{_ENDED_FIRST}", "n2"),
    ],
)
def test_a_damaged_installation_names_its_host_and_what_mends_it(tmp_path, ended, printed, host):
    (tmp_path / "argv.json").write_text(f'["{ROOT}/bin/mpirun"]')
    (tmp_path / "stderr").write_text(printed)
    error = launcher_error(case(), ended, tmp_path)
    assert error.startswith(f"{host}: ")
    assert error.count("what to do") == 1
    assert f"`hvlab provision -l {host}`" in error
    assert f"`hvlab verify -l {host}`" in error
    own = launcher_error(replace(case(), params={**case().params, "command": "python a.py"}), ended, tmp_path)
    assert "provision" not in own


@pytest.mark.parametrize("library", ["/opt/old/libstdc++.so.6", "/home/hvlab/lib/libmpi.so.40"])
def test_a_library_that_is_not_hvlabs_is_not_installed_again(tmp_path, library):
    (tmp_path / "argv.json").write_text(f'["{ROOT}/bin/mpirun"]')
    (tmp_path / "stderr").write_text(f"ImportError: {library}: file too short\n{_ENDED_FIRST}")
    error = str(launcher_error(case(), {"rc": 1}, tmp_path))
    assert error.startswith("n2: ")
    assert "LD_LIBRARY_PATH" in error
    assert "provision" not in error


@pytest.mark.parametrize(
    "printed",
    [
        ORTE,
        PRTE,
        "mpirun noticed that process rank 1 with PID 3077 on node n2 exited on signal 7 (Bus error).",
        "Process 1 exit with status code 255.",
    ],
)
def test_a_crash_without_words_may_be_a_damaged_file(tmp_path, printed):
    (tmp_path / "argv.json").write_text(f'["{ROOT}/bin/mpirun"]')
    (tmp_path / "stderr").write_text(printed)
    assert "`hvlab verify -l n2`" in launcher_error(case(), {"rc": 1}, tmp_path)


@pytest.mark.parametrize(
    ("printed", "error"),
    [
        (
            "prterun noticed that process rank 1 with PID 213 on node n2 exited on\nsignal 12.\n-----\n",
            ": prterun noticed that process rank 1 with PID 213 on node n2 exited on signal 12.",
        ),
        (
            "An MPI communication peer process has unexpectedly disconnected.  This\nusually indicates\n"
            "  Local host: n1\n  Local PID:  94\n  Peer host:  n2\n-----\n"
            'prterun has exited due to process rank 0 with PID 0 on node n1 calling\n"abort".\n',
            ": An MPI communication peer process has unexpectedly disconnected",
        ),
        ("prterun has exited due to process rank 0 with PID 0 on node n9 calling\n", ": prterun has exited"),
        # torchrun of torch 2.13, whose rank 1 ended itself.
        (
            "E1129 02:15:04.713000 4509 torch/distributed/elastic/api.py] failed "
            "(exitcode: 3) local_rank: 0 (pid: 5634) of binary: timeout\n"
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
            "  rank      : 1 (local_rank: 0)\n  exitcode  : 3 (pid: 5634)\n"
            "nodes: n2: torchrun ended with 1\n",
            ": failed (exitcode: 3) local_rank: 0 (pid: 5634) of binary: timeout",
        ),
    ],
)
def test_the_rank_that_a_launcher_lost_is_named(tmp_path, printed, error):
    (tmp_path / "stderr").write_text(printed)
    words = launcher_error(case(), {"rc": 1}, tmp_path)
    named = "Peer" in printed or "rank      : 1" in printed
    assert words.startswith(f"{'n2: ' * named}mpirun ended with exit status 1{error}")


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        (("others c10d", "first exit"), "torchrun ended with exit status 1: rank 0 on n1 ended first, with"),
        (
            ("others static", "first exit"),
            "torchrun ended with exit status 1: rank 0 on n1 ended first, with",
        ),
        (("others static", "first signal"), "a rank crashed (failed (exitcode: -11)"),
        (("others static",), "torchrun ended with exit status 1: RuntimeError: [gloo/transport"),
    ],
)
def test_the_first_end_that_torchrun_tells_is_the_error_not_what_others_noticed(tmp_path, printed, told):
    logs = [TORCHRUN[who][what] for who, what in map(str.split, printed)]
    # The first agent to end is the one that lost the store.
    (tmp_path / "stderr").write_text("".join([*logs, "nodes: n2: torchrun ended with 1\n"]))
    words = launcher_error(replace(case("ddp-gloo"), launcher="torchrun"), {"rc": 1}, tmp_path)
    assert words.startswith(told)
    assert ("Connection closed by peer" in words) == ("first" not in " ".join(printed))
    assert words.endswith(LOST) == (len(printed) == 1)


EXPIRED = "Your account has expired; please contact your system administrator."


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        (f"{EXPIRED}\nConnection closed by 198.18.71.12 port 22\n{ORTE}", f"refuses the account ({EXPIRED})"),
        (
            "RuntimeError: could not connect to some hosts via ssh\nssh not successful for host n2:\n"
            "This account is currently not available.\n",
            "refuses the account (This account is currently not available.)",
        ),
        # An exit in ~/.bashrc says nothing.
        (ORTE, "`hvlab doctor -l n1,n2`"),
    ],
)
def test_a_login_that_a_launcher_could_not_make_names_both_ends(tmp_path, printed, told):
    files(tmp_path, {"rc": 1}, stderr=printed)
    (tmp_path / "argv.json").write_text(f'["{ROOT}/bin/mpirun"]')
    error = str(launcher_error(case(), {"rc": 1}, tmp_path))
    assert error.startswith("from n1 to n2: ")
    assert told in error
    assert "keys issue" not in error


def test_on_hosts_without_hvlabs_authority_a_refused_login_is_mended_by_hand(tmp_path):
    files(tmp_path, {"rc": 255}, stderr="ann@n2: Permission denied (publickey).\n")
    for program, lab in ((f"{ROOT}/bin/mpirun", True), ("/home/ann/env/bin/python", False)):
        (tmp_path / "argv.json").write_text(json.dumps([program]))
        error = str(launcher_error(case(), {"rc": 255}, tmp_path))
        assert ("the host refuses the login" in error, "keys issue" in error) == (True, lab)


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        (
            "A call to mkdir was unable to create the desired directory:\n  Directory: /tmp/ompi.n2.70000\n"
            "  Error:     Permission denied\n"
            "[n2:02058] [[22227,0],1] ORTE_ERROR_LOG: Error in file ../../orte/util/session_dir.c at 7\n",
            "n2: mpirun cannot write its session folder",
        ),
        (
            "Could not chdir to home directory /home/hvlab: No such file or directory\n"
            "mpirun was unable to launch the specified application as it could not\n"
            "change to the specified working directory:\n\nWorking directory: /home/hvlab/x\nNode: n2\n",
            "n2: the user's home does not exist on this host",
        ),
    ],
)
def test_a_daemon_that_could_not_begin_names_its_host(tmp_path, printed, told):
    files(tmp_path, {"rc": 213}, stderr=printed)
    assert str(launcher_error(case(), {"rc": 213}, tmp_path)).startswith(told)
