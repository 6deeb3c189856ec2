"""What was unpacked or built is still what was installed, file by file."""

from __future__ import annotations

import json
from pathlib import Path

from hvlab.ansible.module_utils import hvlab_packed
from tests.node.lab import Node, Question, run

PROGRAM = Path(hvlab_packed.__file__).read_text(encoding="utf-8")
ROOT = "/opt/hvlab"
SHOWN = 5
QUICK_S, DEEP_S = 60, 900


def asks(node: Node) -> dict[str, Question]:
    argv = ["python3", "-c", PROGRAM, ROOT, *(["--deep"] if node.deep else [])]
    return {"packs": run(argv, timeout=DEEP_S if node.deep else QUICK_S)}


def test_files_are_as_installed(node: Node) -> None:
    wrong = json.loads(node.output("packs", f"look at the disk below {ROOT}, and run this again"))
    damaged = [folder for folder, files in wrong.items() if files]
    files = [f"{path} {seen}" for folder in damaged for path, seen in wrong[folder]]
    more = f"; and {len(files) - SHOWN} more" if len(files) > SHOWN else ""
    again = "run `hvlab provision`, which installs it again"
    if any("times are the same" in file for file in files):
        # Only a look that reads everything sees that, and provisioning does not.
        again = f"check the disk and the memory (dmesg), `rm -r {' '.join(damaged)}` there, and {again}"
    node.expect(not files, "; ".join(files[:SHOWN]) + more, again)
