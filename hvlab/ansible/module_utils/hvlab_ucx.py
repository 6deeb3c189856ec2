# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""UCX, through which Open MPI sends over InfiniBand and RoCE.

``root`` is where the host's files begin, "" on the host itself.
"""

from __future__ import annotations

import glob
import os
from typing import Any

# Where the distributions and NVIDIA's DOCA-OFED put libraries.
LIBRARY_FOLDERS = ("/usr/lib64", "/usr/lib/*-linux-gnu", "/usr/lib")
HEADER = "/usr/include/ucp/api/ucp_version.h"


def ucx(root: str = "") -> dict[str, Any] | None:
    """Return whether programs can be built with the host's UCX, and whether it takes GPU memory.

    None on a host without UCX. Support for CUDA is a module of its own, which distributions leave out.
    """
    folders = [
        os.path.dirname(path) for name in LIBRARY_FOLDERS for path in glob.glob(root + name + "/libucp.so.0")
    ]
    if not folders:
        return None
    return {
        "headers": os.path.isfile(root + HEADER),
        "cuda": any(glob.glob(folder + "/ucx/libuct_cuda.so*") for folder in folders),
    }
