"""How often `hvlab doctor --job` names the right rank and host, and how often it blames a healthy job.

Three hosts are made of namespaces on this machine (own network, processes, name), each with one rank. In
every try a job starts, does a few steps, a fault is put in at rank 1 on n2, and the judge is asked as the
command asks it.

Faults: stopped (SIGSTOP), skip (a collective that rank 1 leaves out), loader (a worker of its loader waits
for ever), link (its link is switched off), full (its checkpoint meets a full disk), memory (the rank is
killed, as the OOM killer does), shapes (its tensor is larger). Healthy: in each step one rank computes or
waits for one to three seconds. Stacks: ddp (torch over Gloo), gloo (Horovod). Needs root and the
ranks' Python.

Prints for each stack and fault the number of tries, those with the right rank and host, and wrong answers.

    python -m benchmarks.bench_stalls --python FILE [--stack ddp] [--fault link] [--tries 20] [--healthy 100]
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import click

from hvlab.base import answers
from hvlab.doctor.places import HostStanding
from hvlab.doctor.standing import Standing, judge
from hvlab.workloads import PROGRAMS

HOSTS = ("n1", "n2", "n3")
STACKS = ("ddp", "gloo")
FAULTS = ("stopped", "skip", "loader", "link", "full", "memory", "shapes")
RANK = Path(__file__).parent / "simulated" / "stalling_rank.py"
READY_S, LOOKS = 120, 5


@contextmanager
def hosts() -> Iterator[dict[str, int]]:
    """Have three hosts on a bridge of their own; yield the process that holds each."""
    with ExitStack() as ending:
        held: dict[str, int] = {}
        for name in ("switch", *HOSTS):
            argv = ["unshare", "--net", "--uts", "--pid", "--mount", "--fork", "--mount-proc", "--kill-child"]
            process = subprocess.Popen([*argv, "sleep", "infinity"], stdout=subprocess.DEVNULL)
            ending.callback(process.wait)
            ending.callback(process.kill)
            held[name] = _child(process.pid)
        _inside(held["switch"], "ip", "link", "add", "br0", "type", "bridge")
        _inside(held["switch"], "ip", "link", "set", "br0", "up")
        for number, name in enumerate(HOSTS, 1):
            _inside(held[name], "hostname", name)
            peer = ["peer", "name", name, "netns", str(held["switch"])]
            link = ["ip", "link", "add", "eth0", "type", "veth", *peer]
            # The number of the other host's process is this machine's.
            subprocess.run(["nsenter", "--target", str(held[name]), "--net", *link], check=True, timeout=30)
            _inside(held["switch"], "ip", "link", "set", name, "master", "br0", "up")
            _inside(held[name], "ip", "addr", "add", f"10.99.0.{number}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                _inside(held[name], "ip", "link", "set", device, "up")
            _inside(held[name], "mount", "--make-rprivate", "/")
            table = "".join(f"10.99.0.{at} {host}\n" for at, host in enumerate(HOSTS, 1))
            names = Path(tempfile.gettempdir()) / f"hvlab-stalls-{os.getpid()}"
            names.write_text(f"127.0.0.1 localhost\n{table}")
            ending.callback(names.unlink, missing_ok=True)
            _inside(held[name], "mount", "--bind", str(names), "/etc/hosts")
        yield held


def _child(pid: int) -> int:
    """Return the process that unshare forked."""
    for _ in range(200):
        with suppress(OSError):
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            if children and "sleep" in Path(f"/proc/{children[0]}/cmdline").read_text():
                return int(children[0])
        time.sleep(0.02)
    raise click.ClickException("unshare made no host: root is needed")


def _enter(held: int) -> list[str]:
    return ["nsenter", "--target", str(held), "--net", "--uts", "--pid", "--mount", "--"]


def _inside(held: int, *words: str) -> None:
    subprocess.run([*_enter(held), *words], check=True, timeout=30)


def _rank_env(stack: str, rank: int, port: int) -> dict[str, str]:
    if stack == "ddp":
        return {
            **{"RANK": str(rank), "WORLD_SIZE": "3", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"},
            **{"MASTER_ADDR": "10.99.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "eth0"},
        }
    return {
        **{
            "HOROVOD_RANK": str(rank),
            "HOROVOD_SIZE": "3",
            "HOROVOD_LOCAL_RANK": "0",
            "HOROVOD_LOCAL_SIZE": "1",
        },
        **{"HOROVOD_CROSS_RANK": str(rank), "HOROVOD_CROSS_SIZE": "3", "HOROVOD_GLOO_IFACE": "eth0"},
        **{"HOROVOD_GLOO_RENDEZVOUS_ADDR": "10.99.0.1", "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port)},
        **{"HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo", "HOROVOD_HOSTNAME": HOSTS[rank]},
    }


@contextmanager
def job(
    held: dict[str, int], python: str, *, stack: str, fault: str, folder: Path, port: int
) -> Iterator[None]:
    """Have a job run until its ranks have done their first steps."""
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    words = [python, str(RANK), stack, fault, str(folder)]
    with ExitStack() as ending, (folder / "log").open("wb") as log:
        started: list[list[str]] = []
        if stack == "gloo":
            server = [python, str(RANK), "serve", fault, str(folder), str(port)]
            started.append([*_enter(held["n1"]), *server])
        for rank, name in enumerate(HOSTS):
            own = [f"{key}={value}" for key, value in _rank_env(stack, rank, port).items()]
            started.append([*_enter(held[name]), "env", *own, *words])
        for argv in started:
            process = subprocess.Popen(argv, env=env, stdout=log, stderr=log, start_new_session=True)
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
        for pid in _pids(held[name], RANK.name):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def plant(held: dict[str, int], fault: str) -> None:
    """Put in what does not come from the rank's own program."""
    pids = sorted(_pids(held["n2"], f"{RANK.name} "))
    if fault in ("stopped", "memory"):
        for pid in pids:
            os.kill(pid, signal.SIGSTOP if fault == "stopped" else signal.SIGKILL)
    if fault == "link":
        _inside(held["switch"], "ip", "link", "set", "n2", "down")


def mend(held: dict[str, int]) -> None:
    """Switch the link on again."""
    _inside(held["switch"], "ip", "link", "set", "n2", "up")


def ask(held: dict[str, int], seconds: int) -> list[Standing]:
    """Ask all hosts at the same time, and judge."""
    argv = ["python3", str(PROGRAMS / "standing.py"), str(seconds), str(LOOKS)]
    asked = [subprocess.Popen([*_enter(held[name]), *argv], stdout=subprocess.PIPE) for name in HOSTS]
    texts = [process.communicate(timeout=120)[0] for process in asked]
    seen = {name: answers.load(text, name, HostStanding) for name, text in zip(HOSTS, texts, strict=True)}
    return judge(seen, {})


def one(
    held: dict[str, int], python: str, *, stack: str, fault: str, seconds: int, port: int
) -> dict[str, Any]:
    """Plant one fault and return the verdict."""
    folder = Path(tempfile.mkdtemp(prefix="hvlab-stalls-"))
    try:
        with job(held, python, stack=stack, fault=fault, folder=folder, port=port):
            plant(held, fault)
            time.sleep(3)
            jobs = ask(held, seconds)
        own = [each for each in jobs if each.culprit]
        if fault == "healthy":
            right = not own
        else:
            right = bool(own) and own[0].culprit.ranks == (1,) and own[0].culprit.hosts == ("n2",)  # type: ignore[union-attr]
        words = str(own[0].culprit) if own else "nothing" if jobs else "the job has ended"
        seen = [text for each in jobs for text in each.groups]
        return {"right": right, "said": words, "seen": seen, "log": (folder / "log").read_text()[-600:]}
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
def main(**options: Any) -> None:
    figures: dict[str, Any] = {}
    port = 20_000
    made: AbstractContextManager[dict[str, int]] = nullcontext({})
    with hosts() if options["tries"] or options["healthy"] else made as held:
        for stack in options["stacks"]:
            most = -(-options["healthy"] // len(options["stacks"]))
            for fault, number in _kinds(options["faults"], options["tries"], most):
                tried = []
                for _ in range(number):
                    port += 1
                    own = {"stack": stack, "fault": fault, "seconds": options["seconds"], "port": port}
                    tried.append(one(held, options["python"], **own))
                wrong = [each for each in tried if not each["right"]]
                figures[f"{stack} {fault}"] = {
                    "tries": number,
                    "right": number - len(wrong),
                    "said": tried[0]["said"] if tried else "",
                    "wrong": wrong[:2],
                }
                click.echo(f"{stack} {fault}: {number - len(wrong)} of {number} {wrong[:1] or ''}", err=True)
    click.echo(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
