"""Logs from public threads and of our own: the cause of each stands first, and harmless ones give none."""

import zlib

import pytest

from hvlab.doctor.reading import diagnose
from tests.contract.tree import ROOT, load

THREADS = load(ROOT / "tests/data/doctor/threads.yml") | load(ROOT / "tests/data/doctor/recorded.yml")


@pytest.mark.parametrize("thread", THREADS)
def test_thread(thread):
    found = [each.cause.id for each in diagnose(THREADS[thread]["log"].splitlines()).causes]
    wanted = THREADS[thread]["first"]
    if wanted:
        assert found[0] in wanted
    else:
        assert not found


@pytest.mark.parametrize("share", range(6))
def test_threads_wrapped_by_a_terminal(share):
    """Each thread in one of six ways, which its address chooses: all of them in all ways take minutes."""
    width, prefix = (80, 100, 120)[share % 3], ("", "[1,0]<stderr>:")[share // 3]
    wrong = {}
    for thread, case in THREADS.items():
        if zlib.crc32(thread.encode()) % 6 != share:
            continue
        whole = [prefix + line for line in case["log"].splitlines()]
        lines = [line[at : at + width] for line in whole for at in range(0, max(len(line), 1), width)]
        found = [each.cause.id for each in diagnose(lines).causes]
        if found[0] not in case["first"] if found and case["first"] else bool(found) != bool(case["first"]):
            wrong[thread] = found[:1]
    assert not wrong
