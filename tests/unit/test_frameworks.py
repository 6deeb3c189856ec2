"""A training of another framework: its Horovod variant, its program, and what it cannot do."""

import pytest

from hvlab.bench.matrix import expand
from hvlab.bench.schedule import Schedule
from hvlab.lab.variants import choose, device, unavailable, variant_for
from hvlab.workloads import argv
from hvlab.workloads.launchers import command
from tests.unit.labs import lab, spec

BOTH = {
    "tf": {"frameworks": ["tensorflow"], "mpi": True, "gloo": True, "gpu_operations": ""},
    "cpu": {"frameworks": ["torch"], "mpi": True, "gloo": True, "ccl": True, "gpu_operations": ""},
}
TENSORFLOW = {"workload": "mnist", "framework": "tensorflow", "data": "synthetic"}


def test_each_framework_has_its_variant():
    hosts = lab(horovod_variants=BOTH).hosts
    assert (variant_for("mpi", hosts), variant_for("mpi", hosts, "tensorflow")) == ("cpu", "tf")
    assert (variant_for("serial", hosts), variant_for("serial", hosts, "tensorflow")) == ("cpu", "tf")
    assert (variant_for("ccl", hosts), variant_for("ccl", hosts, "tensorflow")) == ("cpu", None)


def test_a_variant_that_names_no_framework_is_for_torch():
    hosts = lab().hosts
    assert variant_for("mpi", hosts, "tensorflow") is None
    assert unavailable("mpi", hosts, "tensorflow") == (
        "no Horovod variant of the inventory has mpi for tensorflow on n1, n2, n3"
    )


def test_a_lab_of_one_framework_has_its_backends():
    there = lab(horovod_variants={"tf": BOTH["tf"]})
    assert choose([], there) == ["mpi", "gloo"]
    assert unavailable("mpi", there.hosts) is None
    assert "mpi for torch" in unavailable("mpi", there.hosts, "torch")


def test_where_the_tensors_are_is_asked_of_the_frameworks_variant():
    built = {"cpu": BOTH["cpu"], "tf": {**BOTH["tf"], "gpu_operations": "mpi"}}
    hosts = lab(1, gpu=("n1",), horovod_variants=built).hosts
    assert (device("mpi", hosts), device("mpi", hosts, framework="tensorflow")) == ("cpu", "cuda")


@pytest.mark.parametrize("backend", ["mpi", "gloo"])
def test_its_program_runs_with_its_python(backend):
    there = lab(horovod_variants=BOTH)
    schedule = Schedule.of(spec(backend, **TENSORFLOW), there)
    (case,) = schedule.cases
    assert case.variant == "tf"
    assert schedule.content(schedule.cases, "RUN")["cases"][case.id]["variant"] == "tf"
    words = command(case, there, "RUN", argv(case)).argv
    program = words.index("/opt/hvlab/workloads/train_tensorflow.py")
    assert words[program - 1] == "/opt/hvlab/horovod/tf/bin/python3"
    assert words[words.index("--framework") + 1] == "tensorflow"


@pytest.mark.parametrize(
    ("backend", "asked", "told"),
    [
        ("mpi", {"compression": "8bit"}, "Horovod for tensorflow has no 8bit gradients"),
        ("gloo", {"compression": "bf16"}, "Horovod for tensorflow has no bf16 gradients"),
        ("ccl", {}, "no Horovod variant of the inventory has ccl for tensorflow on n1, n2, n3"),
    ],
)
def test_what_it_cannot_do_is_told(backend, asked, told):
    cases, impossible = expand(spec(backend, **TENSORFLOW, **asked), lab(horovod_variants=BOTH))
    assert not cases
    assert [left.reason for left in impossible] == [told]


def test_half_precision_it_can():
    cases, _ = expand(spec("mpi", **TENSORFLOW, compression="fp16"), lab(horovod_variants=BOTH))
    assert [case.params["compression"] for case in cases] == ["fp16"]


def test_torch_is_refused_where_there_is_only_another():
    there = lab(horovod_variants={"tf": BOTH["tf"]})
    cases, impossible = expand(spec("mpi", sizes=(1024,)), there)
    assert not cases
    assert impossible[0].reason == "no Horovod variant of the inventory has mpi for torch on n1, n2, n3"
