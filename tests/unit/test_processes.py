"""Whose work a reboot of a host would end."""

import os
import subprocess

import pytest
from ansible.module_utils import hvlab_processes

# As `ps` shows them in containerd's issue 4297, moby's for-win 2124, and podman's and Slurm's own pages.
SHIM = "/usr/local/bin/containerd-shim-runc-v2 -namespace {} -id {} -address /run/containerd/containerd.sock"
ID = "90d0481de3ddccc68a9867de12e11153706e05cf4c4ff649aec4a08340d57a78"


@pytest.mark.parametrize(
    ("comm", "line", "named"),
    [
        ("containerd-shim", SHIM.format("k8s.io", ID), ["container 90d0481de3dd of Kubernetes"]),
        ("containerd-shim", SHIM.format("moby", ID), ["container 90d0481de3dd of docker"]),
        ("conmon", f"/usr/bin/conmon --api-version 1 -c {ID} -n web", ["container web of podman"]),
        ("sleep", "sleep 60", []),
    ],
)
def test_a_container_is_named_with_its_engine(comm, line, named):
    assert hvlab_processes.container(comm, line.split()) == named


@pytest.mark.parametrize(
    "title", ["slurmstepd: [1234.batch]", "slurmstepd: [1234.0]", "slurmstepd: [1234.extern]"]
)
def test_a_job_is_named_once(title):
    assert hvlab_processes.job([title, ""]) == ["job 1234"]


@pytest.mark.parametrize(
    ("process", "long", "named"),
    [
        ((1000, "python", "0::/user.slice/user-1000.slice/session-3.scope"), 0, True),
        ((1000, "python", "0::/user.slice/user-1000.slice/session-3.scope"), 60, False),
        ((1000, "sshd", "0::/user.slice/user-1000.slice/session-3.scope"), 0, False),
        ((1000, "python", f"0::/system.slice/docker-{ID}.scope"), 0, False),
        ((999, "mysqld", "0::/system.slice/mysql.service"), 0, False),
        ((61200, "httpd", "0::/system.slice/own.service"), 0, False),
    ],
)
def test_people_s_work_is_neither_a_service_nor_short(monkeypatch, process, long, named):
    uid, comm, cgroup = process
    read = hvlab_processes.read
    monkeypatch.setattr(hvlab_processes, "read", lambda path: cgroup if "cgroup" in path else read(path))
    monkeypatch.setattr(hvlab_processes, "owner", lambda pid: uid)
    monkeypatch.setattr(hvlab_processes, "LONG_S", long)
    with subprocess.Popen(["sleep", "60"]) as started:
        try:
            words = hvlab_processes.list_long_running(started.pid, comm)
        finally:
            started.kill()
    assert [word.startswith(f"{comm}[{started.pid}] of ") for word in words] == [True] * named


@pytest.mark.parametrize(
    ("comm", "device", "named"),
    [
        ("python", "/dev/nvidia0", True),
        ("python", "/dev/null", False),
        ("nvidia-persiste", "/dev/nvidiactl", False),
    ],
)
def test_who_uses_a_gpu_but_not_nvidias_services(monkeypatch, comm, device, named):
    monkeypatch.setattr(hvlab_processes, "processes", lambda: [os.getpid()])
    monkeypatch.setattr(hvlab_processes, "name", lambda pid: f"{comm}\n")
    monkeypatch.setattr(hvlab_processes.os, "readlink", lambda path: device)
    user = {"pid": str(os.getpid()), "name": comm}
    assert hvlab_processes.gpu_users() == [user] * named


def test_who_is_logged_in_but_not_this_login(monkeypatch):
    """As systemd 252 of Debian 12 prints them."""
    shown = {
        "1": "Id=1\nName=alice\nTTY=pts/0\nRemoteHost=192.0.2.9\nLeader=611\nClass=user\nState=active\n",
        "2": "Id=2\nName=hvlab\nTTY=pts/1\nRemoteHost=192.0.2.1\nLeader=700\nClass=user\nState=active\n",
        "3": "Id=3\nName=bob\nTTY=pts/2\nRemoteHost=192.0.2.8\nLeader=801\nClass=user\nState=closing\n",
        "4": "Id=4\nName=hvlab\nRemoteHost=192.0.2.1\nLeader=701\nClass=user\nState=active\n",
        "c1": "Id=c1\nName=gdm\nTTY=tty1\nLeader=900\nType=wayland\nClass=greeter\nState=active\n",
        "5": "Id=5\nName=carol\nTTY=tty2\nRemote=no\nLeader=1000\nType=tty\nClass=user\nState=online\n",
    }
    listed = "".join(f"{one:>7} 1000 somebody seat0 tty1\n" for one in shown)
    monkeypatch.setattr(
        hvlab_processes, "run", lambda *argv: listed if argv[1] == "list-sessions" else shown[argv[2]]
    )
    assert hvlab_processes.sessions({700}) == ["alice (logged in, 192.0.2.9)", "carol (logged in, tty2)"]


def test_this_run_is_no_work(monkeypatch):
    monkeypatch.setattr(hvlab_processes, "owner", lambda pid: 1000)
    monkeypatch.setattr(hvlab_processes, "LONG_S", -1)
    monkeypatch.setattr(hvlab_processes, "CONTAINED", hvlab_processes.re.compile("never"))
    words = hvlab_processes.work(lambda text: None)["processes"]
    assert words
    assert not [word for word in words if f"[{os.getpid()}]" in word or f"[{os.getppid()}]" in word]
