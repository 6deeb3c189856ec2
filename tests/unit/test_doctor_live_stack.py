"""hvlab doctor asking hosts for what ranks import and what GPUs stand on: each detector and its near miss."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hvlab.checks import across_hosts as live
from hvlab.checks.programs import source
from hvlab.doctor import knowledge
from tests.unit.test_doctor_live import GPU, GPU_SITE, RECORDED, SITE, edit, prints, shown

FOLDER = Path(__file__).parents[1] / "data/doctor"
# What the program printed where parts of hvlab's own environments were damaged, see tests/data/README.md.
ENVIRONMENTS = json.loads((FOLDER / "environments.json").read_text("utf-8"))
LOGS = {entry.id: entry.examples[0] for entry in knowledge.CAUSES if entry.signs}


@pytest.fixture
def hosts():
    return copy.deepcopy(RECORDED)


@pytest.fixture
def gpus():
    return {host: {**copy.deepcopy(own), **copy.deepcopy(GPU)} for host, own in RECORDED.items()}


@pytest.mark.parametrize(
    ("case", "id_", "role"),
    [
        ("not-built", "horovod-not-built", "horovod"),
        ("packaging", "no-packaging", "python_env"),
        ("mismatch", "horovod-version-mismatch", "python_env"),
        ("libmpi", "libmpi-missing", ""),
        ("symbol", "ompi-symbol", ""),
        ("abi", "abi-mismatch", ""),
        ("no-torch", "python-module-missing", "python_env"),
        ("ccl", "library-missing", ""),
        ("no-python", "environment-broken", "python_env"),
        ("gone", "environment-broken", "horovod"),
    ],
)
def test_recorded_environments(hosts, case, id_, role):
    hosts["p2"]["environments"]["out"] = json.dumps(ENVIRONMENTS[case])
    (fault,) = live.faults(SITE, hosts)
    assert (fault.id, fault.host, fault.role) == (id_, "p2", role)
    assert fault.observed.startswith("/opt/hvlab/")


def test_every_recorded_environment_is_tried():
    assert set(ENVIRONMENTS) == {
        *("healthy", "not-built", "packaging", "mismatch", "libmpi", "symbol", "abi", "no-torch", "ccl"),
        *("no-python", "gone"),
    }


def imports(**printed):
    """Change how the import in Horovod's variant ended."""

    def change(environments):
        environments["/opt/hvlab/horovod/cpu"]["imports"]["torch"].update(printed)

    return change


# What an import prints there is what a log of ranks has, and those are recorded from public threads.
IMPORTS = (
    *("hwloc-free-topology", "ompi-symbol", "horovod-not-built", "horovod-version-mismatch"),
    *("cudart-symbol", "abi-mismatch", "libcudart-missing", "libcuda-missing", "libnccl-missing"),
    *("nccl-mixed", "no-packaging", "no-distutils", "numpy-2", "glibcxx", "libmpi-missing"),
)


@pytest.mark.parametrize("id_", IMPORTS)
def test_what_an_import_says_is_read_like_a_log(hosts, id_):
    edit(hosts, "p2", "environments", imports(rc=1, out="", err=LOGS[id_]))
    assert shown(hosts) == {(id_, "p2")}
    # Nothing is said about an import that succeeds, or was ended for its time or for memory.
    for status in (0, 124, -9):
        edit(hosts, "p2", "environments", imports(rc=status, err=LOGS[id_]))
        expected = id_ == "horovod-version-mismatch" and status == 0
        assert shown(hosts) == ({(id_, "p2")} if expected else set())


def test_an_import_that_ends_otherwise_is_named_as_it_is(hosts):
    edit(hosts, "p2", "environments", imports(rc=3, out="", err="something new"))
    (fault,) = live.faults(SITE, hosts)
    assert (fault.id, fault.host) == ("environment-broken", "p2")
    assert fault.observed == "/opt/hvlab/horovod/cpu: import horovod.torch: something new"


@pytest.mark.parametrize(("built", "expected"), [("0 0", {("horovod-no-controller", "p2")}), ("0 1", set())])
def test_what_horovod_was_built_with(hosts, built, expected):
    edit(hosts, "p2", "environments", imports(out=f"built {built}\n"))
    assert shown(hosts) == expected


@pytest.mark.parametrize(
    ("build", "cuda", "expected"),
    [
        ("cu130", "", {("torch-without-cuda", "p2")}),
        ("cu130", "13.0", set()),
        ("cpu", "", set()),
        ("cu130", None, set()),
    ],
)
def test_a_torch_without_the_cuda_that_was_asked_for(hosts, build, cuda, expected):
    edit(
        hosts, "p2", "environments", lambda own: own["/opt/hvlab/python"].update(build=build, torch_cuda=cuda)
    )
    assert shown(hosts) == expected


def test_horovod_is_linked_with_the_mpi_of_mpirun(hosts):
    other = "/usr/lib/x86_64-linux-gnu/libmpi.so.40.30.4"
    edit(hosts, "p2", "environments", lambda own: own["/opt/hvlab/horovod/cpu"].update(libmpi=[other]))
    assert shown(hosts) == {("different-mpi", "p2")}
    # Open MPI of packages lies elsewhere, with links at hvlab's place.
    swapped = hosts["p2"]["open mpi"]["out"].replace("/opt/hvlab/openmpi/4.1.4/lib/libmpi.so.40.30.4", other)
    hosts["p2"]["open mpi"]["out"] = swapped
    assert shown(hosts) == set()


@pytest.mark.parametrize(
    ("loaded", "expected"),
    [
        ("/opt/hvlab/openmpi/4.1.4/lib/libmpi.so.40.30.4", set()),
        ("/opt/hpcx/ompi/lib/libmpi.so.40.30.6", {("different-mpi", "p2")}),
    ],
)
def test_a_library_path_that_shadows_open_mpi(hosts, loaded, expected):
    hosts["p2"]["open mpi"]["out"] += f"loaded {loaded}\n"
    assert shown(hosts) == expected


@pytest.mark.parametrize(
    ("printed", "slots", "expected"),
    [
        ("1\n", 2, {("cma-denied", "p2")}),
        ("38\n", 2, {("cma-denied", "p2")}),
        ("1\n", 1, set()),
        ("0\n", 2, set()),
        ("3\n", 2, set()),
    ],
)
def test_ranks_that_may_not_read_one_another(hosts, printed, slots, expected):
    hosts["p2"]["sibling's memory"]["out"] = printed
    hosts["p2"]["ptrace scope"] = {"/proc/sys/kernel/yama/ptrace_scope": "2\n"}
    site = replace(SITE, hosts=tuple(replace(host, slots=slots) for host in SITE.hosts))
    assert shown(hosts, site) == expected
    assert all("ptrace_scope is 2" in fault.observed for fault in live.faults(site, hosts))


def test_a_host_with_gpus_as_it_should_be(gpus):
    assert shown(gpus, GPU_SITE) == set()


@pytest.mark.parametrize(
    ("question", "answer", "expected"),
    [
        ("nccl package", prints("libnccl2 2.28.9-1+cuda13.0\n"), {"nccl-newer-than-driver"}),
        ("nccl package", prints("libnccl 2.28.9-1+cuda13.0\n"), {"nccl-newer-than-driver"}),
        # Any minor release of the driver's major one.
        ("nccl package", prints("libnccl2 2.27.3-1+cuda12.9\n"), set()),
        ("nccl package", prints("package libnccl is not installed\n"), set()),
        ("nccl files", {"/opt/hvlab/nccl/current/lib/libnccl.so.2": {}}, {"nccl-headers"}),
        ("nccl files", {}, set()),
        ("gpu capabilities", prints("0, 8.0\n1, 12.0\n"), {"gpu-arch-unsupported"}),
        ("gpu capabilities", prints("0, 8.6\n1, 8.6\n"), set()),
        ("gpu capabilities", prints('Field "compute_cap" is not a valid field to query.\n', rc=2), set()),
        ("nvcc codes", prints(), set()),
        ("library path", prints("/home/x/miniconda3/lib/libnccl.so.2\n"), {"nccl-mixed"}),
        ("library path", prints("/opt/conda/lib/libnccl.so.2\n"), {"nccl-mixed"}),
        ("library path", prints("/usr/lib/x86_64-linux-gnu/libnccl.so.2\n"), set()),
    ],
)
def test_what_stands_on_the_driver(gpus, question, answer, expected):
    gpus["p2"][question] = answer
    assert shown(gpus, GPU_SITE) == {(id_, "p2") for id_ in expected}
    assert shown(gpus) == set()


def test_the_compatibility_package_serves_a_newer_cuda(gpus):
    gpus["p2"]["nccl package"] = prints("libnccl2 2.28.9-1+cuda13.0\n")
    gpus["p2"]["cuda compat"] = {"/usr/local/cuda-13.0/compat/libcuda.so.1": {}}
    assert shown(gpus, GPU_SITE) == set()


def ranks(*rows):
    each = [
        {"gpu": gpu, "pid": 100 + n, "local_rank": local, "job": job}
        for n, (gpu, local, job) in enumerate(rows)
    ]
    return prints(json.dumps(each))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (ranks(("GPU-1", "0", "a"), ("GPU-1", "1", "a")), {("nccl-two-ranks-one-gpu", "p2")}),
        # A rank that also holds memory of the first GPU, as torch does without set_device.
        (
            ranks(("GPU-1", "0", "a"), ("GPU-1", "1", "a"), ("GPU-2", "1", "a")),
            {("nccl-two-ranks-one-gpu", "p2")},
        ),
        (ranks(("GPU-1", "0", "a"), ("GPU-2", "1", "a")), set()),
        # Two runs; more ranks than GPUs, which somebody wants; slices of a GPU.
        (ranks(("GPU-1", "0", "a"), ("GPU-1", "0", "b")), set()),
        (ranks(*[("GPU-1", str(n), "a") for n in range(3)]), set()),
        (ranks(("MIG-1", "0", "a"), ("MIG-1", "1", "a")), set()),
    ],
)
def test_ranks_on_gpus(gpus, answer, expected):
    gpus["p2"]["ranks on gpus"] = answer
    assert shown(gpus, GPU_SITE) == expected


def program(name, *words, **variables):
    """Run a program as a host does, and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", source(name), *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, **variables},
    )
    return done.stdout


def test_a_process_of_this_machine_reads_its_sibling():
    assert program("read_sibling").strip() in ("0", "1", "38")


@pytest.fixture
def installed(tmp_path):
    """A variant of Horovod with a package of its own for this Python, and what the roles record of it."""
    variant = tmp_path / "horovod/cpu"
    package = variant / "site/horovod/torch"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    python = variant / "bin/python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nPYTHONPATH={variant}/site exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    recorded = tmp_path / "horovod.fact"
    recorded.write_text(json.dumps({"variants": {"cpu": {"frameworks": ["PyTorch"]}}}))
    return package


def look(tmp_path, seconds=30):
    given = {
        "horovod": str(tmp_path / "horovod"),
        "records": {"python_env": str(tmp_path / "none"), "horovod": str(tmp_path / "horovod.fact")},
        "seconds": seconds,
    }
    printed = json.loads(program("environments", json.dumps(given)))
    return printed[str(tmp_path / "horovod/cpu")]


@pytest.mark.slow
def test_the_program_imports_what_the_role_recorded(tmp_path, installed):
    assert "No module named 'horovod.torch.mpi_ops'" in look(tmp_path)["imports"]["torch"]["err"]
    (installed / "mpi_ops.py").write_text("def mpi_built(): return True\ndef gloo_built(): return False\n")
    observed = look(tmp_path)
    assert observed["looked"] == 0
    assert observed["imports"]["torch"] == {"rc": 0, "out": "built 1 0\n", "err": ""}
    (installed / "mpi_ops.py").write_text("import time\ntime.sleep(60)\n")
    assert look(tmp_path, seconds=1)["imports"]["torch"]["rc"] == 124


def test_the_program_says_that_an_interpreter_is_gone(tmp_path, installed):
    (tmp_path / "horovod/cpu/bin/python").unlink()
    observed = look(tmp_path)
    assert observed["looked"] == 127
    assert "No such file" in observed["said"]
    assert observed["imports"] == {}


def test_the_program_names_ranks_by_what_their_launcher_gave_them(tmp_path):
    """nvidia-smi is not here; the processes that it lists are real."""
    given = [
        {"OMPI_COMM_WORLD_LOCAL_RANK": "1", "PMIX_NAMESPACE": "7"},
        {"SLURM_LOCALID": "0", "SLURM_JOB_ID": "5", "SLURM_STEP_ID": "2"},
        {"LOCAL_RANK": "3"},
    ]
    begun = [subprocess.Popen(["sleep", "60"], env={"PATH": os.environ["PATH"], **each}) for each in given]
    try:
        tool = tmp_path / "nvidia-smi"
        rows = "".join(f"echo 'GPU-{n}, {each.pid}'\n" for n, each in enumerate(begun))
        tool.write_text(f"#!/bin/sh\n{rows}echo '[Not Supported]'\n")
        tool.chmod(0o755)
        printed = json.loads(program("gpu_ranks", PATH=f"{tmp_path}:{os.environ['PATH']}"))
    finally:
        for each in begun:
            each.kill()
            each.wait()
    assert printed == [
        {"gpu": "GPU-0", "pid": begun[0].pid, "local_rank": "1", "job": "7::"},
        {"gpu": "GPU-1", "pid": begun[1].pid, "local_rank": "0", "job": "5:2"},
    ]
