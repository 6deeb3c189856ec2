"""Ranks in containers: what docker gets, what launchers make of it, and that nothing stays behind."""

import json
import shlex
import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from ansible.module_utils.testing import patch_module_args

from hvlab.ansible.modules import hvlab_container
from hvlab.bench import containers, measure
from hvlab.bench.matrix import expand
from hvlab.bench.schedule import Schedule
from hvlab.cli import bench_output
from hvlab.errors import CheckError, UnreachableError
from hvlab.lab.backends import BACKENDS, PARALLEL
from hvlab.launchers import LAUNCHERS, command, container
from hvlab.remote.playbook import HostFailure, Login, Owner, Play
from hvlab.remote.trust import Trust
from hvlab.results.store import Store
from tests.unit.labs import lab, spec
from tests.unit.test_bench import FakePlay, FakeTrust
from tests.unit.test_launchers import GPU_VARIANTS, PROGRAM
from tests.unit.test_workloads import RESULT

PORTS = {"mpirun": ["-mca", "plm_rsh_args", "-p 9435"], "horovodrun": ["-p", "9435"]}
PAIRS = [(name, launcher) for name in PARALLEL for launcher in BACKENDS[name].launchers]


def plan(**changes):
    wanted = spec("mpi", container="lab:1", **changes)
    return Schedule.of(wanted, lab())


def position(words, part):
    return next(i for i in range(len(words)) if words[i : i + len(part)] == part)


@pytest.mark.parametrize(("backend", "launcher"), PAIRS)
def test_launchers_reach_the_containers_port(backend, launcher):
    gpu = ("n1", "n2", "n3") if BACKENDS[backend].gpu else ()
    there = lab(gpu=gpu, horovod_variants=GPU_VARIANTS) if gpu else lab()
    (case,) = expand(spec(backend, container="lab:1"), there)[0]
    inside = list(command(case, there, "R", PROGRAM).argv)
    outside = list(command(replace(case, container="", ssh_port=0), there, "R", PROGRAM).argv)
    assert case.id == f"allreduce-{backend}-container-2x1-r1"
    at = position(inside, PORTS[launcher])
    assert at < inside.index("timeout")
    assert inside[:at] + inside[at + len(PORTS[launcher]) :] == outside


def test_every_launcher_has_an_expectation():
    assert set(PORTS) == set(LAUNCHERS) - {"local"}


def test_one_process_alone_runs_in_the_container_it_is_started_in():
    wanted = spec("serial", container="lab:1", workload="mnist", hosts=(1,))
    (case,) = expand(wanted, lab())[0]
    inside = command(case, lab(), "R", PROGRAM).argv
    assert inside == command(replace(case, container="", ssh_port=0), lab(), "R", PROGRAM).argv


def test_what_docker_gets():
    there = lab(lab_user_name="me", lab_user_home="/data/me")
    argv = container.argv(
        there.hosts[0], there, "R1", image="lab:1", port=9435, options=["--device=/dev/infiniband"]
    )
    at = argv.index("lab:1")
    assert argv[:3] == ("docker", "run", "--detach")
    assert {
        "--name=hvlab-R1",
        "--label=hvlab.run=R1",
        "--network=host",
        "--ipc=host",
        "--ulimit=memlock=-1",
        "--cap-add=SYS_PTRACE",
        "--volume=/opt/hvlab:/opt/hvlab:ro",
        "--volume=/data/me:/data/me",
        "--device=/dev/infiniband",
        "--entrypoint=/usr/sbin/sshd",
    } <= set(argv[:at])
    assert "--privileged" not in argv
    assert "--gpus=all" not in argv
    sshd = " ".join(argv[at + 1 :])
    for setting in (
        "Port=9435",
        "AllowUsers=me",
        "PasswordAuthentication=no",
        "AuthorizedKeysFile=none",
        "HostCertificate=/etc/ssh/ssh_host_ed25519_key-cert.pub",
    ):
        assert f"-o {setting}" in sshd


def test_everything_but_the_home_is_mounted_to_read():
    there = lab()
    argv = container.argv(there.hosts[0], there, "R", image="i", port=1)
    writable = [word for word in argv if word.startswith("--volume=") and not word.endswith(":ro")]
    assert writable == ["--volume=/home/hvlab:/home/hvlab"]


def test_only_hosts_with_gpus_hand_them_in():
    there = lab(gpu=("n2",))
    with_gpus = [
        host.name
        for host in there.hosts
        if "--gpus=all" in container.argv(host, there, "R", image="i", port=1)
    ]
    assert with_gpus == ["n2"]


def test_a_plan_without_containers_has_none():
    wanted = spec("mpi")
    without = Schedule.of(wanted, lab())
    assert without.containers() == {}
    assert {row["ssh_port"] for row in without.content(without.cases, "R")["cases"].values()} == {0}
    assert set(plan().containers("R")) == {"n1", "n2"}
    assert {row["ssh_port"] for row in plan().content(plan().cases, "R")["cases"].values()} == {9435}


def test_the_driver_logs_in_at_the_containers_port(tmp_path):
    login = Login(lab(), Trust("t", tmp_path), "hvlab")
    assert "ansible_port" not in login.variables()
    assert replace(login, port=9435).variables()["ansible_port"] == 9435
    assert Owner(lab()).variables() == {}


class Plays:
    """Stands for Ansible: notes each playbook; ``failures`` says which of them fail, and how."""

    def __init__(self, failures=None):
        self.ran, self.given, self.at_failures = [], [], failures or {}

    def __call__(self, playbook, login, variables):
        assert isinstance(login, Owner)
        self.ran.append((playbook, variables["hvlab_hosts"], variables["hvlab_container"]))
        self.failures = self.at_failures.get(playbook, [])
        self.rc = 2 if self.failures else 0
        if "hvlab_file" in variables:
            file = Path(variables["hvlab_file"])
            told = json.loads(file.read_text())
            file.write_text(json.dumps(told | {"images": dict.fromkeys(told["hosts"], "sha256:1")}))
        return self

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        pass

    def wait(self, seconds):
        return True

    def last_words(self):
        return "last words"

    finish = Play.finish
    check = Play.check


STARTED = ("start-containers.yml", "n1,n2", "hvlab-R")
STOPPED = ("stop-containers.yml", "n1,n2", "hvlab-R")


@pytest.fixture
def plays(monkeypatch):
    made = Plays()
    monkeypatch.setattr(containers, "Play", made)
    return made


def test_they_are_there_for_the_run_and_gone_after_it(plays, tmp_path):
    with containers.running(plan(), "R", tmp_path, note=print):
        assert plays.ran == [STARTED]
        assert containers.images(tmp_path) == {"n1": "sha256:1", "n2": "sha256:1"}
    assert plays.ran == [STARTED, STOPPED]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_they_are_gone_however_the_run_ends(plays, tmp_path, error):
    with pytest.raises(error), containers.running(plan(), "R", tmp_path, note=print):
        raise error
    assert plays.ran[-1] == STOPPED


@pytest.mark.parametrize(("unreachable", "error"), [(True, UnreachableError), (False, CheckError)])
def test_one_that_does_not_start_ends_the_run(plays, tmp_path, unreachable, error):
    plays.at_failures = {"start-containers.yml": [HostFailure("n2", "port 9435 is taken", unreachable)]}
    run = containers.running(plan(), "R", tmp_path, note=print)
    with pytest.raises(error, match="n2: port 9435 is taken"), run:
        raise AssertionError("the run began")
    assert plays.ran == [STARTED, STOPPED]


def test_one_that_cannot_be_removed_is_told(plays, tmp_path):
    plays.at_failures = {
        "stop-containers.yml": [HostFailure("n2", "docker does not answer", unreachable=False)]
    }
    told = []
    with containers.running(plan(), "R", tmp_path, note=told.append):
        pass
    assert told == ["n2: container hvlab-R is still there: docker does not answer"]


def test_a_run_without_containers_starts_no_playbook(plays, tmp_path):
    wanted = spec("mpi")
    without = Schedule.of(wanted, lab())
    with containers.running(without, "R", tmp_path, note=print):
        pass
    assert containers.remove(lab(), "R", tmp_path) == []
    assert containers.images(tmp_path) == {}
    assert plays.ran == []


@pytest.fixture
def store(plays, monkeypatch, tmp_path):
    """A store of a bench whose hosts are stand-ins."""
    FakePlay.script, FakePlay.plans, FakePlay.result = {}, [], RESULT
    monkeypatch.setattr(measure, "lab_trust", lambda name: FakeTrust(tmp_path))
    monkeypatch.setattr(measure.probe, "probe", lambda hosts, known_hosts: None)
    monkeypatch.setattr(measure, "Play", FakePlay)
    monkeypatch.setattr(measure, "reap", lambda login, run_id, hosts: [])
    return Store(tmp_path / "results")


def test_records_tell_the_image(store):
    records = store.records(measure.measure(plan(), store))
    assert {record.params["container"] for record in records} == {"lab:1"}
    assert {record.stack["image"] for record in records} == {"sha256:1"}
    assert all("size_bytes" in record.params for record in records)


def test_what_a_killed_run_left_is_removed_by_the_next(store, plays):
    store.create("DEAD", lab="t", spec_key="k", spec={}, cases=["c"])
    store.run_folder("DEAD").mkdir(parents=True)
    (store.run_folder("DEAD") / "containers.json").write_text(json.dumps({"hosts": {"n3": {}}, "images": {}}))
    wanted = spec("mpi")
    measure.measure(Schedule.of(wanted, lab()), store)
    assert plays.ran == [("stop-containers.yml", "n3", "hvlab-DEAD")]


DOCKER = """#!/usr/bin/python3
import pathlib, sys
there = pathlib.Path(__file__).with_name("container")
words = sys.argv[1:]
if words[0] == "run":
    if "missing" in words:
        sys.exit("Unable to find image 'missing' locally")
    there.write_text("true" if "dies" not in words else "false")
elif words[0] == "rm":
    there.unlink(missing_ok=True)
elif words[0] == "logs":
    print("sshd: no hostkeys available", file=sys.stderr)
elif not there.exists():
    sys.exit("Error: No such container: " + words[-1])
else:
    print(there.read_text() if "Running" in words[3] else "sha256:1")
"""


@pytest.fixture
def host(tmp_path, monkeypatch, capsys):
    """A host whose docker is a stand-in; what it runs is the listener, if a test has one."""
    (tmp_path / "docker").write_text(DOCKER)
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def run(**arguments):
        with patch_module_args({"name": "hvlab-R", **arguments}), pytest.raises(SystemExit):
            hvlab_container.main()
        return json.loads(capsys.readouterr().out)

    run.container = tmp_path / "container"
    return run


@pytest.fixture
def listener():
    """A port where something says a text to whoever comes."""
    server = socket.create_server(("127.0.0.1", 0))
    said = [b"SSH-2.0-OpenSSH_9.2\r\n"]

    def serve():
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                connection.sendall(said[0])

    threading.Thread(target=serve, daemon=True).start()
    yield server.getsockname()[1]
    server.shutdown(socket.SHUT_RDWR)
    server.close()


@pytest.fixture
def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_a_taken_port_is_refused(host, listener):
    done = host(argv=["docker", "run", "image"], port=listener)
    assert done["msg"] == f"port {listener} is taken; name another with --ssh-port"
    assert not host.container.exists()


def test_one_that_runs_is_left_alone(host, listener):
    host.container.write_text("true")
    done = host(argv=["docker", "run", "image"], port=listener)
    assert (done["changed"], done["image"]) == (False, "sha256:1")


def test_it_starts(host, listener, monkeypatch):
    answers = iter([None, "", "SSH-2.0"])
    monkeypatch.setattr(hvlab_container, "banner", lambda port: next(answers))
    done = host(argv=["docker", "run", "image"], port=listener)
    assert (done["changed"], done["image"]) == (True, "sha256:1")


def test_an_image_that_is_not_there_is_told(host, free_port):
    done = host(argv=["docker", "run", "missing"], port=free_port)
    assert "Unable to find image 'missing'" in done["msg"]


@pytest.mark.parametrize("words", [["dies"], []])
def test_an_sshd_that_does_not_answer_is_told_and_removed(host, free_port, words):
    done = host(argv=["docker", "run", *words, "image"], port=free_port, timeout=1)
    assert "no hostkeys available" in done["msg"]
    assert not host.container.exists()


def test_removing_works_twice(host):
    host.container.write_text("true")
    assert host(state="absent")["changed"]
    assert not host.container.exists()
    assert not host(state="absent")["changed"]


def test_a_host_without_docker(host, monkeypatch):
    monkeypatch.setattr(hvlab_container.AnsibleModule, "get_bin_path", lambda *_: None)
    assert "container_runtime_enabled" in host(argv=["docker"], port=1)["msg"]
    assert not host(state="absent")["changed"]


def test_the_banner_is_what_the_listener_says(listener, free_port):
    assert hvlab_container.banner(listener) == "SSH-2.0-OpenSSH_9.2\r\n"
    assert hvlab_container.banner(free_port) is None


def test_a_dry_run_shows_how_containers_are_started(monkeypatch, capsys):
    bench_output.dry_run(plan(), "table")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "# n1, before the first case"
    assert tuple(shlex.split(lines[1])) == plan().containers()["n1"]
