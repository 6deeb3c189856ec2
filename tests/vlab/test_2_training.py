"""The workloads' programs on virtual machines: right sums, trainings that learn, faults that are told."""

import base64
import json
import shlex
from functools import cache
from pathlib import Path

import pytest

from hvlab.workloads.datasets import prepare

pytestmark = pytest.mark.bench

RANKS = Path(__file__).with_name("ranks.py")
THERE = "/tmp/hvlab-ranks.py"
HOSTS = ("t1", "t2", "t3")
# Horovod's for torch: what it can add up. It can carry all but bfloat16.
SUMMED = {"float16", "float32", "float64", "int32", "int64"}
BYTES = {"int8", "uint8"}
ADASUM = ("float16", "float32", "float64")
# Share of the digits' 500 test images; chance gives 10 %.
CHANCE = 25


@pytest.fixture(scope="module")
def sent(lab):
    """Return the records of short trainings whose gradients are not sent as Horovod does it."""
    words = mnist(epochs=1, compression="8bit,bf16")
    lab.hvlab("bench", "--restart", "--backend", "mpi", "--hosts", "2", "--slots", "1", *words)
    return lab.results_of("show")


@pytest.fixture(scope="module")
def digits(sent):
    """Return the digits' folder on the first two hosts, where those trainings brought it."""
    return f"~/.hvlab/data/{prepare('digits').key}"


@pytest.fixture(scope="module")
def launch(lab):
    """Return what runs ranks.py as one rank on each of the first hosts, and gives what rank 0 printed."""
    text = base64.b64encode(RANKS.read_bytes()).decode()
    for host in HOSTS:
        lab.on(host, f"echo {text} | base64 -d >{THERE}")
    lines = {}

    def line(backend, hosts):
        words = ("--backend", backend, "--hosts", str(hosts), "--slots", "1", "--workload", "allreduce")
        (row,) = json.loads(lab.hvlab("bench", "--dry-run", "--format", "json", *words).stdout)
        at = next(i for i, word in enumerate(row["argv"]) if word.endswith("/collective.py"))
        return [*(f"{name}={value}" for name, value in row["env"].items()), *row["argv"][:at], THERE]

    def run(backend, hosts, *words, expect=0):
        key = (backend, hosts)
        lines[key] = lines.get(key) or line(backend, hosts)
        command = shlex.join(["env", *lines[key], *words]).replace("'~/", "~/'")
        return lab.on("t1", shlex.join(["su", "-", "hvlab", "-c", command]), expect=expect)

    return run


def told(printed):
    """Return the JSON among what a launcher printed."""
    return json.loads(printed[printed.index("{") :].splitlines()[0])


def mnist(**more):
    return (
        "--workload",
        "mnist",
        *(word for name, value in more.items() for word in ("--set", f"{name}={value}")),
    )


WORLDS = [("mpi", 3), ("mpi", 2), ("gloo", 3)]


@pytest.fixture(scope="module")
def parts(launch):
    """Return what the programs' parts make of a world; each is asked once."""
    return cache(lambda backend, hosts: told(launch(backend, hosts, "parts")))


@pytest.mark.parametrize(("backend", "hosts"), WORLDS)
def test_every_collective_of_every_type_is_right_or_refused(parts, backend, hosts):
    observed = parts(backend, hosts)["collectives"]
    assert {name: wrong for name, wrong in observed["wrong"].items() if wrong} == {}
    for name in (*observed["wrong"], *observed["refused"]):
        workload, dtype, op, *_ = name.split(".")
        adds = workload in ("allreduce", "reducescatter")
        can = dtype in (SUMMED if adds else SUMMED | BYTES)
        if op == "adasum":
            can = dtype in ADASUM and (backend, hosts) == ("mpi", 2)
        assert (name in observed["wrong"]) is can, observed["refused"].get(name)
    reasons = set(observed["refused"].values())
    assert "Tensor type torch.BFloat16Tensor is not supported." in reasons
    assert ("Adasum needs MPI, which these ranks lack" in reasons) is (backend == "gloo")


@pytest.mark.parametrize(("backend", "hosts"), WORLDS)
def test_faults_in_what_came_are_seen(parts, backend, hosts):
    for name, wrong in parts(backend, hosts)["faults"].items():
        fault = name.split(".")[1]
        assert (wrong > 0) is (fault != "none"), name
        assert fault != "element" or wrong == 1, name


@pytest.mark.parametrize(("backend", "hosts"), WORLDS)
def test_gradients_arrive_as_well_as_their_bits_allow(parts, backend, hosts):
    observed = parts(backend, hosts)["averages"]
    assert all(found["same"] for found in observed.values())
    assert observed["bf16"]["once"] <= 2**-8
    # Half a level is lost at most, and what is lost comes later.
    lost = 0.5 / (127 // hosts) + 1e-6
    assert 0 < observed["8bit"]["once"] <= lost
    assert observed["8bit"]["mean_of_20"] <= lost / 20
    assert observed["naive8"]["mean_of_20"] > 0.05


def accuracies(launch, backend, hosts, digits, *trainings):
    """Return the mean accuracy of each compression, from trainings asked for as COMPRESSION:SEED:EPOCHS."""
    observed = told(launch(backend, hosts, "trainings", digits, *trainings))
    assert observed["checks"] == []
    found = {}
    for asked, accuracy in zip(trainings, observed["accuracy"], strict=True):
        found.setdefault(asked.partition(":")[0], []).append(accuracy)
    return {name: sum(values) / len(values) for name, values in found.items()}


def test_compressed_gradients_train_as_well_and_cut_off_ones_not_at_all(launch, digits):
    long = [f"{name}:{seed}:20" for name in ("none", "8bit") for seed in (1, 2)]
    mean = accuracies(launch, "mpi", 2, digits, *long, "fp16:1:20", "bf16:1:20", "naive8:1:4")
    assert mean["none"] > 95
    for name in ("fp16", "bf16", "8bit"):
        # Half a point, and what so few seeds leave to chance.
        assert mean[name] > mean["none"] - 1.5, mean
    assert mean["naive8"] < CHANCE


def test_gradients_train_over_gloo_too(launch, digits):
    names = ("none", "fp16", "bf16", "8bit", "naive8")
    mean = accuracies(launch, "gloo", 2, digits, *(f"{name}:1:4" for name in names))
    assert min(mean[name] for name in names[:-1]) > 80 > CHANCE > mean["naive8"], mean


def test_one_process_alone_learns_without_horovod(lab, digits):
    lab.hvlab("bench", "--restart", "--backend", "serial", "--hosts", "1", *mnist(epochs=20))
    records = {row["metric"]: row for row in lab.results_of("show")}
    assert records["accuracy"]["value"] > 95
    assert records["accuracy"]["proved_backend"] == "serial"
    assert records["sent_bytes"]["value"] == 0
    assert records["gradient_bytes"]["value"] == 21840 * 4


@pytest.mark.parametrize(
    "words",
    [
        ("--workload", "synthetic", "--set", "model=resnet18", "--set", "image=32", "--set", "batch=2"),
        ("--workload", "rnn", "--set", "length=8", "--set", "batch=4"),
    ],
    ids=["synthetic", "rnn"],
)
def test_large_models_train_over_each_backend(lab, words):
    words = ("--backend", "mpi,gloo", "--hosts", "2", "--slots", "1", "--set", "steps=5", *words)
    lab.hvlab("bench", "--restart", *words)
    records = lab.results_of("show")
    assert {(row["proved_backend"], row["status"]) for row in records} == {("mpi", "ok"), ("gloo", "ok")}
    kept = {row["metric"]: row["value"] for row in records}
    assert kept["sent_bytes"] == kept["gradient_bytes"] > 1e6
    assert kept["flops"] > 1e7
    assert kept["compute_time"] > 0


def test_each_way_of_sending_is_proved(sent):
    assert {(row["proved_backend"], row["status"]) for row in sent} == {("mpi", "ok")}
    observed = {row["params"]["compression"]: row["value"] for row in sent if row["metric"] == "sent_bytes"}
    # The maxima of 8 tensors come with the 8 bit numbers.
    assert observed == {"bf16": 21840 * 2, "8bit": 21840 + 8 * 4}


TRAINING = ("--workload", "mnist", "--epochs", "1")
FAULTS = {
    "sums": (("--workload", "allreduce", "--sizes", "4096"), "wrong elements at 4096 bytes"),
    "weights": (TRAINING, "weights: those of the ranks [1] are not those of rank 0"),
    "samples": (TRAINING, "samples: "),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_program_that_goes_wrong_says_so_and_ends_in_1(lab, launch, digits, fault):
    words, observed = FAULTS[fault]
    words = (*words, "--data", digits) if words == TRAINING else words
    output = f"/tmp/hvlab-broken/{fault}/result.json"
    launch("mpi", 2, fault, *words, "--world-size", "2", "--hosts", "2", "--output", output, expect=1)
    checks = json.loads(lab.on("t1", f"cat {output}"))["checks"]
    assert any(observed in check for check in checks), checks
