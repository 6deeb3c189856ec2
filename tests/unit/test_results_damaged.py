"""Stores on disks that take nothing, damaged ones, clocks that step back: what is there is read, or told."""

import json
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
from hvlab.results import journal
from hvlab.results import store as stores
from hvlab.results.database import DamagedStoreError
from hvlab.results.lock import measuring
from hvlab.results.rebuild import rebuild
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
    ("results", "export", "r1", "--to", "csv"),
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
        if str(folder) in str(place) and "immutable" not in str(place):
            raise sqlite3.OperationalError("unable to open database file")
        return connect(place, *args, **more)

    monkeypatch.setattr(sqlite3, "connect", refuse)


def test_a_read_only_store_is_read(store, monkeypatch):
    before = everything(store)
    _read_only(store.folder, monkeypatch)
    assert everything(store) == before
    with pytest.raises(HvlabError, match="cannot be written"):
        store.enter("r1", "finished")


def _cut_off(folder: Path, copy: Path, mode: str) -> None:
    """Copy a store as a writer leaves it that is killed after ``r1`` was entered, in its next transaction."""
    with closing(sqlite3.connect(folder / "hvlab.db", isolation_level=None)) as writer:
        writer.execute(f"PRAGMA journal_mode = {mode}")
        # Changed pages go into the file at once, not first at the end of the transaction.
        writer.execute("PRAGMA cache_size = 1")
        writer.execute("INSERT INTO states VALUES ('r1', '2026-11-01T00:00:00.000Z', 'running')")
        writer.execute("BEGIN IMMEDIATE")
        for _ in range(2000):
            writer.execute("INSERT INTO states VALUES ('r1', '2026-11-02T00:00:00.000Z', 'finished')")
        shutil.copytree(folder, copy)
        writer.execute("ROLLBACK")


@pytest.mark.parametrize(("mode", "ending"), [("DELETE", "journal"), ("WAL", "wal")])
def test_a_read_only_store_of_a_killed_writer_is_read(store, monkeypatch, tmp_path, mode, ending):
    copy = tmp_path / "copy"
    _cut_off(store.folder, copy, mode)
    assert (copy / f"hvlab.db-{ending}").stat().st_size
    _read_only(copy, monkeypatch)
    assert Store(copy).run("r1").state == "running"


def test_other_hosts_may_read_a_store_on_nfs_while_it_is_written(store):
    """SQLite's write-ahead log has an index in memory that one host's processes share."""
    with closing(sqlite3.connect(store.folder / "hvlab.db")) as older:
        older.execute("PRAGMA journal_mode = WAL")
    store.enter("r1", "finished")
    with closing(sqlite3.connect(store.folder / "hvlab.db")) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert sorted(file.name for file in store.folder.iterdir() if "db-" in file.name) == []


def test_an_older_store_may_be_read_while_it_is_written(store):
    file = store.folder / "hvlab.db"
    with closing(sqlite3.connect(file)) as reader, closing(sqlite3.connect(file)) as older:
        older.execute("PRAGMA journal_mode = WAL")
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM runs").fetchone()
        store.enter("r1", "running")
    assert store.run("r1").state == "running"


def _cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 3)


def _cell(change: str):
    def spoil(file: Path) -> None:
        with sqlite3.connect(file) as database:
            for (name,) in database.execute(
                "SELECT name FROM sqlite_master WHERE type = 'trigger'"
            ).fetchall():
                database.execute(f"DROP TRIGGER {name}")
            database.execute(change)
        database.close()

    return spoil


DAMAGE = {
    "empty": lambda file: file.write_bytes(b""),
    "cut": _cut,
    "text": lambda file: file.write_text("no database" * 500),
    "overwritten": lambda file: file.write_bytes(file.read_bytes()[:4096] + b"\x7f" * 8192),
    "cell": _cell("UPDATE records SET hosts = '[\"n1'"),
    "kind": _cell("UPDATE records SET params = '7'"),
    "infinite": _cell("UPDATE records SET value = 9e999"),
    "bytes": _cell("UPDATE records SET unit = CAST(x'ff' AS TEXT)"),
    "table": _cell("DROP TABLE records"),
    "cases": _cell("UPDATE runs SET cases = '{'"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_store_is_told_and_made_anew(store, damage, capsys):
    before = everything(store)
    file = store.folder / "hvlab.db"
    damage(file)
    damaged = file.read_bytes()
    with pytest.raises(DamagedStoreError) as caught:
        everything(store)
    assert "hvlab results rebuild --results" in caught.value.remedy
    assert cli.run(["results", "rebuild", "--results", str(store.folder)]) == 0
    assert "2 runs, 3 records" in capsys.readouterr().out
    assert everything(store) == before
    (kept,) = store.folder.glob("hvlab.db.damaged-*Z")
    assert kept.read_bytes() == damaged
    store.enter("r1", "finished")


def test_a_first_run_that_ended_before_the_store_had_it_loses_nothing(tmp_path):
    """By a full disk or SIGKILL; the bench has written its progress by then."""
    store = Store(tmp_path)
    (store.run_folder("r1")).mkdir(parents=True)
    (store.run_folder("r1") / "progress.json").touch()
    (tmp_path / "hvlab.db").touch()
    assert store.runs() == []
    store.create("r2", lab="t", spec_key="k", spec={}, cases=["c1"])
    assert store.run().run_id == "r2"


def test_an_empty_store_beside_cases_that_no_journal_has_is_begun_anew_by_hand(tmp_path):
    store = Store(tmp_path)
    (store.run_folder("r1") / "c1").mkdir(parents=True)
    (tmp_path / "hvlab.db").touch()
    with pytest.raises(DamagedStoreError, match="it has 0 bytes"):
        store.runs()
    with pytest.raises(UsageError) as caught:
        rebuild(tmp_path)
    assert f"remove {tmp_path / 'hvlab.db'} to begin anew" in caught.value.remedy


def test_a_store_that_is_gone_is_made_anew(store):
    before = everything(store)
    (store.folder / "hvlab.db").unlink()
    for use in (store.runs, lambda: store.create("r3", lab="t", spec_key="k", spec={}, cases=[])):
        with pytest.raises(DamagedStoreError, match=r"hvlab\.db are damaged: it is gone"):
            use()
    assert rebuild(store.folder).kept is None
    assert everything(store) == before


def test_a_store_that_began_anew_beside_old_runs_is_ordered_by_time(store):
    for number, day in ((1, 3), (2, 4), (1, 1), (2, 2)):
        folder = store.folder / f"runs/day{day}"
        row = (f"day{day}", f"2026-11-0{day}T00:00:00.000Z", "t", "k", "{}", "[]")
        journal.write(folder, "run", (number, *row))
    shutil.rmtree(store.folder / "runs/r1")
    shutil.rmtree(store.folder / "runs/r2")
    (store.folder / "hvlab.db").unlink()
    rebuild(store.folder)
    assert [run.run_id for run in store.runs()] == ["day1", "day2", "day3", "day4"]


def test_runs_without_files_come_from_the_damaged_store(store):
    before = everything(store)
    shutil.rmtree(store.folder / "runs/r2")
    _cell("UPDATE records SET stack = '{' WHERE run_id = 'r1'")(store.folder / "hvlab.db")
    rebuild(store.folder)
    assert everything(store) == before
    (store.folder / "hvlab.db").unlink()
    rebuild(store.folder)
    assert everything(store) == before


def test_a_journal_that_was_cut_off_loses_that_case_alone(store):
    file = store.run_folder("r1") / journal.NAME
    lines = file.read_text().splitlines()
    half = next(number for number, line in enumerate(lines) if line.startswith('{"records"'))
    file.write_text("\n".join([*lines[:half], lines[half][:50]]))
    journal.write(file.parent, "state", ("r1", "2026", "interrupted"))
    (store.folder / "hvlab.db").unlink()
    assert (rebuild(store.folder).lost, store.done("r1")) == (1, set())
    assert store.unfinished("k").run_id == "r1"


def test_there_may_be_nothing_to_rebuild(tmp_path):
    with pytest.raises(UsageError, match="nothing"):
        rebuild(tmp_path)


def test_a_store_in_use_is_not_rebuilt(store):
    with measuring(store.folder, "t"), pytest.raises(UsageError, match=f"process {os.getpid()} measures"):
        rebuild(store.folder)


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
    rebuild(tmp_path)
    assert [run.run_id for run in made.runs()] == ["r1", "r2"]


def on_full_disk(statement: str, folder: Path) -> str:
    """Return what a statement raises where no file may grow."""
    code = f"""{FULL}
from pathlib import Path
from hvlab.base.errors import HvlabError
from hvlab.results.lock import measuring
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


def test_a_store_that_another_program_holds_is_no_full_disk(store, monkeypatch):
    file = store.folder / "hvlab.db"
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *given, **more: connect(*given, **more | {"timeout": 0}))
    with closing(connect(file)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(HvlabError) as caught:
            store.enter("r1", "x")
    assert "fuser -v" in caught.value.remedy


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


def test_a_run_of_a_foreign_store_names_no_other_folder(store):
    with closing(sqlite3.connect(store.folder / "hvlab.db")) as database, database:
        database.execute(
            "INSERT INTO runs SELECT '../../evil', started_at, lab, spec_key, spec, cases FROM runs LIMIT 1"
        )
    assert rebuild(store.folder).lost == 1
    assert not list(store.folder.parent.glob("evil*"))
    assert [run.run_id for run in store.runs()] == ["r1", "r2"]


def test_the_journal_says_what_the_store_says(store):
    known = journal.read(store.run_folder("r1"))
    assert (known.number, known.run[0]) == (1, "r1")
    assert [state[2] for state in known.states] == ["running", "interrupted"]
    assert json.loads(known.records["c1"][1][10]) == {"size_bytes": 1024}


def test_a_folder_that_is_a_file(tmp_path):
    (tmp_path / "results").write_text("x")
    with pytest.raises(HvlabError, match="is not a directory") as caught:
        Store(tmp_path / "results").overview()
    assert "--results" in caught.value.remedy


def test_another_programs_database_is_not_written_to(tmp_path):
    file = tmp_path / "hvlab.db"
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("CREATE TABLE photos (name)")
    before = file.read_bytes()
    with pytest.raises(DamagedStoreError, match="it has no tables of hvlab"):
        Store(tmp_path).put("r", [], lab="x", spec_key="k", spec={}, cases=[])
    assert file.read_bytes() == before


@pytest.mark.parametrize("name", ["../../pwn", "/tmp/pwn", ""])
def test_a_foreign_store_does_not_choose_the_folder_of_a_run(tmp_path, name):
    _foreign(tmp_path, run_id=name)
    with pytest.raises(HvlabError, match="no name of a run"):
        Store(tmp_path).runs()


@pytest.mark.parametrize("path", ["../../etc", "/etc", "runs/../../etc"])
def test_raw_files_of_a_foreign_store_lie_below_its_runs(tmp_path, path):
    _foreign(tmp_path, raw_path=path)
    with pytest.raises(HvlabError, match="not below runs/"):
        Store(tmp_path).records("r1")


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


def test_texts_of_a_foreign_store_do_not_steer_the_terminal(tmp_path):
    _foreign(tmp_path, lab="\x1b]0;pwn\x07lab", launcher="\x1b[2Jmpirun", stack={"nccl": "\x1b[2J2"})
    (run,) = Store(tmp_path).runs()
    (record,) = Store(tmp_path).records("r1")
    assert (run.lab, record.launcher, record.stack) == ("lab", "mpirun", {"nccl": "2"})


def _foreign(folder, *, run_id="r1", lab="lab", **fields):
    record = {
        **dict.fromkeys(stores.FIELDS),
        **{"run_id": run_id, "case_id": "c", "started_at": "2026-11-20T00:00:00Z", "workload": "allreduce"},
        **{"launcher": "mpirun", "backend": "nccl", "hosts": ["a"], "slots_per_host": 1, "params": {}},
        **{"repeat": 1, "status": "ok", "stack": {}, "raw_path": "runs/r1/c"},
        **fields,
    }
    with closing(stores.migrated(sqlite3.connect(folder / "hvlab.db"))) as database, database:
        database.execute(stores.INSERT_RUN, (run_id, record["started_at"], lab, "k", "{}", "[]"))
        values = (json.dumps(value) if isinstance(value, dict | list) else value for value in record.values())
        database.execute(stores.INSERT_RECORD, tuple(values))
