#!/usr/bin/python
# Copyright the hvlab authors. SPDX-License-Identifier: Apache-2.0
"""The host's part of hvlab_repository: read files, fetch a key, write files and take them back."""

from __future__ import annotations

import base64
import glob
import os
import re
from urllib.error import HTTPError

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hvlab_managed import add_to_record, current, restore
from ansible.module_utils.hvlab_managed import record as read_record
from ansible.module_utils.hvlab_system import ask_manager
from ansible.module_utils.urls import open_url

FETCH_SECONDS = 20


def read(path: str) -> str | None:
    """Return the content of a file in base64; None if it is missing."""
    try:
        with open(path, "rb") as file:
            return base64.b64encode(file.read()).decode("ascii")
    except FileNotFoundError:
        return None


def write(path: str, content: str | None) -> None:
    """Replace a file in one step, with the rights it has; None removes it."""
    former = current(path)
    if content is None:
        restore(path, {"kind": None})
        return
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    text = base64.b64decode(content).decode("utf-8", "surrogateescape")
    rights = former if former["kind"] == "file" else {"mode": 0o644, "uid": os.geteuid(), "gid": os.getegid()}
    restore(path, dict(rights, kind="file", text=text))


def proxy(url: str, dump: str, conf: str) -> str:
    """Return the proxy for an address: of apt (``apt-config dump``), or of dnf (the text of its settings)."""
    schemes, host = (url.partition(":")[0], "http"), re.escape(re.split("[/:]+", url)[1])
    # Names of apt's settings are the same in capitals and small letters.
    for key in ("{}::Proxy::" + host, "{}::Proxy"):
        for scheme in schemes:
            match = re.search(r'(?mi)^Acquire::{} "([^"]+)";'.format(key.format(scheme)), dump)
            if match:
                return "" if match.group(1).upper() == "DIRECT" else match.group(1)
    match = re.search(r"(?m)^proxy\s*=\s*(?!_none_)(\S+)", conf)
    return match.group(1) if match else ""


def use_proxy(module: AnsibleModule, url: str) -> None:
    """Use the package manager's proxy unless the environment names one."""
    name = url.partition(":")[0] + "_proxy"
    if name in os.environ or name.upper() in os.environ:
        return
    program, conf = module.get_bin_path("apt-config"), ""
    dump = module.run_command([program, "dump"])[1] if program else ""
    for path in ("/etc/dnf/dnf.conf", "/etc/yum.conf"):
        if os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                conf += file.read()
    if address := proxy(url, dump, conf):
        os.environ[name] = address


def fetch(url: str) -> str:
    """Return the content at an address, in base64."""
    with open_url(url, timeout=FETCH_SECONDS, http_agent="hvlab") as answer:
        return base64.b64encode(answer.read(1 << 20)).decode("ascii")


def find_wrong_label(label: str, patterns: list[str]) -> str:
    """Return the lists of apt with another label; empty if all have this one."""
    for path in sorted(path for pattern in patterns for path in glob.glob(pattern)):
        with open(path, encoding="utf-8") as file:
            labels = re.findall(r"^Label: *(.*?) *$", file.read(), re.MULTILINE)
        if label not in labels:
            return "{} has the label {!r}, not {!r}".format(path, "".join(labels[:1]), label)
    return ""


def apply(module: AnsibleModule) -> dict[str, object]:
    """Write the files and refresh the source; on a refusal or an interruption, restore everything."""
    params = module.params
    before = {path: current(path) for path in params["files"]}
    refused, status, output = True, 0, ""
    try:
        for path, content in params["files"].items():
            write(path, content)
        if params["refresh"]:
            status, output = ask_manager(module, params["refresh"])
        refused = bool(status or re.search(params["trouble"], output, re.MULTILINE))
        if params["refresh"] and params["label"] and not refused:
            output = find_wrong_label(params["label"], params["read"])
            refused = bool(output)
        if params["trust"] and not refused:
            refused = True
            module.run_command(params["trust"], check_rc=True)
            refused = False
    finally:
        if refused:
            for path, state in before.items():
                restore(path, state)
    return {"changed": not refused, "refused": refused, "status": status, "output": output}


def main() -> None:
    """Do one step of the action plugin."""
    # Whatever root's umask, the lab's users can read what is installed.
    os.umask(0o022)
    words = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        argument_spec={
            "step": {"type": "str", "choices": ["look", "fetch", "apply"], "required": True},
            "paths": words,
            "others": words,
            "read": words,
            "url": {"type": "str"},
            "files": {"type": "dict", "default": {}},
            "refresh": words,
            "trouble": {"type": "str"},
            "trust": words,
            "label": {"type": "str", "default": ""},
            "record": {"type": "path"},
        },
        supports_check_mode=True,
    )
    params = module.params
    if params["step"] == "look":
        every = {*params["paths"], *(path for pattern in params["others"] for path in glob.glob(pattern))}
        module.exit_json(
            changed=False,
            files={path: read(path) for path in sorted(every)},
            refreshed=any(glob.glob(pattern) for pattern in params["read"]),
        )
    if params["step"] == "apply":
        # For hvlab_remove: an entry that is switched off comes back.
        paths, record = dict.fromkeys(params["files"], False), params["record"]
        replaced = {path: current(path) for path in paths if record and path not in read_record(record)}
        done = apply(module)
        if record and done["changed"]:
            former = {path: state for path, state in replaced.items() if state["kind"] in ("file", "link")}
            add_to_record(record + ".before", former)
            add_to_record(record, paths)
        module.exit_json(**done)
    url = params["url"]
    use_proxy(module, url)
    try:
        module.exit_json(changed=False, content=fetch(url))
    except HTTPError as error:
        problem, answered = (
            "the key {} cannot be downloaded: HTTP {} {}".format(url, error.code, error.reason),
            True,
        )
    except (OSError, ValueError) as error:
        problem, answered = "{} does not answer: {}".format(url, getattr(error, "reason", error)), False
    module.exit_json(changed=False, problem=problem, answered=answered)


if __name__ == "__main__":
    main()
