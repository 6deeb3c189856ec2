"""Run a user's own training as one rank: in its own folder, with its files, and watched.

Runs as every rank under any launcher, or alone with --serial. `python` is the one of the variant. Standard
output and error of the command pass through; rank 0 also keeps them in output.txt, and writes one JSON file
with the proof of the backend, see observer.py. Every rank prints one line on standard error: the use of its
cores or, if the command failed, rank and host; then this fails too. With --explain another line has the parts
of a step, see step_parts.py. Needs Python 3.8+ and no package.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from typing import Any, Sequence

import case
import evidence
import launched
import stolen

HERE = os.path.dirname(os.path.abspath(__file__))
WORK = os.path.expanduser("~/.hvlab/work")
ARCHIVE, OUTPUT, TIMELINE = "files.tar", "output.txt", "timeline.json"
LAST_LINES = 5
GRACE_S = 3.0
# The status of a shell that cannot start a command.
NO_COMMAND = 127


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", choices=("command",), required=True)
    parser.add_argument("--world-size", type=int, required=True)
    parser.add_argument("--hosts", type=int, required=True, help="how many hosts the ranks must be on")
    parser.add_argument("--command", required=True, help="as one line of a shell")
    parser.add_argument("--copy", type=os.path.expanduser, default="", help="the folder with the archive")
    parser.add_argument("--explain", type="true".__eq__, help="true: record where the time of a step goes")
    parser.add_argument("--serial", action="store_true", help="one process, which need not use Horovod")
    parser.add_argument("--ddp", default="", help="the process group that torch.distributed must have")
    parser.add_argument("--output", type=os.path.expanduser, required=True)
    return parser.parse_args(argv)


def main(options: argparse.Namespace) -> int:
    """Return the exit status of the command; 1 if rank 0 finds a deviation from the request."""
    rank, size, local_rank = (0, 1, 0) if options.serial else launched.place()
    launched.place_workers(options.world_size // options.hosts)
    mine = owner()
    work = os.path.join(WORK, mine + str(os.getpid()))
    clear(WORK, mine)
    # A killed rank may have had the same number.
    shutil.rmtree(work, ignore_errors=True)
    noted = os.path.join(work, "evidence")
    os.makedirs(noted)
    try:
        place = prepare(options, work)
        brought = contents(place)
        env = environment(options, work, (rank, size, local_rank))
        folder = os.path.dirname(options.output)
        if rank == 0:
            os.makedirs(folder, exist_ok=True)
        kept = os.path.join(folder, OUTPUT) if rank == 0 else os.devnull
        started, counted = time.time(), stolen.read()
        status, lines = run(shlex.split(options.command), place, env, kept)
        seconds = time.time() - started
        if status:
            complain(rank, status, lines)
            return status
        account(rank, local_rank, stolen.since(counted))
        explain(rank, noted)
        if rank == 0:
            result = judge(options, read(noted), os.path.join(folder, TIMELINE))
            removed = sorted(contents(place) - brought)
            result["command"] = {"started_at": started, "seconds": seconds, "removed": removed}
            case.write(folder, os.path.basename(options.output), result)
            return 1 if result["checks"] else 0
        return status
    finally:
        shutil.rmtree(work, ignore_errors=True)


def owner() -> str:
    """Return the prefix of this host's folders: hosts, and containers with their own pids, may share them."""
    return "{}-{}-".format(platform.node(), os.stat("/proc/self/ns/pid").st_ino)


def clear(folder: str, mine: str) -> None:
    """Remove leftovers of killed ranks in the folders whose names begin with ``mine``."""
    if not os.path.isdir(folder):
        return
    for name in os.listdir(folder):
        if name.startswith(mine) and not os.path.exists("/proc/" + name[len(mine) :]):
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)


def contents(folder: str) -> set[str]:
    """Return the paths of the files below a folder, without compiled Python."""
    return {
        os.path.relpath(os.path.join(place, name), folder)
        for place, _, names in os.walk(folder)
        if os.path.basename(place) != "__pycache__"
        for name in names
    }


def prepare(options: argparse.Namespace, work: str) -> str:
    """Return the folder to run in, with the user's files; the observer is put beside it."""
    hook, place = os.path.join(work, "hook"), os.path.join(work, "files")
    os.makedirs(hook)
    os.makedirs(place)
    shutil.copyfile(os.path.join(HERE, "observer.py"), os.path.join(hook, "sitecustomize.py"))
    shutil.copy(os.path.join(HERE, "step_parts.py"), hook)
    if options.copy:
        unpack(os.path.join(options.copy, ARCHIVE), place)
    return place


def unpack(archive: str, place: str) -> None:
    """Write the files of an archive below ``place``. Raises ValueError for anything but plain files."""
    with tarfile.open(archive) as tar:
        for member in tar:
            source = tar.extractfile(member) if member.isfile() else None
            if source is None or os.path.isabs(member.name) or ".." in member.name.split("/"):
                raise ValueError("the archive holds {}, which is no plain file".format(member.name))
            path = os.path.join(place, member.name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                shutil.copyfileobj(source, file)
            os.chmod(path, member.mode & 0o755)


def environment(options: argparse.Namespace, work: str, ranks: tuple[int, int, int]) -> dict[str, str]:
    env = dict(os.environ)
    # Not resolved: the variant's python is a link to the system's.
    folder = os.path.dirname(os.path.abspath(sys.executable))
    env["PATH"] = os.pathsep.join([folder, env.get("PATH", os.defpath)])
    env["VIRTUAL_ENV"] = os.path.dirname(folder)
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [os.path.join(work, "hook"), env.get("PYTHONPATH")]))
    env["PYTHONUNBUFFERED"] = "1"
    env["HVLAB_EVIDENCE"] = os.path.join(work, "evidence")
    env["HVLAB_TIMELINE"] = os.path.join(os.path.dirname(options.output), TIMELINE)
    if options.explain:
        env["HVLAB_EXPLAIN"] = "1"
    if options.ddp:
        env.update(zip(("RANK", "WORLD_SIZE", "LOCAL_RANK"), map(str, ranks)))
        env["HVLAB_DDP_BACKEND"] = options.ddp
    return env


def run(words: list[str], place: str, env: dict[str, str], kept: str) -> tuple[int, list[str]]:
    """Return the exit status of the command and its last lines; all of them also go to ``kept``."""
    last: collections.deque[str] = collections.deque(maxlen=LAST_LINES)
    path = shutil.which(words[0], path=env["PATH"]) if os.sep not in words[0] else words[0]
    try:
        child = subprocess.Popen(
            [path or words[0], *words[1:]],
            cwd=place,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return NO_COMMAND, ["{}: {}".format(words[0], error.strerror)]
    ended: list[int] = []

    def end(number: int, _: Any) -> None:
        ended.append(number)
        signal_all(child.pid, signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    pump = threading.Thread(target=forward, args=(child.stdout, kept, last), daemon=True)
    pump.start()
    status = child.wait()
    # Leftovers of the command may hold its output open; the next case needs the cores.
    pump.join(GRACE_S)
    signal_all(child.pid, signal.SIGKILL)
    if ended:
        # The sender of the signal knows why.
        sys.exit(128 + ended[0])
    return status, list(last)


def signal_all(session: int, number: int) -> None:
    """Send a signal to the command and everything it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(session, number)


def forward(source: Any, kept: str, last: collections.deque[str]) -> None:
    """Write every line of a command to ``kept``, to standard output, and into its last lines."""
    with open(kept, "wb") as file:
        for line in iter(source.readline, b""):
            file.write(line)
            file.flush()
            with contextlib.suppress(OSError):
                sys.stdout.buffer.write(line)
                sys.stdout.buffer.flush()
            if line.strip():
                last.append(line.decode(errors="replace").strip())


def complain(rank: int, status: int, lines: list[str]) -> None:
    """Print which rank failed, on which host, and its last output on standard error."""
    how = "was ended by signal {}" if status < 0 else "ended with exit status {}"
    how, printed = how.format(abs(status)), " | ".join(lines) or "it printed nothing"
    sys.stderr.write("hvlab: rank {} on {} {}: {}\n".format(rank, platform.node(), how, printed))
    sys.stderr.flush()


def account(rank: int, local_rank: int, counted: dict[str, Any]) -> None:
    """Print the use of this rank's cores; the first rank of a host reports all of its cores."""
    if local_rank:
        counted = {"own_s": counted["own_s"]}
    line = json.dumps({"rank": rank, "node": platform.node(), **counted})
    sys.stderr.write("hvlab: cores: {}\n".format(line))
    sys.stderr.flush()


def explain(rank: int, folder: str) -> None:
    """Print the parts of a step of this rank's training, or why there are none.

    Of several processes, the one with the most steps counts.
    """
    recorded = []
    for name in os.listdir(folder):
        if name.endswith(".step"):
            with open(os.path.join(folder, name)) as file:
                recorded.append({"rank": rank, **json.load(file)})
    if recorded:
        line = json.dumps(max(recorded, key=lambda each: each["steps"]))
        sys.stderr.write("hvlab: step: {}\n".format(line))
        sys.stderr.flush()


def read(folder: str) -> list[dict[str, Any]]:
    """Return the notes of all processes of this rank's command."""
    notes = []
    for name in sorted(os.listdir(folder)):
        if name.endswith(".json"):
            with open(os.path.join(folder, name)) as file:
                notes.append(json.load(file))
    return notes


def judge(options: argparse.Namespace, notes: list[dict[str, Any]], timeline: str) -> dict[str, Any]:
    """Return the result: checks, the world as it was, proof and state."""
    framework = "" if options.serial else "ddp" if options.ddp else "horovod"
    own = [one for one in notes if one["framework"] == framework]
    checks: list[str] = []
    one: dict[str, Any] = own[0] if own else {"size": 1 if options.serial else 0, "state": {}, "versions": {}}
    if framework and not own:
        what = "torch.distributed.init_process_group()" if options.ddp else "Horovod's init()"
        message = "rank 0 never called {}: nothing proves who carried the data"
        checks.append(message.format(what))
    elif framework == "horovod":
        asked = (options.world_size, options.world_size // options.hosts, options.hosts)
        there = (one["size"], one["local_size"], one["cross_size"])
        if there != asked:
            message = "asked for {} ranks, {} a host, on {} hosts; Horovod says {}, {} and {}"
            checks.append(message.format(*asked, *there))
    proof: dict[str, Any] = {}
    if framework == "horovod":
        proof = {"timeline": TIMELINE, "activities": evidence.events(timeline)}
    if framework == "ddp" and own:
        # Several are written as cpu:gloo,cuda:nccl.
        proof["groups"] = [part.rpartition(":")[2] for part in one["state"]["backend"].split(",")]
    return {
        "checks": checks,
        "world": {"size": one["size"], "placement": []},
        "device": os.environ.get("HVLAB_DEVICE", "cpu"),
        "proof": proof,
        "state": {
            framework or "alone": one["state"],
            "versions": one["versions"],
            "libraries": [one["library"]] if "library" in one else [],
        },
    }


if __name__ == "__main__":
    sys.exit(main(parse()))
