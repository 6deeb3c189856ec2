# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Fill the controller's cache with a host's Python packages, by the controller's own pip configuration."""

from __future__ import annotations

import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from hvlab import process
from hvlab.ansible.action.hvlab_pack import file_sha256, pack_key
from hvlab.paths import cache_dir

PIP_SECONDS = 1800
# pip takes platforms as they stand: a wheel for an older C library has another name.
GLIBC_MINORS = range(31, 4, -1)
OLD_NAMES = ("manylinux2014", "manylinux2010", "manylinux1")


def pip_download(arguments: list[str]) -> str:
    """Run pip download on the controller; return its error text, empty when all went well."""
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", *arguments]
    try:
        done = process.run(argv, seconds=PIP_SECONDS)
    except process.TimeLimitError as error:
        return str(error)
    if done.returncode == 0:
        return ""
    text = done.stderr.strip()
    return text[text.rfind("ERROR: ") :] if "ERROR: " in text else text[-1000:] or f"status {done.returncode}"


def platforms(architecture: str) -> list[str]:
    """Return the names that wheels for Linux on this architecture may have, the newest C library first."""
    names = [*(f"manylinux_2_{minor}" for minor in GLIBC_MINORS), *OLD_NAMES]
    return [f"{name}_{architecture}" for name in names]


class ActionModule(ActionBase):  # type: ignore[misc]
    """Download packages for a host's Python and platform into one tar file."""

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        """Run the task; it never touches the host."""
        super().run(tmp, task_vars)
        _, self.args = self.validate_argument_spec(
            argument_spec={
                "name": {"required": True},
                "requirements": {"required": True},
                "python": {"required": True},
                "architecture": {"required": True},
                "deps": {"type": "bool", "default": True},
                "folder": {"type": "path"},
                "fallback_index": {"default": ""},
            }
        )
        self.host = task_vars["inventory_hostname"]
        self.platforms = platforms(self.args["architecture"])
        inputs = {name: self.args[name] for name in ("requirements", "python", "deps")}
        inputs["platforms"] = self.platforms
        path = cache_dir() / "wheels" / f"{self.args['name']}-{pack_key(self.args['name'], inputs)}.tar"
        if not path.is_file() and not self._task.check_mode:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".incoming-", dir=path.parent) as folder:
                self._download(Path(folder))
                beside = Path(folder, "packages.tar")
                with tarfile.open(beside, "w") as tar:
                    for file in sorted(Path(folder, "packages").iterdir()):
                        tar.add(file, file.name)
                beside.replace(path)
        return {"changed": False, "path": str(path), "sha256": file_sha256(path) if path.is_file() else ""}

    def _download(self, folder: Path) -> None:
        requirements = folder / "requirements.txt"
        requirements.write_text(self.args["requirements"], encoding="utf-8")
        argv = ["--dest", str(folder / "packages"), "--requirement", str(requirements)]
        argv += ["--python-version", self.args["python"]]
        for platform in self.platforms:
            argv += ["--platform", platform]
        argv += ["--only-binary=:all:"] if self.args["deps"] else ["--no-deps"]
        if self.args["folder"]:
            argv += ["--find-links", self.args["folder"]]
        problems = []
        for index in ["", self.args["fallback_index"]]:
            extra = ["--extra-index-url", index] if index else []
            problem = pip_download(argv + extra)
            if not problem:
                return
            problems.append(f"pip download {' '.join(extra)}: {problem}")
        lines = "".join(f"\n  {line}" for line in problems)
        raise AnsibleActionFail(
            f"{self.host}: the controller's pip does not get {self.args['name']} for Python "
            f"{self.args['python']}:{lines}\n"
            "What to do: give pip an index or a find-links folder that has them. Its settings are shown by\n"
            f"  {sys.executable} -m pip config list"
        )
