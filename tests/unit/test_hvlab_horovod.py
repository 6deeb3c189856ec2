"""What hvlab_horovod decides without torch; its ranks are tested where torch is."""

import pytest

from hvlab_horovod.alias.horovod.common import buckets, place
from hvlab_horovod.alias.horovod.common.agreement import Message, Request, agree

A, B = Request("allreduce", [1], 0), Request("allreduce", [2], 0)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, place.Place()),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0"}, place.Place()),
        (
            {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "a", "MASTER_PORT": "7"},
            place.Place(3, 4, 1, 0, "a", 7),
        ),
        (
            {
                **{"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "PMIX_NAMESPACE": "a"},
                **{"OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
            },
            place.Place(1, 2, 1, 2, "127.0.0.1", 20097),
        ),
        (
            {
                **{"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0", "SLURM_STEP_ID": "2"},
                **{"SLURM_JOB_ID": "7", "SLURM_STEP_NODELIST": "gpu[03-07,9],b"},
            },
            place.Place(1, 2, 0, 0, "gpu03", 20219),
        ),
    ],
)
def test_place(environment, expected):
    assert place.find(environment) == expected


def test_no_meeting_place():
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
    environment = {f"OMPI_COMM_WORLD_{name}": value for name, value in zip(names, "0201", strict=True)}
    with pytest.raises(RuntimeError, match="mpirun -x MASTER_ADDR"):
        place.find(environment)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("a", "a"), ("a,b", "a"), ("a[1-2]", "a1"), ("a[3,5]-x,c", "a3-x"), ("a-b[01]", "a-b01")],
)
def test_first_node(nodes, first):
    assert place.first_node(nodes) == first


@pytest.mark.parametrize(
    ("messages", "ready"),
    [
        # Submitted in different orders: that of the first rank.
        ([Message({"a": A, "b": B}), Message({"b": B, "a": A})], ["a", "b"]),
        # What one rank lacks is for later.
        ([Message({"a": A, "b": B}, waits="b"), Message({"a": A}, waits="a")], ["a"]),
        # A rank that only polls may yet submit.
        ([Message({"a": A}, waits="a"), Message({"b": B})], []),
        # A rank that has joined takes part in what the others have.
        ([Message(joined=1.0), Message({"a": A}, waits="a")], ["a"]),
    ],
)
def test_agreement(messages, ready):
    agreement = agree([Message.decode(message.encode()) for message in messages], [0, 1])
    assert [one.name for one in agreement.ready] == ready
    assert not agreement.stuck
    assert not any(one.error for one in agreement.ready)


def test_ranks_that_wait_for_different_operations():
    stuck = agree([Message({"a": A}, waits="a"), Message({"b": B}, waits="b")], [0, 3]).stuck
    assert stuck.startswith("ranks wait for different operations: rank 0 for a, rank 3 for b")


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ([Message({"a": A}), Message({"a": B})], r"a: rank 0 submits \[1\], rank 1 \[2\]"),
        ([Message({"a": Request("broadcast")}), Message(joined=1.0)], "a: a rank has joined"),
    ],
)
def test_contradictions(messages, error):
    (ready,) = agree(messages, [0, 1]).ready
    with pytest.raises(ValueError, match=error):
        raise ValueError(ready.error)


def test_rank_that_joins_last():
    assert agree([Message(joined=2.0), Message(joined=1.0)], [0, 1]).last == 0


MIB = 2**20


@pytest.mark.parametrize(
    ("order", "sizes", "kinds", "groups", "expected"),
    [
        # The first bucket is small, and each is closed by its last gradient.
        ([2, 1, 0], [MIB, MIB // 2, MIB // 2], "aaa", [], [[2, 1], [0]]),
        ([0, 1, 2], [9 * MIB, 9 * MIB, 2], "aaa", [], [[0], [1, 2]]),
        ([0, 1, 2, 3], [4, 4, 4, 4], "abab", [], [[0, 2], [1, 3]]),
        ([0, 1, 2, 3], [4, 4, 4, 4], "aaaa", [[0, 3]], [[1, 2], [0, 3]]),
    ],
)
def test_buckets(order, sizes, kinds, groups, expected):
    assert buckets.plan(order, dict(enumerate(sizes)), dict(enumerate(kinds)), groups, 25 * MIB) == expected


def test_groups_of_a_number():
    assert [list(part) for part in buckets.split(range(5), 2)] == [[0, 1], [2, 3, 4]]
    assert [list(part) for part in buckets.split(range(2), 5)] == [[0], [1]]
