"""`hvlab bisect` on a lab. Planted: a parameter of Open MPI; Horovod without half precision in hardware.

The first needs no build. For the second, Horovod is compiled three times more:
20 minutes; 8 with a warm cache.
"""

import json

import pytest
import yaml

from tests.vlab.labs import booted

pytestmark = pytest.mark.bisect
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
# Small receive buffers of TCP, between parameters with the values that they have anyway.
PARAMETERS = {
    "btl_tcp_free_list_inc": 32,
    "btl_tcp_rcvbuf": 8192,
    "mpi_show_handle_leaks": False,
    "pml_ob1_free_list_inc": 64,
}
IN_USE = (
    "ls -l /opt/hvlab /opt/hvlab/openmpi; cat /etc/profile.d/hvlab.sh /opt/hvlab/openmpi/current/etc/*.conf"
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with booted("bisect", tmp_path_factory) as lab:
        lab.site()
        yield lab


def culprits(answer):
    return [answer["changes"][number]["item"] for group in answer["culprit"] for number in group]


def test_open_mpi_has_the_parameters_of_the_inventory_and_stays_whole(lab):
    given = ("-e", json.dumps({"openmpi_parameters": {"btl_tcp_rcvbuf": 65536, "btl_tcp_links": None}}))
    assert all(lab.playbook("playbooks/mpi.yml", *given).values())
    assert not any(lab.playbook("playbooks/mpi.yml", *given).values())
    info = lab.on("b1", "/opt/hvlab/openmpi/current/bin/ompi_info --parsable --all | grep ':btl_tcp_rcvbuf:'")
    assert "btl_tcp_rcvbuf:value:65536" in info
    assert "source:file (/opt/hvlab/openmpi/" in info
    # They are not in the inventory.
    assert "openmpi_parameters has none" in lab.hvlab("verify", expect=1).stdout
    assert all(lab.playbook("playbooks/mpi.yml").values())
    assert not any(lab.playbook("playbooks/mpi.yml").values())
    lab.hvlab("verify")


def test_the_parameter_of_open_mpi_that_costs_the_time_is_found_among_others(lab, tmp_path):
    slow = tmp_path / "slow.yml"
    settings = {"env": {"HARMLESS": "1"}}
    slow.write_text(yaml.safe_dump({"build": {"openmpi_parameters": PARAMETERS}, "settings": settings}))
    before = lab.on("b1", IN_USE)
    done = lab.hvlab("bisect", "lab", str(slow), *WHAT, "--format", "json")
    print(done.stderr, done.stdout)
    answer = json.loads(done.stdout)
    assert [change["item"].rpartition(".")[2] for change in answer["changes"]] == ["HARMLESS", *PARAMETERS]
    assert culprits(answer) == ["openmpi_parameters.btl_tcp_rcvbuf"], answer["answer"]
    assert (answer["sole"], answer["all_of_it"]) == (True, True), answer["answer"]
    assert yaml.safe_load(answer["remedy"]) == {"openmpi_parameters": {"btl_tcp_rcvbuf": None}}
    assert lab.on("b1", "ls /opt/hvlab/stacks /etc/ansible/facts.d | grep -c @ || true").strip() == "0"
    assert lab.on("b1", IN_USE) == before


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
    before = lab.on("b1", IN_USE)
    done = lab.hvlab("bisect", "lab", str(slow), *WHAT, "--format", "json")
    answer = json.loads(done.stdout)
    assert culprits(answer) == ["horovod_arch_flags"], answer["answer"]
    assert (answer["sole"], answer["all_of_it"]) == (True, True), answer["answer"]
    # The stacks are gone, and what was in use is as it was.
    assert lab.on("b1", "ls /opt/hvlab/stacks /etc/ansible/facts.d | grep -c @ || true").strip() == "0"
    assert lab.on("b1", IN_USE) == before
    lab.hvlab("verify")
