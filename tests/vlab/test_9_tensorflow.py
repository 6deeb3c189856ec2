"""TensorFlow beside torch, each in its own environment: the two want different versions of the same packages.

Horovod's build for TensorFlow takes four minutes.
"""

import pytest

from tests.vlab.labs import booted

pytestmark = pytest.mark.tensorflow
VERSIONS = "import {0}, numpy; print({0}.__version__, numpy.__version__)"


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A host with the two frameworks."""
    with booted("tensorflow", tmp_path_factory) as lab:
        lab.site()
        yield lab


def test_each_framework_has_its_own_numpy(both):
    torch = both.on("f1", f"/opt/hvlab/horovod/cpu/bin/python -c '{VERSIONS.format('torch')}'").split()
    tensorflow = both.on(
        "f1", f"/opt/hvlab/horovod/tf/bin/python -c '{VERSIONS.format('tensorflow')}'"
    ).split()
    assert torch[0].startswith("2.13.0")
    assert tensorflow[0] == "2.15.1"
    assert torch[1].split(".")[0] == "2"
    assert tensorflow[1].split(".")[0] == "1"


def test_two_ranks_of_each_add_up_right(both):
    both.hvlab("verify")


def test_mnist_is_trained_by_each(both):
    words = ("--set", "framework=torch,tensorflow", "--set", "epochs=6", "--slots", "2")
    both.hvlab("bench", "--workload", "mnist", "--backend", "mpi,gloo,serial", "--hosts", "1", *words)
    records = both.results_of("show")
    assert {row["status"] for row in records} == {"ok"}
    rows = [row for row in records if row["metric"] in ("accuracy", "flops", "gradient_bytes")]
    found = {}
    for row in rows:
        found.setdefault((row["params"]["framework"], row["proved_backend"], row["world_size"]), {})[
            row["metric"]
        ] = row["value"]
    assert set(found) == {
        (framework, backend, ranks)
        for framework in ("torch", "tensorflow")
        for backend, ranks in (("mpi", 2), ("gloo", 2), ("serial", 1))
    }
    for metrics in found.values():
        assert metrics["accuracy"] > 90
        assert metrics["gradient_bytes"] == 4 * 21840
    flops = {framework: metrics.get("flops") for (framework, _, _), metrics in found.items()}
    assert flops["tensorflow"] == flops["torch"]


def test_half_the_bytes_are_as_good(both):
    words = ("--set", "framework=tensorflow", "--set", "epochs=6", "--compression", "none,fp16,8bit")
    done = both.hvlab("bench", "--workload", "mnist", "--backend", "mpi", "--slots", "2", *words)
    assert "Horovod for tensorflow has no 8bit gradients" in done.stderr
    records = both.results_of("show")
    found = {
        metric: {row["params"]["compression"]: row["value"] for row in records if row["metric"] == metric}
        for metric in ("accuracy", "sent_bytes")
    }
    assert found["sent_bytes"] == {"none": 4 * 21840, "fp16": 2 * 21840}
    assert found["accuracy"]["fp16"] > found["accuracy"]["none"] - 2


def test_a_second_run_changes_nothing(both):
    assert both.site() == {"f1": 0}
