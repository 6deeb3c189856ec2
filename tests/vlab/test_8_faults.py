"""Faults put into a lab of three hosts: what hvlab says, how soon, what it leaves, and that it goes on.

`make test-faults` tries all of them on a lab of their own, and writes tests/data/faults.json and
docs/reliability.md. A dozen of them are tried in every run of the tests, on the lab of the tests.
"""

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.faults import FAULTS, SHORT
from tests.faults.fault import judged, tried
from tests.faults.page import kept
from tests.faults.stores import TINY
from tests.faults.world import World
from tests.vlab.labs import booted

SEED = int(os.environ.get("HVLAB_TEST_SEED", time.time()))


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
    measured = {"faults": [], "killed": {}}
    yield measured
    if os.environ.get("HVLAB_TEST_KEEP"):
        Path(os.environ["HVLAB_TEST_KEEP"]).write_text(json.dumps(measured, indent=1) + "\n")


def check(fault, world, measured):
    row = tried(fault, world)
    measured["faults"].append(kept(row))
    wrong = judged(fault, row)
    assert not wrong, "\n".join([*wrong, "it said:", str(row["said"])[-6000:]])


@pytest.mark.parametrize("name", SHORT)
def test_a_fault(world, measured, name):
    check(FAULTS[name], world, measured)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_every_fault(own_world, measured, name):
    check(FAULTS[name], own_world, measured)


KILLED = {
    "bench": ((*TINY[:-1], "2000"), 7, 12),
    "provision": (("provision", "-t", "ssh_trust,workloads"), 7, 12),
    "installation of a pack": (("provision", "-t", "openmpi"), 6, 12),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", KILLED)
def test_sigkill_at_random_points(own_world, measured, name):
    """Twenty in all; each is resumed by the same command, and nothing is left."""
    world = own_world
    words, times, most = KILLED[name]
    chance = random.Random(f"{SEED}/{name}")  # noqa: S311 - no secret
    before = world.left()
    for number in range(times):
        seconds = chance.uniform(0.2, most)
        if "openmpi" in words:
            world.on(world.hosts[2], "rm -r /opt/hvlab/openmpi /etc/ansible/facts.d/hvlab_openmpi.fact")
        again = tuple(word for word in words if word != "--fresh")
        with world.start(*(words if number == 0 else again)) as process:
            time.sleep(seconds)
            process.send_signal(signal.SIGKILL)
        done = world.hvlab(*again)
        assert done.returncode == 0, (
            f"seed {SEED}, killed after {seconds:.1f} s:\n{done.stdout}\n{done.stderr}"
        )
    deadline = time.monotonic() + 20
    while (left := world.left() - before) and time.monotonic() < deadline:
        time.sleep(1)
    assert not left, f"seed {SEED}: {left}"
    measured["killed"][name] = times
