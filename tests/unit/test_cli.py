"""The command line of bench and results: what is printed where, and the exit codes."""

import csv
import importlib
import inspect
import io
import json
import os
import shlex
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

from docs.generate import commands
from hvlab.bench import suite
from hvlab.bench.schedule import Schedule
from hvlab.cli import VERBS, cli, options, run
from hvlab.lab.inventory import load
from hvlab.results.store import FIELDS, Store
from hvlab.workloads import WORKLOADS, parameters
from tests.contract.tree import ROOT
from tests.unit.labs import spec
from tests.unit.test_results import RECORD


@pytest.fixture(scope="module")
def inventory(tmp_path_factory):
    """A lab of three hosts that nobody answers at."""
    tmp_path = tmp_path_factory.mktemp("inventory")
    text = "all:\n  hosts:\n" + "".join(f"    n{i}: {{ansible_host: 192.0.2.{i}}}\n" for i in (1, 2, 3))
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab/hosts.yml").write_text(text)
    (tmp_path / "lab/group_vars").mkdir()
    variables = "lab_network: 192.0.2.0/24\nlab_interface: eth0\nlab_slots: 2\nlab_name: cli\n"
    (tmp_path / "lab/group_vars/all.yml").write_text(variables)
    return str(tmp_path / "lab")


# Reading an inventory takes a second, and it does not change.
known = cache(load)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr("hvlab.cli.bench.load", known)
    monkeypatch.setenv("HVLAB_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("HVLAB_DATA", str(tmp_path / "data"))


@pytest.mark.parametrize(
    ("words", "read"),
    [
        (["--dry-run"], ("inventory/lab", None)),
        (["--sizes", "1K", "-i", "x", "--limit=n1", "--", "./a", "-i", "y"], ("x", "n1")),
        (["-l", "n[1:2]", "--inventory=x", "./a", "--help-me"], ("x", "n[1:2]")),
        (["--here", "-i", "x"], None),
        (["-i", "x", "--help"], None),
        (["-i"], None),
    ],
)
def test_ansible_starts_to_read_before_the_modules_of_bench_are_loaded(words, read, monkeypatch):
    begun = []
    monkeypatch.setattr(
        "hvlab.lab.inventory.start_loading",
        lambda path, *, limit: nullcontext(begun.append((str(path), limit))),
    )
    monkeypatch.delenv("ANSIBLE_INVENTORY", raising=False)
    context = cli.make_context("hvlab", ["bench", *words])
    monkeypatch.setattr("hvlab.cli.importlib.import_module", lambda _: SimpleNamespace(command=len(begun)))
    assert cli.resolve_command(context, ["bench", *words])[1] == len(begun) == (read is not None)
    assert [(path.removeprefix(f"{ROOT}/"), limit) for path, limit in begun] == [read] * len(begun)


def test_a_dry_run_prints_lines_and_touches_nothing(inventory, tmp_path, capsys):
    words = ["--backend", "gloo", "--hosts", "1,2", "--slots", "1", "--dry-run", "-v"]
    assert run(["bench", "-i", inventory, *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sorted(line for line in lines if line.startswith("#")) == [
        "# allreduce-gloo-1x1-r1",
        "# allreduce-gloo-2x1-r1",
    ]
    assert "/opt/hvlab/horovod/cpu/bin/horovodrun" in shlex.split(lines[-1])
    assert not (tmp_path / "results").exists()


def test_a_dry_run_as_json_is_argv(inventory, capsys):
    assert (
        run(["bench", "-i", inventory, "--hosts", "2", "--slots", "1", "--dry-run", "--format", "json"]) == 0
    )
    rows = json.loads(capsys.readouterr().out)
    found = {row["case_id"]: row for row in rows}
    assert set(found) == {f"allreduce-{name}-2x1-r1" for name in ("mpi", "gloo", "ccl")}
    assert found["allreduce-mpi-2x1-r1"]["argv"][0] == "/opt/hvlab/openmpi/current/bin/mpirun"
    assert set(rows[0]) == {"case_id", "argv", "env"}


SECRETS = ("hf-aaaa", "aws-bbbb")
WITH_SECRETS = ["--backend", "mpi", "--hosts", "2", "--slots", "1", "--set", f"env=HF_TOKEN={SECRETS[0]} X=1"]


@pytest.fixture
def secret(inventory, monkeypatch):
    """The lab with a secret in the inventory's environment of ranks."""
    there = known(Path(inventory), limit=None)
    env = {"AWS_SECRET_ACCESS_KEY": SECRETS[1], "NCCL_DEBUG": "INFO"}
    there = replace(there, vars={**there.vars, "lab_rank_env": env})
    monkeypatch.setattr("hvlab.cli.bench.load", lambda *_, **__: there)
    return there


@pytest.mark.parametrize("shown", ["table", "json", "csv"])
def test_a_dry_run_prints_no_secret(secret, inventory, capsys, shown):
    assert run(["bench", "-i", inventory, *WITH_SECRETS, "--dry-run", "-v", "--format", shown]) == 0
    out = capsys.readouterr().out
    assert not [text for text in SECRETS if text in out]
    assert "HF_TOKEN" in out
    assert "AWS_SECRET_ACCESS_KEY" in out
    assert "INFO" in out


def test_cases_that_differ_in_a_secret_alone_are_two(secret):
    asked = spec("mpi", env=("HF_TOKEN=hf-aaaa", "HF_TOKEN=hf-cccc"))
    ids = [case.id for case in Schedule.of(asked, secret).cases]
    assert len(set(ids)) == 2
    assert not any("hf-" in name for name in ids)


def test_a_run_with_a_secret_goes_on_with_its_own_command_alone(secret, inventory, capsys, tmp_path):
    plan = Schedule.of(spec("mpi", env="HF_TOKEN=hf-aaaa"), secret)
    store = Store(tmp_path / "results")
    ids = [case.id for case in plan.cases]
    key = plan.spec.key(secret)
    store.create("r1", lab=secret.name, spec_key=key, spec=asdict(plan.spec), cases=ids)
    store.enter("r1", "interrupted")
    assert store.unfinished(key).run_id == "r1"
    assert run(["bench", "-i", inventory, "--resume", "r1", "--dry-run"]) == 2
    told = capsys.readouterr().err
    assert "run r1 set a variable whose value is a secret" in told
    assert "is continued by its own command" in " ".join(told.split())
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if b"hf-aaaa" in path.read_bytes()]


def test_defaults_take_every_host_and_slot(inventory, capsys):
    assert run(["bench", "-i", inventory, "--backend", "mpi", "--dry-run", "--format", "json"]) == 0
    ids = [row["case_id"] for row in json.loads(capsys.readouterr().out)]
    assert sorted(ids) == [f"allreduce-mpi-{hosts}x{slots}-r1" for hosts in (1, 2, 3) for slots in (1, 2)]


def test_infeasible_cases_are_named(inventory, capsys):
    assert (
        run(["bench", "-i", inventory, "--backend", "mpi", "--hosts", "3,4", "--slots", "1", "--dry-run"])
        == 0
    )
    assert "infeasible: allreduce-mpi-4x1-r1: 4 hosts requested, the lab has 3" in capsys.readouterr().err
    assert run(["bench", "-i", inventory, "--backend", "mpi", "--hosts", "4", "--dry-run"]) == 2
    assert "--hosts up to 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--backend", "nccl"], ["NVIDIA GPU", "n1, n2, n3", "mpi, gloo, ccl", "group gpu"]),
        (
            ["--backend", "mpl"],
            ["unknown backend 'mpl'", "did you mean mpi?", "mpi, gloo, nccl, ccl, ddp-mpi"],
        ),
        (["--backend", ","], ["--backend is empty"]),
        (["--sizes", "4K:1K:2"], ["min must be from 1 to max"]),
        (["--hosts", "n1,n2"], ["--hosts n1,n2", "name hosts of an inventory with -l"]),
        (["--epochs", "3"], ["--epochs is a parameter, not an option", "write --set epochs=VALUE"]),
        (["--suite", "lab7.yml"], ["write --suite lab7"]),
        (["--timeout", "1x"], ["1x is not a time such as 90s"]),
        (["--timeout", "0"], ["0 is not from 1s to 365d"]),
        (["--suite", "none.yml"], ["the suite none.yml cannot be read: No such file"]),
        (["--repeats", "many"], ["many is neither a number nor auto"]),
        (["-v"], ["--verbose is for --dry-run"]),
        (["--repeats", "0"], ["--repeats"]),
        (["--workload", "mnits"], ["unknown workload 'mnits'", "did you mean mnist?"]),
        (["--workload", ","], ["--workload is empty", "allreduce"]),
        (["--set", "dtyp=int8"], ["unknown parameter of allreduce", "did you mean dtype?"]),
        (["--set", "dtype"], ["--set dtype: no value", "--set dtype=VALUE"]),
        (["--set", "dtype=int9"], ["unknown value of dtype 'int9'", "did you mean"]),
        (["--iterations", "0"], ["iterations=0: not a whole number of 1 or more"]),
        (
            ["--compression", "fp16"],
            ["hvlab: compression: a parameter of trainings", "not of allreduce", "add --workload mnist"],
        ),
        (["--op", "sum", "--workload", "mnist"], ["a parameter of allreduce", "add --workload allreduce"]),
        (["--suite", "lab6"], ["unknown suite 'lab6'", "full, horovod-ddp-fsdp, horovod-or-ddp"]),
        (["--library", "tensorflow"], ["unknown library 'tensorflow'", "horovod, horovod-on-ddp, ddp"]),
        (["--library", "ddp", "--backend", "ccl"], ["torch has nothing like ccl"]),
        (["--framework", "ddp"], ["--framework is torch or tensorflow", "write --library ddp"]),
        (["lab7"], ["lab7 is the name of a suite", "write --suite lab7"]),
        (["LAB8"], ["LAB8 is no file and no program", "write --suite lab7"]),
        (["NCCL"], ["NCCL is the name of a backend", "write --backend nccl"]),
        (["mnist", "--hosts", "1"], ["write --workload mnist"]),
        (["ddp"], ["write --library ddp"]),
        (["minst.py"], ["minst.py is not a program", "`hvlab bench -- python minst.py`"]),
        (["--", "train.py"], ["train.py is not a program", "`hvlab bench -- python train.py`"]),
        (["nosuch", "x"], ["nosuch is no file and no program", "`hvlab bench -- nosuch ...`"]),
        (["--workload", "command"], ["has no command", "-- python train.py"]),
        (["--pattern", "x"], ["--workload command"]),
        (["--workload", "mnist", "--", "python"], ["a command belongs to --workload command"]),
        (["--pattern", "[", "--", "true"], ["--pattern [: ", "(?P<value>[0-9.]+)"]),
        (["--pattern", "x", "--", "true"], ["no group named value"]),
        (["--", "python", "nowhere.py"], ["there is no file nowhere.py"]),
        (["--", "echo", "caf\udce9"], ["this is not UTF-8: echo 'caf\\udce9\n", "another name"]),
        (["--resume", "r9"], ["there are no results"]),
        (["--resume", "r9", "--repeats", "2"], ["takes no --repeats"]),
        (["--resume", "r9", "--set", "dtype=int8", "--restart"], ["takes no --set, --restart"]),
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


def test_a_word_that_is_a_program_or_after_dashes_is_run(inventory, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train").write_text("")
    for words in (["true"], ["./train"], ["--", "mnist"], ["--", "nosuch"]):
        assert run(["bench", "-i", inventory, "--hosts", "1", "--slots", "1", "--dry-run", *words]) == 0
        assert f"command={words[-1]}" in capsys.readouterr().out


def test_a_dry_run_is_a_table_with_the_time(inventory, capsys):
    words = ["--workload", "mnist", "--backend", "MPI,Gloo", "--compression", "FP16,none", "--repeats", "2"]
    assert run(["bench", "-i", inventory, "--dry-run", *words]) == 0
    printed = capsys.readouterr()
    assert printed.err.startswith("48 cases, about ")
    shown = " ".join(printed.out.split())
    assert "1x1, 1x2, 2x1, 2x2, 3x1, 3x2" in shown
    assert "compression=none,fp16" in shown
    assert "mpirun -np" not in printed.out


@pytest.mark.parametrize(
    ("words", "outside", "inside"),
    [
        (
            "health",
            "run `hvlab health --here`; or name hosts: `hvlab health --hosts",
            "`hvlab health --here`; or",
        ),
        (
            "tune",
            "`hvlab tune --here`; or name hosts: `hvlab tune --hosts localhost",
            "`hvlab tune --here`; or",
        ),
        ("bench", "`hvlab bench --here`; or name hosts: `hvlab bench --hosts", "`hvlab bench --here`; or"),
        ("bench --dry-run", "add --here --hosts 64 --slots 8 to plan for", "`hvlab bench --here`; or"),
        ("lab up", "what to do: give yours", "`hvlab bench --here`; or give"),
    ],
)
def test_an_inventory_is_not_the_only_way_to_name_hosts(words, outside, inside, capsys, monkeypatch):
    for job, ways in (("", outside), ("7", inside)):
        monkeypatch.setenv("SLURM_JOB_ID", job)
        assert run([*words.split(), "--inventory", "nowhere"]) == 2
        assert ways in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["bench", "tune"])
def test_hosts_are_counted_in_an_inventory_and_named_without_one(verb, inventory, capsys):
    assert run([verb, "-i", inventory, "--hosts", "n1,n2"]) == 2
    assert "name hosts of an inventory with -l" in capsys.readouterr().err
    assert run([verb, "--hosts", "n1,2"]) == 2
    assert "2 is a number" in capsys.readouterr().err
    for count in ("1-2", "al", "-1"):
        assert run([verb, "-i", inventory, "--hosts", count]) == 2
        assert "expected whole numbers" in capsys.readouterr().err


def test_a_dry_run_needs_no_slurm_job(capsys, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    words = ["bench", "--here", "--suite", "lab7", "--repeats", "1", "--dry-run"]
    assert run(words) == 2
    assert "add --hosts 64 --slots 8" in capsys.readouterr().err
    assert run([*words, "--hosts", "0", "--slots", "8"]) == 2
    assert "add --hosts 64\n" in capsys.readouterr().err
    assert run([*words, "--hosts", "8,64", "--slots", "8", "--format", "json"]) == 0
    printed = capsys.readouterr()
    found = {row["case_id"]: row["argv"] for row in json.loads(printed.out)}
    assert "planned for a Slurm job of 64 hosts with 8 GPUs each" in printed.err
    assert {"allreduce-nccl-srun-64x8-r1", "mnist-gloo-srun-8x8-r1"} < set(found)
    assert "--gres=gpu:8" in found["allreduce-nccl-srun-64x8-r1"]
    assert run([*words, "--hosts", "8", "--slots", "8", "--no-cuda", "--format", "json"]) == 0
    assert "nccl" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("1.5M", 90), ("2h", 7200), ("1d", 86400), (7, 7)]
)
def test_times_are_read_in_one_way(text, seconds):
    assert options.TimeType().convert(text, None, None) == seconds
    assert options.TimeType(86400, unit="d").convert("2", None, None) == 2 * 86400
    assert options.TimeType(0.05, 30).convert("200ms", None, None) == 0.2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("results shwo", "what to do: did you mean show? there are list, show"),
        ("LAB7", "write `hvlab bench --suite lab7`"),
        ("status", "write `hvlab lab status` or `hvlab keys status`"),
        ("lab8", "unknown command 'lab8'"),
        ("bnech", "did you mean bench?"),
        ("lab upp", "unknown command of hvlab lab 'upp'"),
        ("results last~1", "write `hvlab results show last~1`"),
    ],
)
def test_an_unknown_word_is_answered_with_the_right_one(words, told, capsys):
    assert run(words.split()) == 2
    assert told in capsys.readouterr().err


def test_an_unknown_word_is_answered_without_any_extra(capsys, monkeypatch):
    def absent(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    assert run(["bnech"]) == 2
    assert "did you mean bench?" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["help", "bench"], ["HELP", "Bench"], ["bench", "--help"], ["version"]])
def test_help_and_version_are_words_too(words, capsys):
    assert run(words) == 0
    shown = capsys.readouterr().out
    assert "version" in shown if words == ["version"] else shown.startswith("Usage: hvlab bench")


def dry(inventory, capsys, *words):
    """Return the ids of a dry run's cases, and what it told of others."""
    assert run(["bench", "-i", inventory, "--dry-run", "--format", "json", *words]) == 0
    printed = capsys.readouterr()
    # How long it takes is said last.
    *lines, _ = printed.err.splitlines(keepends=True)
    return sorted(row["case_id"] for row in json.loads(printed.out)), "".join(lines)


def test_parameters_make_cases(inventory, capsys):
    words = ("--backend", "mpi", "--hosts", "1", "--slots", "2", "--workload", "mnist,rnn")
    found, _ = dry(inventory, capsys, *words, "--batch", "16,64", "--set", "cycle-time=5", "--no-cuda")
    tail = "device=cpu-cycle_time=5-r1"
    assert found == [
        f"mnist-mpi-1x2-batch=16-{tail}",
        f"mnist-mpi-1x2-{tail}",
        f"rnn-mpi-1x2-batch=16-{tail}",
        f"rnn-mpi-1x2-batch=64-{tail}",
    ]


def test_ddp_beside_horovod(inventory, capsys):
    places = ("--hosts", "2", "--slots", "1")
    assert dry(inventory, capsys, "--library", "ddp", *places)[0] == ["allreduce-ddp-gloo-2x1-r1"]
    both, _ = dry(inventory, capsys, "--library", "horovod,ddp", "--backend", "gloo", *places)
    assert both == ["allreduce-ddp-gloo-2x1-r1", "allreduce-gloo-2x1-r1"]
    # Without --backend, over what all of them have.
    three, _ = dry(inventory, capsys, "--library", "horovod,horovod-on-ddp,ddp", *places)
    assert three == [f"allreduce-{name}-2x1-r1" for name in ("ddp-gloo", "gloo", "horovod-on-ddp-gloo")]
    found, told = dry(inventory, capsys, "--suite", "horovod-or-ddp", "--repeats", "1", "--hosts", "2")
    names = ("ddp-gloo", "gloo", "mpi")
    workloads = ("allreduce", "mnist", "rnn", "synthetic")
    assert told == ""
    assert [name.partition("-2x1")[0] for name in found] == [
        f"{w}-{name}" for w in workloads for name in names
    ]


def test_a_command_of_ones_own(inventory, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    words = ["bench", "-i", inventory, "--backend", "gloo", "--hosts", "2", "--slots", "1", "--dry-run"]
    own = ["python", "train.py", "--name", "two words, and 'quotes'", "--epochs", "1"]
    assert run([*words, "--format", "json", "--pattern", "(?P<value>x)", "--", *own]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["case_id"].startswith("command-gloo-2x1-command=python_train.py")
    assert shlex.split(row["argv"][row["argv"].index("--command") + 1]) == own
    assert "--pattern" not in row["argv"]


def test_a_suite_with_everything_that_is_left_out(inventory, capsys):
    found, told = dry(inventory, capsys, "--suite", "lab4")
    assert "mnist-serial-1x1-epochs=20-r3" in found
    assert told == ""
    found, told = dry(inventory, capsys, "--suite", "lab7", "--repeats", "1", "--workload", "mnist")
    assert len(found) == 8
    reason = "backend nccl needs an NVIDIA GPU, and these hosts have none: n1, n2, n3"
    assert told.splitlines() == [f"infeasible: 4 cases, mnist-nccl-1x1-r1 to mnist-nccl-3x1-r1: {reason}"]
    places = ("1x1", "1x2", "2x1", "3x1")
    found, told = dry(inventory, capsys, "--suite", "LAB7", "--repeats", "1", "--workload", "MNIST", "-v")
    assert told.splitlines() == [f"infeasible: mnist-nccl-{place}-r1: {reason}" for place in places]


def test_no_data_is_made_ready_for_a_dry_run(inventory, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("HVLAB_CACHE", str(tmp_path / "cache"))
    dry(inventory, capsys, "--workload", "mnist", "--data", "mnist", "--backend", "mpi")
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    "group", [name for name, command, _ in commands(cli, "hvlab") if isinstance(command, click.Group)]
)
def test_summaries_of_commands_fit_a_line_of_80_columns(group, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    run([*group.split()[1:], "--help"])
    heading = "Set up, and clean up:" if group == "hvlab" else "Commands:"
    for line in capsys.readouterr().out.partition(heading)[2].splitlines():
        assert len(line) <= 80
        assert "..." not in line
        assert not line.startswith("    "), f"{group}: a summary goes on in a second line: {line}"


@pytest.mark.parametrize(("name", "command"), [pair[:2] for pair in commands(cli, "hvlab")])
def test_the_help_of_each_command_fits_two_screens(name, command, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    words = name.split()[1:]
    assert run([*words, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 48
    assert max(map(len, lines)) <= 80
    if getattr(command, "brief", ()):
        assert run([*words, "--help-all"]) == 0
        whole = capsys.readouterr().out
        options = [option for item in command.params for option in item.opts if option.startswith("--")]
        assert [option for option in options if option not in whole] == []


@pytest.mark.parametrize(
    ("name", "command"), [pair[:2] for pair in commands(cli, "hvlab") if len(pair[0].split()) <= 2]
)
def test_the_help_of_each_verb_begins_with_commands_that_can_be_run(name, command, monkeypatch, tmp_path):
    shown = inspect.cleandoc(command.help).removeprefix("\b\n").partition("\n\n")[0].splitlines()
    examples = [
        line.partition("hvlab ")[2].partition("  #")[0].partition(" |")[0].rstrip(')" ')
        for line in shown
        if "hvlab " in line
    ]
    assert examples, f"{name} has no examples"
    monkeypatch.chdir(tmp_path)
    for words in map(shlex.split, examples):
        context, rest = click.Context(cli), words[1:] if words[0] == "help" else words
        while rest and isinstance(context.command, click.Group):
            _, found, rest = context.command.resolve_command(context, rest)
            context = click.Context(found, parent=context)
        context.command.make_context(words[0], rest, parent=context.parent)


def test_the_help_tells_every_parameter_and_every_suite(capsys):
    assert run(["bench", "--help-all"]) == 0
    told = capsys.readouterr().out
    for name in {item.name for workload in WORKLOADS for item in parameters(workload)}:
        assert f"  {name}=" in told
    for name in suite.NAMES:
        assert f"  {name}  " in told


@pytest.fixture
def begun(tmp_path, inventory, capsys):
    """A run that was begun on the lab of the inventory, and how it may go on."""

    def begin(state="interrupted", **changes):
        there = known(Path(inventory), limit=None)
        plan = Schedule.of(spec("mpi", **changes), there)
        store = Store(tmp_path / "results")
        told = asdict(plan.spec)
        ids = [case.id for case in plan.cases]
        store.create("r1", lab=there.name, spec_key=plan.spec.key(there), spec=told, cases=ids)
        store.enter("r1", state)
        return store

    return begin


def resume(inventory, *words):
    return run(["bench", "-i", inventory, "--resume", "r1", "--dry-run", *words])


def test_a_run_goes_on_as_it_was_asked_for(inventory, capsys, begun):
    begun(dtype=("int8", "int32"), timeout=7)
    assert resume(inventory, "--format", "json") == 0
    rows = {row["case_id"]: row["argv"] for row in json.loads(capsys.readouterr().out)}
    assert set(rows) == {f"allreduce-mpi-2x1-dtype={name}-r1" for name in ("int8", "int32")}
    assert all("22" in argv for argv in rows.values())


def test_a_run_that_is_not_there_names_near_ones(inventory, capsys, begun):
    begun()
    assert run(["bench", "-i", inventory, "--resume", "r2"]) == 2
    assert "similar ones: r1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("state", "limit", "told"),
    [
        ("finished", "all", "run r1 is finished: all of its 1 cases are done"),
        ("interrupted", "n1,n2", "run r1 was measured on other hosts"),
    ],
)
def test_a_run_that_cannot_go_on(inventory, capsys, begun, *, state, limit, told):
    begun(state)
    assert resume(inventory, "-l", limit) == 2
    assert told in capsys.readouterr().err


def test_a_run_of_another_version_cannot_go_on(inventory, capsys, tmp_path):
    store = Store(tmp_path / "results")
    store.create("r1", lab="cli", spec_key="k", spec={"backends": ["mpi"], "sizes": [4]}, cases=["c"])
    store.enter("r1", "interrupted")
    assert resume(inventory) == 2
    assert "another version of hvlab" in capsys.readouterr().err


def test_the_end_of_a_bench_tells_what_went_wrong_and_what_to_do_next(
    inventory, capsys, tmp_path, monkeypatch
):
    def measure(plan, store, **_):
        store.create("r1", lab="t", spec_key="k", spec={}, cases=[case.id for case in plan.cases])
        failed = {"metric": None, "value": None, "unit": None, "status": "failed", "error": "boom"}
        skipped = {**failed, "status": "skipped", "error": "not built"}
        store.add([RECORD, *(replace(RECORD, case_id=f"c{number}", **failed) for number in (2, 4, 5))])
        store.add([replace(RECORD, case_id="c3", **skipped)])
        store.run_folder("r1").mkdir(parents=True, exist_ok=True)
        return "r1"

    monkeypatch.setattr("hvlab.bench.measure.measure", measure)
    assert run(["bench", "-i", inventory, "--backend", "mpi", "--hosts", "3,4,5", "--slots", "1,2,3"]) == 1
    printed = capsys.readouterr()
    assert "1.5" in printed.out
    assert printed.err.splitlines() == [
        "infeasible: allreduce-mpi-3x3-r1: 3 slots requested, n1 has 2, n2 has 2, n3 has 2 (lab_slots)",
        "infeasible: 3 cases, allreduce-mpi-4x1-r1 to allreduce-mpi-4x3-r1: 4 hosts requested, the lab has 3",
        "infeasible: 3 cases, allreduce-mpi-5x1-r1 to allreduce-mpi-5x3-r1: 5 hosts requested, the lab has 3",
        "failed: 3 cases, c2 to c5: boom",
        "skipped: c3: not built",
        "run r1: 1 of 2 cases succeeded; 7 more are infeasible",
        f"summary: {tmp_path / 'results/runs/r1/summary.md'}; raw files are in the same folder",
        "next: `hvlab report r1` for tables, curves and what they mean",
    ]


def test_a_wrong_inventory_is_exit_code_2(tmp_path, capsys):
    (tmp_path / "hosts.yml").write_text("all:\n  hosts:\n    a:\n    a:\n")
    assert run(["bench", "-i", str(tmp_path / "hosts.yml")]) == 2
    assert "'a' occurs twice" in capsys.readouterr().err


def test_a_lab_that_was_not_provisioned(inventory, capsys, monkeypatch):
    monkeypatch.setattr("hvlab.remote.playbook.probe", lambda hosts: None)
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
    assert [rows[0][key] for key in ("run_id", "cases", "ok", "failed")] == ["r1", 1, 1, 0]


def test_results_show_as_json_and_csv(store, capsys):
    for arguments in ([], ["r1"]):
        assert run(["results", "show", *arguments, "--format", "json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)
        assert tuple(row) == FIELDS
        assert row["hosts"] == ["n1", "n2"]
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


@pytest.mark.parametrize(("name", "found"), [("last", "r1"), ("LAST~0", "r1"), ("R", "r1"), ("1", "r1")])
def test_a_run_is_named_in_short(store, capsys, name, found):
    assert run(["results", "show", name]) == 0
    assert capsys.readouterr().out.startswith(f"run {found} ")


def test_a_short_name_is_of_one_run(store, capsys):
    store.create("r2", lab="t", spec_key="k", spec={}, cases=["c1"])
    found = [store.run(name).run_id for name in (None, "last", "last~1", "2", "r1")]
    assert found == ["r2", "r2", "r1", "r2", "r1"]
    for name, told in (("r", "2 runs have 'r' in their id"), ("last~2", "there is no run last~2")):
        assert run(["results", "show", name]) == 2
        assert told in capsys.readouterr().err
    # What is written down is the id itself.
    assert run(["baseline", "set", "last~1"]) == 0
    assert "runs r1:" in capsys.readouterr().out


def test_an_unknown_run(store, capsys):
    assert run(["results", "show", "r9"]) == 2
    assert "similar ones: r1" in capsys.readouterr().err


def test_no_results(capsys):
    assert run(["results", "list", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert run(["results", "show"]) == 2


def test_in_a_lab_of_slurm_it_starts_the_ranks_unless_another_launcher_is_asked_for(
    inventory, capsys, monkeypatch
):
    there = load(Path(inventory))
    monkeypatch.setattr(
        "hvlab.cli.bench.load", lambda path, limit: replace(there, vars={**there.vars, "lab_slurm": True})
    )
    words = ["bench", "-i", inventory, "--backend", "mpi,gloo", "--hosts", "2", "--slots", "1", "--dry-run"]
    words.append("-v")
    assert run(words) == 0
    lines = capsys.readouterr().out.partition("# ")[1:]
    lines = "".join(lines).splitlines()
    assert lines[0] == "# n1, before the first case"
    assert lines[1].startswith("salloc --no-shell --job-name=hvlab-RUN --partition=hvlab --nodes=2 ")
    assert sorted(line for line in lines[2:] if line.startswith("#")) == [
        "# allreduce-gloo-srun-2x1-r1",
        "# allreduce-mpi-srun-2x1-r1",
    ]
    for other in (["--launcher", "mpirun"], ["--container", "lab:1"]):
        assert run([*words, *other]) == 0
        assert "salloc" not in capsys.readouterr().out


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022, 0o077])
def test_folders_of_keys_are_their_users_alone_whatever_the_umask(inventory, tmp_path, monkeypatch, umask):
    monkeypatch.setenv("HVLAB_DATA", str(tmp_path / "parent/data"))
    before = os.umask(umask)
    try:
        assert run(["keys", "init", "-i", str(inventory)]) == 0
    finally:
        os.umask(before)
    (folder,) = (tmp_path / "parent/data/trust").iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (folder.parent, tmp_path / "parent")} == {0o700}


@pytest.mark.parametrize(("umask", "mode"), [(0o000, 0o644), (0o022, 0o644), (0o077, 0o600)])
def test_others_write_into_nothing_whatever_the_umask(tmp_path, monkeypatch, umask, mode):
    monkeypatch.chdir(tmp_path)
    before = os.umask(umask)
    try:
        assert run(["results", "list"]) == 0
        (tmp_path / "file").touch()
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == mode


def test_an_option_takes_a_value_everywhere_or_nowhere():
    flags: dict[str, set[bool]] = {}

    def walk(command):
        for below in getattr(command, "commands", {}).values():
            walk(below)
        for item in command.params:
            for option in item.opts if isinstance(item, click.Option) else ():
                flags.setdefault(option, set()).add(item.is_flag)

    for name in VERBS:
        walk(cli.get_command(click.Context(cli), name))
    # Doctor's name one cause, or a word.
    assert {option for option, kinds in flags.items() if len(kinds) > 1} == {"--explain", "--list"}


@pytest.mark.parametrize("verb", ["bench", "find-slow", "health"])
def test_a_metrics_folder_that_cannot_be_written_is_told_before_anything_is_measured(
    inventory, tmp_path, capsys, verb
):
    (tmp_path / "file").touch()
    folder = tmp_path / "file/metrics"
    where = ["-i", str(inventory), "--metrics", str(folder)]
    results = [] if verb == "health" else ["--results", str(tmp_path / "results")]
    assert run([verb, *where, *results]) == 2
    assert f"{folder} cannot be written: Not a directory" in capsys.readouterr().err
