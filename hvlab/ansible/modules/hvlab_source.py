#!/usr/bin/python
# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""Find the source archive of a program: a list of ways, tried in order."""

from __future__ import annotations

DOCUMENTATION = """
module: hvlab_source
short_description: Find the source archive of a program by the first way that works
description:
  - Ways are C(file) (a folder on the controller), C(url) (checked against a sha256), C(pip) (the controller's
    pip) and C(distro) (the source package of the host's own distribution, which may be another version).
  - The archive is kept in the controller's cache, and the choice is remembered there.
  - A checksum that is known and does not match ends the task, it does not lead to the next way.
  - The action plugin of the same name runs on the controller; this file is the way C(distro), on the host.
options:
  name: {description: Name of the program and of its source package., type: str, required: true}
  version: {description: The requested version., type: str, required: true}
  ways:
    description: The ways to try.
    type: list
    elements: str
    choices: [file, url, pip, distro]
    required: true
  folder: {description: Folder of way C(file)., type: path}
  url: {description: Address of way C(url)., type: str}
  checksum: {description: The sha256; C(url) and C(pip) need it., type: str, default: ""}
  avoid: {description: Versions that must not be used and why., type: dict, default: {}}
  at_least: {description: Lowest version that may stand in for the requested one., type: str, default: "0"}
  below: {description: Versions that may stand in are lower than this., type: str, default: "9999"}
  platform: {description: The lab's distributions; the choice is remembered for them., type: str, default: ""}
  refresh: {description: Forget the remembered choice., type: bool, default: false}
author: [the hvlab authors]
"""

EXAMPLES = """
- name: Find the source of Open MPI
  hvlab_source:
    name: openmpi
    version: 4.1.8
    ways: [file, distro]
    folder: /srv/sources
  run_once: true
  register: source
"""

RETURN = """
version: {description: The version of the archive., type: str, returned: success}
path: {description: The archive on the controller., type: str, returned: success}
sha256: {description: Its sha256., type: str, returned: success}
way: {description: The way that worked., type: str, returned: success}
tried: {description: One line for each way that did not., type: list, elements: str, returned: success}
"""

import glob
import hashlib
import os
import re
import shutil

from ansible.module_utils.basic import AnsibleModule


def source_lines() -> dict[str, str]:
    """Return the host's own package sources as sources of source packages: ``{file name: text}``."""
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
    """Return apt options for a configuration of source packages that lies in ``folder`` alone."""
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
