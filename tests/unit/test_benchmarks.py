"""Every program of benchmarks/ that needs no lab starts and prints JSON; none of its times is judged."""

import importlib
import json
import shutil
import sys
from importlib.metadata import distribution

import pytest
from click.testing import CliRunner

from benchmarks import bench_allreduce
from hvlab.base.paths import project_dir
from hvlab.bench.matrix import Block, Spec, expand
from tests.unit.labs import lab
from tests.vlab.test_9_benchmarks import ON_HOSTS

SMALL = {
    "doctor": "tests/data/doctor/recorded.yml",
    "baseline": "--hour 0.02 --cells 2 --checks 3",
    "bisect": "--searches 1",
    "find_slow": "--noise quiet --fault up --hosts 4 --searches 1",
    "hosts": "--hosts 2 --step read",
    "install": "--here",
    "looks": "--scenario log-normal --runs 2 --comparisons 2",
    "model": "--scenario ring --runs 1",
    "report": "--records 100",
    # A job needs torch, and root.
    "stalls": "--tries 0 --healthy 0",
    "store": "--records 2000",
    "tune": "--searches 1 --launches 12 --search coordinate",
    "verdicts": "--scenario log-normal --runs 2 --comparisons 2",
}


def test_every_program_is_run():
    programs = (project_dir() / "benchmarks").glob("bench_*.py")
    assert {path.stem.removeprefix("bench_") for path in programs} == {*SMALL, *ON_HOSTS}


@pytest.mark.parametrize("name", SMALL)
def test_a_program_prints_json(name, tmp_path, monkeypatch):
    program = importlib.import_module(f"benchmarks.bench_{name}")
    monkeypatch.setattr(program, "ROUNDS", 1, raising=False)
    if name == "install":
        # One package, and not the tens of thousands of files of this environment.
        click = distribution("click").locate_file("")
        for path in click.glob("click*"):
            shutil.copytree(path, tmp_path / "lib/python3/site-packages" / path.name)
        monkeypatch.setattr(sys, "prefix", str(tmp_path))
    done = CliRunner().invoke(program.main, SMALL[name].split(), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    first, _ = json.JSONDecoder().raw_decode(done.stdout)
    assert first.get("status", 0) == 0
    assert list(first.get("largest", ["click"])) == ["click"]
    assert "nan" not in done.stdout.lower()


def test_plain_mpi_is_started_as_the_bench_is():
    block = Block("allreduce", ("mpi",), (2,), (1,), {"sizes": ((4096,),)})
    case = expand(Spec((block,)), lab())[0][0]
    assert bench_allreduce.plain_argv(lab(), case)[-6:] == [
        "env",
        "PYTHONPATH=/tmp/hvlab-mpi4py",
        "LD_LIBRARY_PATH=/opt/hvlab/openmpi/current/lib",
        "/opt/hvlab/horovod/cpu/bin/python3",
        "/tmp/hvlab-mpi4py/plain.py",
        "4096",
    ]
