# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""The processes of a host, and the work that a reboot would end."""

from __future__ import annotations

import os
import pwd
import re
import time
from typing import Any, Iterator

from ansible.module_utils.hvlab_probe import probe, read, run

# Process names, which the kernel cuts to 15 letters.
SHIM, CONMON, STEP = "containerd-shim", "conmon", "slurmstepd"
DAEMONS = {
    "slurmd": "slurmd",
    "kubelet": "kubelet",
    "pbs_mom": "PBS",
    "sge_execd": "Grid Engine",
    "condor_startd": "HTCondor",
    "sbatchd": "LSF",
}
# NVIDIA's own services, which go with the driver.
SERVICES = ("nvidia-persiste", "nv-fabricmanage", "nvlsm", "nvidia-imex", "nv-hostengine", "nvidia-smi")
MACHINES = ("qemu-system", "qemu-kvm")
# Processes that belong to a login and are no work.
LOGIN = ("sshd", "sshd-session", "systemd", "(sd-pam)", "dbus-daemon", "dbus-broker", "dbus-broker-lau")
CONTAINED = re.compile(r"docker|libpod|kubepods|containerd|crio|machine|slurm")
# The processes of people, and not those of services and of systemd's dynamic users.
PEOPLE = 1000
NOT_PEOPLE = range(61184, 65536)
LONG_S = 60


def processes() -> list[int]:
    """Return the IDs of all processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def owner(pid: int) -> int | None:
    """Return the UID of a process; None once it has ended."""
    try:
        return os.stat("/proc/{}".format(pid)).st_uid
    except OSError:
        return None


def name(pid: int) -> str:
    """Return the name of a process; empty once it has ended."""
    return read("/proc/{}/comm".format(pid)) or ""


def runs(daemon: str) -> bool:
    """Whether a process of this name runs."""
    return any(name(pid) == daemon for pid in processes())


def above(pid: int) -> Iterator[int]:
    """Yield a process and those above it."""
    while pid:
        yield pid
        with open("/proc/{}/status".format(pid)) as file:
            pid = next(int(line.split()[1]) for line in file if line.startswith("PPid:"))


def gpu_users() -> list[dict[str, str]]:
    """Return process ID and name of all that hold a device of NVIDIA open, except NVIDIA's own services."""
    users = []
    for pid in processes():
        folder = "/proc/{}/fd/".format(pid)
        try:
            targets = {os.readlink(folder + number) for number in os.listdir(folder)}
        except OSError:
            continue
        comm = name(pid).strip()
        if any(target.startswith("/dev/nvidia") for target in targets) and comm not in SERVICES:
            users.append({"pid": str(pid), "name": comm})
    return users


def work(warn: Any) -> dict[str, list[str]]:
    """Return, by kind and in words, the work that a reboot would end; except this process and its parents."""
    own = set(above(os.getpid()))
    named = [(pid, name(pid)) for pid in processes() if pid not in own]
    return {
        "sessions": probe(warn, sessions, own) or [],
        "containers": [word for pid, comm in named for word in container(comm, arguments(pid))],
        "jobs": sorted({word for pid, comm in named if comm == STEP for word in job(arguments(pid))}),
        "daemons": sorted({DAEMONS[comm] for _, comm in named if comm in DAEMONS}),
        "machines": ["virtual machine {}".format(pid) for pid, comm in named if comm.startswith(MACHINES)],
        "processes": [word for pid, comm in named for word in list_long_running(pid, comm)],
    }


def arguments(pid: int) -> list[str]:
    """Return the command line of a process; empty once it has ended."""
    return (read("/proc/{}/cmdline".format(pid)) or "").split("\0")


def container(comm: str, argv: list[str]) -> list[str]:
    """Return the container that a process keeps, by the engine that started it."""
    options = dict(zip(argv, argv[1:]))  # noqa: B905, RUF007
    if comm == SHIM:
        engine = {"moby": "docker", "k8s.io": "Kubernetes"}.get(options.get("-namespace", ""), "containerd")
        return ["container {} of {}".format(options.get("-id", "")[:12], engine)]
    if comm == CONMON:
        return ["container {} of podman".format(options.get("-n") or options.get("-c", "")[:12])]
    return []


def job(argv: list[str]) -> list[str]:
    """Return the job of a step of Slurm: the daemon's title is C(slurmstepd: [1234.batch])."""
    match = re.search(r"\[(\d+)[.\]]", " ".join(argv))
    return ["job {}".format(match[1])] if match else []


def list_long_running(pid: int, comm: str) -> list[str]:
    """Return a person's process outside of containers and jobs that runs for a minute or longer."""
    uid = owner(pid)
    if uid is None or uid < PEOPLE or uid in NOT_PEOPLE or comm in LOGIN:
        return []
    # The start, in ticks after the boot. The name before it may hold blanks and brackets.
    fields = (read("/proc/{}/stat".format(pid)) or "").rpartition(")")[2].split()
    if len(fields) < 20 or CONTAINED.search(read("/proc/{}/cgroup".format(pid)) or ""):
        return []
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return ["{}[{}] of {}".format(comm, pid, person(uid))] if age >= LONG_S else []


def person(uid: int) -> str:
    """Return a user's name, or the number of one who has none here."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def sessions(own: set[int]) -> list[str]:
    """Return the logins at a terminal or display, without the sessions of processes in ``own``.

    A connection without one is Ansible's, or that of a command; what it runs counts as a process.
    """
    logins = []
    for line in run("loginctl", "list-sessions", "--no-legend").splitlines():
        shown = run("loginctl", "show-session", line.split()[0])
        one = dict(pair.split("=", 1) for pair in shown.splitlines() if "=" in pair)
        ended = one.get("State") == "closing" or one.get("Class") != "user"
        seat = one.get("TTY") or one.get("Display")
        if seat and not ended and int(one.get("Leader", 0)) not in own:
            place = one.get("RemoteHost") or seat
            logins.append("{} (logged in, {})".format(one.get("Name"), place))
    return logins
