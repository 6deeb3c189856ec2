"""hvlab-run: horovodrun's command line, with scripts answered by torch.distributed.

    hvlab-run -np 4 -H a:2,b:2 [--network-interface eth0] python train.py

Ranks on other hosts are started by ssh, which knows their keys; folder and Python have to be the same there.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any

from hvlab_horovod.launch import LOCAL, Rank, parse, ranks, slots

GRACE_S = 5
ENDS = (signal.SIGTERM, signal.SIGHUP)
# Of prctl(2).
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
# A return before a newline is a terminal's.
LINES = re.compile(rb"(?<=\n)|(?<=\r)(?=[^\n])")


def main() -> int:
    """Start all ranks; return 0, or the code of the first that failed, after the others were ended."""
    options = parse(sys.argv[1:])
    for name in options.ignored:
        print(f"hvlab-run: {name} is ignored: torch.distributed has no such setting", file=sys.stderr)
    try:
        hosts = [host for host, _ in slots(options)]
        own = [host for host in hosts if host in LOCAL or is_own(host)]
        commands = ranks(options, *find_meeting_place(hosts, own), local_names=own)
    except (ValueError, OSError) as error:
        print(f"hvlab-run: {error}", file=sys.stderr)
        return 2
    for ending in ENDS:
        # nohup has SIGHUP ignored.
        if signal.getsignal(ending) is not signal.SIG_IGN:
            signal.signal(ending, lambda sent, _: sys.exit(128 + sent))
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for number, rank in enumerate(commands):
            if options.verbose:
                print(f"hvlab-run: rank {number}: {rank.argv}", file=sys.stderr)
            processes.append(_start(rank))
        for number, process in enumerate(processes):
            _show(number, process, options)
        return _wait(processes, commands)
    except OSError as error:
        print(f"hvlab-run: this host cannot start the ranks: {error}; what to do: check it", file=sys.stderr)
        return 127
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    finally:
        _end(processes)


def _address(host: str) -> str:
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise ValueError(f"{host} has no address here: {error}; what to do: check its name in -H") from error


def is_own(host: str) -> bool:
    """Return whether a name is this host's own, by binding a socket to its address."""
    try:
        socket.create_server((_address(host), 0)).close()
    except (ValueError, OSError):
        return False
    return True


def find_meeting_place(hosts: list[str], own: list[str]) -> tuple[str, int]:
    """Return the address of rank 0's host, as all hosts know it, and a port; ``own`` are this host's."""
    first = hosts[0]
    others = [host for host in hosts if host not in own]
    if not others:
        address = "127.0.0.1"
    elif first in LOCAL:
        raise ValueError(f"{first} means another host on each; what to do: name this host in -H")
    else:
        address = _address(first)
        if address.startswith("127.") and first in own:
            # /etc/hosts of Debian: the address by which the others are reached is theirs to reach this host.
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
                route.connect((_address(others[0]), 9))
                address = route.getsockname()[0]
        elif address.startswith("127."):
            raise ValueError(f"{first} is {address} here, which is not {first}; what to do: see /etc/hosts")
    with socket.create_server(("", 0)) as listener:
        return address, listener.getsockname()[1]


def _start(rank: Rank) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        rank.argv,
        env={**os.environ, **rank.environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=_end_with_launcher,  # noqa: PLW1509 - there is no other thread yet
    )


def _show(number: int, process: subprocess.Popen[bytes], options: argparse.Namespace) -> None:
    for name, stream, target in (
        ("stdout", process.stdout, sys.stdout),
        ("stderr", process.stderr, sys.stderr),
    ):
        file: Any = contextlib.nullcontext()
        if folder := options.output_filename:
            (folder / f"rank.{number}").mkdir(parents=True, exist_ok=True)
            file = (folder / f"rank.{number}" / name).open("wb")
        label = f"[{number}]<{name}>:"
        threading.Thread(target=_copy, args=(label, stream, target, file, options.timestamp)).start()


def _end_with_launcher() -> None:
    """Have the system end this rank if hvlab-run is killed."""
    if LIBC:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _copy(label: str, stream: Any, target: Any, file: Any, timestamp: bool) -> None:
    """Copy lines, with the rank before each, as horovodrun does; progress bars end theirs by a return."""
    with stream, file as kept:
        rest = b""
        while part := stream.read1():
            if kept:
                kept.write(part)
                kept.flush()
            *lines, rest = LINES.split(rest + part)
            _print(label, lines, target, timestamp)
        _print(label, [rest] * bool(rest), target, timestamp)


def _print(label: str, lines: list[bytes], target: Any, timestamp: bool) -> None:
    before = (time.asctime() * timestamp + label).encode()
    try:
        for line in lines:
            target.buffer.write(before + line.replace(b"\r\n", b"\n"))
            target.flush()
    except BrokenPipeError:
        # Its reader has enough, as `head` has; the ranks go on.
        os.dup2(os.open(os.devnull, os.O_WRONLY), target.fileno())


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
    for ending in (signal.SIGINT, *ENDS):
        signal.signal(ending, signal.SIG_IGN)
    for sent in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, sent)
        end = time.monotonic() + GRACE_S
        while time.monotonic() < end and any(process.poll() is None for process in processes):
            time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
