"""Logs from public threads and of our own: the cause of each stands first, and harmless ones give none."""

import zlib

import pytest

from benchmarks.bench_doctor import threads
from hvlab.doctor.reading import diagnose
from tests.contract.tree import ROOT

THREADS = dict(threads(ROOT / f"tests/data/doctor/{name}.yml" for name in ("threads", "recorded")))


def as_it_is(thread, lines):
    return lines


def wrapped(thread, lines):
    """Wrap by a terminal in one of six ways, which the address chooses: all ways take minutes."""
    share = zlib.crc32(thread.encode()) % 6
    width, prefix = (80, 100, 120)[share % 3], ("", "[1,0]<stderr>:")[share // 3]
    whole = [prefix + line for line in lines]
    return [line[at : at + width] for line in whole for at in range(0, max(len(line), 1), width)]


def logged(thread, lines):
    """Print by way of Python's logging, or as a rank, in one of six ways, which the address chooses."""
    prefix = (
        "[2024-11-29 18:05:04,123] [INFO] [launch.py:103:main] ",
        "[2024-11-29, 18:05:04 UTC] {subprocess.py:93} INFO - ",
        "2024-11-29 18:05:04.123 | INFO     | __main__:main:12 - ",
        "2024-11-29 18:05:04,123 - launch.run - ERROR - ",
        "Nov 29 18:05:04 n1 python[4711]: ",
        "[pod/job-worker-0/mpi] ",
    )[zlib.crc32(thread.encode()) % 6]
    return [prefix + line for line in lines]


@pytest.mark.parametrize("change", [as_it_is, wrapped, logged])
def test_the_cause_of_each_thread_stands_first(change):
    wrong = {}
    for thread, case in THREADS.items():
        lines = change(thread, case["log"].splitlines())
        found = [each.cause.id for each in diagnose(lines).causes]
        if found[0] not in case["first"] if found and case["first"] else bool(found) != bool(case["first"]):
            wrong[thread] = found[:1]
    assert not wrong
