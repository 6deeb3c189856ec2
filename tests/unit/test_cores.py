"""Which cores virtual hosts get, and whether ranks have a core each."""

import pytest

from hvlab.base.errors import UsageError
from hvlab.base.ranges import format_ranges
from hvlab.lab import cores
from hvlab.lab.cores import HostCores


def hosts(count, value=None):
    return {f"n{number}": value for number in range(1, count + 1)}


@pytest.mark.parametrize(
    ("requested", "cpus", "dealt"),
    [
        (hosts(1), (0, 1), [(0, 1)]),
        (hosts(2), (0, 1), [(0,), (1,)]),
        (hosts(3), (0, 1), [(0,), (1,), (0, 1)]),
        (hosts(3), range(8), [(0, 1), (2, 3), (4, 5)]),
        (hosts(2, 1), range(8), [(0,), (1,)]),
        (hosts(3, 2), range(4), [(0, 1), (2, 3), (0, 1)]),
        (hosts(3, 1), (0, 1), [(0,), (1,), (0,)]),
        (hosts(3, 2), range(3), [(0, 1), (0, 2), (1, 2)]),
        ({"n1": 1, "n2": 1, "n3": 1, "n4": None}, (0, 1), [(0,), (1,), (0,), (0, 1)]),
        (hosts(2, "all"), (0, 1), [(0, 1), (0, 1)]),
        ({"n1": 2, "n2": None, "n3": None}, range(4), [(0, 1), (2,), (3,)]),
        (hosts(4), (0, 1), [(0,), (1,), (0, 1), (0, 1)]),
        ({"n1": None, "n2": "all"}, (0, 1), [(0, 1), (0, 1)]),
        # Numbered as of two packages: neighbours in the order given stay together.
        (hosts(2), (0, 2, 1, 3), [(0, 2), (1, 3)]),
    ],
)
def test_hosts_get_cores_of_their_own_while_there_are_enough_or_as_many_as_they_ask_for(
    requested, cpus, dealt
):
    assert list(cores.deal(requested, tuple(cpus)).values()) == dealt


def test_more_cores_than_the_machine_has_are_refused():
    with pytest.raises(UsageError, match="n1: 4 cores requested, this machine has 2"):
        cores.deal(hosts(2, 4), (0, 1))


@pytest.mark.parametrize(
    ("cpus", "text"), [((0,), "0"), ((3, 1, 2, 8), "1-3,8"), ((), ""), ((0, 1, 4, 5), "0-1,4-5")]
)
def test_cpus_are_listed_as_the_kernel_does(cpus, text):
    assert format_ranges(cpus) == text


OWN = {"n1": HostCores("m", (0,)), "n2": HostCores("m", (1,))}
THREE = {**OWN, "n3": HostCores("m", (0, 1))}
REAL = {"a": HostCores("m1", (0, 1)), "b": HostCores("m2", (0, 1))}


@pytest.mark.parametrize(
    ("case", "slots", "told"),
    [
        (OWN, 1, None),
        (OWN, 2, "4 ranks on 2 cores (n1, n2)"),
        (THREE, 1, "3 ranks on 2 cores (n1, n2, n3)"),
        ({"n1": OWN["n1"]}, 2, "2 ranks on 1 core (n1)"),
        ({"n1": THREE["n1"], "n3": THREE["n3"]}, 1, None),
        # Beside a host with cores to spare.
        ({"n1": HostCores("m", (0,)), "n2": HostCores("m", (1, 2, 3))}, 2, "2 ranks on 1 core (n1)"),
        (REAL, 2, None),
        (REAL, 3, "3 ranks on 2 cores (a)"),
        ({"n1": HostCores("m", ())}, 1, None),
    ],
)
def test_ranks_without_a_core_each_are_told(case, slots, told):
    assert cores.crowding(case, slots) == told


@pytest.mark.parametrize(
    ("case", "told"), [(OWN, "own"), (THREE, "shared"), (REAL, None), ({"n1": OWN["n1"]}, None)]
)
def test_hosts_of_one_machine_have_their_own_cores_or_share(case, told):
    assert cores.sharing(case) == told
