"""Run a script in which ``import horovod.torch`` is answered by torch.distributed."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

from hvlab_horovod import ALIAS


def main() -> None:
    """Run ``SCRIPT`` or ``-m MODULE`` as Python would, with the alias first on their path."""
    del sys.argv[0]
    is_module = sys.argv[:1] == ["-m"]
    del sys.argv[:is_module]
    if not sys.argv:
        sys.exit("usage: python -m hvlab_horovod {SCRIPT | -m MODULE} [ARGUMENT...]")
    sys.path[0] = str(Path.cwd() if is_module else Path(sys.argv[0]).resolve().parent)
    sys.path.insert(0, str(ALIAS))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ALIAS), os.environ.get("PYTHONPATH"))))
    if is_module:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
