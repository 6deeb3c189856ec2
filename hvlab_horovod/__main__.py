"""Run a script in which ``import horovod.torch`` is answered by torch.distributed."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

from hvlab_horovod import ALIAS


def main() -> None:
    """Run ``SCRIPT [ARGUMENT...]`` as Python would, with the alias first on its path and its children's."""
    if not sys.argv[1:]:
        sys.exit("usage: python -m hvlab_horovod SCRIPT [ARGUMENT...]")
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    sys.path.insert(0, str(ALIAS))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ALIAS), os.environ.get("PYTHONPATH"))))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
