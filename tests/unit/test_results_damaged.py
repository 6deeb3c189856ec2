"""Results on disks that take nothing, damaged ones, clocks that step back: what is there is read, or told."""

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from hvlab import cli
from hvlab.base import paths
from hvlab.base.errors import HvlabError, UsageError
from hvlab.base.paths import project_dir
from hvlab.cli import run
from hvlab.results import index, journal
from hvlab.results import store as stores
from hvlab.results.record import to_row
from hvlab.results.store import Store
from tests.unit.test_results import RECORD

# No file may grow, as on a full disk.
FULL = "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
FULL += "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
RUN = "from hvlab import cli; sys.exit(cli.run(sys.argv[1:]))"


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "results")
    made.create("r1", lab="t", spec_key="k", spec={"a": 1}, cases=["c1", "c2"])
    made.add([RECORD, replace(RECORD, metric="busbw", value=2.5, unit="GB/s")])
    made.enter("r1", "interrupted")
    made.put("r2", [replace(RECORD, run_id="r2")], lab="t", spec_key="j", spec={}, cases=["c1"])
    return made


def hvlab(*words: object, before: str = "import sys\n", **given) -> subprocess.CompletedProcess:
    argv = [sys.executable, "-c", before + RUN, *map(str, words)]
    return subprocess.run(argv, capture_output="stdout" not in given, text=True, check=False, **given)


def everything(store: Store) -> dict:
    return {run.run_id: (run, store.spec(run.run_id), store.records(run.run_id)) for run in store.runs()}


READS = [
    ("results", "list"),
    ("results", "show", "r1"),
    ("results", "export", "r1", "--format", "csv"),
]


@pytest.mark.parametrize("words", READS, ids=lambda words: words[1])
def test_a_full_disk_keeps_no_one_from_reading(store, words):
    done = hvlab(*words, "--results", store.folder, before=FULL)
    assert (done.returncode, done.stderr) == (0, "")
    assert "r1" in done.stdout


def _read_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have SQLite refuse to open the store for writing, as for a user without rights: tests may be root's."""
    connect = sqlite3.connect

    def refuse(place, *args, **more):
        if str(folder) in str(place):
            error = sqlite3.OperationalError("unable to open database file")
            error.sqlite_errorname = "SQLITE_CANTOPEN"
            raise error
        return connect(place, *args, **more)

    monkeypatch.setattr(sqlite3, "connect", refuse)


@pytest.mark.parametrize("index_is", ["there", "behind", "gone", "cut off by a killed writer"])
def test_read_only_results_are_read(store, monkeypatch, index_is):
    before, file = everything(store), store.folder / "hvlab.db"
    if index_is == "behind":
        store.put("r3", [replace(RECORD, run_id="r3")], lab="t", spec_key="j", spec={}, cases=["c1"])
        before |= {"r3": everything(Store(shutil.copytree(store.folder, store.folder.parent / "c")))["r3"]}
    elif index_is == "gone":
        file.unlink()
    elif index_is == "cut off by a killed writer":
        file.with_name("hvlab.db-journal").write_text("x")
    _read_only(store.folder, monkeypatch)
    assert everything(store) == before


def _cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 3)


def _cell(change: str):
    def spoil(file: Path) -> None:
        with closing(sqlite3.connect(file)) as database, database:
            database.execute(change)

    return spoil


DAMAGE = {
    "gone": Path.unlink,
    "empty": lambda file: file.write_bytes(b""),
    "cut": _cut,
    "text": lambda file: file.write_text("no database" * 500),
    "overwritten": lambda file: file.write_bytes(file.read_bytes()[:4096] + b"\x7f" * 8192),
    "cell": _cell("UPDATE figures SET hosts = '[\"n1'"),
    "kind": _cell("UPDATE figures SET params = '7'"),
    "infinite": _cell("UPDATE figures SET value = 9e999"),
    "bytes": _cell("UPDATE figures SET unit = CAST(x'ff' AS TEXT)"),
    "table": _cell("DROP TABLE figures"),
    "cases": _cell("UPDATE journals SET cases = '{'"),
    "foreign run": _cell("UPDATE journals SET run_id = '../../evil' WHERE run_id = 'r1'"),
    "foreign files": _cell("UPDATE figures SET raw_path = '/etc'"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_whatever_becomes_of_the_index_nothing_is_lost(store, damage):
    before = everything(store)
    damage(store.folder / "hvlab.db")
    assert everything(store) == before
    store.enter("r1", "finished")
    assert store.run("r1").state == "finished"
    with closing(sqlite3.connect(store.folder / "hvlab.db")) as database:
        assert database.execute("SELECT count(*) FROM figures").fetchone() == (3,)


def test_an_index_is_kept_up_to_date_and_not_made_again(store, monkeypatch):
    store.runs()
    read = []
    monkeypatch.setattr(index.journal, "read", lambda *given: read.append(given) or ([], given[1]))
    store.records("r1")
    assert read == []
    size = (store.run_folder("r1") / journal.NAME).stat().st_size
    store.enter("r1", "running")
    store.records("r1")
    assert read == [(store.run_folder("r1"), size)]


def test_a_run_goes_with_its_folder(store):
    store.runs()
    shutil.rmtree(store.run_folder("r1"))
    assert [run.run_id for run in store.runs()] == ["r2"]
    assert store.records("r1") == []


def test_runs_of_merged_folders_are_ordered_by_time(store):
    for number, day in ((1, 3), (2, 4), (1, 1), (2, 2)):
        row = (f"day{day}", f"2026-11-0{day}T00:00:00.000Z", "t", "k", "{}", "[]")
        journal.write(store.folder / f"runs/day{day}", [("run", (number, *row))])
    shutil.rmtree(store.folder / "runs/r1")
    shutil.rmtree(store.folder / "runs/r2")
    assert [run.run_id for run in store.runs()] == ["day1", "day2", "day3", "day4"]


def test_a_journal_that_was_cut_off_loses_that_case_alone(store, capsys):
    file = store.run_folder("r1") / journal.NAME
    lines = file.read_text().splitlines()
    half = next(number for number, line in enumerate(lines) if line.startswith('{"records"'))
    file.write_text("\n".join([*lines[:half], lines[half][:50]]))
    store.enter("r1", "interrupted")
    assert store.finished_cases("r1") == set()
    assert store.unfinished("k").run_id == "r1"
    assert cli.run(["results", "rebuild", "--results", str(store.folder)]) == 1
    said = capsys.readouterr()
    assert "2 runs, 1 records" in said.out
    assert "1 lines of" in said.err


def test_a_case_that_was_entered_twice_counts_once(store):
    store.add([replace(RECORD, value=3.5)])
    assert [record.value for record in store.records("r1")] == [3.5]


FOREIGN = {
    "../../evil": {"run_id": "../../evil"},
    "other run": {"run_id": "r2"},
    "path": {"raw_path": "runs/../../etc"},
    "etc": {"raw_path": "/etc"},
    "infinite": {"value": float("inf")},
    "null": {"launcher": None},
}


@pytest.mark.parametrize("change", FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_journal_has_no_such_records(store, change):
    row = to_row(replace(RECORD, case_id="c2", **change))
    journal.write(store.run_folder("r1"), [("records", [row])])
    assert store.finished_cases("r1") == {"c1"}
    assert not list(store.folder.parent.glob("evil*"))


def test_texts_of_foreign_results_do_not_steer_the_terminal(store):
    row = ("r3", "2026", "\x1b]0;pwn\x07lab", "k", "{}", "[]")
    record = replace(RECORD, run_id="r3", launcher="\x1b[2Jmpirun", stack={"nccl": "\x1b[2J2"})
    journal.write(store.run_folder("r3"), [("run", (3, *row)), ("records", [to_row(record)])])
    (read,) = store.records("r3")
    assert (store.run("r3").lab, read.launcher, read.stack) == ("lab", "mpirun", {"nccl": "2"})


def _older(folder: Path, runs: dict[str, list], version: int = 2) -> Path:
    """Write a store as hvlab did before run folders held everything."""
    folder.mkdir(exist_ok=True)
    with closing(sqlite3.connect(folder / "hvlab.db")) as database, database:
        database.execute("CREATE TABLE runs (run_id, started_at, lab, spec_key, spec, cases)")
        database.execute("CREATE TABLE states (run_id, at, state)")
        database.execute(f"CREATE TABLE records ({', '.join(stores.FIELDS)})")
        database.execute(f"PRAGMA user_version = {version}")
        for run_id, records in runs.items():
            database.execute("INSERT INTO runs VALUES (?, '2026', 't', 'k', '{}', '[\"c1\"]')", (run_id,))
            database.execute("INSERT INTO states VALUES (?, '2026', 'finished')", (run_id,))
            marks = ", ".join("?" * len(stores.FIELDS))
            database.executemany(f"INSERT INTO records VALUES ({marks})", map(to_row, records))  # noqa: S608 - marks
    return folder / "hvlab.db"


@pytest.mark.parametrize("version", [1, 2])
def test_runs_that_an_earlier_store_alone_has_get_their_journals(tmp_path, version):
    record = replace(RECORD, run_id="r0")
    file = _older(tmp_path, {"r0": [record], "../../evil": []}, version)
    before = file.read_bytes()
    made = Store(tmp_path)
    for _ in range(2):
        assert [(run.run_id, run.state) for run in made.runs()] == [("r0", "finished")]
        assert made.records("r0") == [record]
        file.unlink()
    assert (tmp_path / "hvlab.db.old").read_bytes() == before
    assert not list(tmp_path.parent.glob("evil*"))


def test_what_a_damaged_earlier_store_still_says_is_taken_over(tmp_path):
    many = [replace(RECORD, run_id="r0", case_id=f"c{number}") for number in range(2000)]
    file = _older(tmp_path, {"r0": many})
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2].ljust(len(whole), b"\x7f"))
    made = Store(tmp_path)
    assert [run.run_id for run in made.runs()] == ["r0"]
    assert 0 < len(made.finished_cases("r0")) < 2000


def test_a_clock_that_steps_back_keeps_the_order(tmp_path, monkeypatch):
    made = Store(tmp_path)
    for run_id, now in (("r1", "2026-11-20"), ("r2", "2026-11-10")):
        monkeypatch.setattr(stores, "utc", lambda seconds=None, now=now: now)
        made.create(run_id, lab="t", spec_key="k", spec={}, cases=["c1"])
        made.add([replace(RECORD, run_id=run_id)])
    assert [run.run_id for run in made.runs()] == ["r1", "r2"]
    assert made.run().run_id == made.unfinished("k").run_id == "r2"
    assert [record.run_id for record, _ in made.latest(1)] == ["r2"]
    (tmp_path / "hvlab.db").unlink()
    assert [run.run_id for run in made.runs()] == ["r1", "r2"]


def on_full_disk(statement: str, folder: Path) -> str:
    """Return what a statement raises where no file may grow."""
    code = f"""{FULL}
from pathlib import Path
from hvlab.base.errors import HvlabError
from hvlab.results.lock import measuring
from hvlab.results.record import to_row
from hvlab.results.store import Store
folder = Path(sys.argv[1])
try:
    {statement}
except HvlabError as error:
    print(error, error.remedy)
"""
    argv = [sys.executable, "-c", code, str(folder)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.stdout


def test_a_full_disk_at_the_start_of_a_run_is_told(tmp_path):
    said = on_full_disk("measuring(folder, 't').__enter__()", tmp_path)
    assert "cannot be written: File too large free space" in said


def test_a_full_disk_while_results_are_entered_is_told(store):
    assert "free space on the disk of" in on_full_disk("Store(folder).enter('r1', 'x')", store.folder)
    assert store.run("r1").state == "interrupted"


def test_an_index_that_another_program_holds_keeps_no_one_from_reading(store, monkeypatch):
    store.runs()
    store.enter("r1", "finished")
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *given, **more: connect(*given, **more | {"timeout": 0}))
    with closing(connect(store.folder / "hvlab.db")) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert store.run("r1").state == "finished"
    assert sorted(file.name for file in store.folder.glob("hvlab.db*")) == ["hvlab.db"]


@pytest.mark.parametrize("words", READS, ids=lambda words: words[1])
def test_an_output_that_takes_nothing_is_told(store, words):
    with Path("/dev/full").open("w") as full:
        done = hvlab(*words, "--results", store.folder, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert "what to do: " in done.stderr


@pytest.mark.parametrize(
    ("before", "words", "observed"),
    [
        (
            "import os, sys, tempfile; os.chdir(tempfile.mkdtemp()); os.rmdir(os.getcwd())\n",
            ["results", "list"],
            "gone",
        ),
        (FULL, ["plan", "-i", str(project_dir() / "inventory/lab")], "No usable temporary directory"),
        ("import sys\n", ["doctor", "--log", "/proc/self/mem"], "/proc/self/mem"),
    ],
)
def test_what_the_system_refuses_is_told_with_what_to_do(before, words, observed):
    done = hvlab(*words, before=before)
    assert done.returncode in (1, 2)
    assert observed in done.stderr
    assert "what to do: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("verb", ["bench", "report", "results list", "tune"])
def test_a_results_folder_that_is_a_file_is_refused_at_once(verb, tmp_path, capsys):
    (tmp_path / "results").write_text("x")
    assert run([*verb.split(), "--results", str(tmp_path / "results")]) == 2
    assert "is a file\n  what to do: name a folder with --results" in capsys.readouterr().err


def test_another_programs_database_is_not_written_to(tmp_path):
    file = tmp_path / "hvlab.db"
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("CREATE TABLE photos (name)")
    before = file.read_bytes()
    with pytest.raises(UsageError, match="has no tables of hvlab"):
        Store(tmp_path).put("r", [], lab="x", spec_key="k", spec={}, cases=[])
    assert file.read_bytes() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
@pytest.mark.parametrize("link", ["runs", "runs/r1", "runs/r1/report.html", "runs/r1/c/stdout", "hvlab.db"])
def test_no_link_of_another_user_is_followed_in_a_results_folder(tmp_path, link):
    """It could lead to a file of the caller's, which a report would write, or show to the other user."""
    results, own = tmp_path / "results", tmp_path / "own"
    for folder in ((results / link).parent, own):
        folder.mkdir(parents=True, exist_ok=True)
    (results / link).symlink_to(own)
    paths.refuse_links(results)
    paths.refuse_links.cache_clear()
    for path in (results, *results.rglob("*")):
        os.chown(path, 65534, 65534, follow_symlinks=False)
    with pytest.raises(HvlabError, match=f"{results / link} is a link of user 65534"):
        Store(results).runs()
