"""The GPUs of this machine, through the project's own roles and commands. `make test-gpu` runs it, as root.

Nothing is fetched that is already in the cache (HVLAB_CACHE) or installed, so all of it can be carried in.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
INVENTORY = "tests/gpu/inventory"
NCCL_TESTS = Path("/opt/hvlab/nccl-tests/bin/all_reduce_perf_mpi")
SIZES = "1K:64M:4"


def run(*argv, expect=0):
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, cwd=PROJECT, stdin=subprocess.DEVNULL, timeout=3600
    )
    assert done.returncode == expect, f"{argv} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def hvlab(*words, expect=0):
    return run(sys.executable, "-m", "hvlab", *words, expect=expect)


@pytest.fixture(scope="session")
def gpus():
    """How many GPUs there are."""
    try:
        told = run("nvidia-smi", "--list-gpus")
    except (FileNotFoundError, AssertionError) as error:
        pytest.exit(f"this machine shows no NVIDIA GPU to measure: {error}", returncode=1)
    return len(re.findall(r"^GPU \d+:", told, re.MULTILINE))


@pytest.fixture(scope="session")
def provisioned(gpus):
    """The number of GPUs, of a machine that has the stack."""
    hvlab("provision", "-i", INVENTORY)
    return gpus


def measured(*words):
    """Run a bench; return its records, which are printed too."""
    hvlab("bench", "-i", INVENTORY, "--sizes", SIZES, *words)
    records = json.loads(hvlab("results", "show", "--format", "json"))
    print(json.dumps(records, indent=1))
    folder = os.environ.get("HVLAB_GPU_RECORDS")
    if folder:
        Path(folder, f"records-{records[0]['run_id']}.json").write_text(
            json.dumps(records, indent=1), "utf-8"
        )
    return records


def test_a_second_run_changes_nothing(provisioned):
    playbook = str(Path(sys.executable).parent / "ansible-playbook")
    assert re.search(r"changed=0 .*failed=0", run(playbook, "site.yml", "-i", INVENTORY))


def test_nccl_carries_the_allreduce_on_every_number_of_gpus(provisioned):
    counts = sorted({1, *(n for n in (2, 4, 8, 16) if n < provisioned), provisioned})
    records = measured("--backend", "nccl", "--slots", ",".join(map(str, counts)))
    assert {(row["status"], row["proved_backend"]) for row in records} == {("ok", "nccl")}
    assert {row["world_size"] for row in records} == set(counts)


def test_mpi_carries_the_memory_of_a_gpu_that_two_ranks_share(provisioned):
    records = measured("--backend", "mpi", "--slots", "2")
    assert {(row["status"], row["proved_backend"], row["world_size"]) for row in records} == {
        ("ok", "mpi", 2)
    }
    assert {row["params"]["device"] for row in records} == {"cuda"}


def test_nccl_tests_find_no_wrong_value(provisioned):
    if not NCCL_TESTS.exists():
        pytest.skip("nccl-tests were not built: put their source into sources/")
    told = run(str(NCCL_TESTS), "-b", "8", "-e", "256M", "-f", "2", "-g", str(provisioned))
    print(told)
    assert re.search(r"# Out of bounds values : 0 OK", told)


def test_the_checks_of_its_state_pass(provisioned):
    hvlab("verify", "-i", INVENTORY)
