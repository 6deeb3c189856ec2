"""A run of bench, watched from another process: what it writes, and what is shown of it."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from rich.console import Console
from rich.text import Text

from hvlab import cli
from hvlab.base.errors import UsageError
from hvlab.base.paths import project_dir
from hvlab.bench import measure, progress, watch
from hvlab.bench.progress import Display, RunProgress
from hvlab.bench.watch import Watch
from hvlab.cli.watch import _Page
from hvlab.results.lock import holder, measuring
from hvlab.results.store import Store
from tests.unit.test_bench import FakePlay, plan, store, world  # noqa: F401 - fixtures
from tests.unit.test_results import RECORD


def begun(folder, *, pid: int | None = None, **changes) -> RunProgress:
    now = time.time()
    values = {
        **{"machine": os.uname().nodename, "pid": pid or os.getpid(), "begun": now - 60, "at": now - 10},
        **{"total": 4, "done": 1, "before": 0, "doing": "c2 on n1,n2", "running": True, "left": 30.0},
        "expected": "4 cases, about 80 s (from earlier runs)",
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / progress.NAME).write_text(json.dumps(values | changes))
    return RunProgress(**(values | changes))


@pytest.fixture
def results(tmp_path):
    """A store with a finished run and one that goes on."""
    recorded = Store(tmp_path / "results")
    recorded.put("r0", [replace(RECORD, run_id="r0")], lab="t", spec_key="j", spec={}, cases=["c1"])
    recorded.create("r1", lab="t", spec_key="k", spec={}, cases=["c1", "c2", "c3"])
    recorded.add([RECORD, replace(RECORD, metric="busbw", value=2.5, unit="GB/s")])
    begun(recorded.run_folder("r1"))
    return recorded


def shown(results, capsys, *words: str) -> tuple[int, str]:
    code = cli.run(["watch", *words, "--results", str(results.folder)])
    out, err = capsys.readouterr()
    return code, out + err


def test_a_run_that_goes_on_is_shown(results, capsys):
    with measuring(results.folder, "t"):
        code, text = shown(results, capsys, "--once")
    assert code == 0
    assert "run r1 on t: running" in text
    assert "1 of 4 cases done (1 ok), 1 running, 2 to do" in text
    assert "elapsed 0:01:" in text
    assert re.search(r"about 0:00:(20|1\d) left", text)
    assert "now: c2 on n1,n2" in text
    assert "1K: 1.5 us, busbw 2.5 GB/s" in text


@pytest.mark.parametrize(("width", "bar"), [(34, False), (40, False), (80, True)])
def test_a_terminal_of_any_width_shows_each_case_and_how_it_ended(results, width, bar):
    name = "allreduce-mpi-2x1-r1"
    results.add([replace(RECORD, run_id="r1", case_id=name, status="failed", error="it broke")])
    with measuring(results.folder, "t"):
        view = Watch(results, "r1").read()
    console = Console(width=width, height=24, file=io.StringIO(), force_terminal=True)
    console.print(_Page(console).render(view))
    lines = Text.from_ansi(console.file.getvalue()).plain.splitlines()
    assert all(len(line) <= width for line in lines)
    assert any(re.match(rf"{name} +(n1,n2 +)?failed", line) for line in lines)
    assert any("━" in line for line in lines) == bar


def test_a_bench_that_was_killed_is_shown_as_such(results, capsys):
    code, text = shown(results, capsys, "r1")
    assert code == 1
    assert "run r1 on t: killed" in text
    assert f"process {os.getpid()} is gone" in text
    assert "hvlab bench --resume r1" in text
    with pytest.raises(UsageError, match="no run is in progress"):
        watch.current(results)


def test_the_lock_of_another_run_does_not_bring_it_back(results):
    begun(results.run_folder("r1"), pid=os.getpid() + 1)
    with measuring(results.folder, "t"):
        assert Watch(results, "r1").read().state == "killed"


def test_a_run_on_another_machine_is_not_called_killed(results, capsys):
    begun(results.run_folder("r1"), machine="elsewhere")
    assert watch.current(results).run_id == "r1"
    assert "running on elsewhere, unless it was killed" in shown(results, capsys, "--once")[1]


def test_a_damaged_file_of_progress_is_as_none(results, capsys):
    (results.run_folder("r1") / progress.NAME).write_text('{"pid": "x"')
    with measuring(results.folder, "t"):
        assert "1 of 3 cases done" in shown(results, capsys, "--once")[1]


def test_a_finished_run_is_shown_once(results, capsys):
    code, text = shown(results, capsys, "r0")
    assert (code, "run r0 on t: finished" in text) == (0, True)


def test_a_failed_case_is_an_exit_code_and_one_line(results, capsys):
    bad = replace(RECORD, case_id="c2", metric=None, value=None, status="failed", error="n1: a\nb")
    results.add([bad])
    results.enter("r1", "finished")
    code, text = shown(results, capsys, "r1")
    assert code == 1
    assert re.search("failed +n1: a b", text)


@pytest.fixture
def trials(tmp_path):
    """A search of tune between two rounds, in results that hold an older run."""
    recorded = Store(tmp_path / "results")
    recorded.put("r0", [replace(RECORD, run_id="r0")], lab="t", spec_key="j", spec={}, cases=["c1"])
    own = Store(recorded.folder / "tune" / "k1")
    own.put("r1", [RECORD], lab="t", spec_key="k", spec={}, cases=["c1"])
    begun(own.run_folder("r1"), doing="", running=False, left=None)
    return own


def next_run(place: Store, run_id: str, **changes) -> None:
    place.create(run_id, lab="t", spec_key=run_id, spec={}, cases=["c1"])
    begun(place.run_folder(run_id), total=1, done=0, **changes)


def test_a_search_is_followed_from_run_to_run_to_its_proof(trials, tmp_path):
    results = Store(tmp_path / "results")
    with measuring(results.folder, "t"):
        watching = watch.current(results)
        view = watching.read()
        assert (view.run.run_id, view.state, view.ended) == ("r1", "finished", False)
        assert view.doing == "between two runs of tune k1"
        with measuring(trials.folder, "t"):
            next_run(trials, "r2")
            view = watching.read()
            assert (view.run.run_id, view.state, view.doing) == ("r2", "running", "c2 on n1,n2")
            assert not view.cases
        trials.enter("r2", "finished")
        next_run(results, "r3")
        view = watching.read()
        assert (view.run.run_id, view.search, view.ended) == ("r3", trials.folder, False)
        results.enter("r3", "finished")
        assert not watching.read().ended
    view = watching.read()
    assert (view.run.run_id, view.ended) == ("r3", True)


def test_runs_of_others_do_not_belong_to_a_search(trials, tmp_path):
    results = Store(tmp_path / "results")
    with measuring(results.folder, "t"):
        watching = watch.current(results)
        next_run(results, "r2", pid=os.getpid() + 1)
        next_run(results, "r3", machine="elsewhere")
        assert watching.read().run.run_id == "r1"


@pytest.mark.slow
@pytest.mark.parametrize(("result", "code", "last"), [
    (True, 0, "tune k1 ended; its report is in {folder}"),
    (False, 1, "tune k1 did not finish; the same command resumes it"),
])  # fmt: skip
def test_a_search_is_followed_in_lines(trials, tmp_path, result, code, last):
    lines = []

    def until(beginning: str) -> None:
        for line in watching.stdout:
            lines.append(line.rstrip())
            if line.startswith(beginning):
                return

    argv = [sys.executable, "-u", "-m", "hvlab", "watch", "--results", str(tmp_path / "results")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with measuring(tmp_path / "results", "t"):
        watching = subprocess.Popen(argv, env=os.environ | {"PYTHONPATH": str(project_dir())}, **pipes)
        until("between two runs of tune k1")
        with measuring(trials.folder, "t"):
            next_run(trials, "r2")
            until("c2 on n1,n2")
        trials.enter("r2", "finished")
        if result:
            (trials.folder / "result.json").write_text("{}")
    out, err = watching.communicate(timeout=30)
    assert (watching.returncode, err) == (code, "")
    assert lines[0] == "run r1 of tune k1 on t: finished"
    assert "run r2 of tune k1 on t: running" in lines
    assert out.splitlines()[-1] == last.format(folder=trials.folder)


def test_a_damaged_store_of_a_search_hides_no_other_run(trials, tmp_path):
    damaged = tmp_path / "results/bisect/k2"
    damaged.mkdir(parents=True)
    (damaged / "hvlab.db").write_text("no database")
    with measuring(tmp_path / "results", "t"):
        assert watch.current(Store(tmp_path / "results")).run_id == "r1"


def test_a_search_that_ended_is_none_in_progress(trials, tmp_path):
    with pytest.raises(UsageError, match="no run is in progress"):
        watch.current(Store(tmp_path / "results"))


def test_a_run_of_a_search_is_shown_by_its_name(trials, tmp_path, capsys):
    code, text = shown(Store(tmp_path / "results"), capsys, "r1", "--once")
    assert (code, "run r1 on t: finished" in text) == (0, True)
    # A part of the id, and a store beside it that cannot be read.
    damaged = tmp_path / "results/bisect/k2"
    damaged.mkdir(parents=True)
    (damaged / "hvlab.db").write_text("no database")
    assert watch.open_watch(Store(tmp_path / "results"), "1").run_id == "r1"


def test_a_command_that_has_no_run_yet_is_named(tmp_path, capsys):
    with measuring(tmp_path, "t"):
        code, text = shown(Store(tmp_path), capsys)
    assert code == 2
    assert f"process {os.getpid()} prepares to measure lab t" in text


def test_an_unknown_run_and_an_empty_store_are_usage_errors(results, capsys, tmp_path):
    assert shown(results, capsys, "r7")[0] == 2
    assert shown(Store(tmp_path / "none"), capsys)[0] == 2


def test_the_lock_can_be_seen_and_stays_free(tmp_path):
    assert holder(tmp_path, "t") is None
    with measuring(tmp_path, "t"):
        assert holder(tmp_path, "t") == os.getpid()
    assert holder(tmp_path, "t") is None
    with measuring(tmp_path, "t"):
        pass


def test_bench_writes_what_goes_on(world, store):  # noqa: F811
    views = []

    class Seen(FakePlay):
        def wait(self, seconds):
            views.append(Watch(store, store.run().run_id).read())
            return super().wait(seconds)

    measure.Play = Seen
    run_id = measure.measure(plan(), store)
    assert [(view.state, len(view.cases), view.running) for view in views[1:3]] == [
        ("running", 1, 1),
        ("running", 2, 1),
    ]
    assert views[0].doing == ""
    assert views[1].doing.endswith(" on n1,n2")
    assert views[1].left is not None
    last = Watch(store, run_id).read()
    assert (last.state, len(last.cases), last.total, last.doing) == ("finished", 3, 3, "")


def test_it_is_written_only_where_it_changes(tmp_path, monkeypatch):
    writes = []
    monkeypatch.setattr(progress, "write_file", lambda path, text: writes.append(json.loads(text)))
    with Display(2) as display:
        display.expect("2 cases, about 10 s")
        display.keep(tmp_path)
        for _ in range(5):
            display.step("c1 on n1", running=True)
        display.count_case("c1", ["n1"], 1.0, "ok")
        display.step("c2 on n1", running=True)
    assert [(each["done"], each["doing"]) for each in writes] == [
        *((0, ""), (0, "c1 on n1"), (1, "c2 on n1"), (1, "")),
    ]
    assert writes[0]["expected"] == "2 cases, about 10 s"


def test_a_disk_that_is_full_does_not_end_a_bench(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(progress, "write_file", full)
    with Display(1) as display:
        display.keep(tmp_path)


def test_verdicts_are_those_of_the_last_complete_look():
    records = [replace(RECORD, repeat=number) for number in range(1, 9)]
    judged = watch._up_to_look(records, {"auto": True}, ended=False)
    assert [record.repeat for record in judged] == [1, 2, 3, 4, 5, 6]
    assert watch._up_to_look(records[:6], {"auto": True}, ended=False) == ()
    assert len(watch._up_to_look(records, {"auto": True}, ended=True)) == 8
    assert watch._up_to_look(records, {"sides": {"A": {}}}, ended=False) == ()
    assert watch._up_to_look(records, {}, ended=True) is None


def test_ctrl_c_ends_it_quietly_and_leaves_the_run(results):
    with measuring(results.folder, "t"):
        argv = [sys.executable, "-u", "-m", "hvlab", "watch", "--results", str(results.folder)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        environment = os.environ | {"PYTHONPATH": str(project_dir())}
        with subprocess.Popen(argv, env=environment, **pipes) as watching:
            for line in watching.stdout:
                if line.startswith("c2 on n1,n2"):
                    break
            watching.send_signal(signal.SIGINT)
            _, err = watching.communicate(timeout=30)
        assert (watching.returncode, err) == (130, "")
        assert Watch(results, "r1").read().state == "running"
