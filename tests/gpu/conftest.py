"""A budget of time for these tests: what no longer fits is skipped, and said so."""

from __future__ import annotations

import os
import time

import pytest

BEGIN = time.monotonic()


def too_late(needs: float, budget: str, passed: float) -> str:
    """Return why a test that needs that many seconds is not begun; empty where it is.

    ``budget`` is the seconds for all tests, as text; empty for no limit. ``passed`` are those already gone.
    """
    left = float(budget or "inf") - passed
    return "" if needs <= left else f"it takes up to {needs:.0f} s, and {left:.0f} s of {budget} s are left"


def pytest_runtest_setup(item: pytest.Item) -> None:
    mark = item.get_closest_marker("seconds")
    reason = too_late(
        mark.args[0] if mark else 0, os.environ.get("HVLAB_GPU_SECONDS", ""), time.monotonic() - BEGIN
    )
    if reason:
        pytest.skip(reason)
