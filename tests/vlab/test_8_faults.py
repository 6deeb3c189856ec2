"""Faults put into a lab of three hosts: what hvlab says, how soon, what it leaves, and that it goes on.

`make test-faults` tries all of them on a lab of their own, and writes tests/data/faults.json, from which the
documentation's page is built. A dozen of them are tried in every run of the tests, on the lab of the tests.
"""

import json
import os
from pathlib import Path

import pytest

from tests.faults import FAULTS, SHORT
from tests.faults.fault import judged, tried
from tests.faults.stores import TINY
from tests.faults.world import World
from tests.vlab.labs import booted

# Of a machine, or long.
NOT_KEPT = {"said", "then_code", "then_said"}


@pytest.fixture(scope="module")
def world(lab, tmp_path_factory):
    """The lab of the tests, provisioned."""
    return _world(lab, tmp_path_factory)


@pytest.fixture(scope="module")
def own_world(tmp_path_factory):
    with booted("faults", tmp_path_factory) as lab:
        lab.site()
        yield _world(lab, tmp_path_factory)


def _world(lab, tmp_path_factory):
    made = World(lab.inventory, tmp_path_factory.mktemp("faults"), lab.data)
    first = made.hvlab(*TINY)
    assert first.returncode == 0, first.stderr
    return made


@pytest.fixture(scope="module")
def measured():
    """What was measured; `make test-faults` keeps it."""
    measured = []
    yield measured
    if os.environ.get("HVLAB_TEST_KEEP"):
        rows = ",\n".join(map(json.dumps, measured))
        Path(os.environ["HVLAB_TEST_KEEP"]).write_text(f"[\n{rows}\n]\n")


def check(fault, world, measured, *, timed):
    row = tried(fault, world)
    measured.append({name: value for name, value in row.items() if name not in NOT_KEPT})
    wrong = judged(fault, row, timed=timed)
    assert not wrong, "\n".join([*wrong, "it said:", str(row["said"])[-6000:]])


@pytest.mark.parametrize("name", SHORT)
def test_a_fault(world, measured, name):
    # Other tests run beside these.
    check(FAULTS[name], world, measured, timed=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_every_fault(own_world, measured, name):
    check(FAULTS[name], own_world, measured, timed=True)
