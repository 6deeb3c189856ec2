"""Programs that hang."""

import sys
import time

import pytest

from hvlab.base import process
from hvlab.base.errors import HvlabError
from hvlab.vlab import controller

# Its child holds the pipes after it is gone.
HANGS = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"


def test_a_program_that_hangs_is_killed_with_what_it_started():
    started = time.monotonic()
    with pytest.raises(process.TimeLimitError, match="did not end within 1 s and was killed") as caught:
        process.run([sys.executable, "-c", HANGS], seconds=1)
    assert "by hand" in caught.value.remedy
    assert time.monotonic() - started < 30


def test_a_stream_that_hangs_ends_too(monkeypatch):
    monkeypatch.setattr(controller, "_STREAM_SECONDS", 1.0)
    lines = []
    with pytest.raises(process.TimeLimitError, match="did not end within 1 s"):
        controller.stream([sys.executable, "-c", f"print('one', flush=True); {HANGS}"], line=lines.append)
    assert lines == ["one"]


def test_status_output_and_a_missing_program():
    done = process.run([sys.executable, "-c", "print(input()); exit(3)"], seconds=60, given="text")
    assert (done.returncode, done.stdout) == (3, "text\n")
    with pytest.raises(HvlabError, match="cannot run no-such-program: No such file"):
        process.run(["no-such-program"], seconds=1)
