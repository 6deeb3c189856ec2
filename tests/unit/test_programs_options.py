"""The programs understand what the registry of workloads gives them."""

import sys
from unittest.mock import MagicMock

import pytest

from hvlab.workloads import WORKLOADS
from tests.unit.programs import PROGRAMS, program

PLACE = ["--world-size", "2", "--hosts", "1", "--output", "~/x"]


def words(value):
    return str(value).lower() if isinstance(value, bool) else str(value)


def given(workload):
    """Return every parameter of a workload at its default, as on a command line."""
    found = {item.name: words(item.default) for item in workload.parameters if item.kind != "note"}
    if "sizes" in found:
        found["sizes"] = "1024,4096"
    return found


def parsed(monkeypatch, workload, *more, **changed):
    options = given(workload) | changed
    name = workload.program.removesuffix(".py")
    if options.get("framework", "torch") == "tensorflow":
        monkeypatch.setitem(sys.modules, "tensorflow", MagicMock(__version__="2.15.1"))
        name += "_tensorflow"
    module = program(monkeypatch, name)
    argv = [word for name, value in options.items() for word in ("--" + name.replace("_", "-"), value)]
    return module.parse(["--workload", workload.name, *PLACE, *argv, *more])


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_parameter_of_a_workload_arrives(monkeypatch, name):
    workload = WORKLOADS[name]
    options = vars(parsed(monkeypatch, workload))
    for item in workload.parameters:
        if item.kind not in ("sizes", "note"):
            assert options[item.name] == item.default, item.name
    assert options["world_size"] == 2
    assert "~" not in options["output"]


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_choice_is_known(monkeypatch, name):
    for item in WORKLOADS[name].parameters:
        for choice in item.choices:
            assert getattr(parsed(monkeypatch, WORKLOADS[name], **{item.name: choice}), item.name) == choice


def test_sizes_and_flags_are_read(monkeypatch):
    options = parsed(monkeypatch, WORKLOADS["allreduce"], in_place="false")
    assert options.sizes == [1024, 4096]
    assert options.in_place is False


@pytest.mark.parametrize("form", ["single", "fused"])
def test_a_single_call_has_one_tensor(monkeypatch, form):
    options = parsed(monkeypatch, WORKLOADS["allreduce"], form=form, tensors="8")
    assert options.tensors == (1 if form == "single" else 8)


@pytest.mark.parametrize(
    ("name", "more"),
    [("allreduce", ["--serial"]), ("mnist", ["--serial", "--compression", "8bit"]), ("mnist", ["--x", "1"])],
)
def test_what_makes_no_sense_is_refused(monkeypatch, name, more, capsys):
    with pytest.raises(SystemExit) as end:
        parsed(monkeypatch, WORKLOADS[name], *more)
    assert end.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_a_training_runs_alone(monkeypatch):
    assert parsed(monkeypatch, WORKLOADS["mnist"], "--serial").serial is True


def test_every_program_of_a_workload_is_there():
    assert {workload.program for workload in WORKLOADS.values()} <= {path.name for path in PROGRAMS.iterdir()}
