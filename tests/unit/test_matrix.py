"""Axes to cases."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvlab.errors import UsageError
from hvlab.matrix import default_hosts, default_slots, expand, parse_counts, parse_sizes
from tests.unit.labs import lab, spec


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("1K:64K:4", (1024, 4096, 16384, 65536)),
        ("1K:63K:4", (1024, 4096, 16384)),
        ("8:8:2", (8,)),
        ("1K,4M", (1024, 4 * 2**20)),
        ("1k, 2kB ,3KiB,1G", (1024, 2048, 3072, 2**30)),
        ("10,11", (8,)),
    ],
)
def test_sizes(text, sizes):
    assert parse_sizes(text, item=4) == sizes


@pytest.mark.parametrize(
    "text", ["", "x", "1K:64K", "1K:64K:1", "64K:1K:2", "1K:2K:x", "0:8:2", "2", "1K:::", "-4"]
)
def test_wrong_sizes(text):
    with pytest.raises(UsageError, match="--sizes"):
        parse_sizes(text, item=4)


@given(st.integers(4, 2**30), st.integers(4, 2**34), st.integers(2, 64))
def test_sizes_grow_by_the_factor_up_to_the_greatest(low, high, factor):
    low, high = sorted((low, high))
    sizes = parse_sizes(f"{low}:{high}:{factor}", item=4)
    assert all(size % 4 == 0 and size <= high for size in sizes)
    assert list(sizes) == sorted(set(sizes))
    assert sizes[0] == low - low % 4


@pytest.mark.parametrize(("text", "counts"), [("1,2,3", (1, 2, 3)), ("2, 2", (2,)), ("8", (8,))])
def test_counts(text, counts):
    assert parse_counts(text, "--hosts") == counts


@pytest.mark.parametrize("text", ["", "0", "1,x", "-1", "1.5"])
def test_wrong_counts(text):
    with pytest.raises(UsageError, match="--hosts"):
        parse_counts(text, "--hosts")


@pytest.mark.parametrize(
    ("count", "axis"),
    [(1, (1,)), (4, (1, 2, 3, 4)), (5, (1, 2, 4, 5)), (8, (1, 2, 4, 8)), (12, (1, 2, 4, 8, 12))],
)
def test_default_hosts(count, axis):
    assert default_hosts(count) == axis


def test_default_slots():
    assert default_slots(lab(slots=4)) == (1, 4)
    assert default_slots(lab(slots=1)) == (1,)


def test_every_combination_once_repeats_outermost():
    cases, impossible = expand(spec("mpi", "gloo", hosts=(1, 2), slots=(1, 2), repeats=2), lab())
    assert impossible == []
    assert len({case.id for case in cases}) == len(cases) == 16
    assert [case.repeat for case in cases] == [1] * 8 + [2] * 8
    assert cases[0].id == "allreduce-mpi-1x1-r1"
    assert (cases[3].hosts, cases[3].slots, cases[3].world_size) == (("n1", "n2"), 2, 4)


def test_impossible_cases_are_named_once():
    cases, impossible = expand(spec("mpi", hosts=(2, 4), slots=(1, 3), repeats=3), lab())
    assert [case.id for case in cases] == [f"allreduce-mpi-2x1-r{n}" for n in (1, 2, 3)]
    assert {left.case: left.reason for left in impossible} == {
        "allreduce-mpi-2x3-r1": "3 slots asked for, n1 has 2, n2 has 2 (lab_slots)",
        "allreduce-mpi-4x1-r1": "4 hosts asked for, the lab has 3",
        "allreduce-mpi-4x3-r1": "4 hosts asked for, the lab has 3",
    }


def test_a_launcher_that_cannot_start_the_backend():
    cases, impossible = expand(spec("mpi", "gloo", launcher="mpirun"), lab())
    assert [case.id for case in cases] == ["allreduce-mpi-mpirun-2x1-r1"]
    assert impossible[0].reason == "mpirun cannot start gloo ranks"


def test_the_key_tells_specifications_and_labs_apart():
    one = spec("mpi").key(lab())
    assert one == spec("mpi").key(lab())
    assert (
        len({one, spec("gloo").key(lab()), spec("mpi", timeout=9).key(lab()), spec("mpi").key(lab(2))}) == 4
    )
