"""hvlab-run: horovodrun's command line, with scripts answered by torch.distributed.

    hvlab-run -np 4 -H a:2,b:2 [--network-interface eth0] python train.py

Ranks on other hosts are started by ssh, which knows their keys; folder and Python have to be the same there.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO

from hvlab_horovod.launch import LOCAL, Rank, parse, ranks, slots

GRACE_S = 5


def main() -> int:
    """Start all ranks; return 0, or the code of the first that failed, after the others were ended."""
    options = parse(sys.argv[1:])
    for name in options.ignored:
        print(f"hvlab-run: {name} is ignored: torch.distributed has no such setting", file=sys.stderr)
    try:
        commands = ranks(options, *find_meeting_place([host for host, _ in slots(options)]))
    except (ValueError, OSError) as error:
        print(f"hvlab-run: {error}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for number, rank in enumerate(commands):
            if options.verbose:
                print(f"hvlab-run: rank {number}: {rank.argv}", file=sys.stderr)
            processes.append(_start(number, rank, options.output_filename))
        return _wait(processes, commands)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    finally:
        _end(processes)


def find_meeting_place(hosts: list[str]) -> tuple[str, int]:
    """Return the address of rank 0's host, as all hosts know it, and a port."""
    first = hosts[0]
    if all(host in LOCAL for host in hosts):
        address = "127.0.0.1"
    elif first in LOCAL:
        raise ValueError(f"{first} means another host on each; what to do: name this host in -H")
    else:
        address = str(socket.getaddrinfo(first, None, type=socket.SOCK_STREAM)[0][4][0])
    with socket.create_server(("", 0)) as listener:
        return address, listener.getsockname()[1]


def _start(number: int, rank: Rank, folder: Path | None) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        rank.argv,
        env={**os.environ, **rank.environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    for name, stream, target in (
        ("stdout", process.stdout, sys.stdout),
        ("stderr", process.stderr, sys.stderr),
    ):
        file: Any = contextlib.nullcontext()
        if folder:
            (folder / f"rank.{number}").mkdir(parents=True, exist_ok=True)
            file = (folder / f"rank.{number}" / name).open("wb")
        threading.Thread(target=_copy, args=(f"[{number}]<{name}>:", stream, target, file)).start()
    return process


def _copy(label: str, stream: BinaryIO, target: Any, file: Any) -> None:
    """Copy lines, with the rank before each, as horovodrun does."""
    with stream, file as kept:
        for line in stream:
            if kept:
                kept.write(line)
            target.write(label + line.decode(errors="replace").replace("\r\n", "\n"))
            target.flush()


def _wait(processes: list[subprocess.Popen[bytes]], commands: list[Rank]) -> int:
    while True:
        codes = [process.poll() for process in processes]
        failed = [(number, code) for number, code in enumerate(codes) if code]
        if failed:
            number, code = failed[0]
            host = commands[number].host or "this host"
            print(f"hvlab-run: rank {number} on {host} ended with {code}; all are ended", file=sys.stderr)
            return code if code > 0 else 128 - code
        if all(code == 0 for code in codes):
            return 0
        time.sleep(0.05)


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for sent in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, sent)
        end = time.monotonic() + GRACE_S
        while time.monotonic() < end and any(process.poll() is None for process in processes):
            time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
