"""Ranks in containers: what docker gets, what launchers make of it, and that nothing stays behind."""

import json
import shlex
import shutil
import socket
import stat
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from hvlab.base.errors import CheckError, UnreachableError, UsageError
from hvlab.base.paths import project_dir
from hvlab.bench import containers, measure
from hvlab.bench.matrix import expand
from hvlab.bench.schedule import Schedule
from hvlab.cli import bench_output
from hvlab.lab.backends import BACKENDS, PARALLEL
from hvlab.remote import playbook
from hvlab.remote.playbook import HostFailure, Login, Owner, Play
from hvlab.remote.ssh_keys import fingerprint, make_key, public, read_certificate
from hvlab.remote.trust import Trust
from hvlab.results.store import Store
from hvlab.workloads.launchers import LAUNCHERS, command, container
from tests.unit.labs import lab, spec
from tests.unit.plays import play, program
from tests.unit.test_bench import FakePlay, FakeTrust
from tests.unit.test_launchers import GPU_VARIANTS, PROGRAM
from tests.unit.test_workloads import RESULT

pytestmark = pytest.mark.slow

PLAYBOOKS = project_dir() / "playbooks"
PORTS = {"mpirun": ["-mca", "plm_rsh_args", "-p 9435"], "horovodrun": ["-p", "9435"]}
PAIRS = [(name, launcher) for name in PARALLEL for launcher in BACKENDS[name].launchers if launcher in PORTS]


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
    assert set(PORTS) == set(LAUNCHERS) - {"local", "srun", "torchrun"}


def test_torchrun_reaches_the_containers_port():
    (case,) = expand(spec("ddp-gloo", container="lab:1", launcher="torchrun"), lab())[0]
    assert command(case, lab(), "R", PROGRAM).argv[3].endswith(" -p 9435")


@pytest.mark.parametrize(
    ("image", "port", "told"),
    [
        ("lab:1", 9435, "lab:1 may name another image tomorrow; IMAGE@sha256:... stays the same"),
        ("lab", 0, "lab may name another image tomorrow, and records have that name alone; a .sqsh file"),
        (f"lab:1@sha256:{'a' * 63}", 9435, "tomorrow"),
        (f"registry.example/lab@sha256:{'a' * 64}", 9435, ""),
        (f"sha256:{'a' * 64}", 9435, ""),
        ("a" * 64, 9435, ""),
        ("/shared/lab.sqsh", 0, ""),
        ("lab.sqsh", 0, ""),
        (None, 9435, ""),
    ],
)
def test_an_image_that_may_become_another_one_is_told(capsys, image, port, told):
    bench_output.tag(SimpleNamespace(spec=SimpleNamespace(container=image), port=port))
    printed = capsys.readouterr().err
    assert printed == "" if told == "" else told in printed


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
        "--mount=type=bind,source=/opt/hvlab,target=/opt/hvlab,readonly",
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
        "HostKey=/run/hvlab-R1/ssh_host_key",
        "HostCertificate=/run/hvlab-R1/ssh_host_key-cert.pub",
    ):
        assert f"-o {setting}" in sshd


def test_everything_but_the_home_is_mounted_to_read():
    there = lab()
    argv = container.argv(there.hosts[0], there, "R", image="i", port=1)
    mounts = [word for word in argv if word.startswith(("--volume=", "--mount="))]
    writable = [word for word in mounts if not word.endswith((":ro", ",readonly"))]
    assert writable == ["--volume=/home/hvlab:/home/hvlab"]


def test_a_revoked_key_is_let_in_by_no_container():
    there = lab()
    argv = container.argv(there.hosts[0], there, "R", image="i", port=1)
    sshd = argv[argv.index("i") + 1 :]
    file = "/etc/ssh/hvlab_revoked_keys"
    assert f"RevokedKeys={file}" in sshd
    # Docker refuses to start without it; --volume would make it a folder on the host.
    assert f"--mount=type=bind,source={file},target={file},readonly" in argv


def test_no_image_gets_a_hosts_own_key(tmp_path):
    there = lab()
    assert not [
        word for word in container.argv(there.hosts[0], there, "R", image="i", port=1) if "ed25519" in word
    ]
    trust = Trust("t", tmp_path)
    make_key(trust.host_ca, "ca")
    make_key(tmp_path / "own", "n1")
    trust.sign_host(public(tmp_path / "own"), name="n1", principals=["n1", "n1.lab", "192.0.2.1"])
    first, second = (containers.host_files(trust, host, "R") for host in there.hosts[:2])
    key, certificate = container.host_key("R"), container.host_certificate("R")
    assert "PRIVATE KEY" in first[key]
    assert first[key] != second[key]
    held = read_certificate(first[certificate])
    # `hvlab keys revoke` revokes it, too.
    assert [fingerprint(kept) for kept in trust.host_keys("n1")] == [
        fingerprint(public(tmp_path / "own")),
        held.key,
    ]
    assert held.authority == fingerprint(public(trust.host_ca))
    assert held.principals == {"n1", "n1.lab", "192.0.2.1"}
    assert held.ends - held.begins < timedelta(days=9)
    assert read_certificate(second[certificate]).principals == {"n2", there.hosts[1].address}


def test_this_machine_alone_has_no_containers(plays, tmp_path):
    run = containers.running(plan(), "R", tmp_path, trust=None, note=print)
    with pytest.raises(UsageError, match="outside of its container"), run:
        raise AssertionError("the run began")
    assert plays.ran == []


def test_no_private_key_stays_in_the_results(plays, tmp_path):
    with containers.running(plan(), "R", tmp_path, trust=TRUST, note=print):
        ((keys, given),) = plays.given
        assert given == {"n1": {"key": "PRIVATE"}, "n2": {"key": "PRIVATE"}}
        assert not keys.exists()
        assert "PRIVATE" not in (tmp_path / "containers.json").read_text()


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
            keys = Path(variables["hvlab_host_keys"])
            assert stat.S_IMODE(keys.stat().st_mode) == 0o600
            self.given.append((keys, json.loads(keys.read_text())))
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
    _error = None
    check = Play.check


STARTED = ("start-containers.yml", "n1,n2", "hvlab-R")
STOPPED = ("stop-containers.yml", "n1,n2", "hvlab-R")


TRUST = Trust("t", Path())


@pytest.fixture
def plays(monkeypatch):
    made = Plays()
    monkeypatch.setattr(containers, "Play", made)
    monkeypatch.setattr(containers, "host_files", lambda trust, host, run_id: {"key": "PRIVATE"})
    return made


def test_they_are_there_for_the_run_and_gone_after_it(plays, tmp_path):
    with containers.running(plan(), "R", tmp_path, trust=TRUST, note=print):
        assert plays.ran == [STARTED]
        assert containers.images(tmp_path) == {"n1": "sha256:1", "n2": "sha256:1"}
    assert plays.ran == [STARTED, STOPPED]


def test_secrets_in_dockers_options_are_on_the_controller_for_its_user_alone(plays, tmp_path):
    secret = plan(container_options=("--env=HF_TOKEN=hf-aaaa",))
    with containers.running(secret, "R", tmp_path, trust=TRUST, note=print):
        file = tmp_path / "containers.json"
        assert "hf-aaaa" in file.read_text()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_they_are_gone_however_the_run_ends(plays, tmp_path, error):
    with pytest.raises(error), containers.running(plan(), "R", tmp_path, trust=TRUST, note=print):
        raise error
    assert plays.ran[-1] == STOPPED


@pytest.mark.parametrize(("unreachable", "error"), [(True, UnreachableError), (False, CheckError)])
def test_one_that_does_not_start_ends_the_run(plays, tmp_path, unreachable, error):
    plays.at_failures = {"start-containers.yml": [HostFailure("n2", "port 9435 is taken", unreachable)]}
    run = containers.running(plan(), "R", tmp_path, trust=TRUST, note=print)
    with pytest.raises(error, match="n2: port 9435 is taken"), run:
        raise AssertionError("the run began")
    assert plays.ran == [STARTED, STOPPED]


def test_one_that_cannot_be_removed_is_told(plays, tmp_path):
    plays.at_failures = {
        "stop-containers.yml": [HostFailure("n2", "docker does not answer", unreachable=False)]
    }
    told = []
    with containers.running(plan(), "R", tmp_path, trust=TRUST, note=told.append):
        pass
    assert told == ["n2: container hvlab-R is still there: docker does not answer"]


def test_a_run_without_containers_starts_no_playbook(plays, tmp_path):
    wanted = spec("mpi")
    without = Schedule.of(wanted, lab())
    with containers.running(without, "R", tmp_path, trust=TRUST, note=print):
        pass
    assert containers.remove(lab(), "R", tmp_path) == []
    assert containers.images(tmp_path) == {}
    assert plays.ran == []


@pytest.fixture
def store(plays, monkeypatch, tmp_path):
    """A store of a bench whose hosts are stand-ins."""
    FakePlay.script, FakePlay.plans, FakePlay.result = {}, [], RESULT
    monkeypatch.setattr(playbook, "lab_trust", lambda name: FakeTrust(tmp_path))
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
    store.run_folder("DEAD").mkdir(parents=True, exist_ok=True)
    (store.run_folder("DEAD") / "containers.json").write_text(json.dumps({"hosts": {"n3": {}}, "images": {}}))
    wanted = spec("mpi")
    measure.measure(Schedule.of(wanted, lab()), store)
    assert plays.ran == [("stop-containers.yml", "n3", "hvlab-DEAD")]


DOCKER = """#!/usr/bin/python3
import os, pathlib, signal, subprocess, sys
there = pathlib.Path(__file__).with_name("container")
words = sys.argv[1:]
if words[0] == "run":
    if "missing" in words:
        sys.exit("Unable to find image 'missing' locally")
    port, says = words[1], "SSH-2.0" if "dies" not in words else ""
    listen = "import socket; s = socket.create_server(('127.0.0.1', %s))\\n" % port
    listen += "while True: s.accept()[0].sendall(b'%s')" % says
    quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    listener = subprocess.Popen([sys.executable, "-c", listen], start_new_session=True, **quiet)
    there.write_text(str(listener.pid))
elif words[0] == "logs":
    print("sshd: no hostkeys available", file=sys.stderr)
elif not there.exists():
    sys.exit("Error: No such container: " + words[-1])
elif words[0] == "rm":
    os.kill(int(there.read_text()), signal.SIGKILL)
    there.unlink()
    print(words[-1])
else:
    print("sha256:1")
"""


@pytest.fixture
def host(tmp_path):
    """This machine, whose docker is a stand-in that listens on the port that it is told."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    program(tmp_path / "bin", "docker", DOCKER)
    file = tmp_path / "containers.json"

    keys = tmp_path / "host_keys.json"
    there = tmp_path / "run/hvlab-R"
    there.parent.mkdir()
    keys.write_text(json.dumps({"localhost": {str(there / "ssh_host_key"): "PRIVATE"}}))

    def run(playbook, *words, expect=0, path=None):
        argv = ["docker", "run", str(port), *words]
        file.write_text(json.dumps({"hosts": {"localhost": {"argv": argv, "port": port}}}))
        variables = {
            "hvlab_hosts": "localhost",
            "hvlab_container": "hvlab-R",
            "hvlab_container_folder": str(there),
            "hvlab_file": str(file),
            "hvlab_host_keys": str(keys),
            "hvlab_container_timeout": 2,
        }
        return play(PLAYBOOKS / playbook, tmp_path / "bin", variables, expect=expect, path=path)

    run.port, run.file, run.container = port, file, tmp_path / "bin/container"
    run.key = there / "ssh_host_key"
    yield run
    run("stop-containers.yml")
    assert not run.container.exists()
    assert not there.exists()


def test_containers_start_and_are_removed(host):
    assert "PRIVATE" not in host("start-containers.yml")
    assert (host.key.read_text(), stat.S_IMODE(host.key.stat().st_mode)) == ("PRIVATE", 0o600)
    assert json.loads(host.file.read_text())["images"] == {"localhost": "sha256:1"}
    assert stat.S_IMODE(host.file.stat().st_mode) == 0o600
    assert "changed=2" in host("stop-containers.yml")
    assert "changed=0" in host("stop-containers.yml")


def test_a_taken_port_is_told(host):
    with socket.create_server(("127.0.0.1", host.port)):
        told = host("start-containers.yml", expect=2)
    assert f"port {host.port} is taken; name another with --ssh-port" in told
    assert not host.container.exists()


def test_an_image_that_is_not_there_is_told(host):
    told = host("start-containers.yml", "missing", expect=2)
    assert "the container does not start: Unable to find image 'missing'" in told


def test_an_sshd_that_does_not_answer_is_told(host):
    assert "no hostkeys available" in host("start-containers.yml", "dies", expect=2)


def test_a_host_without_docker_is_told(host, tmp_path):
    for name in ("chmod", "mkdir", "rm", "sleep"):
        (tmp_path / name).symlink_to(shutil.which(name))
    told = host("start-containers.yml", expect=2, path=str(tmp_path))
    assert "set container_runtime_enabled: true" in told
    host("stop-containers.yml", path=str(tmp_path))


def test_a_dry_run_shows_how_containers_are_started(monkeypatch, capsys):
    bench_output.commands(plan(), "table", seconds=60)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "# n1, before the first case"
    assert tuple(shlex.split(lines[1])) == plan().containers()["n1"]


def test_a_dry_run_shows_no_secret_of_what_comes_before_the_first_case(capsys):
    bench_output.commands(plan(container_options=("--env=HF_TOKEN=hf-aaaa",)), "table", seconds=60)
    options = {"lab_slurm": True, "lab_slurm_options": ["--export=ALL,HF_TOKEN=hf-aaaa"]}
    steps = Schedule.of(spec("mpi", launcher="srun"), lab(**options))
    bench_output.commands(steps, "table", seconds=60)
    out = capsys.readouterr().out
    assert "--env=HF_TOKEN=***" in out
    assert "--export=ALL,HF_TOKEN=***" in out
    assert "hf-aaaa" not in out
