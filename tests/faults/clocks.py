"""Clocks that are wrong, of the controller's hvlab alone: nobody sets the machine's."""

from contextlib import contextmanager

from tests.faults.fault import LIST, fault
from tests.faults.stores import TINY

SHIFT = """
import os, time, datetime
_by = float(os.environ.get("HVLAB_TEST_SHIFT_S", 0))
if _by:
    _time, _datetime = time.time, datetime.datetime
    time.time = lambda: _time() + _by
    class datetime_(_datetime):
        @classmethod
        def now(cls, tz=None):
            return _datetime.fromtimestamp(_time() + _by, tz)
    datetime.datetime = datetime_
"""


@contextmanager
def shifted(world, seconds):
    folder = world.folder / "clock"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(SHIFT)
    path = f"{folder}:{world.environment.get('PYTHONPATH', '')}"
    with world.changed(PYTHONPATH=path, HVLAB_TEST_SHIFT_S=str(seconds)):
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
    with shifted(world, 2 * 365 * 86400):
        yield


@fault("clocks", *LIST, code=0, seconds=15)
def clock_before_1980(world):
    """The controller's clock shows 1976."""
    with shifted(world, -50 * 365 * 86400):
        yield
