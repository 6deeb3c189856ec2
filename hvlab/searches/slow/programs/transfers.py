"""Runs on every host of a lab at once: measures computing and the links between hosts, step by step.

Arguments: the name of the launch, and this host's place in the plan. The plan (JSON) comes by stdin, because
every user of the host can read a command line. It holds

    secret      known to these hosts only; with it they prove every message
    names       of the hosts
    meet        [[address, port], ...]: where on the first host all may meet; the first free port is used
    interface   of the ranks' network: the meeting and the data use its address
    transfer_s, compute_s   how long a step takes
    meet_s, limit_s     how long to wait for all hosts, and how long everything may take
    steps       {"shift": k}: each host sends to the one k places on, or computes where k is 0;
                {"copies": true}: each copies to and from its devices;
                {"transfers": [[sender, receiver], ...]}
    devices     null, or {"python", "program", "count"}: as many processes of devices.py do all of that

The first host prints {"steps": [what each host read, or null]}, {"no_interface": [hosts without an address or
a link on the interface]}, {"missing": [hosts that did not call]}, {"cut_off": [hosts that reach no other, or
that no other reaches]}, {"failed": {host: error of a device}} or {"lost": host}; another prints
{"error": text} if it cannot take part.
A receiver reads bytes per second, and null if no connection from the sender reaches it; a host that
computes, [blocks per second and process, share of a processor that each process got]; of several devices the
slowest counts.
Needs Python 3.8+ and nothing else.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import itertools
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Generator

CONNECT_S = 4.0
# Limits for callers that have proved nothing yet: duration, length and number of greetings.
GREET_S, GREETING, MOST_WAITING = 4.0, 1024, 256
# The longest line of a host: 256 hosts have 65,280 links.
LINE = 1 << 22
NONCE = 16
# Beyond the nominal duration of a step.
PATIENCE_S = 30.0
# Devices load torch, and connect all to all.
DEVICES_S = 120.0
# TCP speeds up, and a shaped link has its burst: this part of a transfer does not count.
WARM_UP = 0.3
BLOCK = 1 << 16
CHUNK = 1 << 18
SIOCGIFFLAGS, SIOCGIFADDR = 0x8913, 0x8915
UP_AND_RUNNING = 0x41


class HostLostError(Exception):
    """A host no longer answers; the first argument is its place."""


class Lines:
    """A connection that carries one JSON value a line, with proof that it is the other end's next one.

    The first host chooses the nonce. A program that only passes on what both say cannot change it.
    """

    def __init__(self, connection: socket.socket, secret: str, nonce: bytes, leads: bool) -> None:
        self.connection, self.leads = connection, leads
        self.key = hmac.new(secret.encode(), nonce, "sha256").digest()
        self.sent = self.received = 0
        self.rest = b""

    def proof(self, leads: bool, number: int, text: bytes) -> bytes:
        """Return the proof of a line; ``leads`` says whose it is."""
        return hmac.new(self.key, b"%d %d %s" % (leads, number, text), "sha256").hexdigest().encode()

    def send(self, value: Any) -> None:
        text = json.dumps(value).encode()
        self.connection.settimeout(PATIENCE_S)
        self.connection.sendall(self.proof(self.leads, self.sent, text) + b" " + text + b"\n")
        self.sent += 1

    def receive(self, seconds: float) -> Any:
        """Return the next value. Raises OSError after the time limit."""
        end = time.monotonic() + seconds
        while b"\n" not in self.rest:
            left = end - time.monotonic()
            if left <= 0 or len(self.rest) > LINE:
                raise OSError("the other end sends no whole line")
            self.connection.settimeout(left)
            part = self.connection.recv(BLOCK)
            if not part:
                raise OSError("the other end is gone")
            self.rest += part
        line, _, self.rest = self.rest.partition(b"\n")
        return self.value(line)

    def value(self, line: bytes) -> Any:
        """Return the value of the next line; OSError if its proof is wrong."""
        proof, _, text = line.partition(b" ")
        if not hmac.compare_digest(proof, self.proof(not self.leads, self.received, text)):
            raise OSError("the other end does not know the secret")
        self.received += 1
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise OSError("the other end sends no JSON") from error

    def close(self) -> None:
        self.connection.close()


def greetings(
    listener: socket.socket, end: float, nonce_size: int = 0
) -> Generator[tuple[socket.socket, bytes, bytes], None, None]:
    """Yield each caller, the nonce it got and its first line, until ``end``.

    Callers are read side by side, so that a silent one holds up no other. Too many push out the oldest.
    """
    waiting: dict[socket.socket, tuple[float, bytes, bytes]] = {}
    listener.settimeout(0)
    try:
        while time.monotonic() < end:
            soonest = min([end, *(due for due, _, _ in waiting.values())])
            ready, _, _ = select.select([listener, *waiting], [], [], max(0.0, soonest - time.monotonic()))
            if listener in ready:
                ready.remove(listener)
                with contextlib.suppress(OSError):
                    caller, _ = listener.accept()
                    nonce = os.urandom(nonce_size)
                    waiting[caller] = (time.monotonic() + GREET_S, nonce, b"")
                    caller.settimeout(0)
                    caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    caller.sendall(nonce)
            for caller in ready:
                due, nonce, begun = waiting[caller]
                part = b""
                with contextlib.suppress(OSError):
                    part = caller.recv(GREETING)
                line, ended, _ = (begun + part).partition(b"\n")
                if ended:
                    del waiting[caller]
                    yield caller, nonce, line
                elif part and len(line) < GREETING:
                    waiting[caller] = (due, nonce, line)
                else:
                    del waiting[caller]
                    caller.close()
            now = time.monotonic()
            late = [caller for caller, (due, _, _) in waiting.items() if due <= now]
            for caller in late or list(waiting)[:-MOST_WAITING]:
                del waiting[caller]
                caller.close()
    finally:
        for caller in waiting:
            caller.close()


def coordinate(plan: dict[str, Any], listener: socket.socket) -> dict[str, Any]:
    """Lead all hosts, including this one, through the steps; return the document to print."""
    hosts, addresses = meet(plan, listener)
    try:
        return lead(plan, hosts, addresses)
    finally:
        for lines in hosts.values():
            lines.close()


def lead(plan: dict[str, Any], hosts: dict[int, Lines], addresses: dict[int, Any]) -> dict[str, Any]:
    """Lead the hosts that called through the steps; return the document to print."""
    names = plan["names"]
    without = [name for place, name in enumerate(names) if addresses.get(place) == []]
    if without:
        return {"no_interface": without}
    if len(hosts) < len(names):
        return {"missing": [name for place, name in enumerate(names) if place not in hosts]}
    seconds = max(plan["transfer_s"], plan["compute_s"]) + 2 * CONNECT_S + PATIENCE_S
    readings = []
    try:
        table = [addresses[place] for place in range(len(names))]
        unreached = ask(hosts, table, seconds, lambda answer: are_places(answer, len(names)))
        alone = find_cut_off(unreached)
        if alone:
            return {"cut_off": [names[place] for place in alone]}
        ask(hosts, [[one, other] for one, others in enumerate(unreached) for other in others], seconds)
        if plan.get("devices"):
            question: Any = "open"
            for _ in range(2):
                answers = ask(hosts, question, DEVICES_S)
                failed = {names[place]: text for place, text in enumerate(answers) if isinstance(text, str)}
                if failed:
                    return {"failed": failed}
                question = answers[0]
        for number in range(len(plan["steps"])):
            ask(hosts, number, seconds)
            readings.append(ask(hosts, "go", seconds))
    except HostLostError as error:
        return {"lost": names[error.args[0]]}
    return {"steps": readings}


def ask(
    hosts: dict[int, Lines], question: Any, seconds: float, fits: Callable[[Any], bool] = lambda _: True
) -> list[Any]:
    """Return every host's answer, by place. Raises HostLostError if one is late or does not fit."""
    answers = []
    for place in sorted(hosts):
        try:
            hosts[place].send(question)
        except OSError:
            raise HostLostError(place) from None
    for place in sorted(hosts):
        try:
            answers.append(hosts[place].receive(seconds))
        except OSError:
            raise HostLostError(place) from None
        if not fits(answers[-1]):
            raise HostLostError(place)
    return answers


def are_places(answer: Any, count: int) -> bool:
    return isinstance(answer, list) and all(type(place) is int and place in range(count) for place in answer)


def find_cut_off(unreached: list[list[int]]) -> list[int]:
    """Return the places of the hosts that reach no other, or that no other reaches.

    ``unreached`` has, for each host, the places of those that it does not reach.
    """
    others = len(unreached) - 1
    missed = [sum(place in each for each in unreached) for place in range(len(unreached))]
    return [place for place, each in enumerate(unreached) if others in (len(each), missed[place]) and others]


def meeting_port(plan: dict[str, Any]) -> socket.socket:
    """Open the first port of those where all may meet that no other program has; OSError without any."""
    failure = OSError("there is no port to meet at")
    # Without the interface nothing is measured, but all say whether they have it.
    address = interface_address(plan["interface"]) or ""
    for port in dict.fromkeys(port for _, port in plan["meet"]):
        try:
            return socket.create_server((address, port), backlog=max(64, len(plan["names"])))
        except OSError as error:
            failure = error
    raise failure


def meet(plan: dict[str, Any], listener: socket.socket) -> tuple[dict[int, Lines], dict[int, Any]]:
    """Return the connections and addresses of the hosts that call in time, by place.

    Other programs may connect too, and send nothing or something else.
    """
    hosts: dict[int, Lines] = {}
    addresses: dict[int, Any] = {}
    callers: dict[int, str] = {}
    end = time.monotonic() + plan["meet_s"]
    with contextlib.closing(greetings(listener, end, NONCE)) as coming:
        for connection, nonce, line in coming:
            lines = Lines(connection, plan["secret"], nonce, leads=True)
            with contextlib.suppress(OSError):
                greeting, caller = lines.value(line), connection.getpeername()[0]
                # A host whose first attempt failed calls again from the same address.
                if (
                    is_greeting(greeting, len(plan["names"]), caller)
                    and callers.get(greeting[0], caller) == caller
                ):
                    lines.send("welcome")
                    place = greeting[0]
                    if place in hosts:
                        hosts[place].close()
                    hosts[place], addresses[place], callers[place] = lines, greeting[1:], caller
                    if len(hosts) == len(plan["names"]):
                        break
                    continue
            lines.close()
    return hosts, addresses


def is_greeting(greeting: Any, count: int, caller: str) -> bool:
    """Return whether a greeting is a place, and where the data goes: to the caller itself, or nowhere."""
    if not isinstance(greeting, list) or len(greeting) not in (1, 3) or not are_places(greeting[:1], count):
        return False
    return len(greeting) == 1 or (greeting[1] == caller and are_places(greeting[2:], 1 << 16))


class Worker:
    """One host's part in every step."""

    def __init__(self, plan: dict[str, Any], place: int) -> None:
        self.plan, self.place, self.count = plan, place, len(plan["names"])
        address = interface_address(plan["interface"])
        self.listener = socket.create_server((address or "", 0), backlog=max(64, self.count))
        own = self.listener.getsockname() if address else ()
        self.control = reach(plan, [place, *own])
        self.table: list[Any] = []
        self.blocked: list[Any] = []
        self.devices: list[Any] = []

    def close(self) -> None:
        for device in self.devices:
            device.kill()
            device.wait()
        self.control.close()
        self.listener.close()

    def run(self) -> None:
        """Follow the coordinator from step to step."""
        self.table = self.control.receive(2 * self.plan["meet_s"])
        self.control.send(self.unreached())
        self.blocked = [tuple(pair) for pair in self.control.receive(self.plan["limit_s"])]
        self.control.send("ready")
        if self.plan.get("devices"):
            self.join_devices()
        for _ in self.plan["steps"]:
            number = self.control.receive(self.plan["limit_s"])
            self.step(number, self.plan["steps"][number])

    def join_devices(self) -> None:
        """Start the devices' processes; report a failure, else the port where they meet, then null."""
        own = self.plan["devices"]
        for number in range(own["count"]):
            words = [self.place * own["count"] + number, self.count * own["count"], number]
            words += [self.plan[name] for name in ("interface", "limit_s", "transfer_s", "compute_s")]
            self.devices.append(
                subprocess.Popen(
                    [own["python"], "-c", own["program"], *map(str, words)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            )
        for _ in range(2):
            question = self.control.receive(self.plan["limit_s"])
            if question != "open":
                question = [self.table[0][0], question]
            try:
                answer = self.ask_devices(question)[0]
            except OSError as error:
                answer = str(error)
            self.control.send(answer)

    def ask_devices(self, *questions: Any) -> list[Any]:
        """Return the answers of this host's devices; one question each, or one for all."""
        for device, question in zip(self.devices, itertools.cycle(questions)):
            device.stdin.write(json.dumps(question).encode() + b"\n")
            device.stdin.flush()
        answers = [json.loads(device.stdout.readline() or b"{}") for device in self.devices]
        for answer in answers:
            if "value" not in answer:
                raise OSError(answer.get("error", "the process of a device ended"))
        return [answer["value"] for answer in answers]

    def step(self, number: int, step: dict[str, Any]) -> None:
        """Get ready, wait for the others, then send, receive or compute; report the reading."""
        if "transfers" in step:
            pairs = step["transfers"]
        else:
            pairs = [(host, (host + step.get("shift", 0)) % self.count) for host in range(self.count)]
        pairs = [pair for pair in pairs if tuple(pair) not in self.blocked]
        outgoing = [other for one, other in pairs if one == self.place != other]
        incoming = [one for one, other in pairs if other == self.place != one]
        computes = (self.place, self.place) in [tuple(pair) for pair in pairs]
        if self.devices:
            work = ("copy" if step.get("copies") else "compute") if computes else None
            go = self.by_devices(outgoing, incoming, work)
        else:
            go = self.by_sockets(number, outgoing, incoming, computes)
        self.control.send("ready")
        self.control.receive(self.plan["limit_s"])
        self.control.send(go())

    def by_devices(self, outgoing: list[int], incoming: list[int], work: str | None) -> Callable[[], Any]:
        """Let each device get ready, to exchange data with that of the same number on other hosts."""
        count = len(self.devices)
        self.ask_devices(
            *(
                {
                    "to": outgoing[0] * count + number if outgoing else None,
                    "from": incoming[0] * count + number if incoming else None,
                    "work": work,
                }
                for number in range(count)
            )
        )
        return lambda: min(self.ask_devices("go"), key=lambda reading: reading[0] if work else reading or 0)

    def by_sockets(
        self, number: int, outgoing: list[int], incoming: list[int], computes: bool
    ) -> Callable[[], Any]:
        """Connect to the other hosts of a step."""
        sender = self.connect(outgoing[0], number) if outgoing else None
        receiver = self.accept(number) if incoming else None

        def go() -> Any:
            if computes:
                return compute(self.plan["compute_s"])
            sending = threading.Thread(target=pour, args=(sender, self.plan["transfer_s"]))
            sending.start()
            reading = drain(receiver, self.plan["transfer_s"]) if incoming else None
            sending.join()
            return reading

        return go

    def unreached(self) -> list[int]:
        """Return the places of the hosts that no connection from here reaches; all are tried at once.

        Each would hold up every step in which it takes part.
        """
        places: list[int] = []

        def attempt(other: int) -> None:
            try:
                socket.create_connection(tuple(self.table[other]), timeout=CONNECT_S).close()
            except OSError:
                places.append(other)

        others = [other for other in range(self.count) if other != self.place]
        threads = [threading.Thread(target=attempt, args=(other,)) for other in others]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            with contextlib.suppress(OSError):
                self.listener.settimeout(0.05)
                self.listener.accept()[0].close()
        return sorted(places)

    def connect(self, other: int, number: int) -> socket.socket | None:
        """Return a connection to another host for one step; None if it cannot be reached."""
        try:
            connection = socket.create_connection(tuple(self.table[other]), timeout=CONNECT_S)
            connection.sendall(self.header(number) + b"\n")
        except OSError:
            return None
        return connection

    def header(self, number: int) -> bytes:
        """Return the head of a step's data, without the end of the line."""
        return hmac.new(self.plan["secret"].encode(), b"data %d" % number, "sha256").hexdigest().encode()

    def accept(self, number: int) -> socket.socket | None:
        """Return the connection of this step's sender; None if it does not call in time."""
        with contextlib.closing(greetings(self.listener, time.monotonic() + CONNECT_S)) as coming:
            for connection, _, line in coming:
                if hmac.compare_digest(line, self.header(number)):
                    return connection
                connection.close()
        return None


def reach(plan: dict[str, Any], greeting: list[Any]) -> Lines:
    """Greet the first host where all meet, which may not be open yet; OSError if it does not answer.

    If another program answers, the next place is tried. The caller's data goes to its address.
    """
    end = time.monotonic() + plan["meet_s"]
    source = (greeting[1], 0) if greeting[1:] else None
    while True:
        for address, port in plan["meet"]:
            try:
                connection = socket.create_connection((address, port), CONNECT_S, source)
            except (OSError, ValueError) as error:
                failure = str(error)
                continue
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with contextlib.suppress(OSError):
                lines = Lines(connection, plan["secret"], connection.recv(NONCE), leads=False)
                lines.send(greeting)
                if lines.receive(CONNECT_S) == "welcome":
                    return lines
            connection.close()
            failure = "another program answers at {}:{}".format(address, port)
        if time.monotonic() > end:
            raise OSError(failure)
        time.sleep(0.1)


def interface_address(name: str) -> str | None:
    """Return the IPv4 address of an interface; None if it has none, or no link."""
    request = struct.pack("256s", name.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            (flags,) = struct.unpack_from("H", fcntl.ioctl(asking, SIOCGIFFLAGS, request), 16)
            answer = fcntl.ioctl(asking, SIOCGIFADDR, request)
        except OSError:
            return None
    return socket.inet_ntoa(answer[20:24]) if flags & UP_AND_RUNNING == UP_AND_RUNNING else None


def pour(connection: socket.socket | None, seconds: float) -> None:
    """Send as much as possible; data still queued in this host is discarded."""
    if connection is None:
        return
    chunk, end = memoryview(bytes(CHUNK)), time.monotonic() + seconds
    with contextlib.suppress(OSError):
        connection.settimeout(seconds)
        while time.monotonic() < end:
            connection.send(chunk)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def drain(connection: socket.socket | None, seconds: float) -> float:
    """Return the bytes per second that arrive after the warm-up; without any, those of the whole time."""
    if connection is None:
        return 0.0
    buffer = bytearray(4 * CHUNK)
    start = time.monotonic()
    warm, end = start + WARM_UP * seconds, start + seconds
    first = last = 0.0
    total = early = 0
    with contextlib.suppress(OSError):
        while time.monotonic() < end:
            connection.settimeout(max(0.001, end - time.monotonic()))
            size = connection.recv_into(buffer)
            if not size:
                break
            last = time.monotonic()
            if last < warm:
                early += size
            elif first:
                total += size
            else:
                first, early = last, early + size
    connection.close()
    # After a lost packet a sender may wait longer than a transfer lasts: that is slow, not cut off.
    if not total:
        return early / seconds
    # Between arrivals if they fill the time, else over all of it.
    filled = last - first > (end - warm) / 2
    return total / (last - first) if filled else total / (end - warm)


def compute(seconds: float) -> tuple[float, float]:
    """Return blocks per second and process, and the share of a processor, with a process for each of them.

    They compute half as long before and after it, too: hosts that share processors start and end unevenly.
    """
    processes = len(os.sched_getaffinity(0))
    children = []
    start = time.monotonic() + seconds / 2
    for _ in range(processes):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            count_blocks(start)
            before = time.process_time()
            blocks = count_blocks(start + seconds)
            os.write(writing, struct.pack("!Qd", blocks, time.process_time() - before))
            count_blocks(start + 1.5 * seconds)
            os._exit(0)
        os.close(writing)
        children.append((child, reading))
    blocks, processor_s = 0, 0.0
    for child, reading in children:
        own = struct.unpack("!Qd", os.read(reading, 16))
        blocks, processor_s = blocks + own[0], processor_s + own[1]
        os.close(reading)
        os.waitpid(child, 0)
    return blocks / processes / seconds, processor_s / processes / seconds


def count_blocks(end: float) -> int:
    block, blocks = bytes(BLOCK), 0
    while time.monotonic() < end:
        hashlib.sha256(block).digest()
        blocks += 1
    return blocks


def main() -> None:
    """Take part; the first host also leads."""
    plan, place = json.load(sys.stdin), int(sys.argv[2])
    signal.alarm(int(plan["limit_s"]))
    if place:
        try:
            with contextlib.closing(Worker(plan, place)) as worker:
                worker.run()
        except OSError as error:
            print(json.dumps({"error": str(error)}))
        return
    listener = meeting_port(plan)
    child = os.fork()
    if child == 0:
        # Its name may resolve to another address there, such as 127.0.1.1.
        plan["meet"] = [listener.getsockname()]
        listener.close()
        with contextlib.suppress(OSError), contextlib.closing(Worker(plan, place)) as worker:
            worker.run()
        os._exit(0)
    print(json.dumps(coordinate(plan, listener)))


if __name__ == "__main__":
    main()
