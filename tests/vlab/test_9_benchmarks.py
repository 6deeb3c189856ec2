"""Programs of benchmarks/ that need hosts, with the least that each does; none of their times is judged."""

import subprocess
import sys

import pytest

from benchmarks.netns import enter
from tests.vlab.labs import PROJECT

pytestmark = pytest.mark.benchmarks
# On the lab, or on one of its own.
ON_LAB = {
    "allreduce": "--hosts 2 --rounds 1 --sizes 4K",
    "launch": "--layouts 2x1 --repeats 1",
    "overhead": "--rounds 1 --sizes 4K",
    "pinning": "--rounds 2 --sizes 4K",
}
ALONE = {"packs": "--hosts 2 --size 1 --rounds 1", "provision": "--nodes 1"}
ON_HOSTS = ON_LAB | ALONE


@pytest.mark.parametrize("name", ON_HOSTS)
def test_a_program_ends_well(slurm, name):
    where = ["-i", str(slurm.inventory)] if name in ON_LAB else []
    done = slurm.run([sys.executable, "-m", f"benchmarks.bench_{name}", *where, *ON_HOSTS[name].split()], 0)
    assert any(character.isdigit() for character in done.stdout)


HOLD = """import time
from benchmarks.netns import hold
with hold(["a"]) as held:
    print(held["a"], flush=True)
    time.sleep(60)
"""


def test_hosts_of_namespaces_end_with_a_program_that_is_killed():
    with subprocess.Popen([sys.executable, "-c", HOLD], cwd=PROJECT, stdout=subprocess.PIPE) as program:
        held = int(program.stdout.readline())
        argv = [*enter(held), "sh", "-c", "echo inside; sleep 60"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE) as inside:
            inside.stdout.readline()
            program.kill()
            assert inside.wait(30) != 0
