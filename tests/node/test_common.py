"""Names resolve to the lab's addresses, and local facts can be read."""

from __future__ import annotations

import json

from tests.node.lab import FACTS, Node, Question, applied_roles, run


def asks(node: Node) -> dict[str, Question]:
    return {f"name {peer}": run(["getent", "ahostsv4", peer]) for peer in node.peers}


def test_every_name_resolves_to_the_lab_address(node: Node) -> None:
    wrong = []
    for peer, address in node.peers.items():
        addresses = {line.split()[0] for line in node[f"name {peer}"]["out"].splitlines()}
        if addresses != {address}:
            wrong.append(f"{peer} resolves to {', '.join(sorted(addresses)) or 'nothing'}, not {address}")
    node.expect(not wrong, "; ".join(wrong), "run role common, which writes /etc/hosts")


def test_facts_are_json(node: Node) -> None:
    for path, text in node["facts"].items():
        try:
            json.loads(text)
        except ValueError as error:
            node.expect(
                False, f"{path} is not JSON: {error}", "remove it, and run the role it is named after"
            )


def test_facts_belong_to_roles(node: Node) -> None:
    known = {f"{FACTS}/hvlab_{role}.fact" for role in applied_roles()}
    unknown = sorted(path for path in node["facts"] if "/hvlab_" in path and path not in known)
    node.expect(not unknown, f"unknown fact files, which no role writes: {', '.join(unknown)}", "remove them")
