"""Clocks that are wrong, of the controller's hvlab alone: nobody sets the machine's."""

from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.faults.fault import LIST, fault
from tests.faults.stores import TINY

LIBRARY = "libfaketime.so.1"
DAY_S = 86400
YEAR_S = 365 * DAY_S


def library():
    """The path of the library of Debian's package faketime."""
    for path in Path("/usr/lib").glob(f"*/faketime/{LIBRARY}"):
        return path
    pytest.fail(f"there is no {LIBRARY}: apt-get install faketime")


@contextmanager
def shifted(world, seconds):
    """Show hvlab, and all that it starts on the controller, another time; no connection is there yet."""
    with (
        TemporaryDirectory(dir=world.folder) as connections,
        world.changed(
            LD_PRELOAD=str(library()),
            FAKETIME=f"{seconds:+d}",
            ANSIBLE_SSH_CONTROL_PATH_DIR=connections,
        ),
    ):
        yield


@fault("clocks", *TINY, code=0, seconds=60)
def clock_an_hour_behind(world):
    """The controller's clock is an hour behind: runs stay in their order."""
    with shifted(world, -3600):
        yield


@fault(
    "clocks", "keys", "status", code=1, says=("certificates end within a week, or have ended",), seconds=15
)
def clock_two_years_ahead(world):
    """The controller's clock is two years ahead."""
    with shifted(world, 2 * YEAR_S):
        yield


@fault("clocks", *TINY, code=3, says=("Certificate invalid: expired", "timedatectl"), seconds=30)
def clock_two_years_ahead_of_a_bench(world):
    """The controller's clock is two years ahead when a bench begins."""
    with shifted(world, 2 * YEAR_S):
        yield


@fault("clocks", *TINY, code=3, says=("Certificate invalid: not yet valid", "timedatectl"), seconds=30)
def clock_two_days_behind(world):
    """The controller's clock is two days behind, and the hosts were signed today."""
    with shifted(world, -2 * DAY_S):
        yield


@fault("clocks", *TINY, code=1, says=("a clock is wrong", "timedatectl"), seconds=30)
def clock_before_1980_of_a_bench(world):
    """The controller's clock shows 1976 when a bench begins."""
    with shifted(world, -50 * YEAR_S):
        yield


@fault("clocks", *LIST, code=0, seconds=15)
def clock_before_1980(world):
    """The controller's clock shows 1976."""
    with shifted(world, -50 * YEAR_S):
        yield
