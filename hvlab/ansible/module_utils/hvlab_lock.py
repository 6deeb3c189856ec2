# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""One run at a time changes or measures a host.

The lock is an abstract socket: the kernel takes it back with the process that has it, at the latest when the
host restarts, and any user can ask who that is. That process ends when its owner ends or stays silent for
long. No clock is read. Run as a program, this is the owner's end; the callback hvlab_lock writes its input.
"""

from __future__ import annotations

import errno
import json
import os
import select
import socket
import struct
import sys
import time
from contextlib import suppress
from typing import Any

NAME = "\0hvlab-lock"
# Seconds that an owner may be silent; the callback hvlab_lock speaks more often.
SILENCE_S = 120.0
ANSWER_S = 5.0
CLIENTS = 64
QUESTION, END = " ?", " end"
# Seconds that an owner may take to connect, and how often another run looks whether it has.
BROKEN_S = 10.0
LOOK_S = 0.1
# The first link to each lock that this process took: it breaks when the process ends, even if killed.
_held: list[socket.socket] = []


def take(token: str, owner: dict[str, Any]) -> dict[str, Any] | None:
    """Lock the host for the holder of ``token``; return another owner, None once it is locked.

    An owner whose link broke, as Ctrl-C breaks it, is waited for.
    """
    for _ in range(int((BROKEN_S + 1) / LOOK_S)):
        own = socket.socket(socket.AF_UNIX)
        try:
            own.bind(NAME)
            own.listen(CLIENTS)
        except OSError:
            own.close()
            with suppress(ConnectionRefusedError), socket.socket(socket.AF_UNIX) as asking:
                holder = ask(asking, token + QUESTION)
                if not (holder and holder.get("broken")):
                    return holder
            time.sleep(LOOK_S)
        else:
            _leave_behind(own, token, owner)
            return None
    return {"owner": "a process that does not say who it is"}


def ask(asking: socket.socket, words: str) -> dict[str, Any] | None:
    """Return the other owner of the host; None while the owner of the token has it.

    Raises ConnectionRefusedError if nobody has it any more.
    """
    try:
        asking.settimeout(ANSWER_S)
        asking.connect(NAME)
    except OSError as error:
        if error.errno != errno.EISCONN:
            raise ConnectionRefusedError from error
    try:
        asking.sendall(words.encode() + b"\n")
        line = asking.recv(4096)
        answer = json.loads(line) if line else None
    except OSError as error:
        if not isinstance(error, socket.timeout):
            raise ConnectionRefusedError from error
        line = answer = b"?"
    except ValueError:
        answer = None
    if not line:
        raise ConnectionRefusedError
    if isinstance(answer, dict):
        return answer or None
    pid, uid, _ = struct.unpack("3i", asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return {"owner": "process {} of UID {}".format(pid, uid)}


def _leave_behind(own: socket.socket, token: str, owner: dict[str, Any]) -> None:
    held, first = socket.socketpair()
    child = os.fork()
    if child:
        own.close()
        first.close()
        _held.append(held)
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if os.fork() == 0:
            os.chdir("/")
            nothing = os.open(os.devnull, os.O_RDWR)
            for descriptor in range(3):
                os.dup2(nothing, descriptor)
            for descriptor in {*range(3, 4096)} - {own.fileno(), first.fileno()}:
                with suppress(OSError):
                    os.close(descriptor)
            keep(own, first, token, owner)
    finally:
        os._exit(0)


def keep(own: socket.socket, first: socket.socket, token: str, owner: dict[str, Any]) -> None:
    """Answer who has the host, until the owner ends or is gone; ``first`` is its first link."""
    began = time.monotonic()
    until = began + SILENCE_S
    clients = [first]
    links = {first}
    broken = False
    while True:
        left = until - time.monotonic()
        if left <= 0:
            return
        for one in select.select([own, *clients], [], [], left)[0]:
            if one is own:
                clients = [*clients[-CLIENTS:], own.accept()[0]]
                clients[-1].setblocking(False)
                continue
            try:
                said = one.recv(4096)
                words = said.decode("utf-8", "replace").strip()
                if words == token:
                    links.add(one)
                    broken = False
                    until = time.monotonic() + SILENCE_S
                if words == token + END:
                    return
                if words in (token, token + QUESTION):
                    one.send(b"{}")
                elif said:
                    seconds = round(time.monotonic() - began)
                    one.send(json.dumps(dict(owner, seconds=seconds, broken=broken)).encode())
            except OSError:
                said = b""
            if not said:
                clients.remove(one)
                one.close()
                if links == {one}:
                    broken = True
                    until = time.monotonic() + BROKEN_S
                links.discard(one)


def main() -> int:
    """Hold the host while lines arrive; if another run has it, print who, and return 3."""
    request = json.loads(sys.stdin.readline())
    link = socket.socket(socket.AF_UNIX)
    for line in sys.stdin:
        try:
            holder = ask(link, request["token"] + line.rstrip())
        except ConnectionRefusedError:
            if line.rstrip():
                return 0
            # The host was restarted, or this end was silent for long.
            link = socket.socket(socket.AF_UNIX)
            holder = take(**request) or ask(link, request["token"])
        if holder:
            print(json.dumps(holder))
            return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
