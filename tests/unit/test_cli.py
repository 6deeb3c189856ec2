"""The command line of bench and results: what is printed where, and the exit codes."""

import csv
import io
import json
import shlex

import pytest

from hvlab.cli import run
from hvlab.results import FIELDS, Store
from tests.unit.test_results import RECORD


@pytest.fixture
def inventory(tmp_path):
    """A lab of three hosts that nobody answers at."""
    text = "all:\n  hosts:\n" + "".join(f"    n{i}: {{ansible_host: 192.0.2.{i}}}\n" for i in (1, 2, 3))
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab/hosts.yml").write_text(text)
    (tmp_path / "lab/group_vars").mkdir()
    variables = "lab_network: 192.0.2.0/24\nlab_interface: eth0\nlab_slots: 2\nlab_name: cli\n"
    (tmp_path / "lab/group_vars/all.yml").write_text(variables)
    return str(tmp_path / "lab")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("HVLAB_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("HVLAB_DATA", str(tmp_path / "data"))


def test_a_dry_run_prints_lines_and_touches_nothing(inventory, tmp_path, capsys):
    assert (
        run(["bench", "-i", inventory, "--backend", "gloo", "--hosts", "1,2", "--slots", "1", "--dry-run"])
        == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("#")] == [
        "# allreduce-gloo-1x1-r1",
        "# allreduce-gloo-2x1-r1",
    ]
    assert "/opt/hvlab/horovod/cpu/bin/horovodrun" in shlex.split(lines[3])
    assert not (tmp_path / "results").exists()


def test_a_dry_run_as_json_is_argv(inventory, capsys):
    assert (
        run(["bench", "-i", inventory, "--hosts", "2", "--slots", "1", "--dry-run", "--format", "json"]) == 0
    )
    rows = json.loads(capsys.readouterr().out)
    assert [row["case_id"] for row in rows] == [f"allreduce-{name}-2x1-r1" for name in ("mpi", "gloo", "ccl")]
    assert rows[0]["argv"][0] == "/opt/hvlab/openmpi/current/bin/mpirun"
    assert set(rows[0]) == {"case_id", "argv", "env"}


def test_defaults_take_every_host_and_slot(inventory, capsys):
    assert run(["bench", "-i", inventory, "--backend", "mpi", "--dry-run", "--format", "json"]) == 0
    ids = [row["case_id"] for row in json.loads(capsys.readouterr().out)]
    assert ids == [f"allreduce-mpi-{hosts}x{slots}-r1" for hosts in (1, 2, 3) for slots in (1, 2)]


def test_impossible_cases_are_named(inventory, capsys):
    assert (
        run(["bench", "-i", inventory, "--backend", "mpi", "--hosts", "3,4", "--slots", "1", "--dry-run"])
        == 0
    )
    assert "left out: allreduce-mpi-4x1-r1: 4 hosts asked for, the lab has 3" in capsys.readouterr().err
    assert run(["bench", "-i", inventory, "--backend", "mpi", "--hosts", "4", "--dry-run"]) == 2
    assert "--hosts up to 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--backend", "nccl"], ["NVIDIA GPU", "n1, n2, n3", "mpi, gloo, ccl", "group gpu"]),
        (["--backend", "mpl"], ["unknown backend 'mpl'", "did you mean mpi?", "mpi, gloo, nccl, ccl"]),
        (["--backend", ","], ["--backend names none"]),
        (["--sizes", "4K:1K:2"], ["min must be from 1 to max"]),
        (["--hosts", "x"], ["--hosts x"]),
        (["--repeats", "0"], ["--repeats"]),
        (["--workload", "resnet"], ["allreduce"]),
        (["-l", "zz"], ["matches --limit zz", "n1, n2, n3"]),
        (["--no-such-option"], ["No such option"]),
    ],
)
def test_wrong_usage_is_exit_code_2_and_nothing_on_stdout(inventory, capsys, tmp_path, options, told):
    assert run(["bench", "-i", inventory, *options]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    for text in told:
        assert text in printed.err
    assert not (tmp_path / "results").exists()


def test_a_wrong_inventory_is_exit_code_2(tmp_path, capsys):
    (tmp_path / "hosts.yml").write_text("all:\n  hosts:\n    a:\n    a:\n")
    assert run(["bench", "-i", str(tmp_path / "hosts.yml")]) == 2
    assert "'a' stands twice" in capsys.readouterr().err


def test_a_lab_that_was_not_provisioned(inventory, capsys, monkeypatch):
    monkeypatch.setattr("hvlab.bench.probe.probe", lambda hosts: None)
    assert run(["bench", "-i", inventory, "--backend", "mpi"]) == 1
    assert "hvlab provision" in capsys.readouterr().err


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "results")
    made.create("r1", lab="t", spec_key="k", spec={}, cases=["c1"])
    made.add([RECORD])
    return made


def test_results_list_as_json(store, capsys):
    assert run(["results", "list", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {key: rows[0][key] for key in ("run_id", "cases", "ok", "failed")} == {
        "run_id": "r1",
        "cases": 1,
        "ok": 1,
        "failed": 0,
    }


@pytest.mark.parametrize("arguments", [[], ["r1"]])
def test_results_show_as_json(store, capsys, arguments):
    assert run(["results", "show", *arguments, "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert tuple(rows[0]) == FIELDS
    assert rows[0]["hosts"] == ["n1", "n2"]


def test_results_show_as_csv(store, capsys):
    assert run(["results", "show", "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert rows[0]["params"] == '{"size_bytes": 1024}'


def test_results_as_tables(store, capsys):
    assert run(["results", "list"]) == 0
    capsys.readouterr()
    assert run(["results", "show"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("run r1 of 2026")
    assert "1K     1.5" in told


def test_an_unknown_run(store, capsys):
    assert run(["results", "show", "r9"]) == 2
    assert "near ones: r1" in capsys.readouterr().err


def test_no_results(capsys):
    assert run(["results", "list", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert run(["results", "show"]) == 2
