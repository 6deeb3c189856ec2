"""Ranks of torch use the NCCL that torch brings: the plan says which, and keeps it equal on all hosts."""

import pytest

from hvlab.stack.resolver import Infeasible, Resolution, pins, plan
from tests.unit.test_resolver import A100, lab

M40 = {"name": "Tesla M40"}
B200 = {"name": "NVIDIA B200"}
MIXED = [*lab("old", gpus=[M40]), *lab("new", gpus=[B200])]


def planned(hosts, *asked):
    answer = plan(hosts, [pins.parse(text) for text in asked])
    assert isinstance(answer, Resolution), answer.message
    return answer


def test_the_plan_says_which_nccl_ranks_use():
    stack = planned(lab("n1", gpus=[A100]), "torch=2.12.1", "cuda=12.6").hosts["n1"]
    assert stack["versions"]["nccl"] == "2.28.3-1+cuda12.6"
    assert stack["nccl_loaded"] == {"torch": "2.29.3"}
    assert "ranks of torch use 2.29.3, which its wheel brings" in stack["reasons"]["nccl"]
    [note] = [note for note in stack["notes"] if "ranks of torch" in note]
    assert note == (
        "ranks of torch use NCCL 2.29.3, which torch 2.12.1 brings and loads first; "
        "the installed NCCL 2.28.3 serves nccl-tests"
    )


def test_a_pinned_nccl_does_not_change_it():
    stack = planned(lab("n1", gpus=[A100]), "torch=2.12.1", "cuda=12.6", "nccl=2.27.3").hosts["n1"]
    assert stack["nccl_loaded"] == {"torch": "2.29.3"}
    assert any("the installed NCCL 2.27.3 serves nccl-tests" in note for note in stack["notes"])


def test_tensorflow_uses_the_installed_one():
    stack = planned(lab("n1", gpus=[A100]), "tensorflow=2.15.1").hosts["n1"]
    assert stack["nccl_loaded"] == {"tensorflow": stack["versions"]["nccl"].partition("-")[0]}


@pytest.mark.parametrize("asked", [["torch=2.12.1+cpu"], ["torch=1.13.1"]])
def test_without_cuda_or_without_knowing_nothing_is_said(asked):
    stack = planned(lab("n1", gpus=[A100]), *asked).hosts["n1"]
    assert stack["nccl_loaded"] == {}
    assert not any("ranks of torch" in note for note in stack["notes"])


def test_hosts_without_gpus_load_none():
    assert planned(lab("n1", gpus=[])).hosts["n1"]["nccl_loaded"] == {}


def test_a_torch_is_preferred_that_brings_the_same_to_all_hosts():
    """Torch 2.12.1, which is preferred otherwise, has another NCCL in its wheels for CUDA 12 than for 13."""
    answer = planned(MIXED)
    loaded = {host["nccl_loaded"]["torch"] for host in answer.hosts.values()}
    assert len(loaded) == 1
    assert not any("different NCCL" in note for note in answer.notes)


def test_where_that_cannot_be_the_plan_says_so():
    answer = planned(MIXED, "torch=2.12.1")
    assert [answer.hosts[name]["nccl_loaded"]["torch"] for name in ("old", "new")] == ["2.29.3", "2.29.7"]
    assert any("torch brings different NCCL releases" in note for note in answer.notes)


def test_backend_nccl_needs_one():
    answer = plan(MIXED, [pins.parse("torch=2.12.1"), pins.parse("backend=nccl")])
    assert isinstance(answer, Infeasible)
    assert "torch 2.12.1 brings another NCCL for CUDA 13.0" in answer.message
    assert "than 2.29.3 of the other hosts: backend nccl needs one on all" in answer.message
    assert "with torch 2.11.0 or with backend mpi" in answer.message
