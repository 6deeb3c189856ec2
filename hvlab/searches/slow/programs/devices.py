"""One device's part in a search: sends by torch.distributed, computes, copies to and from its host's memory.

Arguments: rank, number of ranks, number of the device on its host, interface of the ranks' network, seconds
after which it ends, and of a step's transfer and work. With GPUs the data goes by NCCL, else by Gloo. Reads
and answers one JSON value a line, from transfers.py:

    "open"            -> {"value": port of the ranks' store, which rank 0 opens; else null}
    [address, port]   -> {"value": null}, once all ranks have joined
    {"to", "from": ranks or null, "work": "compute", "copy" or null}   -> {"value": null}, when ready
    "go"              -> {"value": bytes per second received, or [blocks or bytes per second, share of a
                          processor that each thread got]; null where nothing is received}

A failure is {"error": text}. Needs torch 1.13 or later.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections import deque
from datetime import timedelta
from importlib import import_module
from typing import Any

# As in transfers.py: the beginning of a transfer does not count.
WARM_UP = 0.3
# Messages under way at once, and their bytes.
DEPTH = 4
MESSAGE = {"cpu": 1 << 16, "cuda": 1 << 23}
ROWS = {"cpu": 256, "cuda": 4096}
COPIED = {"cpu": 1 << 22, "cuda": 1 << 27}


class Device:
    """A rank and its part in each step."""

    def __init__(self, words: list[str]) -> None:
        self.torch = torch = import_module("torch")
        self.dist = import_module("torch.distributed")
        self.rank, self.ranks, number = map(int, words[:3])
        self.limit_s, self.transfer_s, self.work_s = map(float, words[4:7])
        self.kind = "cuda" if torch.cuda.is_available() else "cpu"
        self.at = torch.device("cuda:%d" % number if self.kind == "cuda" else "cpu")
        if self.kind == "cuda":
            torch.cuda.set_device(self.at)
        os.environ.update(GLOO_SOCKET_IFNAME=words[3], NCCL_SOCKET_IFNAME=words[3])
        self.step: dict[str, Any] = {}
        self.store: Any = None

    def open(self) -> int | None:
        """Open the store where the ranks meet; return its port."""
        if self.rank:
            return None
        self.store = self.dist.TCPStore("localhost", 0, self.ranks, is_master=True, wait_for_workers=False)
        return int(self.store.port)

    def join(self, address: str, port: int) -> None:
        """Wait for all ranks."""
        limit = timedelta(seconds=self.limit_s)
        store = self.store or self.dist.TCPStore(address, port, self.ranks, is_master=False, timeout=limit)
        backend = "nccl" if self.kind == "cuda" else "gloo"
        self.dist.init_process_group(
            backend, store=store, rank=self.rank, world_size=self.ranks, timeout=limit
        )

    def prepare(self, step: dict[str, Any]) -> None:
        """Send one message over each link of a step: NCCL connects two ranks when they first meet."""
        self.step = step
        self.both(lambda other: self.pour(other, 0), lambda other: self.drain(other, 0))

    def go(self) -> Any:
        """Do the step; return its reading."""
        if self.step["work"]:
            return self.repeat(getattr(self, self.step["work"])())
        return self.both(
            lambda other: self.pour(other, self.transfer_s), lambda other: self.drain(other, self.transfer_s)
        )

    def both(self, send: Any, receive: Any) -> Any:
        """Send and receive at once, as the step requires; return the received data."""
        to, source = self.step["to"], self.step["from"]
        sending = threading.Thread(target=send, args=(to,), daemon=True)
        if to is not None:
            sending.start()
        result = receive(source) if source is not None else None
        if to is not None:
            sending.join()
        return result

    def pour(self, other: int, seconds: float) -> None:
        """Send messages; the first byte of the last ones says so."""
        with self.stream():
            messages = self.messages()
            pending: deque[Any] = deque()
            number, end, left = 0, time.monotonic() + seconds, DEPTH
            while left:
                left -= time.monotonic() >= end
                if len(pending) == DEPTH:
                    self.wait(pending.popleft())
                message = messages[number % DEPTH]
                message[0] = left < DEPTH
                pending.append(self.dist.isend(message, other, tag=number % DEPTH))
                number += 1
            for work in pending:
                self.wait(work)

    def drain(self, other: int, seconds: float) -> float:
        """Return the bytes per second that arrive."""
        with self.stream():
            messages = self.messages()
            begun, arrivals = time.monotonic(), []
            pending = deque(self.receiving(messages[number], other, number) for number in range(DEPTH))
            last = False
            while pending:
                work, message, number = pending.popleft()
                self.wait(work)
                arrivals.append(time.monotonic())
                # As many as are under way.
                last = last or bool(message[0].item())
                if not last:
                    pending.append(self.receiving(message, other, number))
        return rate(arrivals, begun, seconds) * len(messages[0]) if seconds else 0.0

    def receiving(self, message: Any, other: int, number: int) -> tuple[Any, Any, int]:
        return self.dist.irecv(message, other, tag=number), message, number

    def messages(self) -> list[Any]:
        size = MESSAGE[self.kind]
        return [self.torch.zeros(size, dtype=self.torch.uint8, device=self.at) for _ in range(DEPTH)]

    def stream(self) -> Any:
        """Give each thread its own stream, so it waits only for its own work."""
        return self.torch.cuda.stream(self.torch.cuda.Stream() if self.kind == "cuda" else None)

    def wait(self, work: Any = None) -> None:
        """Wait until a message has arrived, or the device has done all its work."""
        if work is not None:
            work.wait()
        if self.kind == "cuda":
            self.torch.cuda.current_stream().synchronize()

    def compute(self) -> Any:
        """Return a block of computing, and its amount."""
        kind = self.torch.bfloat16 if self.kind == "cuda" else self.torch.float32
        one = self.torch.ones(ROWS[self.kind], ROWS[self.kind], dtype=kind, device=self.at)
        return lambda: self.torch.mm(one, one), 1

    def copy(self) -> Any:
        """Return copies to the device and back, and their bytes."""
        near = self.torch.ones(COPIED[self.kind], dtype=self.torch.uint8, pin_memory=self.kind == "cuda")
        far = self.torch.empty_like(near, device=self.at)
        return lambda: (far.copy_(near), near.copy_(far)), 2 * len(near)

    def repeat(self, given: Any) -> tuple[float, float]:
        """Do a block of work again and again, half as long before and after it is counted, too."""
        block, amount = given
        start = time.monotonic() + self.work_s / 2
        self.until(start, block)
        begun, used = time.monotonic(), time.process_time()
        blocks = self.until(start + self.work_s, block)
        seconds, used = time.monotonic() - begun, time.process_time() - used
        self.until(start + 1.5 * self.work_s, block)
        threads = self.torch.get_num_threads() if self.kind == "cpu" else 1
        return blocks * amount / seconds, used / seconds / threads

    def until(self, end: float, block: Any) -> int:
        blocks = 0
        while time.monotonic() < end:
            block()
            self.wait()
            blocks += 1
        return blocks


def rate(arrivals: list[float], begun: float, seconds: float) -> float:
    """Return the messages per second that arrived after the warm-up; where few did, those of all the time."""
    warm, end = begun + WARM_UP * seconds, begun + seconds
    counted = [at for at in arrivals if warm <= at <= end]
    if len(counted) > 1 and counted[-1] - counted[0] > (end - warm) / 2:
        return (len(counted) - 1) / (counted[-1] - counted[0])
    return len(arrivals) / max(seconds, arrivals[-1] - begun)


def main() -> None:
    """Answer line by line."""
    device: Device | None = None
    signal.alarm(int(float(sys.argv[5])))
    for line in sys.stdin:
        question, value = json.loads(line), None
        try:
            if device is None:
                device = Device(sys.argv[1:])
                value = device.open()
            elif question == "go":
                value = device.go()
            elif isinstance(question, list):
                device.join(*question)
            else:
                device.prepare(question)
        except Exception as error:
            print(json.dumps({"error": (str(error) or repr(error)).splitlines()[0][:300]}), flush=True)
            break
        print(json.dumps({"value": value}), flush=True)
    # The others may have gone without a word.
    os._exit(0)


if __name__ == "__main__":
    main()
