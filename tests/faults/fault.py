"""A fault: data, and one small function that puts it in and takes it out. What was measured of it: a row."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from tests.faults.world import PROJECT, World

# Runs beside the command, once that has begun.
Act = Callable[[subprocess.Popen[str]], None]
PutIn = Callable[[World], AbstractContextManager[Act | None]]
LIST = ("results", "list")
SETTLE_S = 20
# After that a command is taken to hang, however short it should be.
HUNG_S = 180


@dataclass(frozen=True)
class Fault:
    """``what`` is put in; then ``command`` ends with ``code`` within ``seconds`` and says all of ``says``.

    ``then`` is the command that goes on once the fault is gone, and ends with 0.
    """

    name: str
    family: str
    what: str
    put_in: PutIn
    command: tuple[str, ...]
    code: int
    says: tuple[str, ...]
    seconds: float
    then: tuple[str, ...]
    short: bool


FAULTS: dict[str, Fault] = {}


def fault(
    family: str,
    *command: str,
    code: int,
    says: tuple[str, ...] = (),
    seconds: float = 60,
    then: tuple[str, ...] | None = None,
    short: bool = False,
) -> Callable[[Callable[[World], Iterator[Act | None]]], PutIn]:
    """Enter a generator as a fault: up to its yield it puts it in, behind it takes it out.

    Its first line says what it is. What it yields runs beside the command.
    """

    def enter(function: Callable[[World], Iterator[Act | None]]) -> PutIn:
        put_in = contextmanager(function)
        name = function.__name__
        assert name not in FAULTS, name
        what = (function.__doc__ or "").splitlines()[0].rstrip(".")
        then_ = command if then is None else then
        FAULTS[name] = Fault(name, family, what, put_in, command, code, says, seconds, then_, short)
        return put_in

    return enter


def tried(fault: Fault, world: World) -> dict[str, object]:
    """Put a fault in, run its command, take it out, go on; return what was measured."""
    before, records = world.left(), world.records()
    with fault.put_in(world) as act:
        begun = time.monotonic()
        with world.start(*fault.command) as process:
            if act:
                act(process)
            try:
                out, err = process.communicate(timeout=max(HUNG_S, 2 * fault.seconds))
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
        seconds = time.monotonic() - begun
    begun = time.monotonic()
    went_on = world.hvlab(*fault.then)
    again = time.monotonic() - begun
    deadline = time.monotonic() + SETTLE_S
    while (left := world.left() - before) and time.monotonic() < deadline:
        time.sleep(1)
    kept = records & world.records()
    return {
        "name": fault.name,
        "family": fault.family,
        "what": fault.what,
        "command": " ".join(("hvlab", *fault.command)),
        "code": process.returncode,
        "seconds": round(seconds, 1),
        "limit": fault.seconds,
        "message": own(message(err), world),
        "said": out + err,
        "then": " ".join(("hvlab", *fault.then)),
        "then_code": went_on.returncode,
        "then_seconds": round(again, 1),
        "then_said": went_on.stderr[-2000:],
        "records": len(records),
        "kept": len(kept),
        "left": sorted(left),
    }


def own(text: str, world: World) -> str:
    """Return a message without the folders of this machine."""
    for folder in (world.folder, world.data, PROJECT):
        text = text.replace(f"{folder}/", "")
    return text


def message(text: str) -> str:
    """Return the first line of hvlab's message, or the last line of what there is."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    own = [line.removeprefix("hvlab: ") for line in lines if line.startswith("hvlab: ")]
    failed = [line for line in lines if line.startswith("failed: ")]
    first = next(iter(own[-1:] or failed[:1] or lines[-1:]), "")
    # A list of problems: its first one.
    listed = own and first.endswith(":")
    more = lines[lines.index(f"hvlab: {first}") + 1 :][:1] if listed else []
    return " ".join([first, *more])[:300]


def judged(fault: Fault, row: dict[str, object], *, timed: bool) -> list[str]:
    """Return what is not as the fault says; ``timed`` counts the time, too: without other work only."""
    said = str(row["said"])
    wrong = [f"it does not say {word!r}" for word in fault.says if word not in said]
    if fault.code != -signal.SIGKILL:
        # Killed, hvlab says nothing any more. Ansible, which ends with it, may: a worker that is being
        # forked takes the signal with the handler of its parent (ansible-core 2.19).
        bugs = ("Traceback (most recent", "Exception ignored")
        wrong += [f"it says {word!r}" for word in bugs if word in said]
    if row["code"] != fault.code:
        wrong.append(f"it ended with {row['code']}, not {fault.code}")
    if timed and float(str(row["seconds"])) > fault.seconds:
        wrong.append(f"it took {row['seconds']} s, over {fault.seconds} s")
    if row["then_code"] != 0:
        wrong.append(f"{row['then']} then ended with {row['then_code']}: {row['then_said']}")
    if row["kept"] != row["records"]:
        wrong.append(f"{row['kept']} of {row['records']} records were kept")
    return wrong + [f"left over: {name}" for name in row["left"]]  # type: ignore[attr-defined]


def check(fault: Fault, world: World, *, timed: bool) -> dict[str, object]:
    """Try a fault, and fail where something is not as it says; return what was measured."""
    row = tried(fault, world)
    wrong = judged(fault, row, timed=timed)
    assert not wrong, "\n".join([*wrong, "it said:", str(row["said"])[-6000:]])
    return row
