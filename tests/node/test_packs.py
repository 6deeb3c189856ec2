"""What was unpacked or built is still what was installed, file by file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from hvlab.ansible.module_utils import hvlab_packed
from tests.node.lab import Node, Question, run

PROGRAM = Path(hvlab_packed.__file__).read_text(encoding="utf-8")
ROOT = "/opt/hvlab"
SHOWN = 5
QUICK_S, DEEP_S = 60, 900


def question(node: Node, *words: str) -> Question:
    """Ask what is wrong in packs."""
    argv = ["python3", "-c", PROGRAM, ROOT, *words, *(["--deep"] if node.deep else [])]
    return run(argv, timeout=DEEP_S if node.deep else QUICK_S)


def shared(node: Node) -> str:
    """The folder of packs that this host shares with others; empty where it has its own."""
    return str(node.variables.get("lab_shared_packs") or "")


def asks(node: Node) -> dict[str, Question]:
    return {"packs": question(node, *(["--others-read", shared(node)] if shared(node) else []))}


def reads_for_all(node: Node, nodes: Mapping[str, Node]) -> bool:
    """Whether this is the host that reads the packs it shares with others: the first that answers."""
    sharing = (name for name, other in nodes.items() if not other.silence and shared(other) == shared(node))
    return bool(shared(node)) and node.name == next(sharing, "")


def asks_after(node: Node, nodes: Mapping[str, Node]) -> dict[str, Question]:
    if not reads_for_all(node, nodes) or "shared packs" in node.answers:
        return {}
    return {"shared packs": question(node, "--shared", shared(node))}


def test_files_are_as_installed(node: Node, nodes: dict[str, Node]) -> None:
    wrong = {}
    for packs in ("packs", *(["shared packs"] if reads_for_all(node, nodes) else [])):
        wrong.update(json.loads(node.output(packs, f"look at the disk below {ROOT}, and run this again")))
    damaged = [folder for folder, files in wrong.items() if files]
    files = [f"{path} {seen}" for folder in damaged for path, seen in wrong[folder]]
    more = f"; and {len(files) - SHOWN} more" if len(files) > SHOWN else ""
    again = "run `hvlab provision`, which installs it again"
    if any("times are the same" in file for file in files):
        # Only a look that reads everything sees that, and provisioning does not.
        again = f"check the disk and the memory (dmesg), `rm -r {' '.join(damaged)}` there, and {again}"
    node.expect(not files, "; ".join(files[:SHOWN]) + more, again)
