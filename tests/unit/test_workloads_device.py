"""Where the allreduce program puts its buffers, and when it reads the clock: with a made up torch."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

PROGRAM = Path(__file__).parents[2] / "hvlab/workloads/programs/allreduce.py"


@pytest.fixture
def calls() -> list[str]:
    return []


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, calls: list[str]) -> ModuleType:
    """Return the program, imported beside a torch that shows two GPUs, as local rank 3."""
    torch = ModuleType("torch")
    torch.__version__ = "2.12.0+cpu"
    torch.version = SimpleNamespace(cuda=None)
    torch.cuda = SimpleNamespace(
        device_count=lambda: 2,
        set_device=lambda index: calls.append(f"set_device {index}"),
        synchronize=lambda: calls.append("synchronize"),
    )
    horovod, bindings = ModuleType("horovod"), ModuleType("horovod.torch")
    bindings.rank = lambda: 7
    bindings.local_rank = lambda: 3
    bindings.barrier = lambda: calls.append("barrier")
    horovod.torch = bindings
    for name, module in (("torch", torch), ("horovod", horovod), ("horovod.torch", bindings)):
        monkeypatch.setitem(sys.modules, name, module)
    spec = importlib.util.spec_from_file_location("allreduce_program", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_ranks_of_a_host_take_its_gpus_in_turn(program, calls):
    assert program.place("cuda") == "cuda:1"
    assert calls == ["set_device 1"]


def test_no_gpu_is_asked_for_on_the_cpu(program, calls):
    assert program.place("cpu") == "cpu"
    assert calls == []


def test_a_rank_without_gpu_says_who_it_is_and_what_torch_is(program, monkeypatch):
    monkeypatch.setattr(program.torch.cuda, "device_count", lambda: 0)
    with pytest.raises(
        RuntimeError, match=r"rank 7 on .* can use no GPU: torch 2.12.0\+cpu was built for CUDA none"
    ):
        program.place("cuda")


def test_the_clock_waits_for_the_gpu(program, calls, monkeypatch):
    ticks = iter([10.0, 12.5])
    monkeypatch.setattr(program.time, "perf_counter", lambda: (calls.append("clock"), next(ticks))[1])
    assert program.timed(lambda: calls.append("allreduce"), "cuda:1") == 2.5
    assert calls == ["synchronize", "barrier", "clock", "allreduce", "synchronize", "clock"]


def test_on_the_cpu_nothing_waits(program, calls):
    assert program.timed(lambda: calls.append("allreduce"), "cpu") >= 0
    assert calls == ["barrier", "allreduce"]


NEEDED = ["--world-size", "2", "--hosts", "1", "--sizes", "1024", "--output", "x"]


@pytest.mark.parametrize(
    ("variable", "options", "device"),
    [
        (None, [], "cpu"),
        ("cuda", [], "cuda"),
        ("cuda", ["--device", "cpu"], "cpu"),
        (None, ["--device", "cuda"], "cuda"),
    ],
)
def test_the_launcher_or_an_option_names_the_device(program, monkeypatch, variable, options, device):
    monkeypatch.delenv("HVLAB_DEVICE", raising=False)
    if variable:
        monkeypatch.setenv("HVLAB_DEVICE", variable)
    monkeypatch.setattr(sys, "argv", ["allreduce.py", *NEEDED, *options])
    assert program.parse().device == device
