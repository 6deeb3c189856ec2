"""`hvlab bisect` with stacks that are built: the planted cause is Horovod without half precision in hardware.

`make test-bisect` runs it. Horovod is compiled three times more: 20 minutes; 8 with a warm cache.
"""

import json

import pytest
import yaml

from tests.vlab.labs import booted

pytestmark = pytest.mark.slow
# Over MPI Horovod adds half-precision numbers itself: with F16C, or else in software.
WHAT = ("--backend", "mpi", "--set", "sizes=4M", "--set", "dtype=float16", "--set", "iterations=20")
# As by default, but for oneCCL.
VARIANT = {
    "environment": "python",
    "frameworks": ["torch"],
    "cpu_operations": "mpi",
    "gpu_operations": "",
    "mpi": True,
    "gloo": True,
    "ccl": False,
    "env": {},
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with booted("bisect", tmp_path_factory) as lab:
        lab.site()
        yield lab


def test_the_build_that_costs_the_time_is_found_beside_what_is_harmless(lab, tmp_path):
    slow = tmp_path / "slow.yml"
    slow.write_text(
        yaml.safe_dump(
            {
                "build": {"horovod_arch_flags": "-mtune=generic", "horovod_variants": {"cpu": VARIANT}},
                "settings": {"env": {"HARMLESS": "1"}},
            }
        )
    )
    before = lab.on("b1", "ls -l /opt/hvlab /opt/hvlab/openmpi; cat /etc/profile.d/hvlab.sh")
    done = lab.hvlab("bisect", "lab", str(slow), *WHAT, "--format", "json")
    answer = json.loads(done.stdout)
    changes = [answer["changes"][number]["item"] for group in answer["culprit"] for number in group]
    assert changes == ["horovod_arch_flags"], answer["answer"]
    assert (answer["sole"], answer["all_of_it"]) == (True, True), answer["answer"]
    # The stacks are gone, and what was in use is as it was.
    assert lab.on("b1", "ls /opt/hvlab/stacks /etc/ansible/facts.d | grep -c @ || true").strip() == "0"
    assert lab.on("b1", "ls -l /opt/hvlab /opt/hvlab/openmpi; cat /etc/profile.d/hvlab.sh") == before
    lab.hvlab("verify")
