"""nodes.py starts a program on every host; here the other hosts are shells of this machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "hvlab/workloads/programs/nodes.py"
# In place of ssh, whose last two words are the host and the command.
SHELL = """env -u GIVEN sh -c 'eval "$2"' sh"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "status", "said"),
    [
        ("echo $GIVEN {node}", 0, ""),
        # The first host waits for the other, which fails.
        ("test {node} = 1 && exit 7; exec sleep 60", 7, "nodes: n2: torchrun ended with 7"),
        # Which may have failed first, and says so later.
        (
            "test {node} = 1 && exit 7; sleep 1; echo rank 0 >&2; exit 1",
            7,
            "nodes: n2: torchrun ended with 7\nrank 0",
        ),
        ("test {node} = 0 && kill -9 $$; exec sleep 2", 137, "nodes: n1: torchrun ended with -9"),
    ],
)
def test_each_host_runs_its_own_and_the_first_failure_ends_all(script, status, said):
    script += "; test $1 = $HOME/.hvlab/logs || exit 9" * (status == 0)
    argv = [sys.executable, str(PROGRAM), "n1,n2", SHELL, "GIVEN", "sh", "-c", script, "-", "~/.hvlab/logs"]
    env = os.environ | {"GIVEN": "it's"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr.strip()) == (status, said)
    assert sorted(done.stdout.splitlines()) == (["it's 0", "it's 1"] if not status else [])
