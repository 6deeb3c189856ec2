"""Runs on a node: resolves the lab's names, and meets other hosts over one TCP port.

Its arguments are its own name and a JSON object: ``hosts`` (all, each ``name`` and ``address``), ``tried``
(how many of those after itself it tries to reach), ``port`` and ``seconds``. All hosts run it at the same
time: each listens, and sends enough to those that follow it to stall a path that loses large packets.
"""

import json
import os
import socket
import sys
import threading
import time
from typing import Any, Dict, List, Mapping, Set, Tuple

SENT = 256 * 1024
HEADER = 256
# The network answers at once; a host under load may take its time.
CONNECT_S, TRANSFER_S, LOOKUP_S = 5, 10, 10
# Maximum callers at a time: strangers may connect, too. None is heard for longer than a transfer takes.
MOST_CALLERS = 64


def resolve(name: str) -> Dict[str, Any]:
    """Return the addresses of a name in the order in which they are tried, and why there are none."""
    try:
        entries = socket.getaddrinfo(name, None, proto=socket.IPPROTO_TCP)
    except (OSError, UnicodeError) as error:
        return {"addresses": [], "error": getattr(error, "strerror", None) or str(error)}
    return {"addresses": list(dict.fromkeys(entry[4][0] for entry in entries)), "error": ""}


def resolve_all(names: List[str]) -> Dict[str, Any]:
    """Return the addresses of each name; one whose servers do not answer in time is left out."""
    addresses: Dict[str, Any] = {}

    def one(name: str) -> None:
        addresses[name] = resolve(name)

    threads = [threading.Thread(target=one, args=(name,), daemon=True) for name in names]
    for thread in threads:
        thread.start()
    end = time.monotonic() + LOOKUP_S
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return dict(addresses)


def receive(link: socket.socket, callers: Set[str]) -> None:
    """Take in what a host sends and say that it has come."""
    end = time.monotonic() + TRANSFER_S
    try:
        with link:
            data = b""
            while len(data) < HEADER + SENT:
                link.settimeout(max(0.001, end - time.monotonic()))
                part = link.recv(65536)
                if not part or time.monotonic() > end:
                    return
                data += part
            callers.add(data[:HEADER].rstrip(b" ").decode("utf-8", "replace"))
            link.sendall(b"k")
    except OSError:
        pass


def listen(server: socket.socket, callers: Set[str]) -> None:
    """Receive from every caller, for ever."""
    places = threading.BoundedSemaphore(MOST_CALLERS)

    def hear(link: socket.socket) -> None:
        try:
            receive(link, callers)
        finally:
            places.release()

    while True:
        places.acquire()
        try:
            link, _ = server.accept()
        except OSError:
            # The caller has gone, or too many files are open for a moment.
            places.release()
            time.sleep(0.05)
            continue
        threading.Thread(target=hear, args=(link,), daemon=True).start()


def send(own: str, address: str, port: int) -> Tuple[str, str]:
    """Return the outcome of an attempt to reach a host, and the system's error text."""
    try:
        link = socket.create_connection((address, port), timeout=CONNECT_S)
    except socket.timeout:
        return "timed out", ""
    except ConnectionRefusedError:
        return "refused", ""
    except socket.gaierror:
        return "not resolved", ""
    except OSError as error:
        return "rejected", error.strerror or str(error)
    with link:
        link.settimeout(TRANSFER_S)
        try:
            link.sendall(own.encode().ljust(HEADER) + b"x" * SENT)
            return ("met", "") if link.recv(1) == b"k" else ("closed", "")
        except socket.timeout:
            return "stalled", ""
        except OSError as error:
            return "broken", error.strerror or str(error)


def reach(own: str, host: Mapping[str, str], port: int, end: float, met: Dict[str, Any]) -> None:
    """Try a host until it is met; where packets get lost, twice: its listener may come later than ours."""
    lost, began = 0, time.time()
    while True:
        outcome, error = send(own, host["address"], port)
        met[host["name"]] = {"outcome": outcome, "error": error, "began": began, "ended": time.time()}
        lost += outcome in ("timed out", "stalled")
        if outcome in ("met", "not resolved") or lost > 1 or time.monotonic() > end:
            return
        time.sleep(0.3)


def main() -> None:
    """Resolve, listen and reach, then print what came of it."""
    own, given = sys.argv[1], json.loads(sys.argv[2])
    names = [host["name"] for host in given["hosts"]]
    at, tried = names.index(own), given["tried"]
    ring = given["hosts"][at + 1 :] + given["hosts"][:at]
    callers: Set[str] = set()
    met: Dict[str, Any] = {}
    end = time.monotonic() + given["seconds"]
    server = socket.socket()
    began, refused = time.time(), ""
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("", given["port"]))
        server.listen(16)
        threading.Thread(target=listen, args=(server, callers), daemon=True).start()
    except OSError as error:
        refused = error.strerror or str(error)
    reaching = [
        threading.Thread(target=reach, args=(own, host, given["port"], end, met), daemon=True)
        for host in ring[:tried]
    ]
    for thread in reaching:
        thread.start()
    hostname = socket.gethostname()
    resolved = resolve_all([*names, hostname])
    for thread in reaching:
        thread.join()
    expected = {host["name"] for host in ring[-tried:]} if tried else set()
    while not refused and not expected <= callers and time.monotonic() < end:
        time.sleep(0.1)
    json.dump(
        {
            "hostname": hostname,
            "names": resolved,
            "met": dict(met),
            "listening": {"error": refused, "began": began, "ended": time.time()},
        },
        sys.stdout,
    )
    sys.stdout.flush()
    # Threads that still wait for a name server would keep the process alive.
    os._exit(0)


main()
