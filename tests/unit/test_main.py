"""What `python -m hvlab` makes of its surroundings, before anything else."""

import os
import subprocess
import sys

import pytest

SHOW = "import os; print(os.environ.get('LC_ALL'))"
CALL = "import subprocess, sys; from hvlab import __main__; __main__._speak_english(); "
CALL += f"sys.exit(subprocess.run([sys.executable, '-c', {SHOW!r}]).returncode)"
PLAIN = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG"))}


@pytest.mark.parametrize(
    "given", [{"LC_ALL": "C"}, {"LC_ALL": "xx_YY.UTF-8"}, {"LANG": "de_DE.UTF-8"}, {}], ids=str
)
def test_what_is_started_speaks_english_in_utf8(given):
    done = subprocess.run(
        [sys.executable, "-c", CALL], env=PLAIN | given, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "C.UTF-8"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_do_no_harm(closed, tmp_path):
    command = f"exec {sys.executable} -m hvlab results list --results {tmp_path}/results {closed}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
