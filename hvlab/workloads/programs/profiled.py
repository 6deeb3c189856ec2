"""The events of torch's profiler while ranks communicate, as a timeline. Needs Python 3.8+ and torch 2.1+."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import torch

_CALLS = "c10d::"


class Profile:
    """Records on rank 0, with Horovod's names for starting and stopping."""

    def __init__(self, rank: int) -> None:
        self.recorder: Any = None
        self.path, self.rank = "", rank
        # How often each collective was called while it was recorded, by torch's name.
        self.counts: dict[str, int] = {}

    def start_timeline(self, path: str) -> None:
        self.path = path
        if self.rank == 0:
            self.recorder = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
            self.recorder.start()

    def stop_timeline(self) -> None:
        """Write the names of recorded events, in the form of Horovod's timeline."""
        if self.recorder:
            self.recorder.stop()
            called = Counter(event.name for event in self.recorder.events())
            self.counts = {name: count for name, count in called.items() if name.startswith(_CALLS)}
            names = sorted(called)
            with open(self.path, "w") as file:
                json.dump(
                    [{"ph": "X", "name": name} for name in names if not name.startswith("aten::")], file
                )
