"""The GPUs of this machine, through the project's own roles and commands. `make test-gpu` runs it, as root.

Nothing is fetched that is already in the cache (HVLAB_CACHE) or installed; tests.gpu.bundle packs it.
HVLAB_GPU_OUTPUT names a folder that keeps what was printed, HVLAB_GPU_SECONDS a limit in time.
"""

import json
import re
from pathlib import Path

import pytest

from tests.gpu.commands import INVENTORY, OUTPUT, hvlab, measured, run, site

NCCL_TESTS = Path("/opt/hvlab/nccl-tests/bin/all_reduce_perf_mpi")
SIZES = ("--sizes", "1K:64M:4")


@pytest.fixture(scope="session")
def gpus():
    """How many GPUs there are."""
    try:
        listing = run("nvidia-smi", "--list-gpus")
    except (FileNotFoundError, AssertionError) as error:
        pytest.exit(f"this machine shows no NVIDIA GPU to measure: {error}", returncode=1)
    return len(re.findall(r"^GPU \d+:", listing, re.MULTILINE))


@pytest.fixture(scope="session")
def provisioned(gpus):
    """The number of GPUs, of a machine that has the stack."""
    facts = ["--write-facts", f"{OUTPUT}/facts.json"] if OUTPUT else []
    hvlab("plan", "-i", INVENTORY, "--explain", *facts, keep="plan.txt")
    hvlab("provision", "-i", INVENTORY, keep="provision.txt")
    return gpus


@pytest.mark.seconds(120)
def test_it_is_fit_for_work(provisioned):
    checks = json.loads(
        hvlab("health", "-i", INVENTORY, "--bandwidth", "--format", "json", keep="health.json")
    )
    print(json.dumps(checks, indent=1))
    assert ("gpu driver", "passed") in {(check["check"], check["outcome"]) for check in checks}


@pytest.mark.seconds(180)
def test_nccl_tests_find_no_wrong_value(provisioned):
    if not NCCL_TESTS.exists():
        pytest.skip("nccl-tests were not built: put their source into sources/")
    printed = run(
        str(NCCL_TESTS), "-b", "8", "-e", "256M", "-f", "2", "-g", str(provisioned), keep="nccl-tests.txt"
    )
    print(printed)
    assert re.search(r"# Out of bounds values : 0 OK", printed)


@pytest.mark.seconds(120)
def test_nccl_carries_the_allreduce_on_every_number_of_gpus(provisioned):
    counts = sorted({1, *(n for n in (2, 4, 8, 16) if n < provisioned), provisioned})
    records = measured("--backend", "nccl", "--slots", ",".join(map(str, counts)), *SIZES, keep="nccl")
    assert {(row["status"], row["proved_backend"]) for row in records} == {("ok", "nccl")}
    assert {row["world_size"] for row in records} == set(counts)


@pytest.mark.seconds(90)
def test_mpi_carries_the_memory_of_a_gpu_that_two_ranks_share(provisioned):
    records = measured("--backend", "mpi", "--slots", "2", *SIZES, keep="mpi")
    assert {(row["status"], row["proved_backend"], row["world_size"]) for row in records} == {
        ("ok", "mpi", 2)
    }
    assert {row["params"]["device"] for row in records} == {"cuda"}


@pytest.mark.seconds(60)
def test_the_checks_of_its_state_pass(provisioned):
    hvlab("verify", "-i", INVENTORY, keep="verify.txt")


@pytest.mark.seconds(60)
def test_a_second_run_changes_nothing(provisioned):
    assert re.search(r"changed=0 .*failed=0", site(keep="second-run.txt"))
