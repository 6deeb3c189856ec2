"""The parts that the root folder is packed in."""

from __future__ import annotations

import gzip
import hashlib
import subprocess
from dataclasses import dataclass
from pathlib import Path

from hvlab.base.errors import HvlabError
from tests.gpu.bundle.manifest import MIB, Packed


@dataclass(frozen=True)
class Part:
    """Folders of the root, and what they are; without folders all that is in no other part."""

    name: str
    what: str
    folders: tuple[str, ...] = ()


PARTS = (
    Part("project", "hvlab's source with its tests", ("hvlab",)),
    Part("packages", "hvlab's Python packages", ("hvlab/.venv",)),
    Part("cuda", "CUDA, cuDNN and NCCL", ("opt/hvlab/cuda", "opt/hvlab/cudnn", "opt/hvlab/nccl")),
    Part("torch", "torch and the libraries that it brings", ("opt/hvlab/python",)),
    Part("system", "Debian with its compilers, Open MPI, Horovod, nccl-tests"),
)
# What is only of the machine that built: keys, logs, and where its packages come from.
NOT_PACKED = (
    "root/.cache/pip", "root/.local", "root/.ansible", "root/.ssh", "home/*/.ssh", "etc/ssh/ssh_host_*",
    "etc/hosts", "etc/resolv.conf", "etc/pip.conf", "etc/apt/sources.list.d/*",
    "etc/apt/apt.conf.d/90hvlab", "etc/apt/auth.conf*", "etc/ssl/certs/*",
    "usr/local/share/ca-certificates/*", "var/lib/apt/lists/*_*", "var/cache/apt/archives/*.deb",
    "var/cache/apt/*.bin", "var/log/*.log", "var/log/apt/*", "var/tmp/*", "tmp/*", "run/*", "proc/*",
    "sys/*", "dev/*",
)  # fmt: skip


def excluded(part: Part) -> list[str]:
    """Return what a part leaves out: what is only of this machine, and what other parts hold."""
    others = [name for other in PARTS for name in other.folders if name not in part.folders]
    inside = [
        name
        for name in others
        if not part.folders or name.startswith(tuple(f"{own}/" for own in part.folders))
    ]
    return [f"./{name}" for name in (*NOT_PACKED, *inside)]


def pack(part: Part, root: Path, folder: Path) -> Packed:
    """Write one part of the root below ``folder``. Raises HvlabError where tar fails."""
    target = folder / f"parts/{part.name}.tar.gz"
    target.parent.mkdir(parents=True, exist_ok=True)
    argv = ["tar", "--create", "--file=-", "--numeric-owner", "--sort=name", "--one-file-system"]
    argv += [
        f"--directory={root}",
        "--anchored",
        "--wildcards",
        *(f"--exclude={name}" for name in excluded(part)),
    ]
    argv += [f"./{name}" for name in part.folders if (root / name).exists()] or ["."]
    unpacked = 0
    with (
        subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as tar,
        gzip.GzipFile(target, "wb", compresslevel=6, mtime=0) as file,
    ):
        assert tar.stdout
        while chunk := tar.stdout.read(MIB):
            file.write(chunk)
            unpacked += len(chunk)
    if tar.returncode:
        raise HvlabError(
            f"tar ended with {tar.returncode} for part {part.name}", remedy="its message is above"
        )
    with target.open("rb") as packed:
        digest = hashlib.file_digest(packed, "sha256").hexdigest()
    return Packed(part.name, part.what, digest, target.stat().st_size, unpacked)
