"""Faults put into a lab of three hosts: what hvlab says, how soon, what it leaves, and that it goes on.

All of them in one run make tests/data/faults.json new. Ten are part of test_0_walk, too.
"""

import json

import pytest

from tests.contract.tree import ROOT
from tests.faults import FAULTS
from tests.faults.fault import check
from tests.faults.stores import TINY
from tests.faults.world import World
from tests.vlab.labs import booted

pytestmark = pytest.mark.faults
# Specific to a machine, or long.
NOT_KEPT = {"said", "then_code", "then_said"}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with booted("faults", tmp_path_factory) as lab:
        lab.site()
        made = World(lab.inventory, tmp_path_factory.mktemp("faults"), lab.data)
        first = made.hvlab(*TINY)
        assert first.returncode == 0, first.stderr
        yield made


@pytest.fixture(scope="module")
def measured():
    rows = []
    yield rows
    if {row["name"] for row in rows} == set(FAULTS):
        lines = ",\n".join(map(json.dumps, rows))
        (ROOT / "tests/data/faults.json").write_text(f"[\n{lines}\n]\n")


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault(world, measured, name):
    row = check(FAULTS[name], world, timed=True)
    measured.append({key: value for key, value in row.items() if key not in NOT_KEPT})
