"""Where the programs put their tensors, and when they read the clock: with a made up torch."""

from types import ModuleType, SimpleNamespace

import pytest

from tests.unit.programs import program as imported


@pytest.fixture
def calls() -> list[str]:
    return []


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, calls: list[str]) -> ModuleType:
    """Return what the programs share, beside a torch that shows two GPUs."""
    cuda = SimpleNamespace(
        device_count=lambda: 2,
        set_device=lambda index: calls.append(f"set_device {index}"),
        synchronize=lambda: calls.append("synchronize"),
    )
    return imported(monkeypatch, "world", cuda=cuda)


@pytest.fixture
def ranks(calls: list[str]) -> SimpleNamespace:
    """Return a world as local rank 3 sees it."""
    return SimpleNamespace(rank=7, local_rank=3, barrier=lambda: calls.append("barrier"))


def test_ranks_of_a_host_take_its_gpus_in_turn(program, calls, ranks):
    assert program.Alone.place(ranks, "cuda") == "cuda:1"
    assert calls == ["set_device 1"]


def test_no_gpu_is_asked_for_on_the_cpu(program, calls, ranks):
    assert program.Alone.place(ranks, "cpu") == "cpu"
    assert calls == []


def test_a_rank_without_gpu_says_who_it_is_and_what_torch_is(program, ranks, monkeypatch):
    monkeypatch.setattr(program.torch.cuda, "device_count", lambda: 0)
    with pytest.raises(
        RuntimeError, match=r"rank 7 on .* can use no GPU: torch 2.12.0\+cpu was built for CUDA none"
    ):
        program.Alone.place(ranks, "cuda")


def test_the_clock_waits_for_the_gpu(program, calls, ranks, monkeypatch):
    ticks = iter([10.0, 12.5])
    monkeypatch.setattr(program.time, "perf_counter", lambda: (calls.append("clock"), next(ticks))[1])
    assert program.time_operation(lambda: calls.append("allreduce"), ranks, "cuda:1") == 2.5
    assert calls == ["synchronize", "barrier", "clock", "allreduce", "synchronize", "clock"]


def test_on_the_cpu_nothing_waits(program, calls, ranks):
    assert program.time_operation(lambda: calls.append("allreduce"), ranks, "cpu") >= 0
    assert calls == ["barrier", "allreduce"]


NEEDED = ["--workload", "allreduce", "--world-size", "2", "--hosts", "1", "--output", "x"]


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
    assert program.parser("x").parse_args([*NEEDED, *options]).device == device
