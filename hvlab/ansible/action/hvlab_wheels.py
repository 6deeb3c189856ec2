# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Fill the controller's cache with a host's Python packages, by the controller's own pip configuration."""

from __future__ import annotations

import fcntl
import re
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail

from hvlab.ansible.plugin import HvlabAction
from hvlab.base import cache, process
from hvlab.base.files import file_sha256
from hvlab.base.paths import cache_dir
from hvlab.stack.provision.packs import pack_key, read_saved_sum, save_sum
from hvlab.stack.provision.python_env import of_framework, without_build
from hvlab.stack.resolver import catalogue

PIP_SECONDS = 1800
# Behind a firewall the framework's own index may not answer at all.
_ONCE = ["--retries=1", "--timeout=15"]
_LARGE = ", for CUDA, with NVIDIA's libraries: about 3 GB instead of 0.2 GB"
_PIP = ["--disable-pip-version-check"]
# pip matches platforms literally: a wheel for an older C library has another name.
GLIBC_MINORS = range(31, 4, -1)
OLD_NAMES = ("manylinux2014", "manylinux2010", "manylinux1")


def pip_download(arguments: list[str]) -> str:
    """Run pip download on the controller; return pip's own reason if it failed, else nothing."""
    # Not --quiet: that hides which packages are in conflict.
    argv = [sys.executable, "-m", "pip", "download", "--progress-bar=off", "--no-color", *_PIP, *arguments]
    try:
        done = process.run(argv, seconds=PIP_SECONDS)
    except process.TimeLimitError as error:
        return str(error)
    return "" if done.returncode == 0 else reason(done.stdout, done.stderr) or f"status {done.returncode}"


def reason(out: str, err: str) -> str:
    """Return the reason of pip's failure, from its output: the last error and its cause. Pure."""
    text = err.strip().partition("\nERROR: ResolutionImpossible")[0]
    error = text[text.rfind("ERROR: ") :] if "ERROR: " in text else text[-1000:]
    unreachable = re.findall(r"connection broken by '?(.*)", err)[-1:]
    conflict = re.findall(r"(?ms)^The conflict is caused by:\n.*?(?=\n\n|\Z)", out)[-1:]
    return "\n".join([error, *unreachable, *conflict]).strip()


def platforms(architecture: str) -> list[str]:
    """Return the names that wheels for Linux on this architecture may have, the newest C library first.

    `linux` names no C library; torch's own index names its earlier CPU wheels so.
    """
    names = [*(f"manylinux_2_{minor}" for minor in GLIBC_MINORS), *OLD_NAMES, "linux"]
    return [f"{name}_{architecture}" for name in names]


def sum_path(path: Path) -> Path:
    """Return the file beside a tar file that holds its sum."""
    return path.with_name(path.name + ".sha256")


def checksum_if_whole(path: Path) -> str:
    """Return the sha256 of a tar file in the cache; empty if it is missing or damaged."""
    actual = file_sha256(path) if path.is_file() else ""
    return actual if actual == read_saved_sum(sum_path(path)) else ""


class ActionModule(HvlabAction):
    """Download packages for a host's Python and platform into one tar file."""

    def act(self) -> dict[str, Any]:
        """Return the path of the tar file; the host is never contacted."""
        self.platforms = platforms(self.args["architecture"])
        inputs = {name: self.args[name] for name in ("requirements", "python", "deps")}
        inputs["platforms"] = self.platforms
        path = cache_dir() / "wheels" / f"{self.args['name']}-{pack_key(self.args['name'], inputs)}.tar"
        if self._task.check_mode:
            return {"changed": False, "path": str(path), "sha256": checksum_if_whole(path)}
        path.parent.mkdir(parents=True, exist_ok=True)
        # Hosts with the same packages: the first gets them, and none looks at a file that is being replaced.
        with path.with_name(f".{path.name}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            sha256 = checksum_if_whole(path) or self._fill(path)
            cache.use(sum_path(path))
        return {"changed": False, "path": str(path), "sha256": sha256}

    def _fill(self, path: Path) -> str:
        if path.exists():
            self._display.warning(f"{path} in the controller's cache is damaged: it is made again")
        with tempfile.TemporaryDirectory(prefix=".incoming-", dir=path.parent) as folder:
            self._download(Path(folder))
            beside = Path(folder, "packages.tar")
            with tarfile.open(beside, "w") as tar:
                for file in sorted(Path(folder, "packages").iterdir()):
                    tar.add(file, file.name)
            sha256 = file_sha256(beside)
            # First: a tar file without its sum is made again.
            save_sum(sum_path(path), sha256)
            beside.replace(path)
        cache.keep_limit(self._display.display)
        return sha256

    def _ways(self) -> list[tuple[str, str]]:
        """Return the attempts: each a framework's own index (or none) and requirements.

        A torch for CUDA comes last if not requested: it is many times as large.
        """
        asked = self.args["requirements"]
        index = {version: release.index for version, release in catalogue.load().torch.items()}
        plain = without_build(asked, index, architecture=self.args["architecture"])
        further = self.args["fallback_index"] if of_framework(asked) else ""
        ways = [*([("", plain)] if plain else []), *([(further, asked)] if further else [])]
        return [("", asked), *(reversed(ways) if "+cpu" in asked else ways)]

    def _download(self, folder: Path) -> None:
        """Download to ``packages``; the requirements come with them where they are not those asked for.

        With two indexes pip takes a name's newest package from either. So a framework's own index is
        asked for the framework alone; everything it requires comes from the controller's.
        """
        packages, requirements = folder / "packages", folder / "requirements.txt"
        argv = ["--dest", str(packages), "--requirement", str(requirements)]
        argv += ["--python-version", self.args["python"]]
        for platform in self.platforms:
            argv += ["--platform", platform]
        # pip would run the setup.py of a source package here.
        argv += ["--only-binary=:all:", *([] if self.args["deps"] else ["--no-deps"])]
        if self.args["folder"]:
            argv += ["--find-links", self.args["folder"]]
        problems, asked = [], self.args["requirements"]
        for index, text in self._ways():
            alone = [*_ONCE, "--index-url", index, "--no-deps"] if index else []
            problem = ""
            if text != asked and "+cpu" in asked:
                self._display.display(
                    f"{self.host}: no index has torch for the CPU alone: the package index's own is taken"
                    f"{_LARGE if self.args['architecture'] == 'x86_64' else ''}"
                )
            if alone:
                requirements.write_text(of_framework(text), encoding="utf-8")
                problem = pip_download(argv + alone)
            if not problem:
                requirements.write_text(text, encoding="utf-8")
                problem = pip_download(argv + (["--find-links", str(packages)] if alone else []))
            if not problem:
                if text != asked:
                    requirements.rename(packages / requirements.name)
                return
            problems.append(f"{index or 'the package index'}: {problem}")
        lines = "".join(f"\n  {line}" for problem in dict.fromkeys(problems) for line in problem.splitlines())
        raise AnsibleActionFail(
            f"{self.host}: the controller's pip does not get {self.args['name']} for Python "
            f"{self.args['python']}:{lines}\n"
            "What to do: give pip an index or a find-links folder that has them. Its settings are shown by\n"
            f"  {sys.executable} -m pip config list"
        )
