"""Horovod's API, answered by torch.distributed. This is hvlab_horovod, not Horovod."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import Any, NoReturn

__version__ = "0.28.1+torch.distributed"
# By which a measurement tells it from Horovod.
LIBRARY = "hvlab_horovod"


# Horovod's packages that have no counterpart.
_ELSEWHERE = ("tensorflow", "keras", "mxnet", "spark", "ray", "runner")


def _refuse(name: str) -> NoReturn:
    remedy = "start the script by hvlab-run" if ".runner" in name else "install Horovod"
    raise ModuleNotFoundError(
        f"hvlab_horovod has no {name}: it answers for horovod.torch; what to do: {remedy}", name=name
    )


class _Missing(MetaPathFinder):
    def find_spec(self, name: str, *_: Any) -> None:
        """Refuse the modules of Horovod that have no counterpart, after all other finders."""
        if name.startswith(__name__ + "."):
            _refuse(name)


sys.meta_path.append(_Missing())


def __getattr__(name: str) -> Any:
    """Refuse ``from horovod import keras`` as ``import horovod.keras``."""
    if name in _ELSEWHERE:
        _refuse(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def run(*_: Any, **__: Any) -> NoReturn:
    """Refuse to start ranks from Python."""
    raise NotImplementedError("hvlab_horovod has no horovod.run; what to do: start the script by hvlab-run")
