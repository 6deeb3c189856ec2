"""Refuses Horovod's elastic training."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise NotImplementedError(
        f"hvlab_horovod has no elastic training (hvd.elastic.{name}): ranks neither come nor go; what to do: "
        "save checkpoints, and start by torchrun --max-restarts N, which restarts all ranks after a failure"
    )
