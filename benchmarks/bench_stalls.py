"""How often `hvlab doctor --job` names the right rank and host, and how often it blames a healthy job.

Three hosts are made of namespaces on this machine (own network, processes, name), each with one rank that a
launcher starts from a fourth. In every try a job does a few steps, a fault is put in at rank 1 on n2, and the
judge is asked as `hvlab doctor --job "" LOG` asks it.

Faults: stopped (SIGSTOP), skip (a collective that rank 1 leaves out), loader (a worker of its loader waits
for ever), link (its link is switched off), cut (its link is up, and its switch forwards nothing), full (its
checkpoint meets a full disk), memory (the kernel kills the rank in a control group of 64 MiB), shapes (its
tensor is larger), detail (the same, with TORCH_DISTRIBUTED_DEBUG=DETAIL). Healthy: in each step one rank
computes or waits for one to three seconds. Stacks: ddp (torch over Gloo, by mpirun), gloo and mpi (Horovod,
by horovodrun and mpirun), shim (hvlab_horovod over Gloo, by mpirun). Needs root, and Horovod's Python and
mpirun with OPAL_PREFIX and LD_LIBRARY_PATH set.

Prints for each stack and fault the number of tries, those with the right rank and host, or with these and one
more, and wrong answers.

    python -m benchmarks.bench_stalls --python FILE [--stack ddp] [--fault link] [--tries 20] [--healthy 100]
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from benchmarks import netns
from benchmarks.netns import SWITCH, enter, run_inside
from hvlab.base import answers
from hvlab.doctor.places import HostStanding
from hvlab.doctor.standing import judge
from hvlab.workloads import PROGRAMS
from hvlab_horovod import ALIAS

HOSTS = ("n1", "n2", "n3")
STACKS = ("ddp", "gloo", "mpi", "shim")
FAULTS = ("stopped", "skip", "loader", "link", "cut", "full", "memory", "shapes", "detail")
RANK = Path(__file__).parent / "simulated" / "stalling_rank.py"
READY_S, LOOKS = 120, 5
OWN_SYS = "mount --rbind /sys/fs/cgroup /mnt && mount -t sysfs sysfs /sys && mount --move /mnt /sys/fs/cgroup"
NAMES = f"{tempfile.gettempdir()}/hvlab-stalls-{os.getpid()}"


@contextmanager
def hosts() -> Iterator[dict[str, int]]:
    """Have three hosts on a bridge of their own; yield the process that holds each."""
    with ExitStack() as ending:
        held = ending.enter_context(netns.hold((SWITCH, *HOSTS)))
        # Launchers look for the address of an interface with the ranks' name.
        for words in ("add eth0 type bridge", "set lo up", "set eth0 up"):
            run_inside(held[SWITCH], "ip", "link", *words.split())
        run_inside(held[SWITCH], "ip", "addr", "add", "10.99.0.250/24", "dev", "eth0")
        run_inside(held[SWITCH], "hostname", "front")
        table = "".join(f"10.99.0.{at} {host}\n" for at, host in enumerate(HOSTS, 1))
        names = Path(NAMES)
        names.write_text(f"127.0.0.1 localhost\n10.99.0.250 front\n{table}")
        ending.callback(names.unlink, missing_ok=True)
        for host in held.values():
            run_inside(host, "mount", "--make-rprivate", "/")
            run_inside(host, "mount", "--bind", NAMES, "/etc/hosts")
            # /sys shows the interfaces of the host that mounted it; control groups stay.
            run_inside(host, "sh", "-c", OWN_SYS)
        for number, name in enumerate(HOSTS, 1):
            netns.link(held, name, name)
            run_inside(held[SWITCH], "ip", "link", "set", name, "master", "eth0", "up")
            run_inside(held[name], "ip", "addr", "add", f"10.99.0.{number}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                run_inside(held[name], "ip", "link", "set", device, "up")
        yield held


def _enter(held: int, user: str = "") -> list[str]:
    return enter(held, *([f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []))


def _launch(
    held: dict[str, int], python: str, *, stack: str, fault: str, folder: Path, user: str
) -> list[str]:
    """Return what starts three ranks from the fourth host, whose ssh enters namespaces instead."""
    ways = "".join(f'{name}) set -- {shlex.join(_enter(held[name], user))} sh -c "$*";;\n' for name in HOSTS)
    # Options stand before the host, and after it.
    host = '[ "$host" ] && break; host=$1; shift'
    read = f"while :; do case $1 in -o|-p|-i) shift 2;; -*) shift;; *) {host};; esac; done"
    ssh = folder / "ssh"
    ssh.write_text(f'#!/bin/sh\n{read}\ncase $host in\n{ways}esac\nexec "$@"\n')
    ssh.chmod(0o755)
    # It sees this machine's processes: the namespaces are entered by their numbers.
    front = ["nsenter", "--target", str(held[SWITCH]), "--net", "--uts", "--"]
    front += ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts; exec "$@"', NAMES]
    words = [python, str(RANK), stack, fault, str(folder)]
    if stack == "gloo":
        hosts = ",".join(f"{name}:1" for name in HOSTS)
        own = [f"{Path(python).parent}/horovodrun", "--gloo", "-np", "3", "-H", hosts]
        return [*front, *own, "--network-interfaces", "eth0", *words]
    own = ["mpirun", "--allow-run-as-root", "--tag-output", "-np", "3", "--host", ",".join(HOSTS)]
    for name in ("btl", "oob"):
        own += ["--mca", f"{name}_tcp_if_include", "eth0"]
    return [*front, *own, "--mca", "plm_rsh_no_tree_spawn", "1", *words]


@contextmanager
def job(
    held: dict[str, int], python: str, *, stack: str, fault: str, folder: Path, user: str
) -> Iterator[None]:
    """Have a job run until its ranks have done their first steps."""
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    env |= {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder), "GLOO_SOCKET_IFNAME": "eth0"}
    env |= {"MASTER_ADDR": "10.99.0.1", "MASTER_PORT": "29500"}
    if stack == "mpi":
        env["HOROVOD_CPU_OPERATIONS"] = "MPI"
    if stack == "shim":
        env["PYTHONPATH"] = os.pathsep.join((str(ALIAS), str(ALIAS.parents[1])))
    if fault == "detail":
        env["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    argv = _launch(held, python, stack=stack, fault=fault, folder=folder, user=user)
    with ExitStack() as ending, (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            argv, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        ending.callback(process.wait)
        # It stops with what it started.
        ending.callback(process.kill)
        ending.callback(_end, held)
        _await(folder, 3)
        yield


def _await(folder: Path, number: int) -> None:
    end = time.monotonic() + READY_S
    while len(list(folder.glob("ready-*"))) < number:
        if time.monotonic() > end:
            raise click.ClickException(f"the job did not start: {(folder / 'log').read_text()[-2000:]}")
        time.sleep(0.1)


def _pids(held: int, word: str) -> list[int]:
    """Return the processes of a host whose command has a word, as this machine numbers them."""
    own = Path(f"/proc/{held}/ns/pid").readlink()
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            here = (path / "ns/pid").readlink() == own
            if here and word in (path / "cmdline").read_text().replace("\0", " "):
                found.append(int(path.name))
    return found


def _end(held: dict[str, int]) -> None:
    for name in HOSTS:
        for pid in (*_pids(held[name], RANK.name), *_pids(held[name], "orted")):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def plant(held: dict[str, int], fault: str, folder: Path, group: Path) -> list[int]:
    """Put in what does not come from the rank's own program; return the processes of the rank."""
    pids = [pid for pid in sorted(_pids(held["n2"], RANK.name)) if _is_rank(pid)]
    if fault == "stopped":
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
    if fault == "memory":
        for pid in pids:
            (group / "cgroup.procs").write_text(str(pid))
        (folder / "planted").touch()
    if fault == "link":
        run_inside(held[SWITCH], "ip", "link", "set", "n2", "down")
    if fault == "cut":
        run_inside(held[SWITCH], "ip", "link", "set", "n2", "nomaster")
    return pids


def _is_rank(pid: int) -> bool:
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return words[1] == str(RANK)


@contextmanager
def limited() -> Iterator[Path]:
    """Have a control group with 64 MiB of memory."""
    root = Path("/sys/fs/cgroup")
    limit = "memory.max"
    if (root / "memory").is_dir():
        root, limit = root / "memory", "memory.limit_in_bytes"
    group = root / f"hvlab-stalls-{os.getpid()}"
    group.mkdir()
    try:
        (group / limit).write_text(str(2**26))
        yield group
    finally:
        group.rmdir()


def mend(held: dict[str, int]) -> None:
    """Switch the link on again, and join it to the others."""
    run_inside(held[SWITCH], "ip", "link", "set", "n2", "master", "eth0", "up")


def ask(held: dict[str, int], seconds: int, *, own: Sequence[int], user: str) -> dict[str, dict[str, Any]]:
    """Ask all hosts at the same time. They share a kernel: what it killed is n2's ``own``, or nobody's."""
    argv = ["python3", str(PROGRAMS / "standing.py"), str(seconds), str(LOOKS)]
    asked = [subprocess.Popen([*_enter(held[name], user), *argv], stdout=subprocess.PIPE) for name in HOSTS]
    texts = [process.communicate(timeout=120)[0] for process in asked]
    seen = {name: answers.load(text, name, HostStanding) for name, text in zip(HOSTS, texts, strict=True)}
    for name, answer in seen.items():
        named = [(line, re.search(r"(?:process |,pid=)(\d+)", line)) for line in answer["kernel"]]
        answer["kernel"] = [line for line, pid in named if not pid or (name == "n2" and int(pid[1]) in own)]
    return seen


def one(
    held: dict[str, int], python: str, *, stack: str, fault: str, seconds: int, group: Path, user: str
) -> dict[str, Any]:
    """Plant one fault and return the verdict."""
    folder = Path(tempfile.mkdtemp(prefix="hvlab-stalls-"))
    try:
        folder.chmod(0o777)
        if fault == "full":
            small = ["-o", "size=1m,mode=1777", "tmpfs", str(folder / "full")]
            (folder / "full").mkdir()
            run_inside(held["n2"], "mount", "-t", "tmpfs", *small)
        with job(held, python, stack=stack, fault=fault, folder=folder, user=user):
            pids = plant(held, fault, folder, group)
            time.sleep(3)
            seen = ask(held, seconds, own=pids, user=user)
            log = (folder / "log").read_text(errors="replace")
        jobs = judge(seen, {}, log=log)
        own = [each for each in jobs if each.culprit]
        culprit = own[0].culprit if own else None
        ranks, hosts = (culprit.ranks, culprit.hosts) if culprit else ((), ())
        right = not own if fault == "healthy" else (ranks, hosts) == ((1,), ("n2",))
        words = str(culprit) if own else "nothing" if jobs else "the job has ended"
        # Rank 1 and one more, where the log cannot tell the wrong one.
        two = len(ranks) == len(hosts) == 2 and 1 in ranks and "n2" in hosts
        return {
            "right": right,
            "rank": right or ranks == (1,),
            "two": two,
            "said": words,
            "seen": [text for each in jobs for text in each.groups],
            "log": log[-6000:],
        }
    finally:
        mend(held)
        shutil.rmtree(folder, ignore_errors=True)


def _kinds(faults: Sequence[str], tries: int, healthy: int) -> list[tuple[str, int]]:
    return [*((fault, tries) for fault in faults), *([("healthy", healthy)] if healthy else [])]


@click.command(help=__doc__)
@click.option("--python", default=sys.executable)
@click.option("--stack", "stacks", multiple=True, type=click.Choice(STACKS), default=STACKS)
@click.option("--fault", "faults", multiple=True, type=click.Choice(FAULTS), default=FAULTS)
@click.option("--tries", default=20)
@click.option("--healthy", default=100, help="Healthy jobs, over all stacks.")
@click.option("--seconds", default=6)
@click.option("--user", default="", help="The number of a plain user who owns the ranks and asks.")
def main(**options: Any) -> None:
    figures: dict[str, Any] = {}
    with hosts() as held, limited() as group:
        for stack in options["stacks"]:
            most = -(-options["healthy"] // len(options["stacks"]))
            for fault, number in _kinds(options["faults"], options["tries"], most):
                tried = []
                for _ in range(number):
                    own = {
                        "stack": stack,
                        "fault": fault,
                        "seconds": options["seconds"],
                        "user": options["user"],
                    }
                    tried.append(one(held, options["python"], group=group, **own))
                    # An interrupted run has shown its tries.
                    click.echo(f"{stack} {fault}: {tried[-1]['right']}: {tried[-1]['said']}", err=True)
                wrong = [each for each in tried if not each["right"]]
                figures[f"{stack} {fault}"] = {
                    "tries": number,
                    "right": number - len(wrong),
                    "right rank": sum(each["rank"] for each in tried),
                    "one of two": sum(each["two"] for each in tried),
                    "said": tried[0]["said"] if tried else "",
                    "wrong": wrong[:2],
                }
    click.echo(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
