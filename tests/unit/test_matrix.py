"""Axes to cases."""

import json
import re
from dataclasses import asdict

import pytest

from hvlab.base.errors import UsageError
from hvlab.bench.matrix import Spec, expand
from hvlab.bench.placement import ALL_PAIRS, PAIRS, counts, default_hosts, default_slots, parse_counts, spread
from tests.unit.labs import VARIANTS, block, case, lab, spec


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1,2,3", (1, 2, 3)),
        ("2, 2", (2,)),
        ("all", (1, 2, 3)),
        ("each,1", ("each", 1)),
        ("pairs", ("pairs",)),
    ],
)
def test_counts(text, found):
    assert parse_counts(text, "--hosts", most=3, words=("each", "pairs")) == found


@pytest.mark.parametrize("text", ["", "0", "1,x", "-1", "1.5", "each", "²", "9" * 5000])
def test_wrong_counts(text):
    with pytest.raises(UsageError, match="--slots"):
        parse_counts(text, "--slots", most=3)


@pytest.mark.parametrize(
    ("count", "axis"),
    [(1, (1,)), (4, (1, 2, 3, 4)), (5, (1, 2, 4, 5)), (8, (1, 2, 4, 8)), (12, (1, 2, 4, 8, 12))],
)
def test_how_many_there_can_be(count, axis):
    assert counts(count) == default_hosts(lab(count)) == axis


def test_default_slots():
    assert default_slots(lab(slots=4)) == (1, 4)
    assert default_slots(lab(slots=1)) == (1,)


@pytest.mark.parametrize(
    ("devices", "hosts", "slots", "place"),
    [
        (2, 1, 2, (1, 2)),
        (2, 3, 1, (2, 1)),
        (4, 3, 2, (2, 2)),
        (4, 1, 4, (1, 4)),
        (4, 3, 1, (4, 1)),
        (4, 2, 3, (2, 2)),
        (3, 2, 2, (3, 1)),
        (1, 1, 1, (1, 1)),
        (2, 1, 1, (1, 2)),
    ],
)
def test_devices_are_spread_over_as_few_hosts_as_can_be(devices, hosts, slots, place):
    assert spread(devices, lab(hosts, slots=slots)) == place


def test_every_combination_once_repeats_outermost():
    cases, impossible = expand(spec("mpi", "gloo", hosts=(1, 2), slots=(1, 2), repeats=2), lab())
    assert impossible == []
    assert len({case.id for case in cases}) == len(cases) == 16
    assert [case.repeat for case in cases] == [1] * 8 + [2] * 8
    found = {case.id: case for case in cases}
    assert found["allreduce-mpi-2x2-r1"].hosts == ("n1", "n2")
    assert found["allreduce-mpi-2x2-r1"].world_size == 4


def test_the_order_is_another_in_each_repeat_and_the_same_for_the_same_command():
    wanted = spec("mpi", "gloo", hosts=(1, 2, 3), slots=(1, 2), repeats=3)
    cases = expand(wanted, lab())[0]
    assert cases == expand(wanted, lab())[0]
    orders = [[case.id[:-3] for case in cases if case.repeat == repeat] for repeat in (1, 2, 3)]
    assert len({tuple(order) for order in orders}) == 3
    assert len({tuple(sorted(order)) for order in orders}) == 1
    assert sorted(orders[0]) != orders[0]


def test_what_stands_in_two_blocks_is_run_once():
    twice = Spec((block("mpi", hosts=(1,), slots=(1, 2)), block("mpi", hosts=(1, 2), slots=(1,))))
    assert sorted(case.id for case in expand(twice, lab())[0]) == [
        "allreduce-mpi-1x1-r1",
        "allreduce-mpi-1x2-r1",
        "allreduce-mpi-2x1-r1",
    ]


def test_cases_that_differ_only_in_what_no_id_tells_are_both_run():
    both = Spec((block("mpi"), block("mpi", sizes=(8192,))))
    ids = {tuple(case.params["sizes"]): case.id for case in expand(both, lab())[0]}
    assert ids[1024, 4096] == "allreduce-mpi-2x1-r1"
    assert re.fullmatch("allreduce-mpi-2x1-[0-9a-f]{8}-r1", ids[8192,])


def test_an_id_tells_what_is_not_default():
    cases = expand(
        spec("mpi", workload="mnist", batch=(64, 128), compression="fp16", fusion_threshold=2**26, epochs=2),
        lab(),
    )[0]
    assert {case.id for case in cases} == {
        "mnist-mpi-2x1-compression=fp16-fusion_threshold=64M-r1",
        "mnist-mpi-2x1-batch=128-compression=fp16-fusion_threshold=64M-r1",
    }


def test_an_id_is_a_file_name_however_long_the_values():
    names = {case("mpi", workload="mnist", data=f"/{'x' * 200}/{n}").id for n in (1, 2)}
    assert len(names) == 2
    assert all(re.fullmatch(r"[A-Za-z0-9._=@+-]{1,130}", name) for name in names)


def test_parameters_are_complete_and_json():
    params = case("mpi", workload="mnist", batch=32).params
    assert params["batch"] == 32
    assert (params["epochs"], params["data"], params["compression"]) == (2, "digits", "none")
    assert (params["device"], params["fusion_threshold"], params["threads"]) == ("cpu", 128 * 2**20, 1)
    assert json.loads(json.dumps(params)) == params
    assert json.loads(json.dumps(case().params)) == case().params


@pytest.mark.parametrize(
    ("asked", "ids"),
    [
        ("each", ["1x1", "1x1@n2", "1x1@n3"]),
        ("pairs", ["2x1", "2x1@n1+n3"]),
        ("pairs:all", ["2x1", "2x1@n1+n3", "2x1@n2+n3"]),
    ],
)
def test_sets_of_hosts(asked, ids):
    cases = expand(spec("mpi", hosts=(asked,)), lab())[0]
    assert sorted(case.id for case in cases) == [f"allreduce-mpi-{place}-r1" for place in ids]
    for found in cases:
        assert found.id.count("@") == 0 or found.id.split("@")[1] == "+".join(found.hosts) + "-r1"


@pytest.mark.parametrize("word", [PAIRS, ALL_PAIRS])
def test_one_host_has_no_pair(word):
    cases, impossible = expand(spec("mpi", hosts=(word,)), lab(1))
    assert cases == []
    assert [left.reason for left in impossible] == ["2 hosts requested, the lab has 1"]


def test_impossible_cases_are_named_once():
    cases, impossible = expand(spec("mpi", hosts=(2, 4), slots=(1, 3), repeats=3), lab())
    assert [case.id for case in cases] == [f"allreduce-mpi-2x1-r{n}" for n in (1, 2, 3)]
    assert {left.case: left.reason for left in impossible} == {
        "allreduce-mpi-2x3-r1": "3 slots requested, n1 has 2, n2 has 2 (lab_slots)",
        "allreduce-mpi-4x1-r1": "4 hosts requested, the lab has 3",
        "allreduce-mpi-4x3-r1": "4 hosts requested, the lab has 3",
    }


ROOMY = lab(3, slots=64, horovod_variants=VARIANTS, gpu=("n1", "n2", "n3"))
BY_OPERATION = {"nccl": {"mpi": True, "gpu_operations": {"allreduce": "nccl", "alltoall": "mpi"}}}
TRAIN = {"workload": "mnist"}


@pytest.mark.parametrize(
    ("backend", "asked", "reason"),
    [
        ("serial", {**TRAIN, "hosts": (1,), "slots": (2,)}, "serial is one process alone"),
        ("serial", {"hosts": (1,)}, "one process alone has nobody to communicate with"),
        ("serial", {**TRAIN, "hosts": (1,), "compression": "fp16"}, "there is nothing to compress"),
        ("ccl", {"workload": "reducescatter"}, "Horovod has no reducescatter over ccl: MPI would carry it"),
        ("ccl", {"dtype": "float16"}, "Horovod has no float16 over ccl"),
        ("ccl", {**TRAIN, "compression": "fp16"}, "Horovod has no float16 over ccl"),
        ("mpi", {"dtype": "bfloat16"}, "Horovod has no bfloat16"),
        ("mpi", {"op": "average", "dtype": "int32"}, "the average of int32 elements is not whole"),
        ("mpi", {"op": "adasum", "hosts": (3,)}, "Adasum needs a power of two of ranks, not 3"),
        ("mpi", {"op": "adasum", "dtype": "int8"}, "Adasum has no int8"),
        ("gloo", {"op": "adasum"}, "Adasum over mpi only, not over gloo"),
        ("ccl", {"op": "adasum"}, "Adasum over mpi only, not over ccl"),
        (
            "mpi",
            {**TRAIN, "compression": "8bit", "slots": (64,)},
            "8bit has 127 steps, too few for 128 ranks",
        ),
        ("mpi", {**TRAIN, "scaling": "strong", "batch": 64, "hosts": (3,)}, "a batch of 64 cannot be shared"),
        ("mpi", {"hierarchical_allreduce": True}, "a hierarchical allreduce over nccl only, not over mpi"),
        ("nccl", {"device": "cpu"}, "nccl carries the memory of GPUs only"),
        ("ddp-gloo", {"workload": "reducescatter"}, "torch has no reducescatter of its own over gloo"),
        ("ddp-gloo", {"cycle_time": 5.0}, "cycle_time is a setting of Horovod"),
        ("ddp-gloo", {"form": "grouped", "tensors": 8}, "no grouped allreduce"),
        ("ddp-gloo", {**TRAIN, "compression": "8bit"}, "DDP has no 8bit gradients here, only none, fp16"),
        ("ddp-gloo", {**TRAIN, "framework": "tensorflow"}, "is torch's own, and has nothing for tensorflow"),
        ("ddp-gloo", {"op": "adasum"}, "Adasum over mpi only"),
        ("fsdp-gloo", {}, "FSDP is measured with lm, rnn: take ddp-gloo for this"),
        (
            "fsdp-gloo",
            {"workload": "lm", "compression": "fp16"},
            "FSDP has no fp16 gradients here, only none",
        ),
        ("ddp-mpi", {"dtype": "float16"}, "torch has no float16 over ddp-mpi"),
        ("ddp-mpi", {"dtype": "bfloat16"}, "torch has no bfloat16 over ddp-mpi"),
        ("mpi", {"workload": "command"}, "no command was given"),
        ("mpi", {"sizes": (2, 64)}, "less than 4 bytes"),
        ("mpi", {"sizes": (16, 64), "form": "fused", "tensors": 8}, "less than 32 bytes"),
        ("mpi", {"tensors": 8}, "a single call has one tensor, not 8"),
        ("mpi", {"workload": "allgather", "sizes": (8, 64), "hosts": (3,)}, "less than 12 bytes"),
    ],
)
def test_what_cannot_be_measured(backend, asked, reason):
    cases, impossible = expand(spec(backend, **asked), ROOMY)
    assert cases == []
    assert [reason in left.reason for left in impossible] == [True], impossible


@pytest.mark.parametrize(
    ("backend", "asked"),
    [
        ("serial", {**TRAIN, "hosts": (1,)}),
        ("ddp-gloo", {"dtype": "bfloat16", "op": "average"}),
        ("ddp-nccl", {"dtype": "bfloat16"}),
        ("mpi", {"op": "adasum"}),
        ("mpi", {"op": "average"}),
        ("mpi", {"form": "grouped", "tensors": 8}),
        ("gloo", {"workload": "reducescatter"}),
        ("ccl", {"workload": "alltoall"}),
        ("gloo", {**TRAIN, "compression": "bf16"}),
        ("mpi", {**TRAIN, "compression": "naive8", "slots": (64,)}),
        ("mpi", {**TRAIN, "scaling": "strong"}),
        ("nccl", {"hierarchical_allreduce": True}),
        ("nccl", {"workload": "alltoall"}),
        ("ddp-gloo", {"workload": "alltoall"}),
        ("ddp-gloo", {**TRAIN, "compression": "fp16"}),
        ("ddp-nccl", {"workload": "reducescatter"}),
        ("mpi", {"workload": "command", "command": "python train.py"}),
        ("serial", {"workload": "command", "command": "python train.py", "hosts": (1,)}),
    ],
)
def test_what_can(backend, asked):
    cases, impossible = expand(spec(backend, **asked), ROOMY)
    assert (len(cases), impossible) == (1, [])


def test_nccl_carries_what_the_variant_was_built_for():
    there = lab(2, gpu=("n1", "n2"), horovod_variants=BY_OPERATION)
    assert len(expand(spec("nccl"), there)[0]) == 1
    left = expand(spec("nccl", workload="alltoall"), there)[1]
    assert [found.reason for found in left] == ["Horovod has no alltoall over nccl: MPI would carry it"]


def test_a_backend_the_lab_does_not_have():
    left = expand(spec("nccl", hosts=(1, 2)), lab())[1]
    assert {found.reason for found in left} == {
        "backend nccl needs an NVIDIA GPU, and these hosts have none: n1, n2, n3"
    }


def test_a_launcher_that_cannot_start_the_backend():
    cases, impossible = expand(spec("mpi", "gloo", launcher="mpirun"), lab())
    assert [case.id for case in cases] == ["allreduce-mpi-mpirun-2x1-r1"]
    assert impossible[0].reason == "mpirun cannot start gloo ranks"


def test_one_process_alone_needs_no_launcher_whoever_starts_the_others():
    (found,) = expand(spec("serial", launcher="mpirun", workload="mnist", hosts=(1,)), lab())[0]
    assert (found.id, found.launcher) == ("mnist-serial-1x1-r1", "local")


@pytest.mark.parametrize(
    ("workload", "sizes", "dtype", "measured"),
    [
        ("allreduce", (10, 11, 64), "float32", [8, 64]),
        ("allreduce", (10, 64), "int8", [10, 64]),
        ("allgather", (100, 1024), "float32", [96, 1020]),
        ("reducescatter", (1024,), "float64", [1008]),
        ("broadcast", (1024,), "float32", [1024]),
    ],
)
def test_sizes_hold_whole_elements_for_each_part(workload, sizes, dtype, measured):
    (found,) = expand(spec("mpi", workload=workload, sizes=sizes, dtype=dtype, hosts=(3,)), lab())[0]
    assert found.params["sizes"] == measured


@pytest.mark.parametrize(("asked", "where"), [({}, "cuda"), ({"device": "cpu"}, "cpu")])
def test_gpus_are_left_out_where_they_are_not_wanted(asked, where):
    there = lab(2, gpu=("n1", "n2"), horovod_variants={"mpi": {"mpi": True, "gpu_operations": "mpi"}})
    for backend, hosts in (("mpi", 2), ("serial", 1)):
        (found,) = expand(spec(backend, workload="mnist", hosts=(hosts,), **asked), there)[0]
        assert found.params["device"] == where


def test_an_unknown_parameter():
    with pytest.raises(UsageError, match="unknown parameter of mnist 'bach'") as caught:
        expand(spec("mpi", workload="mnist", bach=3), lab())
    assert "did you mean batch?" in str(caught.value.remedy)


def test_the_key_tells_specifications_and_labs_apart():
    one = spec("mpi").key(lab())
    assert one == spec("mpi").key(lab())
    others = {
        spec("gloo").key(lab()),
        spec("mpi", timeout=9).key(lab()),
        spec("mpi").key(lab(2)),
        spec("mpi").key(lab(lab_rank_env={"UCX_TLS": "tcp"})),
        spec("mpi", dtype="int8").key(lab()),
    }
    assert len({one, *others}) == 6


def test_a_specification_comes_back_from_the_store_as_it_was():
    wanted = Spec(
        (block("mpi", hosts=("each", 2)), block("serial", workload="mnist", batch=(1, 2))), repeats=2
    )
    back = Spec.restore(json.loads(json.dumps(asdict(wanted))))
    assert back == wanted
    assert back.key(lab()) == wanted.key(lab())
    with pytest.raises(TypeError):
        Spec.restore({"backends": ["mpi"], "sizes": [4]})
