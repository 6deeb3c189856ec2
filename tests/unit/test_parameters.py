"""What can be set, and how it is read."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvlab.base.errors import UsageError
from hvlab.workloads import WORKLOADS, parameters
from hvlab.workloads.parameters import COMMON, Parameter, environment, word
from hvlab.workloads.sizes import format_size, parse_size, parse_sizes, round_down

BATCH = Parameter("batch", "int", 32, "Samples.")
LR = Parameter("lr", "float", 0.05, "Rate.", least=0)
OP = Parameter("op", "text", "sum", "How.", ("sum", "average"))
FLAG = Parameter("in_place", "flag", True, "Whether.")
BYTES = Parameter("fusion", "bytes", 2**27, "Bytes.", least=0)
SIZES = Parameter("sizes", "sizes", "1K:4K:2", "Bytes.")
DATA = Parameter("data", "data", "digits", "Of what.")


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("1K:64K:4", (1024, 4096, 16384, 65536)),
        ("1K:63K:4", (1024, 4096, 16384)),
        ("8:8:2", (8,)),
        ("1K,4M", (1024, 4 * 2**20)),
        ("1k, 2kB ,3KiB,1G,1K", (1024, 2048, 3072, 2**30)),
    ],
)
def test_sizes(text, sizes):
    assert parse_sizes(text) == sizes


@pytest.mark.parametrize(
    "text", ["", "x", "1K:64K", "1K:64K:1", "64K:1K:2", "1K:2K:x", "0:8:2", "0", "1K:::", "-4"]
)
def test_wrong_sizes(text):
    with pytest.raises(UsageError, match="size"):
        parse_sizes(text)


@given(st.integers(1, 2**30), st.integers(1, 2**34), st.integers(2, 64), st.integers(1, 64))
def test_sizes_grow_by_the_factor_up_to_the_greatest(low, high, factor, step):
    low, high = sorted((low, high))
    sizes = parse_sizes(f"{low}:{high}:{factor}")
    assert sizes[0] == low
    assert list(sizes) == sorted(set(sizes))
    assert all(size % step == 0 and size <= high for size in round_down(sizes, step))


@given(st.integers(1, 2**40))
def test_a_size_is_read_as_it_is_shown(size):
    assert parse_size(format_size(size)) == size


@pytest.mark.parametrize(
    ("parameter", "text", "values"),
    [
        (BATCH, "32", (32,)),
        (BATCH, " 1, 2,1", (1, 2)),
        (BATCH, [4, 8], (4, 8)),
        (LR, "0,1e-3", (0.0, 0.001)),
        (OP, "sum,average", ("sum", "average")),
        (FLAG, "no", (False,)),
        (FLAG, "true,0", (True, False)),
        (FLAG, [True, False], (True, False)),
        (BYTES, "0,64M", (0, 2**26)),
        (SIZES, "1K:4K:2", ((1024, 2048, 4096),)),
        (SIZES, [1024, "2K"], ((1024, 2048),)),
        (DATA, "digits,mnist", ("digits", "mnist")),
    ],
)
def test_values(parameter, text, values):
    assert parameter.several(text) == values


@pytest.mark.parametrize(
    ("parameter", "text", "told"),
    [
        (BATCH, "0", "batch=0: not a whole number of 1 or more"),
        (BATCH, "9999999999999999999999", "larger than any program takes"),
        (BATCH, "1.5", "not a whole number"),
        (BATCH, "1,x", "batch=x"),
        (LR, "nan", "not a number of 0 or more"),
        (LR, "inf", "not a number"),
        (LR, "-1", "not a number of 0 or more"),
        (OP, "max", "unknown value of op 'max'"),
        (OP, "", "op=: no value"),
        (FLAG, "maybe", "neither true nor false"),
        (BYTES, "64X", "not a size in bytes"),
        (DATA, "", "no value"),
    ],
)
def test_wrong_values_say_what_would_be_right(parameter, text, told):
    with pytest.raises(UsageError) as caught:
        parameter.several(text)
    assert told in str(caught.value)
    assert caught.value.remedy


def test_a_folder_of_data_is_the_same_wherever_one_stands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert DATA.read("./mine") == str(Path.cwd() / "mine")


def test_only_what_differs_from_horovods_default_is_told_the_ranks():
    defaults = {item.name: item.default for item in COMMON}
    assert environment(defaults) == {"OMP_NUM_THREADS": "1"}
    changed = {"fusion_threshold": 0, "cycle_time": 2.5, "cache_capacity": 0, "hierarchical_allreduce": True}
    assert environment({**defaults, **changed, "threads": 4}) == {
        "OMP_NUM_THREADS": "4",
        "HOROVOD_FUSION_THRESHOLD": "0",
        "HOROVOD_CYCLE_TIME": "2.5",
        "HOROVOD_CACHE_CAPACITY": "0",
        "HOROVOD_HIERARCHICAL_ALLREDUCE": "1",
    }


@pytest.mark.parametrize("workload", list(WORKLOADS))
def test_every_default_is_a_value_of_its_parameter(workload):
    known = parameters(workload)
    assert len({item.name for item in known}) == len(known)
    for item in known:
        value = item.read(item.default)
        assert item.read(word(value)) == value
        assert not item.choices or value in item.choices
        assert json.dumps(value)
        assert item.help.endswith(".")
