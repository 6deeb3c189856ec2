"""What lies unused on hosts: what may go, what stays, and what `hvlab clean --on-hosts` makes of it."""

import base64
import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hvlab import cli
from hvlab.cli import clean
from hvlab.remote import gather
from hvlab.remote.playbook import HostFailure
from hvlab.results.lock import measuring
from hvlab.searches.bisect import session
from tests.unit import labs

PROGRAM = Path(gather.__file__).parent / "programs/unused.py"
DAY = 86_400.0
KEY = "0123456789abcdef"


def age(place: Path, days: float) -> None:
    """Make all that lies there so old."""
    then = time.time() - days * DAY
    for path in [place, *place.rglob("*")]:
        os.utime(path, (then, then), follow_symlinks=False)


def pack(place: Path, key: str, *needs: str) -> Path:
    place.mkdir(parents=True)
    marker = {"key": key, "inputs": {"needs": list(needs)}}
    (place / ".hvlab-pack.json").write_text(json.dumps(marker))
    (place / "file").write_bytes(b"x" * 10_000)
    (place.parent / f".{place.name}.manifest").write_text("{}")
    return place


@pytest.fixture
def host(tmp_path, monkeypatch):
    """The folders of a host, all of them old; its user's home is one of them."""
    for version, key in (("4.1.4", "a"), ("4.1.5", "b"), ("4.1.6", "c"), ("4.1.8", "d")):
        pack(tmp_path / "opt/openmpi" / version, key)
    (tmp_path / "opt/openmpi/current").symlink_to("4.1.8")
    (tmp_path / "opt/openmpi/own").mkdir()
    pack(tmp_path / "opt/horovod/mpi", "h", "c")
    pack(tmp_path / "opt/python", "p")
    pack(tmp_path / "opt/stacks/horovod-1/mpi", "s")
    (tmp_path / "opt/stacks/s1").mkdir()
    (tmp_path / "opt/stacks/s1/openmpi").symlink_to(tmp_path / "opt/openmpi/4.1.5")
    (tmp_path / "opt/openmpi/.4.1.8.new-x").mkdir()
    (tmp_path / "build" / f"openmpi-{KEY}/src").mkdir(parents=True)
    (tmp_path / "build/somebody-elses").mkdir()
    (tmp_path / "home/.hvlab/runs/r1/case").mkdir(parents=True)
    age(tmp_path, 40)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def asked(host: Path, *remove: Path | str) -> dict[str, dict]:
    """Return the answer of a host by path, relative to its folder."""
    request = {
        "builds": str(host / "build"), "root": str(host / "opt"), "stacks": str(host / "opt/stacks"),
        "user": "", "host": "n1", "remove": {"n1": [str(host / path) for path in remove]} if remove else None,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.read_text(), json.dumps(request)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return {os.path.relpath(each["path"], host): each for each in json.loads(done.stdout)}


OLD = {
    "opt/openmpi/4.1.4": "old pack",
    "opt/openmpi/.4.1.8.new-x": "leftover",
    "opt/stacks": "stacks",
    f"build/openmpi-{KEY}": "build folder",
    "home/.hvlab/runs/r1": "run files",
}


def test_what_a_link_points_to_or_a_pack_was_built_on_stays(host):
    answer = asked(host)
    assert {path: each["kind"] for path, each in answer.items()} == OLD
    assert not any(each["busy"] for each in answer.values())
    assert {round(each["idle"] / DAY) for each in answer.values()} == {40}
    assert answer["opt/openmpi/4.1.4"]["size"] >= 10_000


def test_a_pack_counts_as_used_until_the_link_was_changed(host):
    link = host / "opt/openmpi/current"
    os.utime(link, (time.time() - 2 * DAY,) * 2, follow_symlinks=False)
    assert round(asked(host)["opt/openmpi/4.1.4"]["idle"] / DAY) == 2
    os.utime(link)
    os.utime(link, follow_symlinks=False)
    assert asked(host, "opt/openmpi/4.1.4") == {}
    assert (host / "opt/openmpi/4.1.4").exists()


@pytest.mark.parametrize("path", ["opt/openmpi/4.1.4", "opt/stacks/horovod-1/mpi"])
def test_what_was_read_counts_as_used(host, path):
    for name, days in ((".hvlab-pack.json", 40), ("file", 3)):
        written = (host / path / name).stat().st_mtime
        os.utime(host / path / name, (time.time() - 3 * DAY, written))
        answer = asked(host)
        assert round(answer["opt/stacks" if "stacks" in path else path]["idle"] / DAY) == days


def test_a_link_to_a_folder_that_hosts_share_is_left_alone(host):
    shared = pack(host / "shared/openmpi", "e")
    (host / "opt/openmpi/4.0.0").symlink_to(shared)
    (host / "opt/openmpi/current").unlink()
    (host / "opt/openmpi/current").symlink_to(shared)
    paths = set(asked(host))
    assert "opt/openmpi/4.0.0" not in paths
    assert not any(path.startswith("shared") for path in paths)


@pytest.mark.parametrize("how", ["works there", "is of the run", "has a file open"])
def test_what_a_process_uses_stays(host, how):
    path = "home/.hvlab/runs/r1"
    (host / path / "case/file").write_text("")
    age(host, 40)
    argv = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]
    more = {"works there": {"cwd": host / path / "case"}, "is of the run": {"env": {"HVLAB_CASE": "r1/case"}}}
    opened = (host / path / "case/file").open()
    if how == "has a file open":
        more[how] = {"pass_fds": [opened.fileno()]}
    else:
        opened.close()
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **more[how]) as process:
        opened.close()
        process.stdout.readline()
        assert asked(host)[path]["busy"]
        assert asked(host, path) == {}
        process.stdin.close()
    assert not asked(host)[path]["busy"]


def test_only_what_is_asked_for_goes_and_only_if_it_may(host):
    asked_for = ["opt/openmpi/4.1.4", "opt/openmpi/4.1.8", "opt/openmpi/.4.1.8.new-x", "build/somebody-elses"]
    assert set(asked(host, *asked_for)) == {"opt/openmpi/4.1.4", "opt/openmpi/.4.1.8.new-x"}
    left = sorted(path.name for path in (host / "opt/openmpi").iterdir() if path.name[0] != ".")
    assert left == ["4.1.5", "4.1.6", "4.1.8", "current", "own"]
    assert not (host / "opt/openmpi/.4.1.4.manifest").exists()
    assert (host / "opt/openmpi/.4.1.8.manifest").exists()


# On the controller.

RUN = {"kind": "run files", "path": "/home/hvlab/.hvlab/runs/r1", "size": 8192, "idle": 40 * DAY}
PACK = {
    "kind": "old pack",
    "path": "/opt/hvlab/openmpi/4.1.4",
    "size": 65536,
    "idle": 40 * DAY,
    "busy": False,
}
HELD = {"kind": "stacks", "path": "/opt/hvlab/stacks", "size": 4096, "idle": 50 * DAY, "busy": False}


class Hosts:
    """Takes the place of Ansible: answers by host, and what was removed of them."""

    def __init__(self) -> None:
        self.answers = {
            "n1": [{**RUN, "busy": False}, PACK, HELD],
            "n2": [{**RUN, "busy": True}, {**PACK, "idle": 3600.0}],
        }
        self.failures: list[HostFailure] = []
        self.removed: list[tuple[str, str]] = []
        self.calls = 0

    def collect(self, lab, playbook, variables, *, shape):
        assert (playbook, Path(variables["hvlab_probe"])) == ("ask.yml", PROGRAM)
        remove = json.loads(base64.b64decode(variables["hvlab_questions"]))["remove"]
        self.calls += 1
        answered = {}
        for name in [host.name for host in lab.hosts if host.name in self.answers]:
            rows = self.answers[name]
            if remove is not None:
                rows = [row for row in rows if row["path"] in remove[name]]
                self.removed += [(name, path) for path in remove[name]]
            answered[name] = json.dumps(rows)
        return answered, [each for each in self.failures if each.host in {host.name for host in lab.hosts}]


@pytest.fixture
def hosts(monkeypatch, tmp_path):
    hosts = Hosts()
    monkeypatch.setattr(gather, "collect", hosts.collect)
    monkeypatch.setattr(clean, "load", lambda path, limit: labs.lab(2))
    monkeypatch.setattr(
        session, "remove", lambda lab: hosts.removed.extend((host.name, "stacks") for host in lab.hosts)
    )
    monkeypatch.setenv("HVLAB_RESULTS", str(tmp_path))
    return hosts


def shown(capsys, *words: str) -> tuple[int, str, str]:
    return cli.run(["clean", "--on-hosts", *words]), *capsys.readouterr()


def test_a_run_that_one_host_is_at_goes_nowhere(hosts):
    kept = gather.list_unused(labs.lab(2)).kept
    assert [(one.host, one.busy) for one in kept if one.kind == "run files"] == [("n1", True), ("n2", True)]


def test_hosts_paths_sizes_and_ages_are_shown_and_the_old_goes(hosts, capsys):
    code, out, err = shown(capsys)
    assert code == 0
    assert "--yes removes 2 of these" in err
    lines = [line.split() for line in out.splitlines()]
    assert ["n1", "old", "pack", "/opt/hvlab/openmpi/4.1.4", "64.0", "KiB", "40", "yes"] in lines
    assert ["n2", "old", "pack", "/opt/hvlab/openmpi/4.1.4", "64.0", "KiB", "0", "-"] in lines
    assert hosts.removed == []
    code, _, err = shown(capsys, "--yes")
    assert (code, "removed 2, 68.0 KiB" in err) == (0, True)
    assert hosts.removed == [("n1", "/opt/hvlab/openmpi/4.1.4"), ("n1", "stacks")]


def test_a_lab_that_is_being_measured_keeps_everything(hosts, capsys, tmp_path):
    with measuring(tmp_path, labs.lab(2).name):
        code, _, err = shown(capsys, "--yes")
    assert (code, hosts.removed) == (2, [])
    assert "is being measured by process" in err


def test_a_host_that_does_not_answer_is_named_and_the_others_are_cleaned(hosts, capsys):
    del hosts.answers["n2"]
    hosts.failures = [HostFailure("n2", "Connection timed out", True)]
    code, _, err = shown(capsys, "--yes", "--format", "json")
    assert (code, len(hosts.removed)) == (3, 3)
    assert "n2: Connection timed out" in err


def test_a_damaged_answer_is_an_error_of_its_host(hosts, capsys):
    hosts.answers["n1"] = [{**PACK, "size": -1}]
    code, _, err = shown(capsys)
    assert code == 1
    assert "n1: its answer cannot be read" in err


def test_hosts_remove_at_the_same_time_and_long_lists_are_divided(hosts, monkeypatch):
    rows = [{**RUN, "busy": False, "path": f"/home/hvlab/.hvlab/runs/r{number}"} for number in range(7)]
    hosts.answers = {"n1": rows, "n2": rows}
    monkeypatch.setattr(gather, "_AT_ONCE", 10)
    kept = gather.list_unused(labs.lab(2)).kept
    gone = gather.remove(labs.lab(2), kept).kept
    assert [(one.host, one.paths) for one in gone] == [(one.host, one.paths) for one in kept]
    assert hosts.removed == [(name, row["path"]) for name in ("n1", "n2") for row in rows]
    assert hosts.calls == 1 + 2


def test_a_size_is_that_of_each_host(hosts, capsys):
    hosts.answers["n2"] = [{**PACK, "idle": 5 * DAY}]
    hosts.answers["n1"] = [{**PACK, "idle": 5 * DAY}, {**HELD, "idle": 6 * DAY}]
    _, out, _ = shown(capsys, "--max-size", "65600", "--format", "json")
    assert [(row["host"], row["kind"]) for row in json.loads(out) if row["goes"]] == [("n1", "stacks")]


def test_a_pattern_of_hosts_without_hosts_is_refused(capsys):
    assert cli.run(["clean", "--limit", "n1"]) == 2
    assert "add --on-hosts" in capsys.readouterr().err


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """The program, and the folder of runs of a user: a link to one of root's."""
    spec = importlib.util.spec_from_file_location("unused_program", PROGRAM)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    (tmp_path / "etc/kept").mkdir(parents=True)
    (tmp_path / "runs").symlink_to(tmp_path / "etc")
    monkeypatch.setattr(program, "runs_of", lambda _: str(tmp_path / "runs"))
    return program, tmp_path / "runs"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has more rights than a user")
def test_below_a_users_home_root_has_no_more_rights_than_the_user(runs, capsys):
    program, folder = runs
    assert not program.remove_folder({"path": str(folder / "kept")}, {"user": "nobody"})
    assert (folder / "kept").is_dir()
    assert "Permission denied" in capsys.readouterr().err
    assert os.geteuid() == os.getegid() == 0


def test_what_another_host_removed_from_a_shared_home_is_not_missed(runs):
    program, folder = runs
    assert not program.remove_folder({"path": str(folder / "gone")}, {"user": ""})
    assert program.describe_present("run files", [str(folder / "gone")]) == []
