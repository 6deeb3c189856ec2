"""Packs are unchanged since they were installed, file by file."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping

from hvlab.checks.provisioned import ROOT, Question, Role, RoleHost, run

PROGRAM = (ROOT / "hvlab/ansible/module_utils/hvlab_packed.py").read_text(encoding="utf-8")
PACKS = "/opt/hvlab"
SHOWN = 5
QUICK_S, DEEP_S = 60, 900


def question(node: RoleHost, *words: str) -> Question:
    """Ask for damaged files of packs."""
    argv = ["python3", "-c", PROGRAM, PACKS, *words, *(["--deep"] if node.deep else [])]
    return run(argv, timeout=DEEP_S if node.deep else QUICK_S)


def shared_folder(node: RoleHost) -> str:
    """The folder of packs that this host shares with others; empty if it has its own."""
    return str(node.variables.get("lab_shared_packs") or "")


def asks(node: RoleHost) -> dict[str, Question]:
    return {"packs": question(node, *(["--others-read", shared_folder(node)] if shared_folder(node) else []))}


def find_left_to_others(node: RoleHost) -> set[str]:
    """The packs that this host saw, and left to another host to read."""
    with contextlib.suppress(ValueError, AttributeError):
        wrong = json.loads(node.answers.get("packs", {}).get("out", "{}"))
        return {folder for folder, files in wrong.items() if files is None}
    return set()


def reads(node: RoleHost, nodes: Mapping[str, RoleHost]) -> list[str]:
    """The shared packs that this host, the first to see them, reads for all."""
    firsts = {
        folder: next(other.name for other in nodes.values() if folder in find_left_to_others(other))
        for folder in find_left_to_others(node)
    }
    return sorted(folder for folder, first in firsts.items() if first == node.name)


def asks_after(node: RoleHost, nodes: Mapping[str, RoleHost]) -> dict[str, Question]:
    folders = reads(node, nodes)
    if not folders or "shared packs" in node.answers:
        return {}
    return {"shared packs": question(node, "--only", *folders)}


ROLE = Role("packs", asks, asks_after=asks_after)


@ROLE.check
def files_are_as_installed(node: RoleHost, nodes: dict[str, RoleHost]) -> None:
    wrong: dict[str, list[list[str]] | None] = {}
    for packs in ("packs", *(["shared packs"] if reads(node, nodes) else [])):
        wrong.update(json.loads(node.output(packs, f"look at the disk below {PACKS}, and run this again")))
    damaged = [folder for folder, files in wrong.items() if files]
    files = [f"{path} {observed}" for folder in damaged for path, observed in wrong[folder] or ()]
    more = f"; and {len(files) - SHOWN} more" if len(files) > SHOWN else ""
    again = "run `hvlab provision`, which installs it again"
    if any("unfinished build" in file for file in files):
        again += f"; `rm -r {' '.join(damaged)}` there, if the inventory asks for it no more"
    if any("times are the same" in file for file in files):
        # Only `--deep` reads everything; provisioning does not.
        again = f"check the disk and the memory (dmesg), `rm -r {' '.join(damaged)}` there, and {again}"
    node.expect(not files, "; ".join(files[:SHOWN]) + more, again)
