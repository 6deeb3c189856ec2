"""The output of Horovod's synthetic benchmarks and of tf_cnn_benchmarks becomes a run."""

import pytest

from hvlab.base.errors import CheckError
from hvlab.results import formats
from hvlab.results.formats import importing
from hvlab.results.formats.records import LaunchOverrides
from hvlab.results.store import Store

# https://github.com/horovod/horovod/issues/712
TORCH = """Model: resnet50
Batch size: 32
Number of GPUs: 4
Running warmup...
Running benchmark...
Iter #0: 108.3 img/sec per GPU
Iter #1: 107.3 img/sec per GPU
Img/sec per GPU: 108.2 +-1.2
Total img/sec on 4 GPU(s): 432.8 +-4.9
"""
# https://github.com/horovod/horovod/issues/466 and https://github.com/bytedance/byteps/issues/29
TF_CNN = """TensorFlow:  1.10
Model:       resnet50
Mode:        training
Batch size:  64 global
             32 per device
Devices:     ['horovod/gpu:0', 'horovod/gpu:1']
Variables:   horovod
==========
Generating model
Step	Img/sec	total_loss
1	images/sec: 147.9 +/- 0.0 (jitter = 0.0)	9.144
1	images/sec: 147.8 +/- 0.0 (jitter = 0.0)	9.100
----------------------------------------------------------------
total images/sec: 296.10
----------------------------------------------------------------
----------------------------------------------------------------
total images/sec: 296.20
----------------------------------------------------------------
"""


def records(tmp_path, text, **said):
    path = tmp_path / "training.log"
    path.write_text(text)
    _, imported = importing.import_files(
        Store(tmp_path / "results"), [path], LaunchOverrides(**said), lab="x"
    )
    return imported


@pytest.mark.parametrize("prefix", ["", "[1,0]<stdout>:", "2025-05-03T10:11:12Z stdout F "])
@pytest.mark.parametrize(
    ("text", "said"), [(TORCH, (432.8, 4, None)), (TF_CNN, (296.15, 2, "1.10"))], ids=["torch", "tf_cnn"]
)
def test_the_throughput_of_all_ranks(prefix, text, said, tmp_path):
    throughput, ranks, framework = said
    lines = "\n".join(prefix + line for line in text.splitlines())
    assert formats.detect(lines, "x").name == "training"
    (record,) = records(tmp_path, lines)
    assert record.value == pytest.approx(throughput)
    assert (record.metric, record.workload, record.world_size) == ("throughput", "command", ranks)
    assert (record.backend, record.status) == ("unknown", "ok")
    assert record.params["model"] == "resnet50"
    assert (record.params["batch_size"], record.params["device"]) == (32, "cuda")
    assert record.stack.get("tensorflow") == framework


def test_two_trainings_of_a_file_are_repeats(tmp_path):
    imported = records(tmp_path, TORCH + TORCH.replace("432.8", "430.1"), backend="nccl")
    assert [(record.value, record.repeat, record.backend) for record in imported] == [
        (432.8, 1, "nccl"),
        (430.1, 2, "nccl"),
    ]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (TORCH.rpartition("Total")[0], "the output ends before the throughput of all ranks"),
        (TORCH.replace("432.8", "nan"), "the throughput 'nan' is not a number"),
        (
            TORCH.rpartition("Img/sec per")[0] + "slurmstepd: error: *** JOB 7 ON n1 CANCELLED ***\n",
            "slurmstepd: error: *** JOB 7 ON n1 CANCELLED ***",
        ),
    ],
)
def test_a_training_without_a_throughput_has_failed(text, error, tmp_path):
    (record,) = records(tmp_path, text)
    assert (record.status, record.value) == ("failed", None)
    assert record.error.startswith(error)


def test_ranks_that_train_apart_have_no_throughput_together(tmp_path):
    with pytest.raises(CheckError, match="2 programs printed a throughput") as caught:
        records(tmp_path, TF_CNN.replace("Variables:   horovod", "Variables:   parameter_server"))
    assert "--variable_update=horovod" in caught.value.remedy
