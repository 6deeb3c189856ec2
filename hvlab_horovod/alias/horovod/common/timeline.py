"""Horovod's timeline: when each operation was submitted, agreed on and done, for chrome://tracing."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import torch.distributed as dist

_lock = threading.Lock()
_recording: dict[str, Any] = {}


def start(path: str, mark_cycles: bool = False) -> None:
    """Record from now on."""
    with _lock:
        if "events" not in _recording:
            _recording.update(path=path, cycles=mark_cycles, start=time.time(), lanes={})
            _recording["events"] = [
                {
                    "name": "process_name",
                    "ph": "M",
                    "args": {"start_time_since_epoch_in_micros": time.time_ns() // 1000},
                }
            ]


def stop(writes: bool) -> None:
    """End recording, and write the file on the rank that does."""
    with _lock:
        if "events" in _recording and writes:
            Path(_recording["path"]).write_text(json.dumps(_recording["events"]), encoding="utf-8")
        _recording.clear()


def _note(lane: str, phase: str, name: str) -> None:
    with _lock:
        if "events" in _recording:
            lanes, events = _recording["lanes"], _recording["events"]
            if lane not in lanes:
                lanes[lane] = len(lanes) + 1
                events.append({"name": "process_name", "ph": "M", "pid": lanes[lane], "args": {"name": lane}})
            now = int((time.time() - _recording["start"]) * 1e6)
            events.append({"ph": phase, "name": name, "ts": now, "pid": lanes[lane]})


def submitted(key: str, kind: str) -> None:
    """An operation waits for the other ranks."""
    if _recording:
        _note(key, "B", f"NEGOTIATE_{kind.upper()}")


def issued(key: str, kind: str, group: Any) -> None:
    """All ranks are ready, and torch.distributed carries it."""
    if _recording:
        _note(key, "E", f"NEGOTIATE_{kind.upper()}")
        _note(key, "B", f"{dist.get_backend(group).upper()}_{kind.upper()}")


def ended(key: str) -> None:
    """The result is there."""
    if _recording:
        _note(key, "E", "")


def cycle() -> None:
    """The ranks have exchanged what they are ready for."""
    if _recording and _recording.get("cycles"):
        _note("cycles", "i", "CYCLE_START")
