#!/usr/bin/python
# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Find the source archive of a program: a list of ways, tried in order."""

from __future__ import annotations

import glob
import hashlib
import os
import re
import shutil

from ansible.module_utils.basic import AnsibleModule


def source_lines() -> dict[str, str]:
    """Return the host's package sources, changed to source packages: ``{file name: text}``."""
    texts = {}
    for path in ["/etc/apt/sources.list", *sorted(glob.glob("/etc/apt/sources.list.d/*"))]:
        if not os.path.isfile(path):
            continue
        with open(path) as file:
            text = file.read()
        if path.endswith(".sources"):
            text = re.sub(r"(?mi)^Types:.*$", "Types: deb-src", text)
        elif path.endswith(".list"):
            lines = [line for line in text.splitlines() if re.match(r"deb(-src)?\s", line)]
            text = "".join(sorted({re.sub(r"^deb(-src)?\s", "deb-src ", line) + "\n" for line in lines}))
        else:
            continue
        texts[os.path.basename(path)] = text
    return texts


def with_sources(folder: str) -> list[str]:
    """Return apt options for a configuration of source packages inside ``folder`` only."""
    parts, lists = os.path.join(folder, "parts"), os.path.join(folder, "lists")
    os.mkdir(parts)
    os.makedirs(os.path.join(lists, "partial"))
    for name, text in source_lines().items():
        with open(os.path.join(parts, name), "w") as file:
            file.write(text)
    options = {
        "Dir::Etc::sourcelist": "/dev/null",
        "Dir::Etc::sourceparts": parts,
        "Dir::State::lists": lists,
    }
    return [part for item in options.items() for part in ("-o", "=".join(item))]


def download(module: AnsibleModule, package: str, folder: str) -> None:
    """Download a source package into ``folder`` with apt, which checks the signatures."""
    source = ["apt-get", "-q", "source", "--download-only", package]
    status, _, _ = module.run_command(source, cwd=folder)
    if status == 0:
        return
    options = with_sources(folder)
    for argv in (["apt-get", "-q", *options, "update"], [source[0], *options, *source[1:]]):
        status, out, err = module.run_command(argv, cwd=folder)
        if status:
            raise ValueError(
                "{}: {}".format(" ".join(argv[:1] + argv[-1:]), (err or out).strip().splitlines()[-1])
            )


def describe(folder: str) -> dict[str, str]:
    """Return file name, upstream version and sha256 of the archive that the package names."""
    descriptions = sorted(glob.glob(os.path.join(folder, "*.dsc")))
    archives = sorted(glob.glob(os.path.join(folder, "*.orig.tar.*[!c]")))
    if not descriptions or not archives:
        raise ValueError("the source package has no .dsc and .orig.tar file")
    with open(descriptions[0]) as file:
        match = re.search(r"(?m)^Version: (?:\d+:)?(\d+(?:\.\d+)+)", file.read())
    with open(archives[0], "rb") as archive:
        digest = hashlib.sha256(archive.read()).hexdigest()
    name = os.path.basename(archives[0])
    return {"name": name, "version": match.group(1) if match else "0", "sha256": digest}


def main() -> None:
    """Download the source package, or forget what was downloaded."""
    module = AnsibleModule(
        argument_spec={
            "package": {"type": "str", "default": ""},
            "reader": {"type": "str", "default": "root"},
            "archive": {"type": "path", "required": True},
            "forget": {"type": "bool", "default": False},
        }
    )
    archive, folder = module.params["archive"], os.path.dirname(module.params["archive"])
    if module.params["forget"]:
        shutil.rmtree(folder)
        module.exit_json(changed=False)
    if not shutil.which("apt-get"):
        module.exit_json(changed=False, problem="the host has no apt-get")
    os.mkdir(folder, 0o700)
    try:
        download(module, module.params["package"], folder)
        result = describe(folder)
        os.rename(os.path.join(folder, result["name"]), archive)
        # The archive first: the folder's owner can replace it by a link.
        for path in (archive, folder):
            shutil.chown(path, module.params["reader"])
    except (OSError, ValueError) as error:
        shutil.rmtree(folder)
        module.exit_json(changed=False, problem=str(error))
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
