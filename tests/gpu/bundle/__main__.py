"""Writes the folder: `python -m tests.gpu.bundle FOLDER`, as root."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from hvlab.base.errors import HvlabError, UsageError
from hvlab.base.paths import project_dir
from tests.gpu.bundle import manifest, parts, root
from tests.gpu.bundle.manifest import mib

PROGRAMS = ("run", "enter")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.bundle", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--driver", default="580", help="branch of the driver there")
    parser.add_argument("--limit-mib", type=int)
    parser.add_argument("--without", default="", help="parts to leave out, with commas")
    return parser.parse_args()


def build(folder: Path, driver: str, limit: int | None, without: list[str]) -> list[manifest.Packed]:
    """Make the root, pack it, and write the folder."""
    manifest.check_names(without, [part.name for part in parts.PARTS])
    if os.geteuid():
        raise UsageError("a root folder is made, which takes root", remedy="run it with sudo")
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty", remedy="name another folder, or remove it")
    folder.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".root-", dir=folder))
    try:
        versions = root.make(work, driver)
        packed = []
        for part in parts.PARTS:
            if part.name not in without:
                print(f"== pack {part.name}: {part.what}", flush=True)
                packed.append(parts.pack(part, work, folder))
    finally:
        shutil.rmtree(work)
    left_out = {part.name: part.what for part in parts.PARTS if part.name in without}
    (folder / manifest.NAME).write_text(manifest.render(packed, left_out, notes(driver, versions)), "utf-8")
    for program in PROGRAMS:
        shutil.copy(root.HERE / program, folder / program)
    manifest.check_limit(packed, limit)
    return packed


def notes(driver: str, versions: dict[str, str]) -> list[str]:
    """Return what the manifest says of the whole."""
    argv = ["git", "-C", str(project_dir()), "describe", "--always", "--dirty", "--abbrev=12"]
    commit = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()
    return [
        f"hvlab {commit} for x86-64 with NVIDIA's driver {driver} or later: ./run",
        ", ".join(f"{name} {version}" for name, version in versions.items()),
    ]


def main() -> int:
    chosen = options()
    try:
        packed = build(
            chosen.folder.resolve(),
            chosen.driver,
            chosen.limit_mib,
            [name for name in chosen.without.split(",") if name],
        )
    except HvlabError as error:
        print(f"{error}\n  what to do: {error.remedy}", file=sys.stderr)
        return error.exit_code
    for part in packed:
        print(f"{mib(part.size):6} MiB  {part.name}: {part.what} ({mib(part.unpacked)} MiB unpacked)")
    print(f"{mib(sum(part.size for part in packed)):6} MiB  in {chosen.folder}")
    print(f"Try it here, without a GPU: {chosen.folder}/run --rehearse; carry it there, and as root: ./run")
    return 0


if __name__ == "__main__":
    sys.exit(main())
