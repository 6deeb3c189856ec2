"""What a report is drawn from: the records, and the files of a run that are there."""

import json
import shlex
from dataclasses import replace

import pytest

from hvlab.base.errors import UsageError
from hvlab.report import conditions, data
from hvlab.report.page import html
from hvlab.report.words import load
from hvlab.results import outcomes
from hvlab.results.store import Store
from hvlab.workloads import Outcome
from tests.unit import runs
from tests.unit.labs import case
from tests.unit.reports import report


@pytest.fixture
def maker():
    made = runs.Maker("r1")
    for repeat in (1, 2):
        made.train("mnist", runs.Place("mpi", runs.HOSTS[:2], 1, repeat))
    made.failed("mnist", runs.Place("gloo", runs.HOSTS[:2]), "lost")
    made.failed("mnist", runs.Place("ccl", runs.HOSTS[:2]), "no such plane", status="skipped")
    return made


def test_a_run_is_counted_by_its_cases(tmp_path, maker):
    head = data.read(runs.store(tmp_path, maker, state="interrupted", pending=["c8", "c9"])).head
    assert (head.planned, head.ok, head.failed, head.skipped, head.pending) == (6, 2, 1, 1, 2)
    assert head.state == "interrupted"


def test_a_case_with_one_failed_record_failed(tmp_path, maker):
    first = next(iter(maker.cases))
    records = maker.cases[first].records
    broken = runs.replace(records[-1], status="failed", error="lost")
    maker.cases[first] = runs.replace(maker.cases[first], records=(*records[:-1], broken))
    head = data.read(runs.store(tmp_path, maker)).head
    assert (head.ok, head.failed) == (1, 2)


def test_the_last_run_is_read_unless_one_is_named(tmp_path, maker):
    store = runs.store(tmp_path, maker, runs.Maker("r2"))
    assert data.read(store).head.run_id == "r2"
    assert data.read(store, "r1").head.run_id == "r1"
    with pytest.raises(UsageError, match="there is no run 'r3'"):
        data.read(store, "r3")


def test_cases_whose_commands_differ_in_their_name_only_share_one(tmp_path, maker):
    commands = data.read(runs.store(tmp_path, maker)).commands
    shared = next(command for command in commands if len(command.cases) > 1)
    assert shared.cases == ("mnist-mpi-2x1-r1", "mnist-mpi-2x1-r2")
    assert "<case>/result.json" in shared.line
    assert not any("<case>" in command.line for command in commands if len(command.cases) == 1)
    words = shlex.split(shared.line.replace("<case>", shared.cases[1]))
    made = maker.cases[shared.cases[1]]
    assert words == ["env", *(f"{name}={value}" for name, value in made.env.items()), *made.argv]


@pytest.mark.parametrize(("seeds", "said"), [((42, 43), "--seed '<seed>'"), ((42, 42), "--seed 42")])
def test_cases_whose_commands_differ_in_their_seed_share_one(tmp_path, maker, seeds, said):
    store = runs.store(tmp_path, maker)
    for repeat, seed in enumerate(seeds, 1):
        argv = ["python", "train.py", "--seed", str(seed)]
        (store.run_folder("r1") / f"mnist-mpi-2x1-r{repeat}" / "argv.json").write_text(json.dumps(argv))
    shared = next(command for command in data.read(store).commands if len(command.cases) > 1)
    assert shared.line.endswith(said)


def test_a_command_line_can_be_given_to_a_shell(tmp_path, maker):
    store = runs.store(tmp_path, maker)
    argv = ["mpirun", "a b", "$HOME", "it's"]
    (store.run_folder("r1") / "mnist-gloo-2x1-r1" / "argv.json").write_text(json.dumps(argv))
    lines = [command.line for command in data.read(store).commands]
    assert any(shlex.split(line)[-4:] == argv for line in lines)


def test_files_that_are_not_there_are_no_fault(tmp_path):
    store = Store(tmp_path)
    store.create("r1", lab="t", spec_key="k", spec={}, cases=["c1"])
    found = data.read(store)
    assert (found.facts, found.commands, found.infeasible, found.unreadable) == ({}, (), (), ())
    assert found.head.pending == 1


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(("facts.json", content) for content in ("{", "[1, 2]", "\xff\xfe", '{"n1": "x"}')),
        *(
            ("left-out.json", f"[{item}]")
            for item in ("1", "{}", '{"case": 1, "reason": "x"}', '{"cas": "x"}')
        ),
    ],
)
def test_files_that_cannot_be_read_are_named(tmp_path, maker, name, content):
    store = runs.store(tmp_path, maker)
    (store.run_folder("r1") / name).write_bytes(content.encode("latin-1"))
    found = data.read(store)
    assert found.unreadable == (name,)
    assert not (found.facts if name == "facts.json" else found.infeasible)
    assert found.commands
    assert name in report(found).texts("failures")[-1]


def test_what_a_later_version_adds_to_an_infeasible_case_does_no_harm(tmp_path, maker):
    store = runs.store(tmp_path, maker)
    item = '[{"case": "c", "reason": "too large", "since": 1}]'
    (store.run_folder("r1") / "left-out.json").write_text(item)
    found = data.read(store)
    assert [(one.case, one.reason) for one in found.infeasible] == [("c", "too large")]
    assert found.unreadable == ()


def test_containers_on_machines_of_their_own_share_no_cores(tmp_path, maker):
    report = data.read(runs.store(tmp_path, maker))
    assert all(facts["hvlab"]["container"] for facts in report.facts.values())
    assert not report.virtual
    assert not report.on_gpus


def test_virtual_hosts_with_cores_of_their_own_do_not_share(tmp_path, maker):
    def stacked(**stack):
        cases = {
            name: runs.replace(
                made,
                records=tuple(runs.replace(row, stack={**row.stack, **stack}) for row in made.records),
            )
            for name, made in maker.cases.items()
        }
        again = runs.Maker("r1")
        again.cases.update(cases)
        return data.read(runs.store(tmp_path / str(stack), again))

    own, shared = (
        stacked(cores="own"),
        stacked(cores="shared", oversubscribed="3 ranks on 2 cores (n1, n2, n3)"),
    )
    assert (own.own_cores, own.virtual) == (True, False)
    assert (shared.own_cores, shared.virtual) == (False, True)
    words = load("en")
    ((disturbed, text),) = conditions.cores(own, words)
    assert text.startswith("The servers are virtual machines")
    assert not disturbed
    assert not conditions.warnings(own, words)
    ((disturbed, text),) = conditions.cores(shared, words)
    assert "(3 ranks on 2 cores (n1, n2, n3))" in text
    assert text in conditions.warnings(shared, words)


def test_what_others_took_is_told_with_the_worst_case(tmp_path, maker):
    for number, made in enumerate(maker.cases.values()):
        rows = [row for row in made.records if row.metric]
        if rows:
            taken = runs.replace(rows[0], metric="stolen", value=20.0 * number, unit="%")
            maker.cases[taken.case_id] = runs.replace(made, records=(*made.records, taken))
    ((_, text),) = conditions.cores(data.read(runs.store(tmp_path, maker)), load("en"))
    assert text.startswith("In 1 of 2 cases others took 10% or more")
    assert "at most 20% (mnist-mpi-2x1-r2)" in text


def test_no_secret_is_in_a_report_or_a_record(tmp_path):
    asked = case("mpi", env="HF_TOKEN=hf-aaaa NCCL_ALGO=Ring")
    outcome = Outcome(0.0, error="lost")
    records = [*outcomes.records("r1", asked, outcome, {})]
    assert records[0].params["env"] == "HF_TOKEN=*** NCCL_ALGO=Ring"
    store = Store(tmp_path)
    store.create("r1", lab="t", spec_key="k", spec={}, cases=[asked.id])
    # As earlier versions put it into the store, and into a case's files.
    store.add([replace(record, params={**record.params, "env": "HF_TOKEN=hf-aaaa"}) for record in records])
    folder = store.run_folder("r1") / asked.id
    folder.mkdir()
    (folder / "argv.json").write_text('["mpirun", "-x", "HF_TOKEN=hf-aaaa", "python"]')
    (folder / "env.json").write_text('{"HF_TOKEN": "hf-aaaa", "NCCL_ALGO": "Ring"}')
    assert [record.params["env"] for record in store.records("r1")] == ["HF_TOKEN=***"]
    found = data.read(store)
    page = html(report(found).document, [vars(record) for record in found.records], run_id="r1", lang="en")
    assert "hf-aaaa" not in page
    assert [command.line for command in found.commands] == [
        "env 'HF_TOKEN=***' NCCL_ALGO=Ring mpirun -x 'HF_TOKEN=***' python"
    ]
