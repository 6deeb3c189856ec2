"""A whole search with its proof, on hosts whose times are known; only the launches are replaced."""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from hvlab.base.errors import CheckError, UsageError
from hvlab.bench import looks, progress, watch
from hvlab.bench.schedule import Schedule
from hvlab.bench.settings import SettingsFile, load
from hvlab.bench.watch import Watch
from hvlab.report import data as reading
from hvlab.report import tuning
from hvlab.report.page import markdown
from hvlab.report.words import LANGUAGES
from hvlab.results import searches
from hvlab.results.lock import holder, measuring
from hvlab.results.searches import RESULT
from hvlab.results.store import Record, Run, Store, make_run_id
from hvlab.searches.tune import confirmation, session, trials
from hvlab.searches.tune import space as spaces
from hvlab.searches.tune.result import TuneResult
from hvlab.searches.tune.session import TuneRequest
from hvlab.searches.tune.space_file import SpaceParameter
from hvlab.workloads.case import Case
from tests.unit import labs, reports
from tests.unit.test_results import RECORD
from tests.unit.test_watch import begun

SPACE = (
    SpaceParameter(
        name="cycle_time", to="env", variable="HOROVOD_CYCLE_TIME", values=[0.5, 1, 5, 25], default=1
    ),
    SpaceParameter(name="idle", to="env", variable="IDLE", values=["", "a", "b"], default=""),
)
Cost = Callable[[Case], float | None]


class Hosts:
    """Takes the place of ``measure``; after ``dies_after`` runs it is killed in the middle of the next."""

    def __init__(self, cost: Cost, *, loss: Callable[[Case], float] | None = None, seed: int = 1) -> None:
        self.cost, self.loss, self.random = cost, loss, random.Random(seed)  # noqa: S311 - noise
        self.runs: list[str] = []
        self.dies_after: int | None = None
        self.results: Path | None = None

    def __call__(self, schedule: Schedule, store: Store, *, locked: bool = False) -> str:
        if self.results:  # that of the user, where the proof goes
            assert holder(self.results, schedule.lab.name) == os.getpid(), "another command may measure now"
        assert locked == (store.folder == self.results)
        key = schedule.spec.key(schedule.lab)
        run: Run | None = store.unfinished(key)
        run_id = run.run_id if run else make_run_id()
        if run is None:
            first = looks.first(schedule.cases, schedule.spec)
            store.create(
                run_id, lab="t", spec_key=key, spec=asdict(schedule.spec), cases=[case.id for case in first]
            )
        while True:
            records = store.records(run_id)
            done = {record.case_id for record in records}
            pending = [
                case for case in looks.list_due(schedule.cases, schedule.spec, records) if case.id not in done
            ]
            if not pending:
                break
            for case in pending:
                if self.dies_after == len(self.runs):
                    self.dies_after = None
                    raise KeyboardInterrupt
                store.add(self._records(run_id, case))
        store.enter(run_id, "finished")
        self.runs.append(schedule.spec.suite)
        return run_id

    def _records(self, run_id: str, case: Case) -> list[Record]:
        value = self.cost(case)
        figures: dict[str, float | None] = {"time": None if value is None else self._near(value)}
        if case.workload == "command":
            figures = {"real": figures["time"]}
        if case.workload == "mnist":
            figures = {"step_time": figures["time"], "loss": self.loss(case) if self.loss else 0.1}
        own: dict[str, Any] = {name: part for name, part in case.params.items() if name != "sizes"}
        return [
            Record(
                run_id, case.id, "2026-11-20T15:53:01.000Z", case.workload, case.launcher, case.backend,
                case.backend, case.hosts, case.slots, 2, own, case.repeat, None if value is None else name,
                figure, None, "failed" if value is None else "ok", None if value else "it broke", {}, "",
            )
            for name, figure in figures.items()
        ]  # fmt: skip

    def _near(self, value: float) -> float:
        return value * math.exp(self.random.gauss(0, 0.03))


def _tune(
    hosts: Hosts, folder: Path, monkeypatch: pytest.MonkeyPatch, /, *, today: SettingsFile, **changes: Any
) -> tuple[TuneResult, Path]:
    monkeypatch.setattr(trials, "measure", hosts)
    monkeypatch.setattr(confirmation, "measure", hosts)
    # Each look at the clock is a second later, so a run takes one.
    clock = iter(range(10**6))
    monkeypatch.setattr(trials.time, "monotonic", lambda: float(next(clock)))
    request = _request(today, **changes)
    store = Store(folder)
    hosts.results = folder
    place = searches.folder_of(folder, "tune", request.key(), restart=False)
    return session.tune(request, store, place, note=lambda _: None), place


def _slow(case: Case) -> float:
    return 1.0 + 0.02 * float(case.params["cycle_time"])


BAD = SettingsFile(env={"HOROVOD_CYCLE_TIME": 25})


def test_a_planted_setting_is_found_proved_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, place = _tune(Hosts(_slow), tmp_path, monkeypatch, today=BAD)
    assert result.proved
    assert "loss" not in result.answer
    assert result.answer.startswith("Better, and proved (run ")
    assert "lower" in result.gains
    best = result.space.settings(result.search.best)
    assert best.env.get("HOROVOD_CYCLE_TIME", 1) in (0.5, 1)
    stored = json.loads((place / RESULT).read_text())
    assert stored["proved"]
    assert stored["run"] == result.proof.run_id
    assert "cycle_time" in (place / session.REPORT).read_text()
    # The proof is a run of the user's own results, the trials are not.
    assert [run.run_id for run in Store(tmp_path).runs()] == [result.proof.run_id]


class Timed(Hosts):
    """Each launch takes ten seconds; ``limit`` is what the proof was given."""

    now, limit = 0.0, 0

    def _records(self, run_id: str, case: Case) -> list[Record]:
        self.now += 10
        return super()._records(run_id, case)

    def __call__(self, schedule: Schedule, store: Store, *, locked: bool = False) -> str:
        self.limit = schedule.spec.time_limit
        return super().__call__(schedule, store, locked=locked)


@pytest.mark.parametrize("budget", [80, 230, 450, 1200])
def test_search_and_proof_end_within_the_budget(
    budget: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = Timed(_slow)
    hosts.results = tmp_path
    monkeypatch.setattr(trials, "measure", hosts)
    monkeypatch.setattr(confirmation, "measure", hosts)
    monkeypatch.setattr(trials.time, "monotonic", lambda: hosts.now)
    request = replace(_request(BAD), budget=budget)
    lines: list[str] = []
    place = searches.folder_of(tmp_path, "tune", request.key(), restart=False)
    result = session.tune(request, Store(tmp_path), place, note=lines.append)
    assert result.proof is not None
    assert hosts.limit >= 120  # six repeats of each side
    # A budget that is too short holds one round and the proof, and that is said.
    assert result.seconds + hosts.limit <= max(budget, (7 + 15) * 10)
    assert lines[0] == f"time limit {budget / 60:.2g} min; the proof, 15 launches, may end after it"
    assert any("more than the budget" in line for line in lines) == (budget < 220)


def test_where_nothing_can_run_the_remedy_is_not_about_the_number_of_configurations() -> None:
    with pytest.raises(UsageError, match="9 hosts requested, the lab has 2") as caught:
        session.check(replace(_request(BAD), spec=labs.spec("mpi", hosts=(9,))))
    assert "--dry-run" in caught.value.remedy


class Watched(Hosts):
    """Looks at the search while its first launches of each run are made."""

    watching: Watch | None = None

    def __call__(self, schedule: Schedule, store: Store, *, locked: bool = False) -> str:
        self.store, self.views = store, getattr(self, "views", [])
        return super().__call__(schedule, store, locked=locked)

    def _records(self, run_id: str, case: Case) -> list[Record]:
        if not (self.store.run_folder(run_id) / progress.NAME).exists():
            begun(self.store.run_folder(run_id), total=1, done=0)
            proves = self.store.folder == self.results
            with nullcontext() if proves else measuring(self.store.folder, "t"):
                self.watching = self.watching or watch.current(Store(self.results))
                self.views.append(self.watching.read())
        return super()._records(run_id, case)


def test_a_search_can_be_watched_from_its_first_run_to_its_proof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = Watched(_slow)
    result, place = _tune(hosts, tmp_path, monkeypatch, today=BAD)
    runs = [run.run_id for run in Store(place).runs()]
    assert [view.run.run_id for view in hosts.views] == [*runs, result.proof.run_id]
    assert {(view.state, view.search) for view in hosts.views} == {("running", place)}
    assert hosts.watching.read().ended
    assert searches.has_ended(place)


def test_the_recipe_of_the_best_is_that_of_the_case_that_was_measured() -> None:
    lab = labs.lab(2)
    request = TuneRequest(labs.spec("mpi", workload="mnist"), lab, spaces.space(SPACE, BAD), "tpe", 0, 30)
    *exports, start = session.recipe(request, SettingsFile(env={"HOROVOD_CYCLE_TIME": 0.5, "IDLE": "a"}))
    assert {"export OMP_NUM_THREADS=1", "export HOROVOD_CYCLE_TIME=0.5", "export IDLE=a"} <= set(exports)
    assert start.startswith("mpirun --bind-to none --map-by slot")


def _request(today: SettingsFile, **changes: Any) -> TuneRequest:
    asked = {"workload": "allreduce", "sizes": (1024,)} | changes
    spec = labs.spec("mpi", **{name: value for name, value in asked.items() if value is not None})
    return TuneRequest(spec, labs.lab(2), spaces.space(SPACE, today), "tpe", 0, 30)


def test_the_file_has_what_was_proved_and_otherwise_that_of_an_earlier_search_is_called_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "tuned.yml"
    none, _ = _tune(Hosts(lambda _: 1.0), tmp_path / "a", monkeypatch, today=SettingsFile())
    assert session.write_settings(_request(SettingsFile()), none, output) == ""
    assert not output.exists()
    best, _ = _tune(Hosts(_slow), tmp_path / "b", monkeypatch, today=BAD)
    assert str(output) in session.write_settings(_request(BAD), best, output)
    before = output.read_text()
    assert load(output).model_copy(update={"about": ""}) == best.space.settings(best.search.best)
    assert "mpirun --bind-to none --map-by slot" in before
    assert "earlier search" in session.write_settings(_request(SettingsFile()), none, output)
    assert output.read_text() == before


def test_the_file_has_a_value_that_only_horovods_autotune_chose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = Training(lambda case: 1.0 + 0.1 * abs(float(case.params["cycle_time"]) - 3.25), LOG)
    asked = {"workload": "mnist", "sizes": None}
    result, _ = _tune(hosts, tmp_path, monkeypatch, today=BAD, **asked)
    session.write_settings(_request(BAD, **asked), result, tmp_path / "tuned.yml")
    assert load(tmp_path / "tuned.yml").env["HOROVOD_CYCLE_TIME"] == 3.25


def test_the_report_of_the_proof_has_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result, place = _tune(Hosts(_slow), tmp_path, monkeypatch, today=BAD)
    data = reading.read(Store(tmp_path), result.proof.run_id)
    pages = {lang: markdown(reports.report(data).document, lang) for lang in LANGUAGES}
    assert "Tuning\n\nBetter, and proved by this run: " in pages["en"]
    assert "调优\n\n更好，并由本次运行证实：" in pages["zh"]
    changes = [one.change for one in tuning.list_tried(data.tuning)]
    assert changes == sorted(changes)
    assert len(changes) == min(10, len(result.search.board.values))
    assert changes[0] == pytest.approx(
        math.expm1(min(map(result.search.board.mean, result.search.board.values)))
    )
    [gain] = data.tuning.gains
    assert (gain.metric, gain.size_bytes) == ("time", None)
    low, mid, high = gain.ratio
    assert low <= mid <= high
    assert mid == pytest.approx(1.01 / 1.5, rel=0.1)
    # Another run, and an unreadable file, have none.
    assert tuning.read(tmp_path, "another") is None
    (place / RESULT).write_text("{")
    assert tuning.read(tmp_path, result.proof.run_id) is None


def test_the_report_says_why_settings_were_not_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loss(case: Case) -> float:
        return 0.3 + (0.2 if case.params["cycle_time"] != 25 else 0)

    asked = {"workload": "mnist", "sizes": None}
    result, _ = _tune(Hosts(_slow, loss=loss), tmp_path, monkeypatch, today=BAD, **asked)
    page = reports.report(reading.read(Store(tmp_path), result.proof.run_id))
    said = page.texts("tuning")[0]
    assert said.startswith("Not accepted: ")
    assert said.endswith("the loss of the training did not stay as it was.")


def test_where_nothing_helps_the_default_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result, _ = _tune(Hosts(lambda _: 1.0), tmp_path, monkeypatch, today=SettingsFile())
    assert not result.proved
    assert result.answer.startswith("Nothing better is proved")


def test_a_killed_search_goes_on_and_measures_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Hosts(_slow)
    wanted, _ = _tune(whole, tmp_path / "whole", monkeypatch, today=BAD)
    for runs in (0, 2, len(whole.runs) - 1):
        hosts = Hosts(_slow)
        hosts.dies_after = runs
        with pytest.raises(KeyboardInterrupt):
            _tune(hosts, tmp_path / str(runs), monkeypatch, today=BAD)
        result, _ = _tune(hosts, tmp_path / str(runs), monkeypatch, today=BAD)
        assert hosts.runs == whole.runs
        assert list(result.search.board.values) == list(wanted.search.board.values)
        assert result.answer.partition("run")[0] == wanted.answer.partition("run")[0]


def test_settings_that_change_the_training_are_not_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loss(case: Case) -> float:
        return 0.3 + 0.001 * case.repeat + (0.2 if case.params["cycle_time"] != 25 else 0)

    changed = {"workload": "mnist", "sizes": None}
    result, _ = _tune(Hosts(_slow, loss=loss), tmp_path / "a", monkeypatch, today=BAD, **changed)
    assert result.proof.better
    assert not result.proved
    assert "the loss changed by 0.2" in result.answer
    result, _ = _tune(Hosts(_slow), tmp_path / "b", monkeypatch, today=BAD, **changed)
    assert result.proved


def test_the_losses_of_all_epochs_are_those_of_the_files(tmp_path: Path) -> None:
    raw = [("r1", "A", 1), ("r2", "A", 2), ("r1b", "B", 1)]
    records = []
    for name, side, repeat in raw:
        (tmp_path / name).mkdir()
        epochs = [{"loss": 2.0 + repeat, "accuracy": 10.0}, {"loss": 0.5, "accuracy": 90.0}]
        (tmp_path / name / "result.json").write_text(json.dumps({"epochs": epochs, "steps": {}}))
        params = {"side": side}
        records.append(replace(RECORD, metric="loss", value=0.5, repeat=repeat, params=params, raw_path=name))
    (tmp_path / "r2" / "result.json").unlink()
    assert confirmation.losses(records, "A", tmp_path) == {1: (3.0, 0.5), 2: (0.5,)}
    assert confirmation.losses(records, "B", tmp_path) == {1: (3.0, 0.5)}


def test_a_command_whose_loss_nobody_knows_is_said_to_be_unchecked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"workload": "command", "sizes": None, "command": "python train.py"}
    result, place = _tune(Hosts(_slow), tmp_path, monkeypatch, today=BAD, **asked)
    assert result.proved
    assert "The loss was not checked" in result.answer
    assert "The loss was not checked" in (place / session.REPORT).read_text()
    assert json.loads((place / RESULT).read_text())["loss_checked"] is False


def test_settings_of_today_that_fail_end_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CheckError, match="today's settings fail"):
        _tune(Hosts(lambda _: None), tmp_path, monkeypatch, today=SettingsFile())


@pytest.mark.parametrize(
    ("changes", "observed"),
    [
        ({"hosts": (1, 2)}, "2 configurations are asked for"),
        ({"hosts": (5,)}, "5 hosts requested"),
        ({"cycle_time": 3.0}, "--set cycle_time"),
    ],
)
def test_what_is_not_one_configuration_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], observed: str
) -> None:
    with pytest.raises(UsageError, match=observed):
        _tune(Hosts(_slow), tmp_path, monkeypatch, today=SettingsFile(), **changes)


@pytest.mark.parametrize(
    ("today", "observed"),
    [
        (SettingsFile(mpirun="--bind-to core"), "horovodrun takes no options of mpirun"),
        (SettingsFile(rules="1 2 1 2 1 0 4 0 0"), "gloo sends nothing through Open MPI"),
    ],
)
def test_settings_of_another_backend_are_refused_and_not_measured(today: SettingsFile, observed: str) -> None:
    spec = labs.spec("gloo", sizes=(1024,))
    request = TuneRequest(spec, labs.lab(2), spaces.Space(SPACE, today), "tpe", 0, 30)
    with pytest.raises(UsageError, match=f"--settings does not fit what is measured: {observed}"):
        session.check(request)


@pytest.mark.parametrize(
    ("backend", "item", "observed"),
    [
        (
            "gloo",
            {"to": "mpirun", "values": ["", "--bind-to core"], "default": ""},
            "horovodrun takes no options",
        ),
        (
            "gloo",
            {"to": "rules", "collective": 2, "values": ["0", "4"], "default": "0"},
            "gloo sends nothing",
        ),
        ("mpi", {"to": "rules", "collective": 2, "values": ["0", "4"], "default": "0"}, ""),
        (
            "ddp-gloo",
            {"to": "env", "variable": "HOROVOD_CYCLE_TIME", "values": [1, 5], "default": 1},
            "cycle_time is a setting of Horovod, which DDP is without",
        ),
    ],
)
def test_a_space_for_another_backend_is_refused(backend: str, item: dict[str, Any], observed: str) -> None:
    """All of its values would fail, round for round."""
    space = spaces.space([SpaceParameter(name="own", **item)], SettingsFile())
    request = TuneRequest(labs.spec(backend, sizes=(1024,)), labs.lab(2), space, "tpe", 0, 30)
    with (
        pytest.raises(UsageError, match=f"own of --space does not fit: {observed}")
        if observed
        else nullcontext()
    ):
        session.check_space(request)


def test_an_interruption_while_shares_are_computed_costs_no_second_proof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as keys:
        keys.setattr(session, "importance", interrupted)
        with pytest.raises(KeyboardInterrupt):
            _tune(Hosts(_slow), tmp_path, monkeypatch, today=BAD)
    result, _ = _tune(Hosts(_slow), tmp_path, monkeypatch, today=BAD)
    assert [run.run_id for run in Store(tmp_path).runs()] == [result.proof.run_id]


def test_a_results_folder_that_is_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "results").touch()
    with pytest.raises(UsageError, match=r"the results folder .*/results cannot be written: "):
        _tune(Hosts(_slow), tmp_path / "results", monkeypatch, today=BAD)


class Training(Hosts):
    """Writes the steps of a training, and in the case's folder the log of autotune."""

    def __init__(self, cost: Cost, log: str, *, step_s: float = 0.01) -> None:
        super().__init__(cost)
        self.log, self.step_s = log, step_s
        self.epochs: dict[str, int] = {}
        self.env: list[str] = []

    def __call__(self, schedule: Schedule, store: Store, *, locked: bool = False) -> str:
        run_id = super().__call__(schedule, store, locked=locked)
        params = schedule.cases[0].params
        self.epochs.setdefault(schedule.spec.suite, params["epochs"])
        if schedule.spec.suite == "tune-length":
            (store.folder / "result.json").write_text(json.dumps({"steps": {"mean_s": [self.step_s] * 20}}))
        if schedule.spec.suite == "tune-autotune":
            (store.folder / "autotune.csv").write_text(self.log)
            self.env.append(params["env"])
        return run_id


LOG = (
    "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,"
    "tensor_fusion_threshold,score\n0,0,0, 1,25,64,10\n0,0,0, 1,3.25,32,20\n"
)


def test_what_horovods_autotune_chooses_is_raced_and_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = Training(lambda case: 1.0 + 0.1 * abs(float(case.params["cycle_time"]) - 3.25), LOG)
    result, place = _tune(hosts, tmp_path, monkeypatch, today=BAD, workload="mnist", sizes=None)
    assert hosts.runs[:2] == ["tune-length", "tune-autotune"]
    # 5 s are 500 steps, so 3 for each of 5 scores of 28 choices: 420 steps, 21 times the launch's 2 epochs.
    # Steps take 0.2 s of the launch's second; 0.8 s are 4 times as many.
    assert hosts.epochs == {"tune-length": 2, "tune-autotune": 42, "tune-1": 8} | dict.fromkeys(
        hosts.runs[3:], 8
    )
    assert "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE=3" in hosts.env[0]
    assert "HOROVOD_AUTOTUNE=1" in hosts.env[0]
    assert result.proved
    assert result.space.settings(result.search.best).env["HOROVOD_CYCLE_TIME"] == 3.25
    assert json.loads((place / RESULT).read_text())["autotuned"] == {"cycle_time": 3.25}
    assert "autotune chose: cycle_time=3.25." in (place / session.REPORT).read_text()


def test_an_autotune_that_prefers_todays_settings_adds_no_race_against_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = f"{LOG.splitlines()[0]}\n0,0,0, 1,1,128,20\n"
    asked = {"workload": "mnist", "sizes": None}
    # By noise, all but the first launch of a round is faster.
    hosts = Training(lambda case: 1.0 if case.params.get("side") == "0" else 0.9, log)
    result, place = _tune(hosts, tmp_path, monkeypatch, today=SettingsFile(), **asked)
    assert result.autotuned == result.space.start
    assert result.space.start not in result.search.board.values
    assert result.proof is not None
    assert "autotune chose: as today." in (place / session.REPORT).read_text()


@pytest.mark.parametrize(
    ("timeout", "runs", "epochs"),
    [
        # Two epochs take 0.2 s of a launch's second, and autotune takes 1.4 s at least.
        (1, ["tune-length", "tune-1"], 2),
        (3, ["tune-length", "tune-autotune", "tune-1"], 7),
    ],
)
def test_no_training_is_made_longer_than_a_case_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timeout: int, runs: list[str], epochs: int
) -> None:
    hosts = Training(_slow, LOG)
    asked = {"workload": "mnist", "sizes": None, "timeout": timeout}
    _tune(hosts, tmp_path, monkeypatch, today=BAD, **asked)
    assert hosts.runs[: len(runs)] == runs
    assert hosts.epochs["tune-1"] == epochs
    # One step for each score.
    assert all("HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE=1 " in env for env in hosts.env)


@pytest.mark.parametrize(
    ("log", "step_s", "runs"),
    [("no log at all", 0.01, ["tune-length", "tune-autotune"]), (LOG, 0.1, ["tune-length"])],
)
def test_without_an_answer_of_autotune_the_search_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: str, step_s: float, runs: list[str]
) -> None:
    hosts = Training(_slow, log, step_s=step_s)
    result, _ = _tune(hosts, tmp_path, monkeypatch, today=BAD, workload="mnist", sizes=None)
    assert hosts.runs[: len(runs) + 1] == [*runs, "tune-1"]
    assert result.autotuned is None
    assert result.proved


def test_a_finished_search_is_not_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, first = _tune(Hosts(_slow), tmp_path, monkeypatch, today=BAD)
    _, second = _tune(Hosts(_slow), tmp_path, monkeypatch, today=BAD)
    assert second.name == f"{first.name}-2"


def test_a_round_that_was_interrupted_counts_as_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, left = [0.0], [3]

    def cost(_: Case) -> float:
        if not left[0]:
            left[0] = 9
            raise KeyboardInterrupt
        left[0] -= 1
        now[0] += 100
        return 1.0

    monkeypatch.setattr(trials, "measure", Hosts(cost))
    monkeypatch.setattr(trials.time, "monotonic", lambda: now[0])
    space = spaces.space(SPACE, SettingsFile())
    batch = [space.start, (0, 0), (3, 0), (2, 2)]
    for attempt in range(2):
        launches = trials.Launches(labs.lab(2), Store(tmp_path))
        measured = trials.Trials(labs.spec("mpi", sizes=(1024,)), launches, space, 9000)
        if not attempt:
            with pytest.raises(KeyboardInterrupt):
                measured(batch)
    assert len(measured(batch)) == 4
    # Three launches of 100 s had been measured before, and one now.
    assert measured.spent == pytest.approx(400)
