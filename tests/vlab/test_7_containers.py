"""docker on machines of the lab, and ranks that run in its containers."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.vlab.labs import PROJECT
from tests.vlab.repository import Repository

pytestmark = pytest.mark.containers
HOSTS = ("t1", "t2")
GATEWAY = "198.18.251.1"
FILES = PROJECT / "tests/vlab/containers"
# What somebody has in the file before: it has to stay.
BEFORE = {"default-runtime": "lab", "runtimes": {"lab": {"path": "/usr/local/sbin/runtime.py"}}}
WANTED = {"log-opts": {"max-size": "10m"}, "registry-mirrors": ["http://127.0.0.1:5000"]}
SMALL = ("--hosts", "2", "--slots", "1", "--sizes", "1K,64K", "--iterations", "7")
INSIDE = ("--container", "lab:1")
HOG = "import socket, time; server = socket.create_server(('', 9435)); time.sleep(600)"


def put(lab, host, text, path):
    lab.on(host, f"mkdir -p $(dirname {path}); cat > {path} <<'END'\n{text}\nEND\nchmod 0755 {path}")


def containers(lab):
    return [lab.on(host, "docker ps --all --quiet").split() for host in HOSTS]


@pytest.fixture(scope="module")
def repository(lab, tmp_path_factory):
    with Repository(tmp_path_factory.mktemp("repository"), GATEWAY, systems=["debian12"]) as made:
        yield made


@pytest.fixture(scope="module")
def site(lab, repository):
    """Return how site.yml is run with docker on two machines; more variables may be given."""
    variables = {
        "container_runtime_enabled": True,
        "container_runtime_user": "hvlab",
        "container_runtime_daemon": WANTED,
        "container_runtime_nvidia_enabled": True,
        "container_runtime_nvidia_repository_url": f"{repository.site}/libnvidia-container/stable",
        "container_runtime_nvidia_repository_key_fingerprint": repository.fingerprint,
    }

    def run(*words, expect=0, **more):
        given = ["-e", json.dumps(variables | more), "--tags", "container_runtime", "-l", ",".join(HOSTS)]
        playbook = str(Path(sys.executable).parent / "ansible-playbook")
        done = lab.run([playbook, "site.yml", "-i", str(lab.inventory), *given, *words], expect)
        return done.stdout

    return run


@pytest.fixture(scope="module")
def docker(lab, site):
    """The two machines with docker and an image."""
    for host in HOSTS:
        put(lab, host, json.dumps(BEFORE), "/etc/docker/daemon.json")
        put(lab, host, (FILES / "runtime.py").read_text(), "/usr/local/sbin/runtime.py")
        lab.on(host, "apt-get update -q && apt-get install -y -q --no-install-recommends crun")
    site()
    put(lab, "t1", (FILES / "image.sh").read_text(), "/root/image.sh")
    lab.on("t1", "/root/image.sh")
    lab.on("t1", "docker save lab:1 | runuser -u hvlab -- ssh t2 'cat > image.tar'")
    lab.on("t2", "docker load --input /home/hvlab/image.tar && rm /home/hvlab/image.tar")
    yield lab
    for host in HOSTS:
        lab.on(host, "systemctl disable --now docker.socket docker.service")


def test_a_second_run_changes_nothing(docker, site):
    assert all("changed=0" in line for line in site().splitlines() if " : ok=" in line)


def test_settings_are_merged_and_told(docker):
    for host in HOSTS:
        settings = json.loads(docker.on(host, "cat /etc/docker/daemon.json"))
        assert settings == BEFORE | WANTED | {"runtimes": settings["runtimes"], "features": {"cdi": True}}
        assert set(settings["runtimes"]) == {"lab", "nvidia"}
        fact = json.loads(docker.on(host, "cat /etc/ansible/facts.d/hvlab_container_runtime.fact"))
        assert (fact["data_root"], fact["mirrors"]) == ("/var/lib/docker", WANTED["registry-mirrors"])
        assert fact["docker"] in docker.on(host, "docker --version")
        assert fact["toolkit"] == "1.18.2"


def test_the_toolkit_is_held_at_its_version(docker):
    assert "nvidia-container-toolkit" in docker.on("t1", "apt-mark showhold").split()
    assert docker.on("t1", "dpkg-query -W -f '${Version}' nvidia-container-toolkit").strip() == "1.18.2-1"


def test_images_are_not_lost_when_the_data_root_moves(docker, site):
    told = site(expect=2, container_runtime_daemon={"data-root": "/data"})
    assert "container_runtime_data_root_move" in told
    assert "data-root" not in docker.on("t1", "cat /etc/docker/daemon.json")


@pytest.mark.parametrize("wrong", [{"no-such-key": 1}, {"registry-mirrors": "x"}])
def test_settings_that_docker_refuses_are_not_written(docker, site, wrong):
    before = docker.on("t1", "cat /etc/docker/daemon.json")
    assert "dockerd refuses" in site(expect=2, container_runtime_daemon=wrong)
    assert docker.on("t1", "cat /etc/docker/daemon.json") == before


def test_a_broken_file_is_refused_not_repaired(docker, site):
    docker.on("t2", "cp /etc/docker/daemon.json /root/ && echo '{,' > /etc/docker/daemon.json")
    try:
        told = site(expect=2)
        assert "fatal: [t2]" in told
        assert "/etc/docker/daemon.json is not a JSON" in " ".join(told.split())
        assert docker.on("t2", "cat /etc/docker/daemon.json") == "{,\n"
    finally:
        docker.on("t2", "mv /root/daemon.json /etc/docker/daemon.json")


def test_a_docker_that_is_a_snap_is_left_alone(docker, site):
    docker.on("t2", "mkdir -p /snap/bin && touch /snap/bin/docker")
    try:
        assert "t2: docker is there as a snap" in " ".join(site(expect=2).split())
    finally:
        docker.on("t2", "rm -r /snap")


@pytest.mark.parametrize(("backend", "port"), [("mpi", "9435"), ("gloo", "9436")])
def test_ranks_run_in_containers(docker, backend, port):
    docker.hvlab("bench", "--restart", "--backend", backend, *SMALL, *INSIDE, "--ssh-port", port)
    records = docker.results_of("show")
    assert {row["status"] for row in records} == {"ok"}
    assert {row["proved_backend"] for row in records} == {backend}
    assert {row["params"]["container"] for row in records} == {"lab:1"}
    assert {row["stack"]["os"] for row in records} == {"Debian 12.77"}
    image = docker.on("t2", "docker inspect --format '{{.Id}}' lab:1").strip()
    assert {row["stack"]["image"] for row in records} == {image}
    assert containers(docker) == [[], []]


def test_a_taken_port_is_told_and_nothing_stays(docker):
    docker.on("t2", f'systemd-run --quiet --unit=hog python3 -c "{HOG}" && sleep 1')
    try:
        told = docker.hvlab("bench", "--restart", "--backend", "mpi", *SMALL, *INSIDE, expect=1).stderr
    finally:
        docker.on("t2", "systemctl stop hog")
    assert "t2: port 9435 is taken" in told
    assert containers(docker) == [[], []]


def test_an_image_that_is_not_there_is_told(docker):
    words = ("--container", "127.0.0.1:9/none:1")
    told = docker.hvlab("bench", "--restart", "--backend", "mpi", *SMALL, *words, expect=1).stderr
    assert "the container does not start" in told
    assert containers(docker) == [[], []]


def start(lab):
    """Start a bench that would take long, and return it once its ranks' containers are there."""
    words = ("--restart", "--backend", "mpi", *SMALL, *INSIDE, "--iterations", "100000")
    bench = subprocess.Popen(
        lab.argv("bench", *words), env=lab.environment, stderr=subprocess.PIPE, text=True, cwd=PROJECT
    )
    deadline = time.monotonic() + 180
    while not lab.on("t2", "pgrep -f [c]ollective.py || true") and time.monotonic() < deadline:
        time.sleep(0.5)
    assert [len(found) for found in containers(lab)] == [1, 1]
    return bench


def test_an_interrupted_run_leaves_no_container(docker):
    with start(docker) as bench:
        bench.send_signal(signal.SIGINT)
        bench.communicate(timeout=120)
    assert bench.returncode == 130
    assert containers(docker) == [[], []]


def test_what_a_killed_run_left_is_removed_by_the_next(docker):
    with start(docker) as bench:
        bench.kill()
        bench.communicate(timeout=60)
    assert [len(found) for found in containers(docker)] == [1, 1]
    docker.hvlab("bench", "--restart", "--backend", "mpi", *SMALL)
    assert containers(docker) == [[], []]
    assert {row["status"] for row in docker.results_of("show")} == {"ok"}
