"""nccl-tests is built once, with MPI, on NVIDIA's wheels, and starts. Its source here is a stand-in."""

import hashlib
import json
import sys
import tarfile
from collections import Counter
from pathlib import Path

import pytest

from tests.vlab.labs import PROJECT, RECAP, booted

pytestmark = pytest.mark.nccl
GPU = PROJECT / "tests/vlab/gpu"
STAND_IN = PROJECT / "tests/vlab/nccl_tests"
VARIABLES = {
    "cuda_version": "13.0",
    "cuda_method": "wheel",
    "nccl_version": "2.29.7",
    "nccl_method": "wheel",
    "openmpi_cuda": "false",
    "nccl_tests_enabled": True,
    "nccl_tests_version": "2.19.6",
    "nccl_tests_compute_capabilities": ["8.0", "9.0"],
}
PROGRAM = "/opt/hvlab/nccl-tests/bin/all_reduce_perf_mpi"


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with booted("gpu/debian", tmp_path_factory) as lab:
        yield lab


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sources")
    with tarfile.open(folder / "nccl-tests-2.19.6.tar.gz", "w:gz") as tar:
        tar.add(STAND_IN, "nccl-tests-2.19.6")
    return folder


def play(lab, variables, *words, expect=0):
    argv = [str(Path(sys.executable).parent / "ansible-playbook"), str(GPU / "nccl_tests.yml")]
    done = lab.run([*argv, "-i", str(lab.inventory), "-e", json.dumps(VARIABLES | variables), *words], expect)
    return " ".join(done.stdout.split()) if expect else int(RECAP.findall(done.stdout)[0][1])


def test_without_its_source_it_says_where_to_put_it(lab, tmp_path):
    play(lab, {"nccl_tests_enabled": False})
    assert play(lab, {"nccl_tests_enabled": False}) == 0
    nowhere = {"nccl_tests_source_dir": str(tmp_path), "nccl_tests_sources": ["file"]}
    said = play(lab, nowhere, "--tags", "nccl_tests", expect=2)
    assert "d1: no source of nccl-tests 2.19.6 was found" in said
    assert f"no nccl-tests-2.19.6.tar.* in {tmp_path}" in said


def test_without_a_gpu_it_asks_which_one(lab, sources):
    variables = {"nccl_tests_source_dir": str(sources), "nccl_tests_compute_capabilities": []}
    assert "no compute capability is known" in play(lab, variables, "--tags", "nccl_tests", expect=2)


def test_it_is_built_once_and_starts(lab, sources):
    variables = {"nccl_tests_source_dir": str(sources)}
    assert play(lab, variables, "--tags", "nccl_tests", "--check") > 0
    lab.on("d1", "test ! -e /opt/hvlab/nccl-tests")
    assert play(lab, variables, "--tags", "nccl_tests") > 0
    assert play(lab, variables, "--tags", "nccl_tests") == 0
    said = lab.on(
        "d1",
        f"/opt/hvlab/openmpi/current/bin/mpirun --allow-run-as-root --oversubscribe -np 2 {PROGRAM} -b 8",
    )
    assert "NCCL 22907, 2 ranks, sum 2" in said
    # CUDA's own runtime in it names every GPU there is; what was compiled comes on top.
    observed = Counter(lab.on("d1", f"grep -ao 'sm_[0-9]*' {PROGRAM}").split())
    assert min(observed["sm_80"], observed["sm_90"]) > observed["sm_75"] == observed["sm_100"]
    marker = json.loads(lab.on("d1", "cat /opt/hvlab/nccl-tests/.hvlab-pack.json"))
    archive = next(sources.iterdir())
    assert marker["inputs"]["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
