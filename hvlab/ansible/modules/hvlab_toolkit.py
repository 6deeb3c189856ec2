#!/usr/bin/python
# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Make one folder, shaped like an installed toolkit, out of NVIDIA's wheels."""

from __future__ import annotations

import json
import os
import re
import shutil
import tarfile
import zipfile
from typing import Any, Iterator

from ansible.module_utils.basic import AnsibleModule

PAYLOAD = re.compile(r"nvidia/[^/]+/(?P<place>(?:bin|include|lib|nvvm)/.+[^/])$")
LICENSE = re.compile(r"(?P<name>[^/]+)[.]dist-info/(?:licenses/)?(?P<file>Licen[sc]e[^/]*)$", re.IGNORECASE)
NUMBERED = re.compile(r"(?P<link>lib[^/]+?[.]so)[.][0-9.]+$")
FUNCTION = re.compile(r"\bCUDAAPI\s+(cu\w+)\s*\(|^#define\s+cu\w+\s+(cu\w+)$", re.MULTILINE)
STUB_ERROR = 34  # CUDA_ERROR_STUB_LIBRARY


def place(name: str) -> str | None:
    """Return the place of a wheel's file below the folder; None if it is not needed.

    >>> place("nvidia/cu13/lib/libcudart.so.13"), place("nvidia/cu13/lib/libnvvm.so.4")
    ('lib64/libcudart.so.13', 'nvvm/lib64/libnvvm.so.4')
    """
    payload, license_text = PAYLOAD.match(name), LICENSE.match(name)
    if payload:
        where = re.sub("^lib/", "lib64/", payload["place"])
        return re.sub("^lib64/(?=libnvvm[.])", "nvvm/lib64/", where)
    if license_text:
        return "share/doc/{}/{}".format(license_text["name"], license_text["file"])
    return None


def stub_source(header: str) -> str:
    """Return C code with every function that cuda.h declares, each returning that it is a stub."""
    names = {first or second for first, second in FUNCTION.findall(header)}
    return "".join("int {}(void) {{ return {}; }}\n".format(name, STUB_ERROR) for name in sorted(names))


class Toolkit:
    """The folder, made beside its place and put there when it is whole."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.path = module.params["path"].rstrip("/")
        self.work = self.path + ".incoming"

    def files(self) -> Iterator[str]:
        """Write each needed file of each wheel; return where, below the folder."""
        with tarfile.open(self.module.params["src"]) as tar:
            for member in tar:
                file = tar.extractfile(member)
                if file is None or not member.name.endswith(".whl"):
                    continue
                with zipfile.ZipFile(file) as wheel:
                    for name in wheel.namelist():
                        where = place(name)
                        if where and ".." not in where.split("/"):
                            self.write(where, wheel, name)
                            yield where

    def write(self, where: str, wheel: zipfile.ZipFile, name: str) -> None:
        """Write one file of a wheel."""
        path = os.path.join(self.work, where)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with wheel.open(name) as source, open(path, "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        os.chmod(path, 0o755 if re.match("(nvvm/)?bin/", where) else 0o644)

    def link(self, where: str) -> None:
        """Give a library the name that linkers look for."""
        numbered = NUMBERED.match(os.path.basename(where))
        if numbered:
            beside = os.path.join(self.work, os.path.dirname(where), numbered["link"])
            if not os.path.lexists(beside):
                os.symlink(os.path.basename(where), beside)

    def build_stubs(self) -> None:
        """Compile the stand-in for the driver's library."""
        folder = os.path.join(self.work, "lib64/stubs")
        os.makedirs(folder)
        with open(os.path.join(self.work, "include/cuda.h"), encoding="utf-8") as file:
            code = stub_source(file.read())
        argv = ["cc", "-x", "c", "-shared", "-fPIC", "-nostdlib", "-w", "-Wl,-soname,libcuda.so.1"]
        done = self.module.run_command([*argv, "-o", os.path.join(folder, "libcuda.so"), "-"], data=code)
        if done[0]:
            self.fail("cc does not make a library: {}".format(done[2].strip()[-500:]), "install a C compiler")

    def fail(self, problem: str, remedy: str) -> None:
        """End with the problem and what to do."""
        self.module.fail_json(
            msg="{}: {}.\nWhat to do: {}, and run again.".format(self.path, problem, remedy)
        )

    def make(self) -> int:
        """Make the folder; return its number of files."""
        shutil.rmtree(self.work, ignore_errors=True)
        os.makedirs(self.work, mode=0o755)
        written = list(self.files())
        if not written:
            self.fail("the wheels hold no toolkit files", "check which wheels are requested")
        for where in written:
            self.link(where)
        os.symlink("lib64", os.path.join(self.work, "lib"))
        about: dict[str, Any] = {self.module.params["name"]: {"version": self.module.params["version"]}}
        with open(os.path.join(self.work, "version.json"), "w") as file:
            json.dump(about, file, indent=4)
        if self.module.params["stubs"]:
            self.build_stubs()
        shutil.rmtree(self.path, ignore_errors=True)
        os.rename(self.work, self.path)
        return len(written)


def main() -> None:
    """Make it."""
    # Whatever root's umask, the lab's users can read what is installed.
    os.umask(0o022)
    module = AnsibleModule(
        argument_spec={
            "src": {"type": "path", "required": True},
            "path": {"type": "path", "required": True},
            "name": {"type": "str", "required": True},
            "version": {"type": "str", "required": True},
            "stubs": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=True, files=0)
    toolkit = Toolkit(module)
    try:
        files = toolkit.make()
    except (OSError, tarfile.TarError, zipfile.BadZipFile) as error:
        toolkit.fail(str(error), "check the space on its file system")
    module.exit_json(changed=True, files=files)


if __name__ == "__main__":
    main()
