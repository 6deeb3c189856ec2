"""Becomes a program on all GPUs of the node. `python3 -c` runs its text alone.

Arguments: where the program may lie, with colons between them, each a name in PATH or a pattern of paths;
then its own arguments, in which GPUS is the number of GPUs and SIZE bytes that fit several times into each.
It ends with 127 where there is no such program or no GPU, and with 1 where the GPUs cannot be listed.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
from typing import List, Optional

# As Azure's node health checks measure; three such buffers are in use at a time.
LARGEST = 8 << 30
NOTHING_TO_RUN, NO_GPU = 127, "No devices were found"
QUERY = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]


def program(places: str) -> Optional[str]:
    """Return the path of the first of these programs that exists; None without one."""
    for place in places.split(":"):
        paths = sorted(glob.glob(place)) if "/" in place else [shutil.which(place)]
        for path in reversed(paths):
            if path and os.access(path, os.X_OK):
                return path
    return None


def size(memory_mib: List[str]) -> int:
    """Return the largest power of two that is at most an eighth of each GPU's bytes; 1 GiB if unknown."""
    smallest = min((int(text) for text in memory_mib if text.isdigit()), default=8 << 10)
    return min(LARGEST, 1 << ((smallest << 20) // 8).bit_length() - 1)


def main() -> None:
    """Replace this process by the program."""
    path = program(sys.argv[1])
    if path is None:
        sys.exit(NOTHING_TO_RUN)
    try:
        memory = subprocess.check_output(QUERY, universal_newlines=True, timeout=60).split("\n")
    except FileNotFoundError:
        sys.exit(NOTHING_TO_RUN)
    except (OSError, subprocess.SubprocessError) as error:
        if NO_GPU in str(getattr(error, "output", "")):
            sys.exit(NOTHING_TO_RUN)
        sys.exit("the GPUs cannot be listed: {}".format(error))
    gpus = [line.strip() for line in memory if line.strip()]
    if not gpus:
        sys.exit(NOTHING_TO_RUN)
    filled = {"GPUS": str(len(gpus)), "SIZE": str(size(gpus))}
    os.execv(path, [path, *(filled.get(word, word) for word in sys.argv[2:])])  # noqa: S606


if __name__ == "__main__":
    main()
