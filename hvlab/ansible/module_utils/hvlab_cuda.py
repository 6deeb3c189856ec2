# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Which CUDA, cuDNN and NCCL a host has. ``root`` is where its files begin, "" on the host itself."""

from __future__ import annotations

import glob
import json
import os
import re

from ansible.module_utils.hvlab_probe import read, run

_LIBRARIES = ("/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")


def cuda_home() -> str | None:
    """Return the folder of the CUDA toolkit or of its headers, None when there is none."""
    candidates = [os.environ.get("CUDA_HOME"), "/usr/local/cuda"]
    candidates += [*sorted(glob.glob("/usr/local/cuda-*"), reverse=True), "/usr/lib/cuda", "/usr"]
    for path in candidates:
        if path and any(os.path.exists(os.path.join(path, sign)) for sign in ("include/cuda.h", "bin/nvcc")):
            return path
    return None


def cuda(home: str | None) -> str | None:
    """Return the toolkit's version: its own record, else its header, else what nvcc says."""
    if home is None:
        return None
    record = read(home + "/version.json")
    if record:
        version = json.loads(record).get("cuda", {}).get("version")
        if version:
            return str(version)
    text = re.search(r"CUDA Version (\d+\.\d+(?:\.\d+)?)", read(home + "/version.txt") or "")
    if text:
        return text.group(1)
    number = re.search(r"#define CUDA_VERSION\s+(\d+)", read(home + "/include/cuda.h") or "")
    if number:
        return "{}.{}".format(int(number.group(1)) // 1000, int(number.group(1)) % 1000 // 10)
    release = re.search(r"release (\d+\.\d+)", run(home + "/bin/nvcc", "--version"))
    return release.group(1) if release else None


def cudnn(home: str | None, root: str = "") -> str | None:
    """Return cuDNN's version by its header."""
    for name in ("cudnn_version.h", "cudnn.h"):
        for path in _headers(name, home, root):
            version = defined(read(path) or "", "CUDNN_MAJOR", "CUDNN_MINOR", "CUDNN_PATCHLEVEL")
            if version:
                return version
    return None


def nccl(home: str | None, root: str = "") -> str | None:
    """Return NCCL's version: by its header, else by the name of the library."""
    for path in _headers("nccl.h", home, root):
        version = defined(read(path) or "", "NCCL_MAJOR", "NCCL_MINOR", "NCCL_PATCH")
        if version:
            return version
    for folder in _LIBRARIES:
        for path in sorted(glob.glob(os.path.join(root + folder, "libnccl.so.*.*"))):
            return os.path.basename(path).partition(".so.")[2]
    return None


def defined(text: str, *names: str) -> str | None:
    """Return the numbers that a header defines for ``names``, joined by dots; None when one is missing."""
    numbers = [re.search(r"^\s*#define\s+{}\s+(\d+)".format(name), text, re.MULTILINE) for name in names]
    return ".".join(match.group(1) for match in numbers if match) if all(numbers) else None


def _headers(name: str, home: str | None, root: str) -> list[str]:
    folders = [root + home + "/include"] if home else []
    folders += [
        root + "/usr/include",
        root + "/usr/local/include",
        *glob.glob(root + "/usr/include/*-linux-gnu"),
    ]
    return [path for path in (os.path.join(folder, name) for folder in folders) if os.path.exists(path)]
