"""Horovod's API for torch, answered by torch.distributed: scripts written for Horovod run without it.

``python -m hvlab_horovod train.py`` and ``hvlab-run`` put ``alias`` first on the path of the ranks, so that
``import horovod.torch`` is answered there. Nothing else does: an installed Horovod stays what it is.
"""

from __future__ import annotations

from pathlib import Path

ALIAS = Path(__file__).parent / "alias"
