"""The root folder: a Debian with hvlab in it, in which `hvlab provision` runs as on any host."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import yaml

from hvlab.base.errors import HvlabError
from hvlab.base.paths import cache_dir, project_dir
from hvlab.vlab import image, packages

HERE = Path(__file__).parent
ENTER = HERE / "enter"
INVENTORY = "tests/gpu/inventory"
HOST_VARS = Path(INVENTORY, "host_vars/this-machine")
RELEASE = "bookworm"
# For hvlab itself, and for its look at the machine.
PACKAGES = ("python3-venv", "pciutils", "kmod")
# Components whose versions are pins on the other machine, so that it asks for what was built.
PINNED = ("cuda", "cudnn", "nccl", "openmpi", "torch", "horovod")


def make(root: Path, driver: str) -> dict[str, str]:
    """Make the root for machines with this branch of the driver, and return the versions in it."""
    config = packages.image_config(RELEASE)
    subprocess.run(["cp", "--archive", f"{image.ensure(config, say=print)}/.", root], check=True)
    node = packages.node_config(RELEASE)
    (root / "etc/resolv.conf").write_text(node.resolv_conf, "utf-8")
    (root / "etc/pip.conf").write_text(node.pip_conf, "utf-8")
    shutil.copy("/etc/hosts", root / "etc/hosts")
    copy_project(root / "hvlab")
    cache = cache_dir()
    cache.mkdir(parents=True, exist_ok=True)
    mounts = [(cache, Path("/root/.cache/hvlab")), *((path, path) for path in node.shared)]
    inside = Inside(root, mounts)
    inside.run("apt-get", "update", "-qq")
    inside.run("apt-get", "install", "-y", "-qq", "--no-install-recommends", *PACKAGES, keep=True)
    inside.run("python3", "-m", "venv", ".venv")
    inside.run(".venv/bin/pip", "install", "--quiet", "--editable", ".")
    declared = declare(root, driver)
    versions = pin(
        root,
        json.loads(inside.run(".venv/bin/hvlab", "plan", "-i", INVENTORY, "--format", "json", keep=True)),
    )
    inside.run(".venv/bin/hvlab", "provision", "-i", INVENTORY)
    declared.unlink()
    # The roles look for their sources even where all is built.
    shutil.copytree(cache / "sources", root / "root/.cache/hvlab/sources", dirs_exist_ok=True)
    return versions


class Inside:
    """Runs programs in the root, with folders of this machine mounted in it."""

    def __init__(self, root: Path, mounts: Sequence[tuple[Path, Path]] = ()) -> None:
        self.root = root
        self.binds = " ".join(f"{source}:{target}" for source, target in mounts)

    def run(self, *argv: str, keep: bool = False) -> str:
        """Run a program in the project's folder there; return what it prints, if that is to be kept.

        Raises HvlabError where it fails.
        """
        print(f"== {' '.join(argv)}", flush=True)
        whole = ["unshare", "--mount", "--pid", "--fork", "--kill-child", ENTER, self.root, *argv]
        done = subprocess.run(
            whole,
            env={**os.environ, "BINDS": self.binds},
            stdout=subprocess.PIPE if keep else None,
            stdin=subprocess.DEVNULL,
            text=True,
            check=False,
        )
        if done.returncode:
            raise HvlabError(
                f"{' '.join(argv)} ended with {done.returncode} in {self.root}",
                remedy="its message is above",
            )
        return done.stdout or ""


def copy_project(target: Path) -> None:
    """Copy the checkout as it is, and the sources that were put into it, to ``target``."""
    project = project_dir()
    argv = ["git", "-C", project, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split("\0")
    sources = [str(path.relative_to(project)) for path in (project / "sources").glob("nccl-tests-*")]
    target.mkdir()
    archive = subprocess.run(
        ["tar", "--create", "--file=-", f"--directory={project}", "--null", "--files-from=-"],
        input="\0".join([name for name in names if name and (project / name).exists()] + sources).encode(),
        capture_output=True,
        check=True,
    )
    subprocess.run(
        ["tar", "--extract", "--no-same-owner", f"--directory={target}"], input=archive.stdout, check=True
    )


def declare(root: Path, driver: str) -> Path:
    """Give the inventory in the root the GPUs that this machine lacks; return the file."""
    folder = root / "hvlab" / HOST_VARS
    folder.mkdir(parents=True, exist_ok=True)
    gpus = yaml.safe_load((HERE / "declared.yml").read_text("utf-8"))
    target = folder / "declared.yml"
    target.write_text(yaml.safe_dump({**gpus, "lab_driver": driver}), "utf-8")
    return target


def pin(root: Path, plan: dict) -> dict[str, str]:
    """Write what was planned as pins into the inventory in the root, and return it."""
    stack = plan["hosts"]["this-machine"]
    versions = {name: stack["versions"][name] for name in PINNED if stack["versions"].get(name)}
    pins = {f"lab_{name}": version for name, version in versions.items()}
    # The kernels were built for all of these: with those of one GPU alone they would be built again.
    pins["horovod_cuda_capabilities"] = stack["compute_capabilities"]
    (root / "hvlab" / HOST_VARS / "pins.yml").write_text(yaml.safe_dump(pins), "utf-8")
    return versions
