"""Logs from public threads: the cause that the thread came to stands first, and harmless ones give none."""

from pathlib import Path

import pytest
import yaml

from hvlab.doctor.reading import diagnose

THREADS = yaml.safe_load((Path(__file__).parent.parent / "data/doctor/threads.yml").read_text("utf-8"))


@pytest.mark.parametrize("thread", THREADS)
def test_thread(thread):
    found = [each.cause.id for each in diagnose(THREADS[thread]["log"].splitlines()).causes]
    wanted = THREADS[thread]["first"]
    if wanted:
        assert found[0] in wanted
    else:
        assert not found
