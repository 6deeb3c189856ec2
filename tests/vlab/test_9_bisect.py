"""`hvlab bisect` with stacks that are built: a build of Horovod without optimisation is the planted cause.

`make test-bisect` runs it. Horovod is compiled four times more: half an hour; 10 minutes with a warm cache.
"""

import json

import pytest
import yaml

from tests.vlab.labs import booted

pytestmark = pytest.mark.slow
WHAT = ("--backend", "gloo", "--set", "sizes=4M", "--set", "iterations=20")
VARIANT = {
    "environment": "python",
    "frameworks": ["torch"],
    "cpu_operations": "mpi",
    "gpu_operations": "",
    "mpi": True,
    "gloo": True,
    "ccl": True,
    "env": {"HOROVOD_DEBUG": "1"},
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with booted("bisect", tmp_path_factory) as lab:
        lab.site()
        yield lab


def test_the_build_that_costs_the_time_is_found_beside_an_older_torch(lab, tmp_path):
    slow = tmp_path / "slow.yml"
    slow.write_text(
        yaml.safe_dump(
            {
                "versions": {"torch": "2.12.1"},
                "build": {"horovod_variants": {"cpu": VARIANT}},
                "settings": {"env": {"HARMLESS": "1"}},
            }
        )
    )
    before = lab.on("b1", "ls -l /opt/hvlab /opt/hvlab/openmpi; cat /etc/profile.d/hvlab.sh")
    done = lab.hvlab("bisect", "lab", str(slow), *WHAT, "--format", "json")
    answer = json.loads(done.stdout)
    changes = [answer["changes"][number]["item"] for group in answer["culprit"] for number in group]
    assert changes == ["horovod_variants"], answer["answer"]
    assert (answer["sole"], answer["all_of_it"]) == (True, True), answer["answer"]
    # The stacks are gone, and what was in use is as it was.
    assert lab.on("b1", "ls /opt/hvlab/stacks /etc/ansible/facts.d | grep -c @ || true").strip() == "0"
    assert lab.on("b1", "ls -l /opt/hvlab /opt/hvlab/openmpi; cat /etc/profile.d/hvlab.sh") == before
    lab.hvlab("verify")
