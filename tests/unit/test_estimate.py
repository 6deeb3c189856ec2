"""What a run will take, and the sizes that fit the hosts."""

import json
from dataclasses import replace

import pytest

from hvlab.bench.estimate import estimate, rough
from hvlab.bench.matrix import Spec, expand
from hvlab.bench.suite import Overrides, blocks, build_plain, load
from hvlab.cli import run
from hvlab.results.store import Store
from tests.unit.labs import VARIANTS, case, lab
from tests.unit.test_results import RECORD

GPUS = lab(2, gpu=("n1", "n2"), horovod_variants=VARIANTS)
MIXED = lab(2, gpu=("n1",), horovod_variants=VARIANTS)
BUILDS = {"lab_gpus": [{"name": "NVIDIA H200"}], "lab_driver_method": "none"}
DECLARED = lab(2, gpu=("n1", "n2"), horovod_variants=VARIANTS, **BUILDS)
SMALL, FULL = ("resnet18", 64, 8), ("resnet50", 224, 32)


def synthetic(there, suite=None, **sets):
    asked = Overrides(workloads=("synthetic",), backends=("mpi",), sets=sets)
    spec = Spec(blocks(suite or build_plain(asked, there), there, asked))
    cases, _ = expand(spec, there)
    [sizes] = {tuple(case.params[name] for name in ("model", "image", "batch")) for case in cases}
    return sizes, cases[0].id


@pytest.mark.parametrize(
    ("there", "sets", "sizes"),
    [
        (GPUS, {}, FULL),
        (GPUS, {"device": "cpu"}, SMALL),
        (lab(), {}, SMALL),
        (MIXED, {}, SMALL),
        (DECLARED, {}, SMALL),
        (lab(), {"model": "vgg16", "batch": "32"}, ("vgg16", 64, 32)),
    ],
    ids=["GPUs", "GPUs left out", "CPUs", "one host without", "GPUs only named", "set"],
)
def test_the_sizes_fit_the_hosts_unless_they_are_set(there, sets, sizes):
    found, name = synthetic(there, **sets)
    assert found == sizes
    assert ("model=resnet18" in name) == (found[0] == "resnet18")


def test_a_suite_that_names_its_sizes_keeps_them():
    assert synthetic(lab(), load("full"), model="resnet50")[0] == ("resnet50", 64, 8)


def seconds(workload="synthetic", **params):
    return rough(replace(case("mpi", workload=workload, hosts=(1,), **params), timeout=10**6))


def test_rough_times_are_those_of_the_example_within_a_factor_of_three():
    # docs/example/lab7.html: 444 and 156 ms a step, 20 and 30 steps; a launch takes some seconds.
    assert 20 * 0.444 / 3 < seconds(device="cpu", image=64, batch=8, steps=20) < 3 * (5 + 20 * 0.444)
    assert 30 * 0.156 / 3 < seconds("rnn", device="cpu") < 3 * (5 + 30 * 0.156)
    assert seconds(device="cpu", model="resnet18", image=64, batch=8) < 60
    assert seconds(device="cpu") > 600


def test_lab4_takes_as_long_as_measured():
    # docs/example/lab4.md: 55 cases on two hosts with a core each, in 12 minutes.
    there = lab(2, horovod_variants=VARIANTS)
    cases, _ = expand(Spec(blocks(load("lab4"), there, Overrides())), there)
    assert 0.75 < sum(map(rough, cases)) / len(cases) / (720 / 55) < 1.25


def test_a_case_takes_no_longer_than_its_limit():
    assert rough(replace(case("mpi", workload="synthetic", device="cpu"), timeout=30)) == 30


@pytest.fixture
def store(tmp_path):
    """One case of two sizes measured, in 40 s."""
    made = Store(tmp_path / "results")
    made.create("r1", lab="t", spec_key="k", spec={}, cases=["c1"])
    known = case("mpi")
    params = {name: value for name, value in known.params.items() if name != "sizes"}
    made.add(
        replace(RECORD, launcher=known.launcher, hosts=known.hosts, params={**params, "size_bytes": size})
        for size in known.params["sizes"]
    )
    folder = made.folder / RECORD.raw_path
    folder.mkdir(parents=True)
    (folder / "case.json").write_text(json.dumps({"started_at": 100.0, "ended_at": 140.0}))
    return made


def test_what_was_measured_before_takes_as_long_again(store):
    again = estimate([case("mpi"), replace(case("mpi"), repeat=2)], store)
    assert (again.cases, again.known) == (2, 2)
    assert 80 < again.seconds < 85
    assert again.text == "2 cases, about 80 s (from earlier runs)"
    other = estimate([case("mpi"), case("mpi", sizes=(1024,)), case("gloo")], store)
    assert (other.cases, other.known) == (3, 1)
    assert "1 from earlier runs, 2 from a rough model" in other.text


def test_a_case_with_a_secret_is_known_again(store):
    asked = case("mpi", env="HF_TOKEN=hf-aaaa")
    params = {name: value for name, value in asked.params.items() if name != "sizes"}
    changes = {"launcher": asked.launcher, "hosts": asked.hosts, "case_id": "c2"}
    store.add(
        replace(RECORD, **changes, params={**params, "size_bytes": size}) for size in asked.params["sizes"]
    )
    assert estimate([asked], store).known == 1


def test_without_results_it_says_that_it_is_rough(tmp_path):
    found = estimate([case("mpi")], Store(tmp_path))
    assert found.text == "1 case, about 10 s (from a rough model: none was measured before)"


def test_a_dry_run_says_how_long_it_takes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("hvlab.cli.bench.load", lambda *_, **__: lab())
    assert run(["bench", "--results", str(tmp_path), "--workload", "synthetic", "--dry-run", "-v"]) == 0
    printed = capsys.readouterr()
    assert "--model resnet18 --image 64 --batch 8" in printed.out
    assert "cases, about " in printed.err
    assert "none was measured before" in printed.err
