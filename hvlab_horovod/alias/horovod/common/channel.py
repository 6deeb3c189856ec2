"""The operations of one set of ranks, from their submission until they are issued."""

from __future__ import annotations

import ctypes
import threading
import time
from collections import Counter
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import AllgatherOptions, _get_default_store

from . import stalls, timeline
from .agreement import Agreement, Message, Request, agree
from .exceptions import HorovodInternalError
from .threads import calm

# Bytes of a rank's message that travel at once; a longer one takes a second exchange.
SHORT = 512
LENGTH_BYTES = 4
# Between two looks at the channels, where operations of several process sets are under way.
PAUSE_S = 2e-5
LOCK = threading.RLock()
# The name since torch 2.13, and before; older releases do not end a gather that takes too long.
LIMITED = hasattr(dist, "all_gather_single")
gather_into = dist.all_gather_single if LIMITED else dist.all_gather_into_tensor


class Operation:
    """Something that all ranks do together; also what Horovod calls its handle."""

    kind = ""

    def __init__(self, name: str | None) -> None:
        self.name = name
        self.key = ""
        self.channel: Any = None
        self.issued = False
        self.error = ""
        self.works: list[Any] = []

    def request(self) -> Request:
        """Return the request to send to the other ranks."""
        return Request(self.kind)

    def issue(self, channel: Channel, owns: list[Any]) -> None:
        """Begin; ``owns`` is what each rank's request said of its own."""

    def finish(self) -> Any:
        """Return the result, after all works."""

    def is_complete(self) -> bool:
        """Return whether ``result`` would return at once."""
        return self.issued and all(work.is_completed() for work in self.works)

    def result(self) -> Any:
        """Wait, and return the result. Raises HorovodInternalError."""
        if self.error:
            raise HorovodInternalError(self.error)
        try:
            for work in self.works:
                work.wait()
        except RuntimeError as error:
            raise HorovodInternalError(f"{self.key}: {error}") from error
        timeline.ended(self.key)
        return self.finish()


class Channel:
    """Submitted operations of a set of ranks, and the exchange under way about them."""

    def __init__(self, group: Any, ranks: list[int]) -> None:
        calm()
        self.group, self.ranks = group, ranks
        self.size = len(ranks)
        self.rank, self.store = dist.get_rank(), _get_default_store()
        self.pending: dict[str, Operation] = {}
        self.joined = 0.0
        self.last = -1
        self.over = False
        self.works: list[Any] = []
        self.optimizers: list[Any] = []
        self._unnamed: Counter[str] = Counter()
        self._under_way: tuple[Any, torch.Tensor, bytes] | None = None
        self._exchanges = 0

    def submit(self, operation: Operation) -> Operation:
        """Take an operation. Raises ValueError if one of its name is pending."""
        with LOCK:
            name = operation.name
            if name is None:
                name = f"noname.{self._unnamed[operation.kind]}"
                self._unnamed[operation.kind] += 1
            operation.key, operation.channel = f"{operation.kind}.{name}", self
            if operation.key in self.pending:
                raise ValueError(
                    f"{operation.key}: an operation of this name is under way (duplicate name); what to do: "
                    "wait for it by hvd.synchronize(), or give another name"
                )
            self.pending[operation.key] = operation
            timeline.submitted(operation.key, operation.kind)
        return operation

    def begin(self, waits: str = "", leaves: timedelta | None = None) -> tuple[Any, torch.Tensor, bytes]:
        """Tell the other ranks what is pending, unless they are being told.

        ``leaves`` says that this rank leaves, and how long it waits for the others.
        """
        if self._under_way is None:
            requests = {key: one.request() for key, one in self.pending.items()}
            text = Message(requests, waits, self.joined, leaves is not None).encode()
            short = len(text).to_bytes(LENGTH_BYTES, "little") + text[: SHORT - LENGTH_BYTES]
            own = torch.frombuffer(bytearray(short.ljust(SHORT, b"\0")), dtype=torch.uint8)
            every = torch.empty(SHORT * self.size, dtype=torch.uint8)
            if leaves is None:
                work = gather_into(every, own, group=self.group, async_op=True)
            else:
                limited = AllgatherOptions()
                limited.timeout = leaves
                work = self.group._allgather_base(every, own, limited)
            self._under_way = work, every, text
            self._exchanges += 1
        return self._under_way

    def leave(self, patience_s: float) -> None:
        """Return once all ranks leave, or after ``patience_s`` seconds. Raises HorovodInternalError."""
        deadline = time.monotonic() + patience_s * LIMITED
        while not self.over and (left := deadline - time.monotonic()) > 0:
            # Another thread may hold it, and wait for a rank.
            if LOCK.acquire(timeout=left):
                try:
                    self.begin(leaves=timedelta(seconds=left))
                    self.advance(None, block=False)
                finally:
                    LOCK.release()
            time.sleep(PAUSE_S)

    def advance(self, operation: Operation | None, block: bool = True) -> None:
        """Issue what all ranks are ready for. This rank waits for ``operation``; here alone if ``block``."""
        with LOCK:
            under_way = self.begin(operation.key if operation else "")
            if not block and not under_way[0].is_completed():
                return
            try:
                work, every, own = under_way
                waits = operation.key if operation else ""
                stalls.wait(work, waits, self.ranks, self._exchanges, self.rank, self.store)
                messages = [Message.decode(text) for text in self._exchanged(every, own)]
            except HorovodInternalError:
                raise
            except RuntimeError as error:
                raise HorovodInternalError(f"the ranks lost one another: {error}") from error
            finally:
                self._under_way = None
            timeline.cycle()
            self._act(agree(messages, self.ranks), operation)

    def _exchanged(self, every: torch.Tensor, own: bytes) -> list[bytes]:
        parts = [ctypes.string_at(part.data_ptr(), SHORT) for part in every.split(SHORT)]
        lengths = [int.from_bytes(part[:LENGTH_BYTES], "little") for part in parts]
        longest = max(lengths)
        if longest <= SHORT - LENGTH_BYTES:
            return [part[LENGTH_BYTES:][:length] for part, length in zip(parts, lengths, strict=True)]
        whole = torch.frombuffer(bytearray(own.ljust(longest, b"\0")), dtype=torch.uint8)
        every = torch.empty(longest * self.size, dtype=torch.uint8)
        gather_into(every, whole, group=self.group)
        parts = every.split(longest)
        return [
            ctypes.string_at(part.data_ptr(), length) for part, length in zip(parts, lengths, strict=True)
        ]

    def _act(self, agreement: Agreement, waiting: Operation | None) -> None:
        for ready in agreement.ready:
            operation = self.pending.pop(ready.name, None)
            if operation:
                operation.error, operation.issued = ready.error, True
            if not ready.error:
                operation = operation or self.stand_in(ready.request)
                timeline.issued(ready.name, ready.request.kind, self.group)
                operation.issue(self, ready.owns)
        if agreement.stuck and waiting:
            self.pending.pop(waiting.key, None)
            waiting.issued, waiting.error = True, agreement.stuck
        elif agreement.stuck and self.joined:
            self.joined = 0.0
            raise HorovodInternalError(agreement.stuck)
        self.over = agreement.over
        if agreement.last >= 0:
            self.last, self.joined = agreement.last, 0.0
            # Ranks that joined early counted fewer.
            self._unnamed.clear()

    def stand_in(self, request: Request) -> Operation:
        """Return an operation in which this rank, which has joined, takes part with nothing."""
        operation: Operation = STAND_INS[request.kind](request)
        operation.channel, operation.key, operation.issued = self, request.kind, True
        self.works.append(operation)
        return operation

    def join(self) -> int:
        """Take part with nothing until all ranks have joined; return the rank that came last."""
        self.last, self.joined = -1, time.time()
        while self.last < 0:
            self.advance(None)
            self.works = [one for one in self.works if not one.is_complete()]
        return self.last


# By kind: makes an operation of a rank that has joined from a request of another.
STAND_INS: dict[str, Any] = {"barrier": lambda _: Operation(None)}


def wait(operation: Operation, channels: dict[int, Channel]) -> Any:
    """Return an operation's result. Other process sets' operations go on meanwhile: a rank may need them."""
    own: Channel = operation.channel
    while not operation.is_complete():
        others = [channel for channel in channels.values() if channel is not own and channel.pending]
        if others:
            if not operation.issued or own.pending:
                own.advance(None if operation.issued else operation, block=False)
            for channel in others:
                channel.advance(None, block=False)
            time.sleep(PAUSE_S)
        elif operation.issued:
            break
        else:
            own.advance(operation)
    return operation.result()
