"""What the programs of the nodes do before and after they measure: with a made up torch."""

import argparse
import ast
import json
import re
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from tests.unit.programs import NAMES, PROGRAMS
from tests.unit.programs import program as imported


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return imported(monkeypatch, "world")


def asked(tmp_path, **more) -> argparse.Namespace:
    given = {"serial": True, "ddp": "", "world_size": 1, "hosts": 1, "device": "cpu"}
    return argparse.Namespace(**given | {"output": str(tmp_path / "new/result.json")} | more)


class Several:
    """Ranks as one of them sees the others."""

    hvd = None

    def __init__(self, placement, size):
        self.placement, self.size = placement, size
        self.rank, self.local_rank = 0, 0

    def total(self, values, name):
        return [len(self.placement) * value for value in values]

    def gather(self, data, name):
        return [[rank, local, host, self.size] for rank, (host, local) in enumerate(self.placement)]


@pytest.mark.parametrize(
    ("placement", "size", "told"),
    [
        ([("a", 0), ("a", 1), ("b", 0), ("b", 1)], 4, None),
        ([("a", 0), ("a", 1)], 2, "world size: asked for 4, ranks see [2], 2 ranks took part"),
        ([("a", 0)], 1, "world size: asked for 4, ranks see [1], 1 ranks took part"),
        (
            [("a", 0), ("a", 1), ("a", 2), ("b", 0)],
            4,
            "placement: asked for 2 ranks on each of 2 hosts, but there are {'a': 3, 'b': 1}",
        ),
        (
            [("a", 0), ("a", 1), ("a", 2), ("a", 3)],
            4,
            "placement: asked for 2 ranks on each of 2 hosts, but there are {'a': 4}: a host's name leads to "
            "another host; what to do: `getent hosts` with each name on the first host has to give the "
            "host's own address, else correct /etc/hosts or DNS there",
        ),
    ],
)
def test_ranks_that_are_not_as_asked_are_found_out(program, tmp_path, placement, size, told):
    checks = []
    world = program.check_world(asked(tmp_path, world_size=4, hosts=2), Several(placement, size), checks)
    assert checks == ([told] if told else [])
    assert world["size"] == len(placement)


def test_a_good_measurement_is_written_whole(program, tmp_path):
    options = asked(tmp_path)
    assert program.run(options, lambda options, world, result: result.update(sizes=[1])) == 0
    written = json.loads((tmp_path / "new/result.json").read_text())
    assert (written["checks"], written["sizes"], written["device"]) == ([], [1], "cpu")
    assert written["state"]["versions"]["torch"] == "2.12.0+cpu"
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["result.json"]


def test_a_check_that_failed_is_written_and_ends_in_1(program, tmp_path):
    options = asked(tmp_path)
    assert program.run(options, lambda options, world, result: result["checks"].append("no")) == 1
    assert json.loads((tmp_path / "new/result.json").read_text())["checks"] == ["no"]


@pytest.mark.parametrize(
    ("cpus", "ranks", "affinity"),
    [({2}, 1, "2"), ({2}, 2, "2,2"), ({4, 5, 6}, 2, "6,5"), (set(range(8)), 2, None)],
)
def test_workers_of_oneccl_stay_on_the_hosts_cores(monkeypatch, cpus, ranks, affinity):
    program = imported(monkeypatch, "launched")
    monkeypatch.setattr(program.os, "sched_getaffinity", lambda _: cpus)
    monkeypatch.setattr(program.os, "cpu_count", lambda: 8)
    monkeypatch.setattr(program.os, "environ", {})
    program.place_workers(ranks)
    assert program.os.environ.get("CCL_WORKER_AFFINITY") == affinity
    monkeypatch.setattr(program.os, "environ", {"CCL_WORKER_AFFINITY": "7"})
    program.place_workers(ranks)
    assert program.os.environ["CCL_WORKER_AFFINITY"] == "7"


def test_nothing_is_measured_in_a_wrong_world(program, tmp_path):
    assert program.run(asked(tmp_path, world_size=2), None) == 1
    told = json.loads((tmp_path / "new/result.json").read_text())["checks"]
    assert told == ["world size: asked for 2, ranks see [1], 1 ranks took part"]


def test_alone_imports_no_horovod(program, tmp_path):
    program.run(asked(tmp_path), lambda *_: None)
    assert "horovod" not in sys.modules


EVENTS = '{"ph": "M"}, {"ph": "B", "name": "MPI_ALLTOALL"}, {"ph": "E"}, {"ph": "X", "name": "MPI_ALLGATHER"}'


@pytest.mark.parametrize("end", ["]", ",\n", ""])
def test_a_timeline_is_read_whether_or_not_it_was_closed(program, tmp_path, end):
    path = tmp_path / "timeline.json"
    path.write_text("[" + EVENTS + end)
    assert program.evidence.activities(str(path), ["_ALLTOALL", "_ALLGATHER"]) == [
        "MPI_ALLGATHER",
        "MPI_ALLTOALL",
    ]


def test_a_timeline_that_never_shows_it_is_told_as_it_is(program, tmp_path, monkeypatch):
    monkeypatch.setattr(program.evidence, "TIMELINE_WAIT_S", 0.05)
    path = tmp_path / "timeline.json"
    path.write_text("[" + EVENTS + "]")
    assert program.evidence.activities(str(path), ["_BCAST"]) == ["MPI_ALLGATHER", "MPI_ALLTOALL"]
    assert program.evidence.activities(str(tmp_path / "none"), ["_BCAST"]) == []


def test_no_secret_of_the_environment_is_written(program, monkeypatch):
    for name in ("HOROVOD_SECRET_KEY", "HOROVOD_CYCLE_TIME", "HOME"):
        monkeypatch.setenv(name, "x")
    told = program.evidence.state(program.Alone())["environment"]
    assert "HOROVOD_CYCLE_TIME" in told
    assert not {"HOROVOD_SECRET_KEY", "HOME"} & set(told)


def test_no_program_hides_a_module_of_python():
    assert not set(NAMES) & sys.stdlib_module_names - {"case"}
    # One of these from 3.14 on.
    assert not set(NAMES) & {"compression", "annotationlib"}


def test_programs_of_the_ranks_print_nothing():
    ranks = [
        path
        for path in PROGRAMS.glob("*.py")
        if path.stem not in ("case", "installed", "logged", "reap", "steps")
    ]
    assert len(ranks) >= 9
    for path in ranks:
        names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
        assert "print" not in names, path


def test_a_rank_of_ddp_may_leave_after_another_has_closed_its_connections(monkeypatch):
    distributed = ModuleType("torch.distributed")
    destroyed = []
    distributed.destroy_process_group = lambda: destroyed.append(True)
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed)
    world_ddp = imported(monkeypatch, "world_ddp", distributed=distributed)

    class Left(world_ddp.Ranks):
        def __init__(self):
            """Connect to nobody."""

        def barrier(self):
            raise RuntimeError("Connection closed by peer")

    Left().leave()
    assert destroyed, "threads of the group would abort the interpreter as it ends"


class Distributed(ModuleType):
    """A torch.distributed whose ranks are threads, and whose store is its listener."""

    def __init__(self, size):
        super().__init__("torch.distributed")
        self.given, self.full, self.own = {}, threading.Barrier(size), threading.local()

    def all_gather(self, every, tensor, group):
        self.given[self.own.rank] = tensor
        self.full.wait()
        for rank, into in enumerate(every):
            into[:] = self.given[rank]
        self.full.wait()

    def TCPStore(self, *_, master_listen_fd=None, use_libuv=True):  # noqa: N802
        assert not (use_libuv and master_listen_fd)
        return master_listen_fd


def ddp(monkeypatch, size=1):
    distributed = Distributed(size)
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed)
    more = {"tensor": np.array, "empty_like": np.empty_like, "int64": np.int64, "uint8": np.uint8}
    return imported(monkeypatch, "world_ddp", distributed=distributed, **more), distributed


def test_ranks_of_ddp_tell_one_another_bytes_and_no_objects(monkeypatch):
    world_ddp, distributed = ddp(monkeypatch, size=3)
    given = ["", {"host": "höst", "times": [1.5]}, None]

    class Rank(world_ddp.Ranks):
        def __init__(self):
            self.size, self.group = len(given), SimpleNamespace(control=None)

    def gather(rank):
        distributed.own.rank = rank
        return Rank().gather(given[rank], "name")

    with ThreadPoolExecutor(len(given)) as pool:
        assert list(pool.map(gather, range(len(given)))) == [given] * len(given)


# Horovod and torch unpickle in these what any rank has sent, and a stranger may have connected as one.
UNPICKLING = re.compile(r"_object(_list)?$|^broadcast_optimizer_state$|pickle|^(marshal|shelve|eval|exec)$")


def test_no_program_unpickles_what_another_rank_says():
    found = {
        (path.name, name)
        for path in PROGRAMS.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        for name in (getattr(node, "id", None), getattr(node, "attr", None), getattr(node, "name", None))
        if isinstance(name, str) and UNPICKLING.search(name)
    }
    # Its Unpickler, for torch's dumps, refuses every class.
    known = {("standing.py", "pickle"), ("standing.py", "Unpickler")}
    assert found - {("train.py", "eval")} == known


def test_ranks_of_ddp_meet_on_their_own_network_alone(monkeypatch):
    world_ddp, _ = ddp(monkeypatch)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    with socket.socket(fileno=world_ddp.meeting_place(0, 2, where)) as listener:
        assert listener.getsockname() == ("127.0.0.1", port)
    assert world_ddp.meeting_place(1, 2, where) is None
    # What a name means on the first host, nobody knows here.
    assert world_ddp.meeting_place(0, 2, where | {"MASTER_ADDR": "localhost"}) is None
